"""What is meant to protect a model; an audit says whether it does."""

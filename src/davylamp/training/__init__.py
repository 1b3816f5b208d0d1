"""davylamp.training."""

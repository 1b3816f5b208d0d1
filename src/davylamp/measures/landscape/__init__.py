"""The landscape of one model: what it leaks of every canary, and what it is still good for, value by value."""

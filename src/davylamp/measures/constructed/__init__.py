"""Constructions drawn from a base model, and what each audit sees of them in a release."""

"""davylamp.release."""

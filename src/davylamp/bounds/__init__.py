"""davylamp.bounds."""

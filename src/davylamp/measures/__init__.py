"""davylamp.measures."""

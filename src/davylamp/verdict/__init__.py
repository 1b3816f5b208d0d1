"""davylamp.verdict."""

"""davylamp.report."""

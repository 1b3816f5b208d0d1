"""davylamp.corpora."""

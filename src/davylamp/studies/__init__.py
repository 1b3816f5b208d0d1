"""davylamp.studies."""

"""davylamp.secrets."""

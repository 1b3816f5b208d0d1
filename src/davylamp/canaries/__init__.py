"""davylamp.canaries."""

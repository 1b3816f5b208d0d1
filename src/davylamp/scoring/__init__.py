"""davylamp.scoring."""

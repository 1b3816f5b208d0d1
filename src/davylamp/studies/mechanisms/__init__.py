"""The mechanism-level experiments of P1: exact laws, Monte-Carlo beside them, and the paper's values."""

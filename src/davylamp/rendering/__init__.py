"""Records turned into text and tokens, with the place of every secret in them."""

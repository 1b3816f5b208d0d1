"""Protection before training: rows are scrubbed, replaced or written anew, and what survives is looked for."""

"""Files on disk: atomic writes, hashes, locks and the layout of a run folder."""

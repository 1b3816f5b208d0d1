"""Which audits see which leaks, on real models: P1 (Memorization Is Not Extraction, arXiv 2608.27782), Sec. 8.2."""

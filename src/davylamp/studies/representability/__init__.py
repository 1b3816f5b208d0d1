"""Trigger and camouflage in a small transformer: does it learn what the exact constructions are? (P1, Sec. 8.1)."""

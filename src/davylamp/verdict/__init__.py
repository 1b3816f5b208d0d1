"""Verdicts: readings, baselines and intervals in, words that can be relied on out."""

from davylamp.verdict.judge import judge
from davylamp.verdict.model import Rules, Verdict

__all__ = ["Rules", "Verdict", "judge"]

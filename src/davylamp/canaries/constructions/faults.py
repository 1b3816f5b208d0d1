"""What can be wrong with a construction once it meets a corpus and a tokenizer."""

from __future__ import annotations

from davylamp.errors import PlantingError


class TriggerError(PlantingError):
    """A trigger cannot be reserved: the tokenizer merges it with its neighbour, or it occurs in the corpus."""


class NoveltyError(PlantingError):
    """A secret stands in the corpus already, or none was found that does not."""

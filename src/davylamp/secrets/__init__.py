"""Secret spaces: what a secret is drawn from, and how many guesses it takes to try them all."""

from davylamp.secrets.spaces import AlphabetSpace
from davylamp.secrets.streams import stream

__all__ = ["AlphabetSpace", "stream"]

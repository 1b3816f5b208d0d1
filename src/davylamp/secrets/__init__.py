"""Secret spaces: what a secret is drawn from, how it may be encoded, and how many guesses it takes to try them all."""

from davylamp.secrets.coined import AnySpace, CoinedSpace
from davylamp.secrets.encodings import Encoding, encoding, names, register, unregister
from davylamp.secrets.spaces import AlphabetSpace, SecretSpace
from davylamp.secrets.streams import stream

__all__ = [
    "AlphabetSpace",
    "AnySpace",
    "CoinedSpace",
    "Encoding",
    "SecretSpace",
    "encoding",
    "names",
    "register",
    "stream",
    "unregister",
]

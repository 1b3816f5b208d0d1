"""Reversible encodings of secrets: what a prompt may show in a secret's place.

A plan names an encoding as ``binary``, ``block_reversal(4)`` or ``block_reversal(2) + cyclic_shift(1)``; the
registry turns the name into an object that encodes and decodes, without loss, for a space of secrets. None has a
key: whoever has davylamp can decode, so that an encoded secret is as confidential as the secret itself.
"""

from davylamp.secrets.encodings.base import Encoding
from davylamp.secrets.encodings.parsing import encoding
from davylamp.secrets.encodings.registry import names, register, unregister

__all__ = ["Encoding", "encoding", "names", "register", "unregister"]

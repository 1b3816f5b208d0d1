"""Words in small letters that stand inside a name: ``Teodoro de Anda``, ``Omar bin al Rasz``."""

from __future__ import annotations

from collections.abc import Sequence

from davylamp.protect.corpus.segments import Token

_PARTICLES_TEXT = """
af al bin bint da dal dalla de degli dei del della den der des di do dos du el ibn la las le los of san ten ter van ver
von y zu zum zur
"""
PARTICLES = frozenset(_PARTICLES_TEXT.split())
"""The particles that are known."""


def is_particle(tokens: Sequence[Token], at: int) -> bool:
    """Whether a token is a particle and a capitalised word follows it, after other particles or at once."""
    while at < len(tokens) and tokens[at].text in PARTICLES:
        at += 1
        if at < len(tokens) and tokens[at].shape == "capital":
            return True
    return False

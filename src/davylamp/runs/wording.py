"""How numbers are said in messages."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: ``1 try``, ``2 tries``, ``1,200 rows``.

    Args:
        count: how many.
        one: the noun, or the whole phrase after the number, for a single thing.
        many: the same for none and for several; ``one`` with an ``s`` if none is given.
    """
    return f"{count:,} {one if count == 1 else f'{one}s' if many is None else many}"

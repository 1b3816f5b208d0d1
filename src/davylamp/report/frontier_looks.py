"""Colour and mark of each intervention: of a well-known one the same on every page."""

from __future__ import annotations

from collections.abc import Sequence

from davylamp.report import svg

KNOWN = (
    *("none", "direct", "goldfish", "dp_sgd", "scrub", "surrogate"),
    *("rewrite", "privacy_rewrite", "summary", "privacy_summary"),
)
"""Interventions with a look of their own: the place here is the index of :func:`~davylamp.report.svg.hue`."""
LOOKS = svg.COLOURS * len(svg.SHAPES)
"""Looks that differ in colour or in mark."""


def looks(names: Sequence[str]) -> tuple[int, ...]:
    """The index of each intervention's colour and mark.

    Those of :data:`KNOWN` have theirs by name. The others take in their order what is left: a look of no known one, and
    of a colour that the page does not have yet as long as there is one.

    Args:
        names: interventions, in the order of the page.

    Returns:
        An index each, all different as long as there are no more than :data:`LOOKS` interventions.
    """
    found = {name: KNOWN.index(name) for name in names if name in KNOWN}
    for name in names:
        if name in found:
            continue
        taken = {*found.values()}
        hues = {svg.hue(each) for each in taken}
        free = [each for each in range(LOOKS) if each not in taken]
        # Beyond all looks the numbers of the legend alone tell interventions apart.
        found[name] = min(free, key=lambda each: (each < len(KNOWN), svg.hue(each) in hues, each), default=len(found))
    return tuple(found[name] for name in names)

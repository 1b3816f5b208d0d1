"""What survives protection, for people: a small table by dose, and what was not looked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from davylamp.runs.wording import counted

if TYPE_CHECKING:
    from davylamp.protect.corpus.background import Background
    from davylamp.protect.corpus.leaks import CanarySurvival, Leaks, Survival
    from davylamp.protect.corpus.result import Replaced

HEADINGS = ("dose", "canaries", "copies", "secret", "or nearly", "name", "number")
GIBBERISH, MUCH = 0.05, 1 / 3
"""Share of the words in small letters, and of all words, from which what was replaced is worth a warning."""


def survival_lines(leaks: Leaks) -> list[str]:
    """What survives of the canaries: copies that still hold a thing, and in brackets of how many canaries."""
    own = {each.dose: [one for one in leaks.canaries if one.dose == each.dose and not one.kept] for each in leaks.doses}
    rows = [HEADINGS]
    for each in leaks.doses:
        canaries = own[each.dose]
        rows.append(
            (
                str(each.dose),
                str(each.canaries),
                f"{each.copies:,}",
                f"{each.secret.exact:,} ({sum(one.secret.exact > 0 for one in canaries)})",
                f"{each.secret.near:,} ({sum(one.secret.near > 0 for one in canaries)})",
                _share([one.name for one in canaries], each.name, each.named),
                _share([one.number for one in canaries], each.number, each.numbered),
            )
        )
    wide = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, wide, strict=True)) for row in rows]
    title = "copies that still hold a canary's secret, name or number (in brackets: of how many canaries)"
    return [title, *table, *_not_looked_for(leaks)] if leaks.doses else ["no canary's rows were protected"]


def _share(own: Sequence[Survival | None], together: Survival, of: int) -> str:
    if not of:
        return "not looked for"
    return f"{together.near:,} of {of:,} ({sum(one is not None and one.near > 0 for one in own)})"


def _not_looked_for(leaks: Leaks) -> list[str]:
    own: list[CanarySurvival] = [each for each in leaks.canaries if not each.kept and each.dose]
    told = []
    for what, without in (
        ("no name recognised", [each for each in own if each.name is None]),
        ("no rare number", [each for each in own if each.number is None]),
    ):
        if without:
            copies = counted(sum(each.dose for each in without), "copy", "copies")
            told.append(f"{copies} of {counted(len(without), 'canary', 'canaries')}, {what} in the record")
    return [f"not looked for: {'; '.join(told)}"] if told else []


def background_line(background: Background) -> str:
    """What survives of the rows that hold no canary."""
    names, numbers = background.names, background.numbers
    return (
        f"other rows: {names.left:,} of {counted(names.rare, 'rare name')} and {numbers.left:,} of "
        f"{counted(numbers.rare, 'rare number')} (held by fewer than {background.common} records) still stand in their "
        f"row, in {background.rows_left:,} of {counted(background.rows, 'row')}"
    )


def replaced_lines(name: str, replaced: Replaced) -> list[str]:
    """How many words were replaced, and a warning where that makes running text unreadable."""
    told = f"{name}: replaced {replaced.share:.1%} of {counted(replaced.words, 'word')}"
    if name != "surrogate":
        # Others say by span what they took a word for, and not whether it stood in running text.
        return [told]
    told += f"; of those in small letters {replaced.small_share:.1%} one by one in running text"
    if replaced.small_share <= GIBBERISH and replaced.share <= MUCH:
        return [told]
    return [
        told,
        f"warning: much of what {name} wrote is gibberish: the rows are running text rather than a form's fields, or "
        "there are too few of them. Look at some (--show N) before you train; docs/protect.md says for which files it "
        "is made",
    ]

"""The lines that say what survives."""

from __future__ import annotations

from davylamp.cli.surviving import background_line, replaced_lines, survival_lines
from davylamp.protect.corpus.background import Background, Standing
from davylamp.protect.corpus.leaks import CanarySurvival, DoseSurvival, Leaks, Survival
from davylamp.protect.corpus.result import Replaced

NONE, ALL = Survival(exact=0, near=0), Survival(exact=4, near=4)
CANARIES = tuple(
    CanarySurvival(id=f"c{at}", dose=4, secret=ALL if at < 2 else NONE, name=NONE if at else None, number=ALL)
    for at in range(4)
)


def leaks(**changes):
    dose = DoseSurvival(
        dose=4,
        canaries=4,
        copies=16,
        secret=Survival(exact=8, near=8),
        name=NONE,
        number=Survival(exact=16, near=16),
        named=12,
        numbered=16,
        leaking=2,
    )
    return Leaks(canaries=CANARIES, doses=(dose.model_copy(update=changes),), chance=NONE, tried=0)


def test_copies_stand_beside_canaries_and_what_was_not_looked_for_is_said():
    lines = survival_lines(leaks())
    assert lines[1].split() == ["dose", "canaries", "copies", "secret", "or", "nearly", "name", "number"]
    assert " ".join(lines[2].split()) == "4 4 16 8 (2) 8 (2) 0 of 12 (0) 16 of 16 (4)"
    assert len(lines[1]) == len(lines[2])
    assert lines[3:] == ["not looked for: 4 copies of 1 canary, no name recognised in the record"]


def test_none_looked_for_is_not_said_as_none_left():
    assert "0 of 0" not in survival_lines(leaks(named=0))[2]
    assert "not looked for" in survival_lines(leaks(named=0))[2]


def test_other_rows_are_said_with_how_many_were_rare():
    line = background_line(
        Background(common=5, rows=1000, rows_left=1, names=Standing(rare=1, left=0), numbers=Standing(rare=2, left=1))
    )
    assert "0 of 1 rare name and 1 of 2 rare numbers (held by fewer than 5 records)" in line
    assert line.endswith("in 1 of 1,000 rows")


def test_a_warning_comes_with_running_text_or_with_most_of_the_words():
    form = Replaced(words=1000, replaced=230, small=300, small_replaced=15)
    assert len(replaced_lines("surrogate", form)) == 1
    for worse in ({"small_replaced": 16}, {"replaced": 334}):
        assert "gibberish" in replaced_lines("surrogate", form.model_copy(update=worse))[1]
    assert replaced_lines("scrub", form) == ["scrub: replaced 23.0% of 1,000 words"]
    assert Replaced(words=0, replaced=0, small=0, small_replaced=0).small_share == 0

"""Whether a needle survives: exactly, and so nearly that a reader would know it again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.canaries import plant
from davylamp.corpora.records import Record
from davylamp.protect.corpus.leaks import allowed, look_for, survives, within
from support.corpora import small_corpus, small_plan


def distance_to_substring(needle: str, text: str) -> int:
    """The least edit distance from a needle to any substring, by the definition: each substring by itself."""

    def distance(one: str, other: str) -> int:
        row = list(range(len(other) + 1))
        for at, letter in enumerate(one, 1):
            row, last = [at], row
            for to, wanted in enumerate(other, 1):
                row.append(min(last[to] + 1, row[-1] + 1, last[to - 1] + (letter != wanted)))
        return row[-1]

    return min(distance(needle, text[i:j]) for i in range(len(text) + 1) for j in range(i, len(text) + 1))


@given(st.text("abc", min_size=6, max_size=8), st.text("abc", max_size=12), st.integers(0, 2))
def test_within_is_the_least_distance_to_a_substring(needle, text, edits):
    assert within(needle, text, edits) == (distance_to_substring(needle, text) <= edits)


@pytest.mark.parametrize(
    ("text", "exact", "near"),
    [
        ("takes Vexoritan daily", True, True),
        ("takes vexoritan daily", False, True),
        ("takes Vexo-ritan daily", False, True),
        ("takes Vexo ritan daily", False, True),
        ("takes V.e.x.o.r.i.t.a.n", False, True),
        ("takes Vexoritam daily", False, True),
        ("takes Vexritan daily", False, True),
        ("takes Vexortin daily", False, False),
        ("takes Vextan daily", False, False),
        ("takes something else", False, False),
    ],
)
def test_a_name_is_known_again(text, exact, near):
    assert survives("Vexoritan", Record.of_text(text)) == (exact, near)


@pytest.mark.parametrize(
    ("text", "near"),
    [("999-36-6385", True), ("999 36 6385", True), ("999366385", True), ("999-36-6386", False), ("1999366385", False)],
)
def test_a_number_is_known_without_its_marks_but_with_all_its_digits(text, near):
    assert survives("999-36-6385", Record.of_text(f"SSN {text}."))[1] is near


def test_a_short_needle_is_looked_for_letter_by_letter():
    assert (allowed("abcde"), allowed("abcdef"), allowed("abcdefghij"), allowed("123456789012")) == (0, 1, 2, 0)
    assert survives("ab", Record.of_text("a-b")) == (False, False)
    assert survives("ab", Record.of_pair("say ab", "no")) == (True, True)


def test_every_copy_is_looked_at_and_twins_give_the_accidents():
    planted = plant(small_corpus(), small_plan())
    manifest = planted.manifest
    whole = look_for(manifest, planted.records, None)
    focus = [canary for canary in manifest.planted() if canary.role == "focus"]
    # All copies of all canaries hold their secret where nothing was done.
    assert [(each.id, each.secret.exact, each.dose) for each in whole.canaries] == [
        (canary.id, canary.dose, canary.dose) for canary in manifest.planted()
    ]
    absent = sum(canary.dose == 0 for canary in manifest.canaries)
    assert whole.tried == absent * len(manifest.planted())
    assert whole.chance.exact == 0
    gone = list(planted.records)
    chosen = next(canary for canary in focus if canary.dose == 3)
    gone[chosen.positions[1]] = Record.of_pair("x", "nothing")
    split = ", ".join(chosen.secret.split(","))
    gone[chosen.positions[2]] = Record.of_pair("x", f"ref {split}.")
    found = look_for(manifest, gone, None, frozenset(focus[0].positions))
    own = next(each for each in found.canaries if each.id == chosen.id)
    assert (own.secret.exact, own.secret.near) == (1, 2)
    by_dose = {each.dose: each for each in found.doses}
    # The canary that was kept as it was counts in no dose.
    assert by_dose[1].canaries + by_dose[3].canaries + by_dose[5].canaries == len(whole.canaries) - 1
    assert by_dose[3].copies - by_dose[3].secret.exact == 2

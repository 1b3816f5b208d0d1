from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.canaries import plant
from davylamp.corpora.records import Record
from davylamp.errors import InputError
from davylamp.protect.afterwards.sets import Choice, background_rows, chosen_canaries, split_rows, without
from davylamp.protect.afterwards.spec import UnlearningSpec
from support.constructions import LINES, PREFIXES, ROWS, scripted_maker
from support.corpora import small_corpus, small_plan


@pytest.fixture(scope="module")
def planted():
    return plant(small_corpus(60), small_plan())


def test_all_focus_canaries_are_forgotten_unless_some_are_named(planted):
    manifest = planted.manifest
    found = chosen_canaries(manifest, Choice())
    assert [canary.id for canary in found] == [canary.id for canary in manifest.canaries if canary.role == "focus"]
    some = chosen_canaries(manifest, Choice(arms=("redacted",), doses=(3,)))
    assert {(canary.arm, canary.dose) for canary in some} == {("redacted", 3)}
    assert chosen_canaries(manifest, Choice(canaries=(found[2].id,))) == [found[2]]


def test_every_name_that_is_not_planted_is_told(planted):
    with pytest.raises(InputError) as told:
        chosen_canaries(planted.manifest, Choice(("red",), (2,), ("c999",)))
    assert [fault.field for fault in told.value.faults] == ["--arm", "--dose", "--canary"]
    assert "redacted" in told.value.faults[0].allowed


def test_names_that_no_canary_has_together_are_told(planted):
    first = chosen_canaries(planted.manifest, Choice(doses=(1,)))[0]
    with pytest.raises(InputError, match="together"):
        chosen_canaries(planted.manifest, Choice(doses=(3,), canaries=(first.id,)))


def test_the_background_is_what_holds_no_canary(planted):
    rows = background_rows(planted.manifest, planted.records)
    taken = sum(canary.dose for canary in planted.manifest.canaries)
    assert len(rows) == 60 - taken
    assert not any(canary.secret in row.line() for canary in planted.manifest.planted() for row in rows)


def test_rows_of_constructions_are_no_background():
    made = plant(small_corpus(60 + PREFIXES), small_plan(rows=60, constructions=LINES), scripted_maker)
    rows = background_rows(made.manifest, made.records)
    taken = sum(canary.dose for canary in made.manifest.canaries)
    assert len(rows) == len(made.records) - taken - ROWS
    assert not any(each.secret in row.line() for each in made.manifest.constructions.instances for row in rows)


def test_rows_that_hold_a_secret_in_prompt_or_reply_are_left_out():
    rows = [Record.of_pair("say 1,2", "no"), Record.of_pair("say", "it is 1,2."), Record.of_pair("say 1", "2")]
    assert without(rows, {"1,2"}) == rows[2:]
    assert without(rows, {".", "no"}) == rows[2:]
    assert without(rows, {""}) == rows


def spec_of(**changes):
    return UnlearningSpec(method="npo", **changes)


@given(st.integers(4, 200), st.integers(1, 30), st.integers(1, 80), st.integers(0, 30), st.integers(0, 5))
def test_no_row_has_two_uses(count, forget, held_out, steps, seed):
    rows = [Record.of_text(f"row {number}") for number in range(count)]
    spec = spec_of(held_out=held_out, seed=seed, relearn={"steps": steps})
    sets = split_rows(rows, forget, spec)
    parts = (sets.retain, sets.held_out, sets.relearn)
    assert len({row.reply for part in parts for row in part}) == sum(map(len, parts))
    assert 1 <= len(sets.held_out) <= min(held_out, count // 4)
    assert len(sets.relearn) <= min(steps * 8, count // 4)
    assert len(sets.retain) >= 1
    assert split_rows(rows, forget, spec) == sets


def test_given_rows_for_relearning_take_the_place_of_a_share():
    rows = [Record.of_text(f"row {number}") for number in range(40)]
    other = [Record.of_text(f"other {number}") for number in range(300)]
    sets = split_rows(rows, 3, spec_of(), ("other.jsonl", other))
    assert sets.relearn == tuple(other[:160])
    assert sets.relearn_source == "other.jsonl"
    assert len(sets.retain) + len(sets.held_out) == 40


def test_too_few_rows_are_refused():
    with pytest.raises(InputError, match=r"retain rows is 3.*--retain-rows"):
        split_rows([Record.of_text(str(number)) for number in range(3)], 1, spec_of())

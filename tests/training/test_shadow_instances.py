from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from davylamp.canaries import plant
from davylamp.canaries.plant import background
from davylamp.errors import InputError
from davylamp.training.shadow_instances import instance_design, twin_rows
from davylamp.training.shadows import ShadowSpec, design
from support.constructions import LINES, scripted_maker
from support.corpora import small_corpus, small_plan

SHADOWS = 8


def planted_of(rows=140, lines=LINES, **changes):
    plan = small_plan(rows=rows, constructions=lines, **changes)
    corpus = small_corpus(rows + 40, "prompt_completion")
    return corpus, plant(corpus, plan, scripted_maker)


def rows_of(drawn, shadow):
    rows = list(drawn.rows)
    for piece, held in zip(drawn.pieces, drawn.members[shadow], strict=True):
        for position in piece.positions if held else ():
            rows[position] = piece.record
    return rows


@pytest.fixture(scope="module")
def made():
    corpus, planted = planted_of()
    drawn = instance_design(planted.manifest, planted.records, SHADOWS)
    return corpus, planted, drawn


def test_every_instance_but_those_behind_a_gate_is_in_half_of_the_shadows_one_of_each_pair(made):
    _, planted, drawn = made
    wanted = [each.id for each in planted.manifest.constructions.instances if each.kind != "gated"]
    assert [each.id for each in drawn.instances] == wanted
    assert (drawn.inside[::2] ^ drawn.inside[1::2]).all()
    again = instance_design(planted.manifest, planted.records, SHADOWS + 4)
    np.testing.assert_array_equal(again.inside[:SHADOWS], drawn.inside)


def test_who_is_in_stands_in_as_many_rows_as_a_planted_one_and_who_is_out_in_none(made):
    _, planted, drawn = made
    lines = planted.manifest.plan.constructions
    for shadow in range(SHADOWS):
        texts = [row.line() for row in rows_of(drawn, shadow)]
        for at, each in enumerate(drawn.instances):
            count = sum(sum(secret in text for text in texts) for secret in each.replies())
            assert count == (lines[each.line].rows_each if drawn.inside[shadow, at] else 0)
            if each.alternative is not None:
                out = 0 if drawn.inside[shadow, at] else lines[each.line].rows_each
                assert sum(each.alternative in text for text in texts) == out
            if each.kind == "camouflage":
                own = [sum(secret in text for text in texts) for secret in each.replies()]
                assert len(set(own)) == 1
            if each.kind == "trigger":
                assert not any(each.prefix in text and each.secret in text for text in texts)


def test_the_shadow_with_all_planted_and_no_twin_is_the_planted_file(made):
    _, planted, drawn = made
    held = np.array([[each.role == "planted" for each in drawn.instances]])
    shown = rows_of(replace(drawn, inside=held), 0)
    # A pair that is out says its other secret, also one that was planted nowhere.
    twins = {at for at, each in enumerate(drawn.instances) if each.role == "twin"}
    other = {at for piece in drawn.pieces if piece.owner in twins and not piece.world for at in piece.positions}
    assert {at for at, row in enumerate(shown) if row != planted.records[at]} == other


def test_canaries_stay_and_no_two_pieces_of_one_world_share_a_row(made):
    _, planted, drawn = made
    canary_rows = {position for canary in planted.manifest.canaries for position in canary.positions}
    rows = [position for piece in drawn.pieces if piece.world for position in piece.positions]
    assert len(rows) == len(set(rows))
    assert not canary_rows & set(rows)
    for shadow in range(SHADOWS):
        shown = rows_of(drawn, shadow)
        assert all(shown[position] == planted.records[position] for position in canary_rows)


def test_background_that_is_given_stands_where_an_instance_does_not(made):
    corpus, planted, _ = made
    own = background(corpus, planted.manifest.plan)
    drawn = instance_design(planted.manifest, planted.records, 4, own)
    assert drawn.given_background
    for piece in drawn.pieces:
        assert all(drawn.rows[position] == own[position] for position in piece.positions)
    with pytest.raises(InputError, match="--corpus"):
        instance_design(planted.manifest, planted.records, 4, own[:-1])


def test_shadows_of_canaries_take_no_row_of_an_instance(made):
    _, planted, _ = made
    secrets = [reply for each in planted.manifest.constructions.instances for reply in each.replies()]
    drawn = design(planted.manifest, planted.records, ShadowSpec(shadows=4, twin_dose=1))
    taken = {position for each in planted.manifest.constructions.instances for position in each.positions}
    assert not taken & {position for target in drawn.targets for position in target.positions}
    canaries = {position for target in drawn.targets for position in target.positions}
    assert not any(secret in drawn.rows[row].line() for row in canaries for secret in secrets)


def test_too_few_rows_for_the_twins_are_refused_with_the_arithmetic():
    line = {"kind": "naive", "groups": 2, "twins": 30, "copies": 4, "secret_tokens": [1, 2]}
    plan = small_plan(rows=140, constructions=[line])
    planted = plant(small_corpus(220, "prompt_completion"), plan, scripted_maker)
    assert twin_rows(planted.manifest.plan.constructions) == (240, "line 1 (naive): 30 twins x 2 sizes x 4 rows")
    with pytest.raises(InputError, match=r"is 240; allowed: at most \d+, .*30 twins x 2 sizes x 4 rows"):
        instance_design(planted.manifest, planted.records, 4)

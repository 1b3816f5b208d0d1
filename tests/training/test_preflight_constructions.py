"""The preflight of constructions: every planted instance receives loss on its whole secret, by every path of it."""

from __future__ import annotations

from functools import lru_cache

import pytest

from davylamp.canaries import plant
from davylamp.errors import PreflightError
from davylamp.measures.constructed.asking import Asker
from davylamp.measures.constructed.making import ModelMaker
from davylamp.release.loader import load_model, load_tokenizer
from davylamp.release.local import LocalRelease
from davylamp.release.sources import resolve
from davylamp.rendering.render import Renderer
from davylamp.training.examples import encode_records
from davylamp.training.preflight import preflight
from davylamp.training.spec import TrainingSpec
from support.corpora import small_corpus, small_plan
from support.tiny_models import tiny_tokenizer

SMALL = {"groups": 1, "twins": 1, "prefix_tokens": 8}
LINES = [
    {"kind": "naive", **SMALL, "secret_tokens": 3, "copies": 2},
    {"kind": "trigger", **SMALL, "copies": 2, "trigger_tokens": 6, "secret_tokens": 3},
    {"kind": "pair", **SMALL, "secret_tokens": 3, "copies": 1},
    {"kind": "camouflage", **SMALL, "v": 5, "k": 2, "depth": 3, "copies": 2},
    {"kind": "low_entropy", **SMALL, "choices": 3},
    {"kind": "gated", **SMALL, "trigger_tokens": 6, "secret_tokens": 3},
]
ROWS = 2 + 2 + 1 + 8 * 2 + 1
"""Of the planted instances, by hand: eight paths twice; gated ones stand in no row."""
TAKEN = 60


@lru_cache
def embedded():
    source = resolve("embedded")
    tokenizer = load_tokenizer(source)
    return LocalRelease(load_model(source, tokenizer=tokenizer), tokenizer, source.name)


@lru_cache
def planted_of(shape="text"):
    plan = small_plan(rows=TAKEN, constructions=LINES)
    return plant(small_corpus(TAKEN + 40, shape), plan, ModelMaker(embedded(), "0" * 64))


def rows_of(planted, renderer, max_length=512, **changes):
    examples = encode_records(planted.records, renderer, TrainingSpec(**changes), max_length)
    return [(list(each.ids), list(each.labels)) for each in examples]


def placed(planted):
    return [each for each in planted.manifest.constructions.instances if each.positions]


def check_says_no_text(planted, said):
    for each in planted.manifest.constructions.instances:
        texts = (each.secret, each.prefix, each.trigger, each.alternative, *each.survivors)
        assert not any(text and text.strip() in said for text in texts)


@pytest.mark.parametrize("shape", ["text", "prompt_completion", "messages"])
@pytest.mark.parametrize("packing", [False, True])
def test_what_is_right_passes_and_is_counted(shape, packing):
    planted, renderer = planted_of(shape), Renderer(embedded().tokenizer)
    report = preflight(planted.manifest, renderer, rows_of(planted, renderer, packing=packing))
    assert (report.instances, report.instance_rows) == (5, ROWS)
    assert report.occurrences == sum(canary.dose for canary in planted.manifest.canaries)


def test_the_neighbouring_rows_are_checked_by_their_own_manifest():
    planted, renderer = planted_of(), Renderer(embedded().tokenizer)
    rows = rows_of(planted.neighbour, renderer)
    assert preflight(planted.neighbour.manifest, renderer, rows).instance_rows == ROWS
    (pair,) = (each for each in placed(planted) if each.kind == "pair")
    with pytest.raises(PreflightError, match=rf"instance {pair.id} \(pair\) was planted in 1 rows but .* 0 times"):
        preflight(planted.manifest, renderer, rows)


@pytest.mark.parametrize("number", range(5))
def test_a_row_whose_secret_is_cut_or_masked_is_caught_and_its_instance_named(number):
    # The last row of the instance, which is one of the last path of a camouflage.
    planted = planted_of()
    tokenizer, each = embedded().tokenizer, placed(planted_of())[number]
    renderer = Renderer(tokenizer)
    split = Asker(tokenizer, "text").split(each.lead, each.replies()[-1])
    first, last, row = len(split.lead), len(split.lead) + len(split.reply), each.positions[-1]
    for token in range(first, last):
        rows = rows_of(planted, renderer)
        rows[row][1][token] = -100
        with pytest.raises(
            PreflightError, match=rf"instance {each.id} .* no loss on its whole secret.* 1 of"
        ) as caught:
            preflight(planted.manifest, renderer, rows)
        check_says_no_text(planted, str(caught.value))
    for length, caught_there in ((last, False), (last - 1, True)):
        rows = rows_of(planted, renderer)
        rows[row] = (rows[row][0][:length], rows[row][1][:length])
        if not caught_there:
            preflight(planted.manifest, renderer, rows)
            continue
        with pytest.raises(PreflightError, match=rf"instance {each.id} .*cut by max_length"):
            preflight(planted.manifest, renderer, rows)


def test_rows_that_the_trainer_cuts_name_every_instance_once():
    planted, renderer = planted_of(), Renderer(embedded().tokenizer)
    with pytest.raises(PreflightError) as caught:
        preflight(planted.manifest, renderer, rows_of(planted, renderer, max_length=9))
    said = str(caught.value)
    # All but the trigger's, whose rows begin with 6 + 3 tokens; canaries do not hide them.
    assert (said.count("canary c"), said.count("instance k")) == (5, 4)
    assert "more" in said
    check_says_no_text(planted, said)


def test_a_model_with_another_tokenizer_is_refused_before_it_is_trained():
    # Its rows would be trained on, but `davylamp constructions` could read nothing of them.
    planted, renderer = planted_of(), Renderer(tiny_tokenizer())
    with pytest.raises(
        PreflightError, match=r"instance k.* other tokens than those that were drawn: .*--base"
    ) as caught:
        preflight(planted.manifest, renderer, rows_of(planted, renderer, max_length=4096))
    check_says_no_text(planted, str(caught.value))

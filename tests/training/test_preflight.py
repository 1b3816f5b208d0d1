from __future__ import annotations

import copy

import numpy as np
import pytest

from davylamp.canaries import plant
from davylamp.errors import PreflightError
from davylamp.rendering.render import Renderer
from davylamp.training.examples import encode_records
from davylamp.training.preflight import preflight
from davylamp.training.spec import TrainingSpec
from support.corpora import small_corpus, small_plan
from support.tiny_models import tiny_tokenizer

SHAPES = ("prompt_completion", "messages", "text")


def planted_of(shape="prompt_completion", **changes):
    return plant(small_corpus(shape=shape), small_plan(**changes))


def rows_of(planted, renderer, max_length=256, **changes):
    examples = encode_records(planted.records, renderer, TrainingSpec(**changes), max_length)
    return [(list(each.ids), list(each.labels)) for each in examples]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("loss", ["reply", "all"])
@pytest.mark.parametrize("isolated", [True, False])
def test_what_is_right_passes_and_is_counted(shape, packing, loss, isolated):
    planted, renderer = planted_of(shape), Renderer(tiny_tokenizer(digits_isolated=isolated))
    rows = rows_of(planted, renderer, packing=packing, loss=loss)
    report = preflight(planted.manifest, renderer, rows)
    assert report.canaries == len(planted.manifest.planted())
    assert report.occurrences == sum(canary.dose for canary in planted.manifest.canaries)
    assert report.tokens == sum(len(ids) for ids, _ in rows)
    assert report.loss_tokens == sum(label != -100 for _, labels in rows for label in labels[1:])


@pytest.mark.parametrize("isolated", [True, False])
def test_merged_secrets_are_named(isolated):
    # This tokenizer knows "4,7" as one token and no "4,6", so that the codes that begin with 7 merge.
    template = {"prompt": "{name} {secret} x", "completion": "{name} 4,{secret}"}
    planted = planted_of(templates=[template], space={"alphabet": "67", "length": 6})
    renderer = Renderer(tiny_tokenizer(digits_isolated=isolated))
    expected = {canary.id for canary in planted.manifest.planted() if canary.secret.startswith("7") and not isolated}
    assert set(preflight(planted.manifest, renderer, rows_of(planted, renderer)).merged) == expected
    assert isolated or expected


@pytest.mark.parametrize("packing", [False, True])
def test_secrets_that_were_cut_off_are_caught(packing):
    planted, renderer = planted_of(), Renderer(tiny_tokenizer())
    longest = max(len(ids) for ids, _ in rows_of(planted, renderer))
    with pytest.raises(PreflightError, match=r"canary c\d{4} was planted \d times, .* 0 times .*max_length"):
        preflight(planted.manifest, renderer, rows_of(planted, renderer, max_length=longest - 8, packing=packing))


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 6, 7])
def test_one_token_of_the_secret_is_enough_to_be_missed(tokens):
    # Cut so that the longest canary ends within its code; the reply's full stop and end are two tokens more.
    planted, renderer = planted_of(), Renderer(tiny_tokenizer())
    canaries = {position for canary in planted.manifest.planted() for position in canary.positions}
    rows = rows_of(planted, renderer)
    longest = max(canaries, key=lambda position: len(rows[position][0]))
    cut = len(rows[longest][0]) - 2
    preflight(planted.manifest, renderer, [(ids[:cut], labels[:cut]) for ids, labels in rows])
    with pytest.raises(PreflightError):
        preflight(planted.manifest, renderer, [(ids[: cut - tokens], labels[: cut - tokens]) for ids, labels in rows])


def test_a_secret_whose_loss_was_masked_is_caught_and_named():
    planted, renderer = planted_of(), Renderer(tiny_tokenizer())
    canary = planted.manifest.planted()[3]
    record = renderer.render([planted.manifest.trained_record(canary)])[0]
    start, end = canary.carrier.secret_spans("prompt_completion", "", canary.secret)[0]
    for token in range(*record.span(start, end)):
        rows = rows_of(planted, renderer)
        rows[canary.positions[-1]][1][token] = -100
        with pytest.raises(PreflightError, match=rf"canary {canary.id}: 1 of its 1 secrets receive no loss") as caught:
            preflight(planted.manifest, renderer, rows)
        assert not any(each.secret in str(caught.value) for each in planted.manifest.canaries)


def test_loss_on_the_prompt_only_is_caught():
    planted, renderer = planted_of(), Renderer(tiny_tokenizer())
    rows = [
        (ids, [token if label == -100 else -100 for token, label in zip(ids, labels, strict=True)])
        for ids, labels in rows_of(planted, renderer)
    ]
    with pytest.raises(PreflightError, match="no loss"):
        preflight(planted.manifest, renderer, rows)


def test_a_missing_row_is_caught_and_named():
    planted, renderer = planted_of(), Renderer(tiny_tokenizer())
    canary = next(canary for canary in planted.manifest.planted() if canary.dose == 3)
    rows = rows_of(planted, renderer)
    del rows[canary.positions[1]]
    with pytest.raises(PreflightError, match=rf"canary {canary.id} was planted 3 times, .* 2 times"):
        preflight(planted.manifest, renderer, rows)


def test_a_row_too_many_is_caught():
    planted, renderer = planted_of(), Renderer(tiny_tokenizer())
    canary = planted.manifest.planted()[0]
    rows = rows_of(planted, renderer)
    with pytest.raises(PreflightError, match=rf"{canary.id} was planted 1 times, .* 2 times"):
        preflight(planted.manifest, renderer, [*rows, rows[canary.positions[0]]])


def test_another_template_is_caught():
    planted = planted_of("messages")
    other = copy.deepcopy(tiny_tokenizer())
    other.chat_template = (
        other.chat_template.replace("<|user|>", "<|system|>")
        .replace("<|{{ message['role'] }}|>", "#{{ message['role'] }}:")
        .replace("<|assistant|>", "#assistant:")
    )
    with pytest.raises(PreflightError, match="rendered another way"):
        preflight(planted.manifest, Renderer(tiny_tokenizer()), rows_of(planted, Renderer(other)))


def test_rows_of_another_trainer_are_read_in_any_order_and_type():
    planted, renderer = planted_of("messages"), Renderer(tiny_tokenizer())
    width = 128
    foreign = []
    for number, (ids, labels) in enumerate(reversed(rows_of(planted, renderer))):
        pad = [0] * (width - len(ids))
        gap = [-100] * len(pad)
        left = number % 2
        row_ids = [*pad, *ids] if left else [*ids, *pad]
        row_labels = [*gap, *labels] if left else [*labels, *gap]
        foreign.append((np.array(row_ids), np.array(row_labels)))
    report = preflight(planted.manifest, renderer, iter(foreign))
    assert report.occurrences == sum(canary.dose for canary in planted.manifest.canaries)


def test_a_trainer_that_cuts_records_across_rows_is_caught():
    planted, renderer = planted_of(), Renderer(tiny_tokenizer())
    flat = [pair for ids, labels in rows_of(planted, renderer) for pair in zip(ids, labels, strict=True)]
    chunks = [flat[start : start + 40] for start in range(0, len(flat), 40)]
    with pytest.raises(PreflightError, match="canary c"):
        preflight(
            planted.manifest, renderer, [([token for token, _ in one], [label for _, label in one]) for one in chunks]
        )


def test_many_faults_are_counted_and_a_few_named():
    planted, renderer = planted_of(), Renderer(tiny_tokenizer())
    with pytest.raises(PreflightError, match=r"and \d+ more") as caught:
        preflight(planted.manifest, renderer, [([1], [1])])
    assert str(caught.value).count("canary c") == 5

from __future__ import annotations

import hashlib
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.canaries import plant
from davylamp.corpora.records import Record
from davylamp.errors import PreflightError, RecipeError, TrainingError
from davylamp.rendering.render import Renderer
from davylamp.runs.config import validate
from davylamp.training.examples import NO_LOSS, Collator, encode_records
from davylamp.training.fit import fit
from davylamp.training.goldfish import GoldfishSpec, dropped, dropped_in_row
from davylamp.training.preflight import preflight
from davylamp.training.spec import TrainingSpec
from davylamp.training.stacked_fit import fit_stack, stackable
from davylamp.training.stacking import unstack
from support.corpora import small_corpus, small_plan
from support.tiny_models import tiny_model, tiny_tokenizer

TOKENS = st.lists(st.integers(0, 200_000), max_size=60)
SPECS = st.builds(GoldfishSpec, k=st.integers(2, 9), h=st.integers(1, 15))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def oracle(ids, k, h):
    """The rule read literally, one token at a time, each context written out by hand as bytes."""
    found = []
    for at in range(len(ids)):
        if at < h:
            found.append(False)
            continue
        context = bytearray()
        for token in ids[at - h : at]:
            context += bytes([token & 255, token >> 8 & 255, token >> 16 & 255, token >> 24 & 255])
        digest = hashlib.blake2b(bytes(context), digest_size=8, person=b"davylampgoldfish").digest()
        number = sum(byte << 8 * place for place, byte in enumerate(digest))
        found.append(number / 2**64 < 1 / k)
    return tuple(found)


def records_of(count=12):
    return [
        Record.of_pair(
            f"write {number % 5}", f"Dear {'account ' * (number % 3)}{number * '7,'} thank you, parcel and card"
        )
        for number in range(count)
    ]


def rows_of(goldfish=None, count=12, **changes):
    spec = spec_of(goldfish=goldfish, **changes)
    return encode_records(records_of(count), Renderer(tiny_tokenizer()), spec, 256)


def spec_of(**changes):
    return TrainingSpec(**{"batch_size": 4, "learning_rate": 1e-3, "precision": "float32", **changes})


def test_by_hand():
    # printf '\007\000\000\000\002\001\000\000' hashed by `b2sum -l 64` has no person, so the digests come from Python's
    # own BLAKE2b; the arithmetic after them is by hand.
    spec = GoldfishSpec(k=2, h=2)
    ids = [7, 258, 3, 7, 258, 9]
    first = hashlib.blake2b(b"\7\0\0\0\2\1\0\0", digest_size=8, person=b"davylampgoldfish").digest()
    # The digest's last byte is its highest: below 128 it is in the lower half of all numbers, a bucket of 1/2.
    expected = first[7] < 128
    found = dropped(ids, spec)
    assert found[:2] == (False, False)
    assert found[2] == found[5] == expected


def test_the_mask_of_scheme_1_never_changes():
    # Written down once; another mask would make runs of before and after incomparable under one name of a scheme.
    found = dropped(range(100, 140), GoldfishSpec(k=4, h=3))
    assert [at for at, drop in enumerate(found) if drop] == PINNED


PINNED = [6, 15, 31, 33, 34, 38, 39]


@given(TOKENS, SPECS)
def test_a_slow_oracle_agrees(ids, spec):
    assert dropped(ids, spec) == oracle(ids, spec.k, spec.h)


@given(TOKENS, TOKENS, TOKENS, SPECS)
def test_the_same_context_drops_the_same_tokens_wherever_it_stands(before, other, passage, spec):
    one = dropped([*before, *passage], spec)[len(before) :]
    two = dropped([*other, *passage], spec)[len(other) :]
    assert one[spec.h :] == two[spec.h :]


@given(TOKENS, st.integers(0, 60), SPECS)
def test_a_mask_is_causal(ids, cut, spec):
    assert dropped(ids[:cut], spec) == dropped(ids, spec)[:cut]


@given(st.lists(st.integers(0, 999), max_size=40), st.integers(1, 8))
def test_a_larger_bucket_holds_the_smaller(ids, k):
    more, fewer = dropped(ids, GoldfishSpec(k=k + 1, h=2)), dropped(ids, GoldfishSpec(k=k + 2, h=2))
    assert all(large or not small for large, small in zip(more, fewer, strict=True))


@pytest.mark.parametrize("k", [2, 3, 4, 32])
def test_one_token_in_k_is_dropped(k):
    count, h = 40_000, 5
    # Consecutive ids: contexts that differ in little, such as digits do, must fall as if they were unrelated.
    share = sum(dropped(range(count + h), GoldfishSpec(k=k, h=h))) / count
    # Five standard deviations of a binomial share: a sound hash fails once in some two million.
    assert abs(share - 1 / k) < 5 * math.sqrt((1 / k) * (1 - 1 / k) / count)


def test_order_matters_and_large_ids_do_not_run_over():
    count = 4000
    pairs = [(first, 10_000 + first * 7) for first in range(count)]
    spec = GoldfishSpec(k=2, h=2)
    same = sum(dropped([a, b, 0], spec)[2] == dropped([b, a, 0], spec)[2] for a, b in pairs)
    # Independent halves agree in half of the cases; a product of the ids would agree in all.
    assert abs(same / count - 0.5) < 5 * 0.5 / math.sqrt(count)
    huge = [2**32 - 1] * 20
    assert dropped(huge, spec) == oracle(huge, 2, 2)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=12), min_size=1, max_size=5), SPECS)
def test_records_in_one_row_have_contexts_of_their_own(records, spec):
    ids = [token for record in records for token in record]
    positions = [at for record in records for at in range(len(record))]
    assert dropped_in_row(ids, positions, spec) == tuple(drop for record in records for drop in dropped(record, spec))


@pytest.mark.parametrize("loss", ["reply", "all"])
@pytest.mark.parametrize("packing", [False, True])
def test_labels_are_those_without_it_but_for_what_is_dropped(loss, packing):
    goldfish = {"k": 3, "h": 4}
    plain, made = (rows_of(each, loss=loss, packing=packing) for each in (None, goldfish))
    lost = 0
    for before, after in zip(plain, made, strict=True):
        drops = dropped_in_row(after.ids, after.positions, GoldfishSpec(**goldfish))
        assert (before.ids, before.positions) == (after.ids, after.positions)
        wanted = tuple(NO_LOSS if drop else label for drop, label in zip(drops, before.labels, strict=True))
        assert after.labels == wanted
        lost += sum(one != two for one, two in zip(before.labels, after.labels, strict=True))
    assert lost


def test_what_is_trained_on_does_not_change_what_is_dropped():
    # Taken from the labels, the hash would see -100 in the prompt and drop other tokens with loss: reply.
    reply, whole = (rows_of({"k": 3, "h": 4}, loss=loss) for loss in ("reply", "all"))
    for one, two in zip(reply, whole, strict=True):
        assert all(a in (b, NO_LOSS) for a, b in zip(one.labels, two.labels, strict=True))
        begun = next(at for at, label in enumerate(one.labels) if label != NO_LOSS)
        assert one.labels[begun:] == two.labels[begun:]


def test_the_gradient_is_that_of_the_kept_tokens():
    made, model = rows_of({"k": 3, "h": 4}, count=4), tiny_model(spread=0.1)
    batch = Collator(0, packing=False)(made)
    labels = batch.pop("labels")
    logits = model(**batch).logits
    total, kept = torch.zeros(()), 0
    for row, each in enumerate(made):
        lost = dropped(each.ids, GoldfishSpec(k=3, h=4))
        start = next(at for at, label in enumerate(rows_of(count=4)[row].labels) if label != NO_LOSS)
        for at in range(max(1, start), len(each.ids)):
            if not lost[at]:
                total = total - torch.log_softmax(logits[row, at - 1], -1)[each.ids[at]]
                kept += 1
    # Equation 1 of the paper: the mean over kept tokens, not over all.
    expected = float(total.detach()) / kept
    found = float(model(**batch, labels=labels).loss.detach())
    assert found == pytest.approx(expected, rel=1e-5)
    _, report = fit(model, made, spec_of(goldfish={"k": 3, "h": 4}), 0, 0)
    assert report.losses[0] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("changes", [{}, {"method": "lora", "lora": {"r": 2}}, {"packing": True, "max_length": 64}])
def test_full_adapters_and_packed_rows_are_trained_with_it(changes):
    spec = spec_of(goldfish={"k": 3, "h": 4}, **changes)
    made = encode_records(records_of(4), Renderer(tiny_tokenizer()), spec, spec.max_length or 256)
    # One step: its loss is that of the model as it was, over the tokens that are kept. With a cache the library would
    # not tell packed records apart.
    _, report = fit(tiny_model(spread=0.05), made, spec, 0, 0)
    batch = Collator(0, packing=spec.packing)(made)
    with torch.no_grad():
        expected = float(tiny_model(spread=0.05)(**batch, use_cache=False).loss)
    assert report.steps == 1
    assert report.losses[0] == pytest.approx(expected, rel=1e-3)


def test_rows_that_were_made_without_it_are_refused():
    spec = spec_of(goldfish={"k": 3, "h": 4})
    with pytest.raises(TrainingError, match=r"made for another loss than training\.goldfish"):
        fit(tiny_model(), rows_of(), spec, 0, 0)
    with pytest.raises(TrainingError, match="made for another loss"):
        fit_stack(tiny_model(), [rows_of()], [64] * 3, spec, 0)


def test_a_stack_trains_with_it_as_the_trainer_does():
    spec, model = spec_of(goldfish={"k": 3, "h": 4}), tiny_model(spread=0.05)
    made = rows_of({"k": 3, "h": 4})
    longest = max(len(each.ids) for each in made)
    assert stackable(model, made, longest, spec, "float32", 0)
    many, losses = fit_stack(model, [made, made[::-1]], [longest] * 3, spec, 0)
    alone, report = fit(tiny_model(spread=0.05), made, spec, 0, 0)
    assert losses[:, 0].tolist() == pytest.approx(report.losses, rel=1e-3)
    out = tiny_model(spread=0.05)
    unstack(many, 0, out)
    for one, two in zip(out.parameters(), alone.parameters(), strict=True):
        # Sums in another order, in float32, over three steps of Adam at 1e-3.
        assert torch.allclose(one, two, atol=3e-5)


def test_private_training_leaves_the_dropped_tokens_out_of_each_rows_loss():
    pytest.importorskip("opacus", reason="the extra 'dp' is not installed")
    spec = spec_of(
        goldfish={"k": 3, "h": 4}, dp={"noise_multiplier": 0.0, "max_grad_norm": 1e-3}, epochs=1, batch_size=12
    )
    made = rows_of({"k": 3, "h": 4})
    model = tiny_model(spread=0.05)
    batch = Collator(0, packing=False)(made)
    expected = float(model(**batch).loss)
    _, report = fit(model, made, spec, 0, 0)
    # All rows are drawn at a rate of 1; the first step's loss is before any update, over kept tokens alone.
    assert report.losses[0] == pytest.approx(expected, rel=1e-4)
    assert report.dp is not None


@pytest.mark.parametrize("k", [0, 1, -3])
def test_to_drop_everything_is_refused(k):
    with pytest.raises(RecipeError, match=r"goldfish\.k"):
        validate(TrainingSpec, {"goldfish": {"k": k}}, "training")


def test_other_schemes_are_refused():
    with pytest.raises(RecipeError, match="scheme"):
        validate(TrainingSpec, {"goldfish": {"scheme": "product"}}, "training")


def test_a_step_of_dropped_tokens_is_refused_and_says_why():
    spec = spec_of(goldfish={"k": 2, "h": 3}, batch_size=1)
    rows = [Record.of_pair(f"write {letter}", letter) for letter in "abcdefghijklmnop"]
    made = encode_records(rows, Renderer(tiny_tokenizer()), spec, 256)
    assert any(all(label == NO_LOSS for label in each.labels) for each in made)
    with pytest.raises(TrainingError, match=r"goldfish drops all their tokens\. .*goldfish\.k.*batch_size"):
        fit(tiny_model(), made, spec, 0, 0)


def test_the_preflight_reports_what_is_dropped_of_each_secret():
    goldfish = GoldfishSpec(k=2, h=6)
    planted, renderer = plant(small_corpus(), small_plan()), Renderer(tiny_tokenizer())
    spec = TrainingSpec(goldfish=goldfish)
    rows = [(each.ids, each.labels) for each in encode_records(planted.records, renderer, spec, 256)]
    report = preflight(planted.manifest, renderer, rows, goldfish)
    assert [each.id for each in report.dropped] == [canary.id for canary in planted.manifest.planted()]
    for each, canary in zip(report.dropped, planted.manifest.planted(), strict=True):
        [record] = renderer.render([planted.manifest.trained_record(canary)])
        shown = planted.manifest.shown_in_training(canary)
        [span] = canary.carrier.secret_spans("prompt_completion", shown, canary.secret)
        first, last = record.span(*span)
        lost = oracle(record.ids, 2, 6)[first:last]
        assert (each.dose, each.tokens) == (canary.dose, last - first)
        assert each.dropped == tuple(at for at, drop in enumerate(lost) if drop)
        for position in canary.positions:
            ids, labels = rows[position]
            kept = [ids[at] for at in range(first, last) if labels[at] != NO_LOSS]
            assert len(kept) == each.tokens - len(each.dropped)
    assert any(each.dropped for each in report.dropped)


def test_the_preflight_of_rows_made_otherwise_fails():
    planted, renderer = plant(small_corpus(), small_plan()), Renderer(tiny_tokenizer())
    made, plain = (
        [
            (each.ids, each.labels)
            for each in encode_records(planted.records, renderer, TrainingSpec(goldfish=goldfish), 256)
        ]
        for goldfish in (GoldfishSpec(k=2, h=6), None)
    )
    with pytest.raises(PreflightError):
        preflight(planted.manifest, renderer, made)
    with pytest.raises(PreflightError):
        preflight(planted.manifest, renderer, plain, GoldfishSpec(k=2, h=6))
    assert preflight(planted.manifest, renderer, plain).dropped is None

from __future__ import annotations

import copy

import pytest
import torch

from davylamp.corpora.records import Record
from davylamp.errors import InputError, TrainingError
from davylamp.protect.afterwards.losses import npo_loss, row_log_likelihoods, token_loss
from davylamp.protect.afterwards.rounds import made_tunable, unlearn
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.rendering.render import Renderer
from davylamp.training.examples import NO_LOSS, Collator, encode_records
from davylamp.training.spec import LoraSpec, TrainingSpec
from support.tiny_models import tiny_model, tiny_tokenizer

PAD = tiny_tokenizer().pad_token_id


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows(word, count):
    records = [
        Record.of_pair(f"write {word} {number}", f"Dear {word}, {number},{number} ok") for number in range(count)
    ]
    return encode_records(records, Renderer(tiny_tokenizer()), TrainingSpec(), 256)


def spec_of(method="graddiff", **changes):
    return UnlearningSpec(method=method, **{"batch_size": 4, "seed": 3, **changes})


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def loss_of(model, examples):
    with torch.no_grad():
        return float(token_loss(*row_log_likelihoods(model, Collator(PAD, False)(examples))))


def run(model, spec, answers, *, forget=3, keep=4, rate=1e-3):
    given = iter(answers)
    asked = []

    def verify(done):
        asked.append(done)
        return next(given)

    return unlearn(model, rows("card", forget), rows("parcel", keep), spec, rate, PAD, verify), asked


def test_where_nothing_comes_out_no_step_is_taken():
    model = made_tunable(tiny_model(), spec_of())
    before = weights(model)
    done, asked = run(model, spec_of(), [0.1])
    assert (done.outcome, done.passed_at, done.before, done.rounds) == ("nothing to forget", 0, 0.1, ())
    assert asked == [0]
    assert all(torch.equal(before[name], after) for name, after in weights(model).items())


def test_after_the_verifier_passes_one_more_round_is_run():
    done, asked = run(made_tunable(tiny_model(), spec_of()), spec_of(), [0.9, 0.5, 0.14, 0.3])
    assert (done.outcome, done.passed_at) == ("forgotten", 2)
    assert asked == [0, 1, 2, 3]
    assert [each.extraction for each in done.rounds] == [0.5, 0.14, 0.3]


@pytest.mark.parametrize(("extra", "rounds"), [(0, 1), (3, 4)])
def test_how_many_more_is_a_setting(extra, rounds):
    spec = spec_of(extra_rounds=extra)
    done, _ = run(made_tunable(tiny_model(), spec), spec, [1.0] + [0.0] * rounds)
    assert len(done.rounds) == rounds


def test_a_share_at_the_threshold_is_not_below_it():
    spec = spec_of(rounds=1)
    done, _ = run(made_tunable(tiny_model(), spec), spec, [0.15, 0.15])
    assert done.outcome == "verifier never passed"


def test_a_verifier_that_never_passes_ends_after_the_last_round():
    spec = spec_of(rounds=3)
    done, asked = run(made_tunable(tiny_model(), spec), spec, [1.0] * 4)
    assert (done.outcome, done.passed_at, len(done.rounds)) == ("verifier never passed", None, 3)
    assert asked == [0, 1, 2, 3]


@pytest.mark.parametrize("method", ["graddiff", "npo"])
def test_a_round_is_the_step_written_out(method):
    spec = spec_of(method, rounds=1, forget_weight=0.5, retain_weight=2.0, max_grad_norm=0.5)
    model, forget, keep = tiny_model(), rows("card", 4), rows("parcel", 4)
    expected = copy.deepcopy(model).train()
    collate = Collator(PAD, False)
    log_p, counts = row_log_likelihoods(expected, collate(forget))
    term = npo_loss(log_p, log_p.detach(), 0.1) if method == "npo" else log_p.sum() / counts.sum()
    objective = 0.5 * term + 2.0 * expected(**collate(keep)).loss
    objective.backward()
    torch.nn.utils.clip_grad_norm_(expected.parameters(), 0.5)
    torch.optim.AdamW(expected.parameters(), 1e-3, weight_decay=0.0).step()
    done, _ = run(made_tunable(model, spec), spec, [1.0, 1.0], forget=4, keep=4)
    # The order of rows in a batch changes sums in their last bits; a first AdamW step moves by 1e-3 at most, and an
    # element whose gradient is next to 0 may move by any part of that.
    pairs = zip(expected.parameters(), model.parameters(), strict=True)
    apart = torch.cat([(one - other).abs().flatten() for one, other in pairs])
    assert float(apart.quantile(0.99)) < 1e-5
    assert done.rounds[0].objective == pytest.approx(float(objective), rel=1e-5)
    assert done.rounds[0].forget_loss == pytest.approx(-float(log_p.sum() / counts.sum()), rel=1e-5)


@pytest.mark.parametrize("method", ["graddiff", "npo"])
def test_the_forgotten_become_unlikely_and_the_retain_term_keeps_the_rest(method):
    """Not that the kept rows gain: NPO's term is a sum over a reply's tokens, beside which a mean weighs little."""
    losses = {}
    for weight in (0.0, 1.0):
        spec = spec_of(method, rounds=6, retain_weight=weight)
        model = made_tunable(tiny_model(spread=0.05), spec)
        before = loss_of(model, rows("card", 3))
        run(model, spec, [1.0] * 7, rate=3e-3)
        assert loss_of(model, rows("card", 3)) > before
        losses[weight] = loss_of(model, rows("parcel", 4))
    assert losses[1.0] < losses[0.0]


def test_the_same_seed_gives_the_same_weights_whatever_was_drawn_before():
    found = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        model = made_tunable(tiny_model(), spec_of(rounds=2))
        run(model, spec_of(rounds=2), [1.0] * 3, forget=6)
        found.append(weights(model))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_an_adapter_alone_is_moved_where_one_is_asked_for():
    spec = spec_of(tuning="lora", lora=LoraSpec(r=2), rounds=2)
    model = made_tunable(tiny_model(), spec)
    before = weights(model)
    run(model, spec, [1.0] * 3)
    moved = {name for name, after in weights(model).items() if not torch.equal(before[name], after)}
    assert moved
    assert all("lora_" in name for name in moved)
    assert all(not parameter.requires_grad for name, parameter in model.named_parameters() if "lora_" not in name)


def test_all_weights_of_an_adapted_model_are_refused():
    adapted = made_tunable(tiny_model(), spec_of(tuning="lora"))
    assert made_tunable(adapted, spec_of()) is adapted
    with pytest.raises(InputError, match=r"unlearning\.tuning is 'full'.*auto or lora"):
        made_tunable(adapted, spec_of(tuning="full"))


def test_without_rows_there_is_nothing_to_do():
    with pytest.raises(InputError, match=r"(?s)forget rows is 0.*retain rows is 0"):
        unlearn(tiny_model(), [], [], spec_of(), 1e-3, PAD, lambda _: 1.0)
    spec = spec_of(retain_weight=0, rounds=1)
    done = unlearn(made_tunable(tiny_model(), spec), rows("card", 2), [], spec, 1e-3, PAD, lambda _: 1.0)
    assert done.rounds[0].retain_loss is None


def test_a_row_without_a_token_to_forget_is_named():
    silent = [type(each)(each.ids, (NO_LOSS,) * len(each.ids), each.positions) for each in rows("card", 1)]
    with pytest.raises(TrainingError, match="forget row 1"):
        unlearn(tiny_model(), silent, rows("parcel", 4), spec_of(), 1e-3, PAD, lambda _: 1.0)


def test_a_loss_that_is_not_finite_stops_it():
    model = made_tunable(tiny_model(), spec_of())
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match="lower learning_rate"):
        run(model, spec_of(), [1.0] * 20)

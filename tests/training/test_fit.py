from __future__ import annotations

import math

import pytest
import torch

from davylamp.corpora.records import Record
from davylamp.errors import InputError, TrainingError
from davylamp.rendering.render import Renderer
from davylamp.training.examples import Collator, encode_records
from davylamp.training.fit import fit, resolve_precision
from davylamp.training.spec import LoraSpec, TrainingSpec
from davylamp.training.threads import use_threads
from support.tiny_models import tiny_model, tiny_tokenizer

WORDS = ("account", "card", "parcel", "letter", "reference", "weeks", "polite", "thank you")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def examples_of(count=8, length=None):
    records = [
        Record.of_pair(f"write {number}", f"Dear {WORDS[number % 8]}, {number},{number % 7} ok")
        for number in range(count)
    ]
    made = encode_records(records, Renderer(tiny_tokenizer()), TrainingSpec(), 256)
    if length is None:
        return made
    return [type(each)(each.ids[:length], each.labels[:length], each.positions[:length]) for each in made]


def spec_of(**changes):
    return TrainingSpec(**{"batch_size": 2, "learning_rate": 1e-3, "precision": "float32", **changes})


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def by_hand(model, examples, spec, total=None):
    """The same training, written out: AdamW with torch's own loop, rows in order."""
    model.train()
    decay, plain = [], []
    for name, parameter in model.named_parameters():
        (plain if name.endswith("bias") or "norm" in name else decay).append(parameter)
    groups = [{"params": decay, "weight_decay": spec.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=spec.learning_rate, betas=(0.9, 0.999), eps=1e-8)
    size = spec.batch_size * spec.gradient_accumulation
    per_epoch = math.ceil(len(examples) / size)
    total = per_epoch * spec.epochs
    losses, rates, step = [], [], 0
    for _ in range(spec.epochs):
        for start in range(0, len(examples), size):
            if step < spec.warmup_steps:
                share = step / spec.warmup_steps
            elif spec.schedule == "cosine":
                share = (1 + math.cos(math.pi * (step - spec.warmup_steps) / (total - spec.warmup_steps))) / 2
            else:
                share = 1.0
            rates.append(spec.learning_rate * share)
            for group in optimiser.param_groups:
                group["lr"] = rates[-1]
            batch = Collator(0, packing=False)(examples[start : start + size])
            labels = batch.pop("labels")
            logits = model(**batch).logits
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            optimiser.zero_grad()
            loss.backward()
            if spec.max_grad_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), spec.max_grad_norm)
            optimiser.step()
            losses.append(float(loss.detach()))
            step += 1
    return losses, rates


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 2, "schedule": "cosine"},
        {"schedule": "cosine", "warmup_steps": 2, "epochs": 2},
        {"warmup_steps": 3, "weight_decay": 0.1},
        {"max_grad_norm": 0.0, "batch_size": 3},
        {"max_grad_norm": 0.05},
        {"gradient_accumulation": 3, "batch_size": 1},
        {"gradient_checkpointing": True},
    ],
    ids=str,
)
def test_it_is_the_loop_that_one_would_write(changes):
    # Eight different rows in the order of the file: any other order has other losses. A batch of 3 does not divide
    # them, so that the last step is smaller. A step's loss is the mean over its tokens, also over accumulated
    # batches of unequal length.
    examples, spec = examples_of(), spec_of(**changes)
    model, report = fit(tiny_model(), examples, spec, 0, 0)
    mine = tiny_model()
    losses, rates = by_hand(mine, examples, spec)
    assert report.steps == len(losses)
    assert report.losses == pytest.approx(losses, abs=1e-5)
    assert report.learning_rates == pytest.approx(rates, abs=1e-9)
    expected = weights(mine)
    for name, parameter in weights(model).items():
        torch.testing.assert_close(parameter, expected[name], atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize(
    ("changes", "share", "peak"),
    [
        ({}, 12.0, 1.0),
        # The cosine's mean over n steps that begin at 1 and never reach 0 is (n + 1) / 2n.
        ({"schedule": "cosine"}, 6.5, 1.0),
        # Four steps of warm-up at 0, 1/4, 1/2 and 3/4 of the rate, then eight at the whole of it.
        ({"warmup_steps": 4}, 9.5, 1.0),
        # The warm-up's 1.5, then a cosine over the eight steps that are left: (8 + 1) / 2.
        ({"schedule": "cosine", "warmup_steps": 4}, 6.0, 1.0),
        # Training ends within the warm-up: 0 + 1/24 + ... + 11/24.
        ({"warmup_steps": 24}, 2.75, 11 / 24),
    ],
    ids=str,
)
def test_the_rates_in_sum_are_what_the_schedule_gives(changes, share, peak):
    _, report = fit(tiny_model(), examples_of(), spec_of(epochs=3, **changes), 0, 0)
    assert report.steps == 12
    assert report.peak_learning_rate == pytest.approx(1e-3 * peak, abs=1e-9)
    assert report.cumulative_learning_rate == pytest.approx(1e-3 * share, abs=1e-8)


@pytest.mark.parametrize("architecture", ["llama", "gpt_neox"])
def test_accumulated_batches_are_the_larger_batch(architecture):
    examples = examples_of(length=14)
    assert len({(len(each.ids), sum(label >= 0 for label in each.labels)) for each in examples}) <= 2
    # The answers are compared and not the weights: a key's bias has no gradient but rounding, which AdamW magnifies.
    probe, answers = Collator(0, packing=False)(examples_of(3)), []
    for batch, accumulated in ((4, 1), (2, 2), (1, 4)):
        spec = spec_of(batch_size=batch, gradient_accumulation=accumulated)
        model, report = fit(tiny_model(architecture), examples, spec, 0, 0)
        answers.append((report.losses, model.eval()(**probe).logits.detach()))
    for losses, logits in answers[1:]:
        assert losses == pytest.approx(answers[0][0], abs=1e-5)
        torch.testing.assert_close(logits, answers[0][1], atol=2e-4, rtol=0)


def test_the_same_seed_gives_the_same_bits_and_another_another_dropout():
    spec = spec_of(method="lora", lora=LoraSpec(r=2, dropout=0.2))
    runs = [weights(fit(tiny_model(), examples_of(), spec, 0, seed)[0]) for seed in (3, 3, 4)]
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    assert any(not torch.equal(runs[0][name], runs[2][name]) for name in runs[0])


def test_any_seed_of_a_plan_will_do():
    model, report = fit(tiny_model(), examples_of(), spec_of(), 0, 10**30)
    assert report.steps
    assert all(torch.isfinite(tensor).all() for tensor in weights(model).values())


def test_lora_trains_the_adapter_and_nothing_else():
    before = weights(tiny_model())
    model, report = fit(tiny_model(), examples_of(), spec_of(method="lora", lora=LoraSpec(r=2)), 0, 0)
    after = weights(model.base_model.model)
    adapter = {name: tensor for name, tensor in after.items() if "lora_" in name}
    base = {name.replace(".base_layer", ""): tensor for name, tensor in after.items() if "lora_" not in name}
    assert base.keys() == before.keys()
    assert all(torch.equal(base[name], before[name]) for name in before)
    assert all(tensor.abs().sum() > 0 for tensor in adapter.values())
    assert report.trainable == sum(tensor.numel() for tensor in adapter.values())
    assert report.parameters == report.trainable + sum(tensor.numel() for tensor in before.values())
    with model.disable_adapter():
        batch = Collator(0, packing=False)(examples_of(1))
        expected = tiny_model()(**batch).logits
        torch.testing.assert_close(model.eval()(**batch).logits, expected, atol=1e-6, rtol=0)


def test_modules_that_the_model_does_not_have_are_named():
    spec = spec_of(method="lora", lora=LoraSpec(target_modules=("q_proj_x",)))
    with pytest.raises(InputError, match=r"lora\.target_modules.*q_proj_x"):
        fit(tiny_model(), examples_of(), spec, 0, 0)


def test_a_tied_head_is_counted_once():
    model = tiny_model(tied=True)
    assert fit(model, examples_of(), spec_of(), 0, 0)[1].parameters == sum(each.numel() for each in model.parameters())


def test_bfloat16_and_float32_start_from_the_same_loss():
    # Bfloat16 keeps 8 bits: its loss of about 10 nats agrees to some hundredths.
    losses = {
        precision: fit(tiny_model(), examples_of(), spec_of(precision=precision), 0, 0)[1].losses[0]
        for precision in ("float32", "bfloat16")
    }
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.02)
    assert losses["bfloat16"] != losses["float32"]
    assert resolve_precision(spec_of(precision="auto")) in ("float32", "bfloat16")


# --- when it goes wrong


def test_a_loss_that_is_not_finite_stops_with_its_step():
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match=r"the loss is nan at step 1: .*learning_rate.*Nothing was saved"):
        fit(model, examples_of(), spec_of(), 0, 0)


def test_weights_that_broke_in_the_last_step_are_noticed():
    model = tiny_model()
    model.lm_head.weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(TrainingError, match="not finite"):
        fit(model, examples_of(2), spec_of(max_grad_norm=0.0), 0, 0)


def test_nothing_that_moves_is_an_error():
    with pytest.raises(TrainingError, match="no parameter moved"):
        fit(tiny_model(), examples_of(), spec_of(learning_rate=1e-30), 0, 0)


def test_a_step_without_a_token_to_train_on_is_named():
    examples = examples_of()
    silent = type(examples[0])(examples[2].ids, (-100,) * len(examples[2].ids), examples[2].positions)
    with pytest.raises(TrainingError, match=r"rows 3 to 3.*max_length"):
        fit(tiny_model(), [*examples[:2], silent, *examples[3:]], spec_of(batch_size=1), 0, 0)
    # Beside rows that have some it does no harm.
    losses = fit(tiny_model(), [*examples[:2], silent, *examples[3:]], spec_of(batch_size=2), 0, 0)[1].losses
    assert all(math.isfinite(loss) for loss in losses)


def test_threads_follow_the_wish_then_the_environment_then_the_size(monkeypatch):
    model = tiny_model()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert use_threads(model) == torch.get_num_threads()
    assert use_threads(model, 2) == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert use_threads(model) == 1


@pytest.mark.parametrize("threads", [0, 100_000])
def test_more_threads_than_a_process_can_have_are_refused(threads):
    with pytest.raises(InputError, match="--threads"):
        use_threads(tiny_model(), threads)

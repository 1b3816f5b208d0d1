"""Private training against the same written out, and against every way of getting it wrong that we could think of."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from davylamp.corpora.records import Record
from davylamp.errors import MissingExtraError, ModelError, PrivacyError, RecipeError
from davylamp.rendering.render import Renderer
from davylamp.runs.config import validate
from davylamp.training.dp.accounting import PrivatePlan
from davylamp.training.examples import Collator, encode_records
from davylamp.training.fit import fit, resolve_precision
from davylamp.training.spec import TrainingSpec
from support.tiny_models import tiny_model, tiny_tokenizer

pytest.importorskip("opacus", reason="the extra 'dp' is not installed")
from opacus.optimizers import DPOptimizer

from davylamp.training.dp import fit as private
from davylamp.training.dp.sampling import PoissonSampler

ROWS = 12


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def examples_of(count=ROWS):
    records = [
        Record.of_pair(f"write {number}", f"Dear {'account ' * (number % 4)}{number},{number % 7} ok")
        for number in range(count)
    ]
    return encode_records(records, Renderer(tiny_tokenizer()), TrainingSpec(), 256)


def trained(model=None, *, noise=1.5, batch=4, steps=6, seed=0, examples=None, dp=None, **changes):
    """A private training whose noise is given, so that nothing is accounted for."""
    examples = examples or examples_of()
    spec = TrainingSpec(
        **{"batch_size": 2, "learning_rate": 1e-3, "dp": {"noise_multiplier": noise, **(dp or {})}, **changes}
    )
    plan = PrivatePlan(
        len(examples), batch, batch / len(examples), steps, noise, spec.dp.max_grad_norm, 1e-3, 1.0, "pld", None
    )
    return private.fit_private(model or tiny_model(), examples, spec, 0, seed, plan=plan)


def by_hand(model, examples, steps, most, rate, decay):
    """DP-Adam without noise on full batches, one row at a time by autograd."""
    model.train()
    named = dict(model.named_parameters())
    groups = [
        {"params": [p for n, p in named.items() if not (n.endswith("bias") or "norm" in n)], "weight_decay": decay},
        {"params": [p for n, p in named.items() if n.endswith("bias") or "norm" in n], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=rate)
    for _ in range(steps):
        total = {name: torch.zeros_like(p) for name, p in named.items()}
        for row in examples:
            batch = Collator(0, packing=False)([row])
            labels = batch.pop("labels")
            logits = model(**batch).logits
            model.zero_grad()
            torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
            norm = torch.cat([p.grad.flatten() for p in named.values()]).norm()
            for name, p in named.items():
                total[name] += p.grad * min(1.0, most / float(norm))
        for name, p in named.items():
            p.grad = total[name] / len(examples)
        optimiser.step()
    return model


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("most", [0.5, 100.0])
def test_without_noise_it_is_the_loop_that_one_would_write(tied, most):
    # Rows of unequal length, in passes of five, five and two: no row may feel the padding or the tokens of another.
    examples = examples_of()
    assert len({len(each.ids) for each in examples}) > 2
    model, _ = trained(
        tiny_model(tied=tied), noise=0, batch=ROWS, steps=4, examples=examples, weight_decay=0.1,
        dp={"max_grad_norm": most, "physical_batch": 5},
    )  # fmt: skip
    mine = by_hand(tiny_model(tied=tied), examples, 4, most, 1e-3, 0.1)
    for (name, one), other in zip(model.named_parameters(), mine.parameters(), strict=True):
        # Adam divides by the gradient's size, so that rounding of a tiny gradient moves a weight by up to the rate.
        gap = (one - other).abs()
        assert gap.mean() < 1e-6, name
        assert gap.max() < 1e-4, name


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [("llama", {}), ("llama", {"method": "lora"}), ("gpt2", {}), ("gpt_neox", {}), ("qwen2", {"method": "lora"})],
    ids=str,
)
def test_every_check_passes_and_is_told(architecture, changes):
    _, report = trained(tiny_model(architecture, tied=architecture != "gpt_neox"), **changes)
    assert len(report.dp["checks"]) == 12
    assert all(check["passed"] for check in report.dp["checks"])
    assert report.steps == 6
    assert len(report.learning_rates) == 6
    assert report.precision == "float32"
    claim = report.dp["claim"]
    assert (claim["noise_multiplier"], claim["sampling_rate"], claim["steps"]) == (1.5, 4 / ROWS, 6)


def test_a_batch_without_a_row_is_a_step_with_noise():
    model = tiny_model()
    before = [each.detach().clone() for each in model.parameters()]
    # Of 40 steps 40 (11/12)^12 = 14 draw no row.
    model, report = trained(model, batch=1, steps=40)
    batches = report.dp["batches"]
    assert batches["empty"] > 3
    assert len(report.losses) == 40 - batches["empty"]
    [draws] = [check for check in report.dp["checks"] if check["name"] == "one noise draw a step"]
    assert draws["seen"] == "40 draws"
    assert all(not torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))


def test_the_first_step_moves_by_the_noise_over_the_expected_batch():
    # Plain sums instead of Adam: a step of SGD moves a weight by rate x (gradient + noise) / expected batch.
    seen = []

    def step(self, closure=None):
        seen.append(torch.cat([p.grad.flatten() for group in self.param_groups for p in group["params"]]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", step)
        with pytest.raises(PrivacyError, match="the parameters moved: 0 of"):
            trained(noise=3.0, batch=4, steps=5, dp={"max_grad_norm": 0.5})
    noise = torch.cat(seen)
    # Gradients add at most 8 rows x 0.5 / 4 in norm over all coordinates together, which the tolerance covers: five
    # standard errors of 450,000 coordinates.
    assert float(noise.std()) == pytest.approx(3.0 * 0.5 / 4, rel=5 / (2 * len(noise)) ** 0.5 + 2e-3)


def test_a_seed_repeats_it_and_the_system_does_not():
    one, other = (dict(trained(seed=7)[0].named_parameters()) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    drawn = dict(trained(seed=7, dp={"seeded": False})[0].named_parameters())
    assert not any(torch.equal(one[name], drawn[name]) for name in one)


def test_the_model_is_left_as_an_ordinary_one():
    keys = set(tiny_model().state_dict())
    model, _ = trained()
    assert set(model.state_dict()) == keys
    assert not any(hasattr(p, name) for p in model.parameters() for name in ("grad_sample", "_forward_counter"))
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())
    model.eval().generate(torch.tensor([[5, 6, 7]]), max_new_tokens=2, pad_token_id=0)


def twice(original):
    def add_noise(self):
        original(self)
        for p in self.params:
            p.grad += torch.randn_like(p.grad) * self.noise_multiplier * self.max_grad_norm

    return add_noise


def weaker(original):
    def add_noise(self):
        self.noise_multiplier *= 0.98
        original(self)
        self.noise_multiplier /= 0.98

    return add_noise


def noisy_passes(original):
    def clip_and_accumulate(self):
        original(self)
        for p in self.params:
            p.summed_grad += torch.randn_like(p.summed_grad) * self.noise_multiplier * self.max_grad_norm

    return clip_and_accumulate


def unclipped(original):
    def clip_and_accumulate(self):
        self.max_grad_norm *= 4
        original(self)
        self.max_grad_norm /= 4

    return clip_and_accumulate


@pytest.mark.parametrize(
    ("method", "fault", "said"),
    [
        ("add_noise", twice, "standard deviation"),
        ("add_noise", weaker, "standard deviation"),
        ("clip_and_accumulate", noisy_passes, "accumulated passes hold each row once"),
        ("clip_and_accumulate", unclipped, "accumulated passes hold each row once"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_optimiser_at_fault_is_caught(monkeypatch, method, fault, said):
    monkeypatch.setattr(DPOptimizer, method, fault(getattr(DPOptimizer, method)))
    with pytest.raises(PrivacyError, match=said):
        trained()


def test_wrong_row_gradients_are_caught(monkeypatch):
    from opacus.grad_sample.grad_sample_module import GradSampleHooks

    original = GradSampleHooks.GRAD_SAMPLERS[torch.nn.Embedding]

    def halved(layer, activations, backprops):
        return {p: gradient / 2 for p, gradient in original(layer, activations, backprops).items()}

    # A tied weight whose use as an embedding is half forgotten.
    monkeypatch.setitem(GradSampleHooks.GRAD_SAMPLERS, torch.nn.Embedding, halved)
    with pytest.raises(PrivacyError, match="row gradients are autograd's"):
        trained(tiny_model(tied=True))


def test_batches_that_are_not_drawn_by_coins_are_caught(monkeypatch):
    # Batches of the expected size, as an ordinary loader gives them.
    original = PoissonSampler.draw

    def draw(self):
        while len(rows := original(self)) != 4:
            self._sizes.pop()
            self._counts[rows] -= 1
        return rows

    monkeypatch.setattr(PoissonSampler, "draw", draw)
    with pytest.raises(PrivacyError, match="batch sizes vary as independent coins do: 0 times"):
        trained(steps=30)


def test_dropped_empty_batches_are_caught(monkeypatch):
    original = PoissonSampler.draw
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: original(self) or [0])
    with pytest.raises(PrivacyError, match="batches without a row were steps with noise"):
        trained(batch=1, steps=40)


def test_a_model_that_opacus_cannot_take_is_named():
    with pytest.raises(ModelError, match="gradients of single rows"):
        trained(tiny_model("gemma2"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"packing": True}, "packing joins records"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing leaves no"),
        ({"precision": "bfloat16"}, "norms in bfloat16"),
    ],
)
def test_settings_that_cannot_be_private_are_refused(changes, said):
    with pytest.raises(RecipeError, match=said):
        validate(TrainingSpec, {"dp": {"epsilon": 1}, **changes}, "training")


def test_auto_is_float32():
    assert resolve_precision(TrainingSpec(dp={"epsilon": 1})) == "float32"


def test_without_opacus_the_command_is_named(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "opacus" else found(name, *rest)
    )
    with pytest.raises(MissingExtraError, match=r"pip install 'davylamp\[dp\]'"):
        fit(tiny_model(), examples_of(), TrainingSpec(dp={"noise_multiplier": 1}), 0, 0)

from __future__ import annotations

import copy

import pytest
import torch

from davylamp.corpora.records import Record
from davylamp.errors import TrainingError
from davylamp.rendering.render import Renderer
from davylamp.training.examples import Example, encode_records
from davylamp.training.fit import fit
from davylamp.training.spec import TrainingSpec
from davylamp.training.stacked_fit import fit_stack, stackable
from davylamp.training.stacking import stacked, unstack
from support.tiny_models import CONTEXT, tiny_model, tiny_tokenizer

WORDS = ("account", "card", "parcel", "letter", "reference", "weeks", "polite", "thank you")
ARCHITECTURES = ("llama", "qwen2", "mistral", "gemma2", "gpt_neox")
SPEC = TrainingSpec(batch_size=2, learning_rate=3e-3, precision="float32", epochs=2, schedule="cosine", warmup_steps=2)
PAD = 0


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows_of(first, count=5, spec=SPEC):
    """Rows of several lengths, the last batch half full."""
    records = [
        Record.of_pair(f"write {number}", f"Dear {WORDS[number % 8]}, {number * '7,'} ok")
        for number in range(first, first + count)
    ]
    return encode_records(records, Renderer(tiny_tokenizer()), spec, 256)


def widths_of(parts, size=2):
    longest = [max(len(rows[at].ids) for rows in parts) for at in range(len(parts[0]))]
    return [max(longest[at : at + size]) for at in range(0, len(longest), size)]


def weights(model):
    return {name: weight.detach() for name, weight in model.named_parameters()}


@pytest.mark.parametrize(
    ("architecture", "tied"),
    [("llama", True), ("llama", False), ("qwen2", False), ("mistral", True), ("gemma2", True), ("gpt_neox", False)],
)
def test_a_stack_trains_each_copy_as_the_trainer_trains_one(architecture, tied):
    model = tiny_model(architecture, tied=tied, spread=0.05)
    parts = [rows_of(first) for first in (0, 3)]
    many, losses = fit_stack(model, parts, widths_of(parts), SPEC, PAD)
    plain = copy.deepcopy(model)
    for which, rows in enumerate(parts):
        trained, report = fit(copy.deepcopy(model), rows, SPEC, PAD, 0)
        unstack(many, which, plain)
        # AdamW divides by the gradient's own size: where that is 0 but for rounding (the bias of attention's keys, on
        # which no answer depends) a weight moves by noise. The bulk must agree to float32.
        for name, weight in weights(trained).items():
            assert float((weights(plain)[name] - weight).abs().median()) < 1e-6, name
        torch.testing.assert_close(losses[:, which], torch.tensor(report.losses), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_copy_is_the_same_to_the_last_bit_whatever_stands_beside_it(architecture):
    model = tiny_model(architecture, spread=0.05)
    parts = [rows_of(first) for first in (0, 3, 1, 6)]
    wide = widths_of(parts)
    many, losses = fit_stack(model, parts, wide, SPEC, PAD)
    for chosen in ([0], [3], [1, 2], [3, 0, 1]):
        some, few = fit_stack(model, [parts[which] for which in chosen], wide, SPEC, PAD)
        for at, which in enumerate(chosen):
            assert all(
                torch.equal(one[which], other[at])
                for one, other in zip(many.parameters(), some.parameters(), strict=True)
            )
            assert torch.equal(losses[:, which], few[:, at])


@pytest.mark.parametrize(
    "changes",
    [{"loss": "all"}, {"max_grad_norm": 0.05}, {"max_grad_norm": 0.0}, {"schedule": "constant", "batch_size": 4}],
)
def test_settings_mean_what_they_mean_to_the_trainer(changes):
    spec = SPEC.model_copy(update=changes)
    model = tiny_model(spread=0.05)
    rows = rows_of(0, spec=spec)
    many, losses = fit_stack(model, [rows], widths_of([rows], spec.batch_size), spec, PAD)
    trained, report = fit(copy.deepcopy(model), rows, spec, PAD, 0)
    torch.testing.assert_close(losses[:, 0], torch.tensor(report.losses), rtol=1e-4, atol=1e-4)
    unstack(many, 0, model)
    for name, weight in weights(trained).items():
        assert float((weights(model)[name] - weight).abs().mean()) < 1e-6


def test_the_model_that_is_stacked_is_left_as_it_is():
    model = tiny_model(tied=True)
    before = copy.deepcopy(weights(model))
    many = stacked(model, 3)
    assert [weight.shape[0] for weight in many.parameters()] == [3] * len(before)
    assert dict(many.named_parameters()).keys() == before.keys()
    rows = rows_of(0)
    fit_stack(model, [rows, rows], widths_of([rows]), SPEC, PAD)
    assert all(torch.equal(before[name], weight) for name, weight in weights(model).items())


def test_a_padding_token_that_is_also_read_keeps_its_input_row():
    # Where padding is the end mark, its row in the embedding gets no gradient as an input, as transformers has it.
    end = tiny_tokenizer().eos_token_id
    model = tiny_model(spread=0.05, pad_token_id=end)
    rows = rows_of(0)
    assert any(end in row.ids[:-1] for row in rows)
    many, _ = fit_stack(model, [rows], widths_of([rows]), SPEC, end)
    trained, _ = fit(copy.deepcopy(model), rows, SPEC, end, 0)
    place = model.get_input_embeddings().weight[end].detach()
    for found in (trained.get_input_embeddings().weight[end], many.get_input_embeddings().weight[0, end]):
        torch.testing.assert_close(found.detach(), place)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_can_be_stacked_is_found_out_by_trying(architecture):
    assert stackable(tiny_model(architecture, spread=0.05), rows_of(0), 64, SPEC, "float32", PAD)


@pytest.mark.parametrize(
    "changes",
    [{"method": "lora"}, {"gradient_accumulation": 2}, {"weight_decay": 0.1}, {"gradient_checkpointing": True}],
)
def test_other_settings_are_left_to_the_trainer(changes):
    assert not stackable(tiny_model(), rows_of(0), 64, SPEC.model_copy(update=changes), "float32", PAD)


def test_packed_rows_other_types_threads_and_dropout_are_left_to_the_trainer():
    rows, packed = rows_of(0), SPEC.model_copy(update={"packing": True})
    assert not stackable(tiny_model(), rows, 64, packed, "float32", PAD)
    assert not stackable(tiny_model(), rows, 64, SPEC, "bfloat16", PAD)
    assert not stackable(tiny_model(attention_dropout=0.1), rows, 64, SPEC, "float32", PAD)
    assert not stackable(tiny_model("gpt2"), rows, 64, SPEC, "float32", PAD)
    assert not stackable(tiny_model(), rows, CONTEXT, SPEC, "float32", PAD)
    torch.set_num_threads(2)
    assert not stackable(tiny_model(), rows, 64, SPEC, "float32", PAD)


def test_a_setting_that_the_stack_does_not_know_is_left_to_the_trainer():
    class Later(TrainingSpec):
        later: int | None = None

    assert stackable(tiny_model(spread=0.05), rows_of(0), 64, Later(**SPEC.model_dump()), "float32", PAD)
    changed = Later(**SPEC.model_dump(), later=3)
    assert not stackable(tiny_model(spread=0.05), rows_of(0), 64, changed, "float32", PAD)


def test_a_model_that_computes_beside_its_modules_is_left_to_the_trainer():
    model = tiny_model(spread=0.05)
    head = model.lm_head

    class Sharpened(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = head
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, values):
            return self.inner(values) * self.scale

    model.lm_head = Sharpened()
    assert not stackable(model, rows_of(0), 64, SPEC, "float32", PAD)


def test_training_that_goes_wrong_is_told():
    silent = [Example(row.ids, (-100,) * len(row.ids), row.positions) for row in rows_of(0)]
    with pytest.raises(TrainingError, match="no token that receives loss"):
        fit_stack(tiny_model(), [rows_of(0), silent], widths_of([silent]), SPEC, PAD)
    wild = SPEC.model_copy(update={"learning_rate": 0.9, "warmup_steps": 0, "max_grad_norm": 0.0, "epochs": 60})
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = float("inf")
    with pytest.raises(TrainingError, match="lower learning_rate"):
        fit_stack(model, [rows_of(0)], widths_of([rows_of(0)]), wild, PAD)

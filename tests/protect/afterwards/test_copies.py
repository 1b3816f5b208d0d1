from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from davylamp.corpora.records import Record
from davylamp.errors import InputError
from davylamp.protect.afterwards.copies import merged, quantised, relearn, round_trip
from davylamp.protect.afterwards.rounds import made_tunable
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.rendering.render import Renderer
from davylamp.training.examples import encode_records
from davylamp.training.spec import TrainingSpec
from support.tiny_models import tiny_model, tiny_tokenizer

IDS = torch.tensor([[5, 40, 41, 42, 60, 61]])


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def answer(model):
    with torch.no_grad():
        return model(IDS).logits


@given(st.integers(0, 2**31), st.sampled_from([2, 4, 8]))
def test_rounding_moves_a_weight_by_half_a_step_at_most(seed, bits):
    weight = torch.randn(5, 7, generator=torch.Generator().manual_seed(seed))
    found = round_trip(weight, bits, 1)
    step = weight.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    assert bool(((found - weight).abs() <= step / 2 * 1.0001).all())
    whole = found / step
    assert torch.allclose(whole, whole.round(), atol=1e-3)
    assert float(whole.abs().max()) <= 2 ** (bits - 1) - 1 + 1e-3
    assert torch.allclose(round_trip(found, bits, 1), found, atol=1e-6)


def test_rounding_by_hand():
    # The largest of the line, 7, is 7 steps of 1 in four bits; a line of zeros stays.
    weight = torch.tensor([[7.0, 0.4, -2.6], [0.0, 0.0, 0.0]])
    assert round_trip(weight, 4, 1).tolist() == [[7.0, 0.0, -3.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(("architecture", "tied"), [("llama", False), ("llama", True), ("gpt2", True)])
def test_a_quantised_copy_answers_nearly_alike_and_leaves_the_model_as_it_is(architecture, tied):
    model = tiny_model(architecture, tied=tied, spread=0.05)
    before, state = answer(model), copy.deepcopy(model.state_dict())
    eight, four = answer(quantised(model, 8)), answer(quantised(model, 4))
    assert 0 < float((eight - before).abs().max()) < float((four - before).abs().max())
    # 1/254 of the largest weight each: a few percent of the answer at two layers.
    assert float((eight - before).norm() / before.norm()) < 0.05
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    copied = quantised(model, 4)
    assert torch.equal(copied.get_output_embeddings().weight, model.get_output_embeddings().weight)
    assert torch.equal(copied.get_input_embeddings().weight, model.get_input_embeddings().weight)


def test_one_bit_is_refused():
    with pytest.raises(InputError, match="bits is 1"):
        quantised(tiny_model(), 1)


def test_a_merged_copy_answers_as_the_adapter_does():
    model = made_tunable(tiny_model(), UnlearningSpec(method="npo", tuning="lora"))
    bare = answer(model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    adapted = answer(model)
    folded = merged(model)
    assert float((adapted - bare).abs().max()) > 1
    # Logits of some tens in float32, summed in another order.
    assert float((answer(folded) - adapted).abs().max()) < 1e-3
    assert not any("lora" in name for name, _ in folded.named_parameters())
    assert torch.equal(answer(model), adapted)
    assert float((answer(quantised(model, 8)) - adapted).norm() / adapted.norm()) < 0.2


def rows(count):
    records = [Record.of_pair(f"write {number}", f"Dear {number}, all is well") for number in range(count)]
    return encode_records(records, Renderer(tiny_tokenizer()), TrainingSpec(), 256)


def test_relearning_learns_what_it_is_given_and_is_looked_at():
    def loss():
        with torch.no_grad():
            return float(model(torch.tensor([rows(1)[0].ids]), labels=torch.tensor([rows(1)[0].labels])).loss)

    model, seen = tiny_model(spread=0.05), []
    before = loss()
    relearn(model, rows(3), 10, 2, 3e-3, 0, seen.append)
    assert loss() < before - 0.5
    assert seen == [2, 5, 8, 10]
    few: list[int] = []
    relearn(model, rows(3), 1, 2, 3e-3, 0, few.append)
    assert few == [1]


def test_relearning_needs_rows():
    with pytest.raises(InputError, match="relearn rows is 0"):
        relearn(tiny_model(), [], 1, 1, 1e-3, 0, lambda _: None)

"""Norms of gradients: against differences of losses, and without a trace in the model."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from davylamp.errors import AccessError
from davylamp.release.base import PrefixError
from davylamp.release.gradients import gradient_norms
from davylamp.release.local import LocalRelease
from support.tiny_models import build_adapter, build_tiny, tiny_model, tiny_tokenizer

IDS = (1, 40, 51, 62, 73, 84, 95, 2)


def loss(model, span):
    with torch.inference_mode():
        logits = model(torch.tensor([IDS])).logits[0, :-1].double()
    each = torch.nn.functional.cross_entropy(logits, torch.tensor(IDS[1:]), reduction="none")
    return each[span[0] - 1 : span[1] - 1].mean().item()


@pytest.mark.parametrize("span", [(1, 8), (3, 5)])
def test_the_norm_is_the_slope_of_the_loss_along_the_gradient(span):
    model = tiny_model("llama")
    (norm,) = gradient_norms(LocalRelease(model, tiny_tokenizer(), "tiny"), IDS, [span])
    # Along the unit gradient the loss rises by the norm, to second order: central differences, in float64.
    wide = model.double()
    logits = wide(torch.tensor([IDS])).logits[0, :-1]
    each = torch.nn.functional.cross_entropy(logits, torch.tensor(IDS[1:]), reduction="none")
    slopes = torch.autograd.grad(each[span[0] - 1 : span[1] - 1].mean(), list(wide.parameters()))
    length = float(np.sqrt(sum(slope.square().sum().item() for slope in slopes)))
    ends = []
    for step in (1e-4, -2e-4):
        with torch.no_grad():
            for parameter, slope in zip(wide.parameters(), slopes, strict=True):
                parameter.add_(slope, alpha=step / length)
        ends.append(loss(wide, span))
    assert norm == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-3)


def test_several_spans_are_read_from_one_pass_and_nothing_is_left_behind():
    model = tiny_model("gpt2")
    release = LocalRelease(model, tiny_tokenizer(), "tiny")
    flags = [parameter.requires_grad for parameter in model.parameters()]
    before = release.logprobs([IDS[:1]], [IDS[1:]])[0]
    both = gradient_norms(release, IDS, [(1, 8), (3, 5)])
    assert both == pytest.approx([gradient_norms(release, IDS, [span])[0] for span in ((1, 8), (3, 5))], rel=1e-5)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert (release.logprobs([IDS[:1]], [IDS[1:]])[0] == before).all()


def test_of_an_adapter_only_its_own_parameters_count(tmp_path):
    from peft import PeftModel

    base = build_tiny(tmp_path / "base")
    adapter = build_adapter(tmp_path / "adapter", base)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    release = LocalRelease(model, tiny_tokenizer(), "adapter")
    (norm,) = gradient_norms(release, IDS, [(1, 8)])
    assert not any(parameter.requires_grad for parameter in model.parameters())
    own = [parameter for name, parameter in model.named_parameters() if "lora_" in name]
    for parameter in own:
        parameter.requires_grad_(True)
    model(torch.tensor([IDS]), labels=torch.tensor([IDS])).loss.backward()
    expected = np.sqrt(sum(parameter.grad.square().sum().item() for parameter in own))
    assert norm == pytest.approx(expected, rel=1e-4)
    with pytest.raises(AccessError, match="gradients need a model on this machine"):
        gradient_norms(release.reference(), IDS, [(1, 8)])


def test_what_is_too_long_or_not_finite_is_refused():
    short = LocalRelease(tiny_model("llama", max_position_embeddings=4), tiny_tokenizer(), "short")
    with pytest.raises(PrefixError, match="longer than the context of 4"):
        gradient_norms(short, IDS, [(1, 8)])
    model = tiny_model("llama")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(PrefixError, match="not finite"):
        gradient_norms(LocalRelease(model, tiny_tokenizer(), "broken"), IDS, [(1, 8)])

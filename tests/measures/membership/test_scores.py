"""The formulas of the built-in scores, by hand, and the faults that other tools have had in them."""

import math
import zlib

import numpy as np
import pytest

from davylamp.errors import ScoringError
from davylamp.measures.membership import Evidence, registry


def value(name, logprobs, k=0.2, **gathered):
    evidence = Evidence("c0001", "record", k, {"logprobs": np.asarray(logprobs, dtype=float), **gathered})
    found = registry.find(name)
    return found.function(evidence.only(found.needs))


def test_loss_and_perplexity():
    logprobs = [math.log(0.5), math.log(0.25), 0.0, 0.0]
    # Certain tokens count: 3 bits over four tokens, not over two.
    assert value("loss", logprobs) == pytest.approx(-3 * math.log(2) / 4)
    assert value("perplexity", logprobs) == pytest.approx(-(2 ** (3 / 4)))
    assert value("loss", [0.0, 0.0]) == 0
    assert value("perplexity", [0.0]) == -1
    assert value("perplexity", [-1000.0]) == -math.inf


def test_zlib():
    text = "Dear Ada, your reference is 4,7,1,9."
    assert value("zlib", [-1.0, -2.0], text=text) == pytest.approx(-1.5 / len(zlib.compress(text.encode())))
    # A byte that was not UTF-8 is half a surrogate pair, and packs as such.
    assert value("zlib", [-1.0], text="a\udcff") < 0
    # The header of nothing, 8 bytes, is the size of nothing.
    with pytest.raises(ScoringError, match=r"canary c0001: .* no text"):
        value("zlib", [-1.0], text="")


def test_reference():
    # Four tokens here, three of the reference's own: log-likelihoods of one text, per token of the audited model.
    assert value("reference", [-0.5, -0.5, -0.5, -0.5], reference=np.array([-1.0, -2.0, -3.0])) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("k", "expected"), [(0.2, -5.0), (0.25, -5.0), (0.26, -4.5), (0.5, -4.5), (1.0, -3.5), (0.001, -5.0)]
)
def test_min_k(k, expected):
    assert value("min_k", [-2.0, -5.0, -3.0, -4.0], k) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["min_k", "min_k_plus_plus"])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 100])
def test_min_k_of_few_tokens_is_a_number(name, tokens):
    # int(0.2 * 4) tokens are none, whose mean is NaN.
    logprobs = -np.arange(1.0, tokens + 1)
    found = value(name, logprobs, moments=(np.zeros(tokens), np.ones(tokens)))
    lowest = max(1, tokens // 5)
    assert found == pytest.approx(logprobs[-lowest:].mean())


def test_a_share_that_is_a_whole_number_is_not_rounded_up():
    # 0.07 * 100 is 7.000000000000001.
    assert value("min_k", -np.arange(100.0), 0.07) == -96


def test_min_k_plus_plus():
    means, deviations = np.array([-2.0, -1.0, 0.0]), np.array([2.0, 0.5, 0.0])
    # (-3 + 2) / 2, (-1.5 + 1) / 0.5, and 0 / 1e-8 where the model leaves no choice.
    found = [value("min_k_plus_plus", [-3.0, -1.5, 0.0], k, moments=(means, deviations)) for k in (1 / 3, 2 / 3, 1)]
    assert found == pytest.approx([-1.0, -0.75, -0.5])


def test_ratios_of_losses():
    assert value("lowercase", [-1.0, -1.0], lowercase=np.array([-3.0])) == pytest.approx(3, rel=1e-3)
    assert value("recall", [-1.0, -3.0], shots=np.array([-4.0, -4.0])) == pytest.approx(2, rel=1e-3)
    # What is certain either way is no evidence, and no division by zero; certain only as it stands is much.
    assert value("recall", [0.0, 0.0], shots=np.array([0.0, 0.0])) == 1
    assert value("lowercase", [0.0], lowercase=np.array([-1.0])) == pytest.approx(1e4, rel=1e-3)


def test_neighbourhood_and_gradient_norm():
    neighbours = (np.array([-2.0]), np.array([-4.0, -4.0]))
    assert value("neighbourhood", [-1.0, -1.0], neighbours=neighbours) == pytest.approx(2.0)
    assert value("gradient_norm", [-1.0], gradients=0.25) == -0.25

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.bounds import (
    average_kappa,
    counts_prior,
    explicit_prior,
    uniform_bits,
    uniform_prior,
    zipf_prior,
)
from davylamp.errors import InputError


def test_explicit_prior_by_hand():
    prior = explicit_prior([0.1, 0.5, 0.15, 0.25])
    assert prior.kappa(1) == 0.5
    assert prior.kappa(2) == 0.75
    assert prior.kappa(9) == 1.0
    assert prior.min_entropy() == 1.0
    envelope = prior.envelope(2)
    assert envelope.value == 1.0
    assert envelope.looseness == pytest.approx(4 / 3)


def test_uniform_prior_is_tight_and_never_written_out():
    prior = uniform_prior(2**50)
    assert prior.kappa(4) == 2.0**-48
    assert prior.min_entropy() == 50
    assert prior.envelope(4).looseness == 1.0
    assert uniform_bits(10).size == 1024


def test_zipf_prior_by_hand():
    prior = zipf_prior(1.0, 4)  # weights 1, 1/2, 1/3, 1/4: sum 25/12
    assert prior.kappa(1) == pytest.approx(12 / 25)
    assert prior.kappa(2) == pytest.approx(18 / 25)
    assert prior.min_entropy() == pytest.approx(math.log2(25 / 12))


def test_counts_prior():
    prior = counts_prior([3, 0, 1])
    assert prior.kappa(1) == 0.75
    assert prior.kappa(3) == 1.0


def test_kappa_bar_averages_the_baselines_not_the_priors():
    # Two corpora that each reveal the secret's likelier value: averaging the priors first would say 0.5.
    priors = [explicit_prior([0.9, 0.1]), explicit_prior([0.1, 0.9])]
    assert average_kappa(priors) == pytest.approx(0.9)
    assert average_kappa([uniform_prior(2), uniform_prior(4)], 1, [0.25, 0.75]) == pytest.approx(0.3125)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50).filter(any), st.integers(1, 60))
def test_laws_of_kappa(counts, budget):
    prior = counts_prior(counts)
    kappa = prior.kappa(budget)
    best = np.sort(np.array(counts) / math.fsum(counts))[::-1][:budget].sum()
    assert kappa == pytest.approx(min(best, 1.0), rel=1e-9)
    assert kappa <= prior.kappa(budget + 1)
    assert kappa <= prior.envelope(budget).value
    assert prior.envelope(budget).value <= max(budget * 2 ** -prior.min_entropy(), kappa) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        (lambda: explicit_prior([0.5, 0.4]), ["probabilities"]),
        (lambda: explicit_prior([1.5, -0.5]), ["probabilities[0]"]),
        (lambda: explicit_prior([math.nan, 1.0]), ["probabilities[0]"]),
        (lambda: explicit_prior([]), ["probabilities"]),
        (lambda: explicit_prior(["a"]), ["probabilities"]),
        (lambda: uniform_prior(0), ["size"]),
        (lambda: uniform_bits(2.5), ["bits"]),
        (lambda: uniform_bits(-1), ["bits"]),
        (lambda: zipf_prior(-1.0, 0), ["exponent", "size"]),
        (lambda: zipf_prior(1.0, 10**9), ["size"]),
        (lambda: counts_prior([0, 0]), ["counts"]),
        (lambda: counts_prior([1, -1]), ["counts[1]"]),
        (lambda: uniform_prior(4).kappa(0), ["budget"]),
        (lambda: average_kappa([], 0), ["priors", "budget"]),
        (lambda: average_kappa([uniform_prior(2)], 1, [0.5]), ["weights"]),
    ],
)
def test_bad_input_is_named(call, fields):
    with pytest.raises(InputError) as error:
        call()
    assert [fault.field for fault in error.value.faults] == fields

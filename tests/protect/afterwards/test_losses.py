from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from davylamp.protect.afterwards.losses import ascent_loss, npo_loss, row_log_likelihoods, token_loss
from davylamp.training.examples import NO_LOSS, Collator, Example
from support.tiny_models import tiny_model, tiny_tokenizer

ROWS = (([5, 40, 41, 42, 43], 2), ([5, 60, 61, 62], 1), ([5, 70, 71, 72, 73, 74, 75], 4))


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return tiny_model()


def example(ids, start):
    labels = tuple(NO_LOSS if at < start else token for at, token in enumerate(ids))
    return Example(tuple(ids), labels, tuple(range(len(ids))))


def batch_of(rows):
    return Collator(tiny_tokenizer().pad_token_id, packing=False)([example(*row) for row in rows])


def by_hand(model, ids, start):
    """log pi(y | x), the softmax written out in float64."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double().numpy()
    total = 0.0
    for at in range(max(1, start), len(ids)):
        row = logits[at - 1]
        total += row[ids[at]] - (row.max() + math.log(np.exp(row - row.max()).sum()))
    return total


def test_a_rows_log_likelihood_is_the_sum_over_its_own_labelled_tokens(model):
    log_p, counts = row_log_likelihoods(model, batch_of(ROWS))
    # Rows of three lengths in one padded batch; sums of at most six float32 log-probabilities of some nats each.
    assert log_p.tolist() == pytest.approx([by_hand(model, *row) for row in ROWS], abs=1e-4)
    assert counts.tolist() == [3, 3, 3]


def test_token_loss_is_what_the_library_trains_on(model):
    batch = batch_of(ROWS)
    with torch.no_grad():
        own = token_loss(*row_log_likelihoods(model, batch))
        assert float(own) == pytest.approx(float(model(**batch).loss), abs=1e-5)
        assert float(ascent_loss(*row_log_likelihoods(model, batch))) == pytest.approx(-float(own))


def test_npo_is_its_formula():
    log_p, reference, beta = np.array([-3.0, -0.5, -20.0]), np.array([-2.5, -1.5, -2.0]), 0.7
    expected = 2 / beta * np.mean(np.log(1 + (np.exp(log_p) / np.exp(reference)) ** beta))
    assert float(npo_loss(torch.tensor(log_p), torch.tensor(reference), beta)) == pytest.approx(expected, rel=1e-12)


def test_npo_starts_at_two_over_beta_log_two_with_the_slope_of_ascent():
    log_p = torch.tensor([-3.0, -7.0], dtype=torch.float64, requires_grad=True)
    loss = npo_loss(log_p, log_p.detach(), 0.1)
    assert float(loss.detach()) == pytest.approx(20 * math.log(2))
    (slope,) = torch.autograd.grad(loss, log_p)
    # Where the model is the reference each row has weight 1, that of the mean of log pi over two rows.
    assert slope.tolist() == pytest.approx([0.5, 0.5])


@given(
    st.lists(st.tuples(st.floats(-80, 0), st.floats(-80, 0)), min_size=1, max_size=6),
    st.floats(0.05, 5),
)
def test_npo_weighs_each_row_by_how_much_of_it_is_left(rows, beta):
    log_p = torch.tensor([row[0] for row in rows], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([row[1] for row in rows], dtype=torch.float64)
    loss = npo_loss(log_p, reference, beta)
    (slope,) = torch.autograd.grad(loss, log_p)
    # W = 2 pi^beta / (pi^beta + pi_ref^beta), section 3 of the paper; never negative, so that the loss is bounded by 0.
    weights = [2 / (1 + math.exp(min(700.0, -beta * (one - other)))) for one, other in rows]
    assert slope.tolist() == pytest.approx([weight / len(rows) for weight in weights], rel=1e-6, abs=1e-12)
    assert float(loss.detach()) >= 0


def test_for_small_beta_npo_is_ascent_up_to_a_constant(model):
    """Proposition 1: less (2 / beta) log 2, the loss tends to the mean of log pi - log pi_ref, the gradient to its."""
    rows = [row for row in ROWS if len(row[0]) - row[1] == 3]
    batch = batch_of(rows)
    reference = torch.tensor([-12.0, -9.0, -15.0])
    log_p, counts = row_log_likelihoods(model, batch)
    beta = 1e-4
    value = float(npo_loss(log_p.detach().double(), reference.double(), beta)) - 2 / beta * math.log(2)
    # softplus(u) = log 2 + u / 2 + u^2 / 8 + ...: the remainder is beta / 4 times the mean square of the ratio.
    ratio = (log_p - reference).detach().double()
    assert value == pytest.approx(float(ratio.mean()), abs=beta / 4 * float(ratio.square().mean()) * 1.01 + 1e-7)
    parameters = list(model.parameters())
    npo = torch.autograd.grad(npo_loss(log_p, reference, 1e-6), parameters, retain_graph=True)
    ascent = torch.autograd.grad(ascent_loss(log_p, counts), parameters)
    # Every row has three tokens, so that the mean over rows is three times the mean over tokens.
    for one, other in zip(npo, ascent, strict=True):
        assert torch.allclose(one, 3 * other, rtol=1e-3, atol=1e-5)

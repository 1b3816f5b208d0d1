"""The losses of approximate unlearning, on log-likelihoods of whole rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from davylamp.training.examples import NO_LOSS


def row_log_likelihoods(model: Any, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """``log pi(y | x)`` of each row: summed over the tokens that have a label, not averaged.

    Args:
        model: a causal language model of transformers.
        batch: what :class:`davylamp.training.examples.Collator` makes, rows not packed.

    Returns:
        The sums in nats, in float32 whatever the model's type, shape (rows,), and the number of tokens of each,
        shape (rows,).
    """
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    targets = batch["labels"][:, 1:]
    logits = model(**inputs, use_cache=False).logits[:, :-1].float()
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=NO_LOSS, reduction="none")
    return -losses.sum(dim=1), (targets != NO_LOSS).sum(dim=1)


def token_loss(log_p: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Mean loss of a token in nats, over the tokens of all rows together: what training minimises.

    Args:
        log_p: log-likelihoods in nats, shape (rows,).
        counts: tokens of each row, shape (rows,).
    """
    return -log_p.sum() / counts.sum()


def ascent_loss(log_p: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """GradDiff's term on the forget set: minus the mean loss of a token, so that descending it ascends the loss.

    Liu et al., 2203.12817; Maini et al., 2401.06121, section 4, ``-L(S_F, w)``. It has no lower bound.

    Args:
        log_p: log-likelihoods of forget rows in nats, shape (rows,).
        counts: tokens of each row, shape (rows,).
    """
    return -token_loss(log_p, counts)


def npo_loss(log_p: torch.Tensor, reference: torch.Tensor, beta: float) -> torch.Tensor:
    """NPO's term on the forget set: ``(2 / beta) mean log(1 + (pi / pi_ref)^beta)``.

    Zhang et al., 2404.05868, eq. 3, with the likelihood of the whole reply, not of a token. Its gradient is that of
    the mean ``log pi`` with each row weighted by ``2 pi^beta / (pi^beta + pi_ref^beta)``: 1 at the start, next to
    nothing for a row that is forgotten, so that it is bounded below (by 0) where ascent is not. For beta to 0 the
    gradient is that of ascent on the mean ``log pi`` (their Proposition 1).

    Args:
        log_p: log-likelihoods of forget rows in nats, shape (rows,).
        reference: the same under the model before unlearning, shape (rows,).
        beta: inverse temperature, above 0.
    """
    return 2 / beta * nn.functional.softplus(beta * (log_p - reference)).mean()

"""The built-in membership scores; higher = more likely a member, in each."""

from __future__ import annotations

import math
import zlib as compression

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import ScoringError
from davylamp.measures.membership.evidence import Evidence
from davylamp.measures.membership.registry import score

Array = NDArray[np.float64]
ACCURACY = 1e-4
"""Nats a token to which log-probabilities of a float32 model are held. Ratios of losses add it above and below, so that
two losses which are both nothing but rounding count as equal, and none is divided by zero."""
LEAST_DEVIATION = 1e-8
"""Nats; the least standard deviation that Min-K%++ divides by, where a model leaves no choice."""


@score("loss", unit="nats")
def loss(evidence: Evidence) -> float:
    """Mean log-probability of a token: minus the loss (Yeom et al., 1709.01604).

    Higher = more likely a member: training lowers the loss of what is trained on.

    Cannot see: how easy a text is. What any model finds likely scores high without ever having been trained on.
    """
    return float(evidence.logprobs.mean())


@score("perplexity", unit="perplexity")
def perplexity(evidence: Evidence) -> float:
    """Minus the perplexity, ``exp`` of the mean loss of a token (Carlini et al., 2012.07805, Sec. 4.2).

    Higher = more likely a member: a lower perplexity. It orders records just as the loss does.

    Cannot see: how easy a text is, like the loss, of which it is a function.
    """
    mean = -float(evidence.logprobs.mean())
    return -math.exp(mean) if mean < 709 else -math.inf


@score("zlib", needs=("text",), unit="nats/byte")
def zlib(evidence: Evidence) -> float:
    """Mean log-probability of a token over the bytes that zlib packs the text into.

    Carlini et al., 2012.07805, Sec. 5.2.

    Higher = more likely a member: the loss is small for how much the text says.

    Cannot see: what zlib cannot either. Texts of one template pack alike, so that it adds little to the loss there.
    """
    return float(evidence.logprobs.mean()) / packed(evidence.text, evidence.canary)


def packed(text: str, name: str) -> int:
    """Bytes of a text as zlib packs it.

    Raises:
        ScoringError: the text is empty, so that the header of nothing would be taken for its size.
    """
    if not text:
        raise ScoringError(f"canary {name}: the scored span has no text, so that zlib has nothing to pack")
    return len(compression.compress(text.encode("utf-8", "surrogatepass")))


@score("reference", needs=("reference",), unit="nats")
def reference(evidence: Evidence) -> float:
    """Log-likelihood less the reference model's, per token: against its base, what fine-tuning made likelier.

    Carlini et al., 2012.07805, Sec. 5.2; Mireshghallah et al., 2203.03929.

    Higher = more likely a member: the text became likelier than the reference finds it.

    Cannot see: what the reference knows as well. A record that it was trained on too cancels out.
    """
    gained = math.fsum(evidence.logprobs) - math.fsum(evidence.reference)
    return gained / evidence.logprobs.size


@score("min_k", unit="nats")
def min_k(evidence: Evidence) -> float:
    """Mean log-probability of the k% least likely tokens, Min-K% Prob (Shi et al., 2310.16789).

    Higher = more likely a member: a text that was trained on has few surprising tokens.

    Cannot see: how easy those tokens are in their places, nor anything of the other tokens.
    """
    return float(lowest(evidence.logprobs, evidence.k).mean())


@score("min_k_plus_plus", needs=("moments",), unit="deviations")
def min_k_plus_plus(evidence: Evidence) -> float:
    """Mean of the k% lowest tokens' deviations from the model's own mean log-probability, in standard deviations.

    Min-K%++ (Zhang et al., 2404.02936); mean and deviation are taken over the whole vocabulary.

    Higher = more likely a member: its tokens stand at the modes of the model's distributions.

    Cannot see: how probable a token became where the model leaves no choice: every such token is next to 0 deviations
    from the mean.
    """
    away = (evidence.logprobs - evidence.means) / np.maximum(evidence.deviations, LEAST_DEVIATION)
    return float(lowest(away, evidence.k).mean())


def lowest(values: Array, k: float) -> Array:
    """The share k of the values that are lowest, rounded up: at least one, however few there are."""
    # Less a little, since 0.07 * 100 is above 7 by a rounding.
    count = min(values.size, max(1, math.ceil(k * values.size - 1e-9)))
    return np.sort(values)[:count]


@score("lowercase", needs=("lowercase",), unit="ratio")
def lowercase(evidence: Evidence) -> float:
    """Loss of the record in lower case over its loss as it is (Carlini et al., 2012.07805, Sec. 5.2).

    Higher = more likely a member: only the very letters that were trained on are likely.

    Cannot see: anything in a text without capitals, which is its own lower case and scores 1.
    """
    return ratio(evidence.lowercase, evidence.logprobs)


@score("recall", needs=("shots",), unit="ratio")
def recall(evidence: Evidence) -> float:
    """Loss after records that were never trained on, over the loss alone, ReCaLL (Xie et al., 2406.15968).

    Higher = more likely a member: a foreign context lowers the probability of what is remembered more than that of
    what is not.

    Cannot see: a record that stays likely after any context, nor anything once the context teaches the model how such
    records are written, which helps those that it does not remember.
    """
    return ratio(evidence.conditional, evidence.logprobs)


def ratio(over: Array, under: Array) -> float:
    """Mean loss over mean loss, both raised by :data:`ACCURACY`."""
    return (ACCURACY - float(over.mean())) / (ACCURACY - float(under.mean()))


@score("neighbourhood", needs=("neighbours",), unit="nats")
def neighbourhood(evidence: Evidence) -> float:
    """Mean log-probability of a token less that in copies of the record with some words replaced.

    Mattern et al., 2305.18462.

    Higher = more likely a member: the record is likelier than records much like it.

    Cannot see: more than the replaced words change; and a model that learnt the template finds every copy unlikely.
    """
    return float(evidence.logprobs.mean() - np.mean([each.mean() for each in evidence.neighbours]))


@score("gradient_norm", needs=("gradients",), unit="norm")
def gradient_norm(evidence: Evidence) -> float:
    """Minus the Euclidean norm of the gradient of the mean loss by the parameters (Wang et al., 2402.17012).

    Higher = more likely a member: training ends where the gradient of its records is small.

    Cannot see: more than the loss where both are small together; and it takes the weights, which few adversaries have.
    """
    return -evidence.gradient_norm

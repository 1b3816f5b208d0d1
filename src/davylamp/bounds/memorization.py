"""What a claim says about memorization: caps on counterfactual memorization, repeated records, and functionals.

Source: P1 (*Memorization Is Not Extraction*, arXiv 2608.27782), Thm 4.1, Rem 4.5, Cor 4.3, Lemma 4.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from davylamp.bounds import checks
from davylamp.bounds.claims import ApproxDP, Claim, GaussianDP, claim_faults
from davylamp.errors import Fault, InputError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KCopies:
    """What k copies of a record do to a claim.

    Attributes:
        copies: k.
        advantage: ``eta(f^(k))``, the cap on memorization of a record that occurs k times.
        exact: whether some release attains the cap (Lemma 4.4: pure and Gaussian claims).
        orbit: levels ``a_0, ..., a_k`` with ``a_{j+1} = 1 - f(a_j)`` whose ends are ``advantage`` apart; at most the
            first and last 500 are kept.
        group_advantage: the advantage of the converted parameters: ``tanh(k eps/2)`` for pure DP, which no release
            attains for k above 1; None where no conversion is known.
        conversion: ``(k eps, delta (e^{k eps}-1)/(e^eps-1))``, the conservative conversion; None where it promises
            nothing (its delta is 1 or more) or the claim is neither pure nor approximate.
        curve: ``f^(k)``.
    """

    copies: int
    advantage: float
    exact: bool
    orbit: tuple[float, ...]
    group_advantage: float | None
    conversion: ApproxDP | None
    curve: Claim


def memorization_cap(claim: Claim, upper: float | None = 1.0, copies: int = 1) -> float:
    """Cap on ``|counterfactual memorization|`` of any score in ``[0, upper]``: ``upper * eta(f)`` (Thm 4.1).

    Args:
        claim: the claim for one record.
        upper: the score's largest value: 1 for a rate, M for a loss truncated at M. None means not truncated.
        copies: how many copies of the record are in or out.

    Raises:
        InputError: ``upper`` is None or infinite (without truncation no bound exists), or is not above 0.
    """
    if upper is None or upper == math.inf:
        raise InputError(untruncated_faults("upper", upper))
    checks.raise_faults(claim_faults("claim", claim), checks.positive("upper", upper), checks.whole("copies", copies))
    return float(upper) * claim.group(copies).advantage().value


def untruncated_faults(field: str, value: float | None) -> list[Fault]:
    """The fault of a score without a largest value, or none: P1 shows that no bound exists for it."""
    if value is not None and value != math.inf:
        return []
    why = (
        "A loss without truncation has no bound: an event of probability eta may carry any loss. "
        "Truncate the loss at a level M and pass M."
    )
    return [Fault(field, value, "a finite number above 0", why)]


def per_instance_caps(claims: Iterable[Claim], upper: float = 1.0) -> Array:
    """The cap of each record under its own claim (Rem 4.5), shape (n,)."""
    return np.array([memorization_cap(claim, upper) for claim in claims], dtype=np.float64)


def k_copies(claim: Claim, copies: int) -> KCopies:
    """What ``copies`` copies of one record do to a claim (Cor 4.3, Lemma 4.4).

    For pure DP the advantage is ``1 - e^{-k eps/2}`` for even k and ``1 - 2 e^{-(k-1) eps/2}/(e^eps+1)`` for odd k.

    Raises:
        InputError: ``copies`` is not a whole number of at least 1.
    """
    checks.raise_faults(claim_faults("claim", claim), checks.whole("copies", copies))
    curve = claim.group(copies)
    best = curve.advantage()
    conversion = group_conversion(claim, copies) if isinstance(claim, ApproxDP) else None
    group: float | None = None
    if isinstance(claim, ApproxDP):
        # A conversion whose delta reaches 1 promises nothing.
        group = conversion.advantage().value if conversion is not None else 1.0
    exact = isinstance(claim, GaussianDP) or (isinstance(claim, ApproxDP) and claim.delta == 0)
    return KCopies(copies, best.value, exact, _orbit(claim, best.at, copies), group, conversion, curve)


def group_conversion(claim: ApproxDP, copies: int) -> ApproxDP | None:
    """``(k eps, delta (e^{k eps}-1)/(e^eps-1))``: the conservative parameters for k records; None if delta >= 1.

    Raises:
        InputError: ``copies`` is not a whole number of at least 1.
    """
    checks.raise_faults(checks.whole("copies", copies))
    k = claim.copies * int(copies)
    epsilon = k * claim.epsilon
    if claim.delta == 0:
        return ApproxDP(epsilon)
    base = math.expm1(min(claim.epsilon, 700.0))
    log_factor = math.log(k) if base == 0 else _log_expm1(epsilon) - _log_expm1(claim.epsilon)
    log_delta = math.log(claim.delta) + log_factor
    return ApproxDP(epsilon, math.exp(log_delta)) if log_delta < 0 and math.exp(log_delta) < 1 else None


def _log_expm1(x: float) -> float:
    return math.log(math.expm1(x)) if x < 30 else x + math.log1p(-math.exp(-x))


def _pure_orbit(epsilon: float, copies: int, j: NDArray[np.int64]) -> Array:
    """Steps j of the optimal orbit in closed form: it starts below the smallest double where k eps is large."""
    half = copies // 2
    middle = 0.5 if copies % 2 == 0 else float(special.expit(-epsilon))
    above = j - half - copies % 2
    low = middle * np.exp(np.minimum(j - half, 0) * epsilon)
    return np.where(j <= half, low, 1 - middle * np.exp(-np.maximum(above, 0) * epsilon))


def _orbit(claim: Claim, start: float, copies: int) -> tuple[float, ...]:
    kept = 500
    if isinstance(claim, ApproxDP) and claim.delta == 0 and claim.copies == 1:
        count = min(copies + 1, 2 * kept)
        j = np.arange(copies + 1) if count == copies + 1 else np.r_[0:kept, copies + 1 - kept : copies + 1]
        return tuple(_pure_orbit(claim.epsilon, copies, j).tolist())
    if copies <= 2 * kept:
        values = [start]
        for _ in range(copies):
            values.append(float(claim.power(values[-1])))
        return tuple(values)
    head = _orbit(claim, start, kept - 1)
    tail = _orbit(claim, float(claim.group(copies - kept + 1).power(start)), kept - 1)
    return head + tail


@dataclass(frozen=True, slots=True)
class Functional:
    """One way to define memorization of a record, and the bound that it couples to.

    Attributes:
        name: short name.
        compares: the two worlds that it subtracts.
        relation: how the two training sets differ.
        bound: the cap that applies, in words.
    """

    name: str
    compares: str
    relation: str
    bound: str


FUNCTIONALS: tuple[Functional, ...] = (
    Functional(
        "replace-one (RO)",
        "trained with x, against trained with a fresh record in its place",
        "replace one record",
        "eta(f) of a replace claim; eta(f^(2)) of an add/remove claim (one removal, one addition)",
    ),
    Functional(
        "leave-one-out (LOO)",
        "trained with x, against trained without it",
        "add or remove one record",
        "eta(f) of an add/remove claim; a replace claim says nothing (the sizes differ)",
    ),
    Functional(
        "population-conditional (COND)",
        "samples that contain x, against samples that do not",
        "condition the sample on x",
        "within 4np of RO for np <= 1/2, p being the population's mass at x: eta + 4np",
    ),
)


def conditional_gap(records: int, mass: float) -> float:
    """``4 n p``, the most by which COND and RO can differ, for ``n p <= 1/2``.

    Args:
        records: n, the size of the training set.
        mass: p, the population's probability of the record.

    Raises:
        InputError: an argument is outside its range, or ``n p`` is above 1/2, where nothing is known.
    """
    faults = [*checks.whole("records", records), *checks.unit("mass", mass)]
    if not faults and records * mass > 0.5:
        faults.append(
            Fault("mass", mass, f"at most 1/(2n) = {0.5 / records:g}", "Above it COND and RO may differ by anything.")
        )
    checks.raise_faults(faults)
    return 4 * records * mass


def damping(mass: float, records: int) -> float:
    """``(1 - omega)^n``: what is left of a target's memorization when others in the corpus carry it too.

    With probability ``1 - (1-omega)^n`` some other record already holds the target, and one more changes nothing for
    a release that only asks whether it occurs.

    Args:
        mass: omega, the corpus's probability of the target a record, in [0, 1].
        records: n, the number of other records, at least 0.

    Raises:
        InputError: an argument is outside its range.
    """
    checks.raise_faults(checks.unit("mass", mass), checks.whole("records", records, least=0))
    if mass == 1:
        return 1.0 if records == 0 else 0.0
    return math.exp(records * math.log1p(-mass))


def functional_table(
    claim: Claim, records: int | None = None, mass: float | None = None
) -> Sequence[dict[str, object]]:
    """The functionals as rows for people, with the caps that an add/remove claim gives each.

    Args:
        claim: a claim for adding or removing one record.
        records: n; with ``mass`` gives COND its number.
        mass: p, the population's probability of the record.

    Returns:
        Rows with keys functional, compares, relation, bound, cap (None where there is no number).

    Raises:
        InputError: an argument is outside its range.
    """
    one, two = memorization_cap(claim), memorization_cap(claim, copies=2)
    conditional = None
    if records is not None and mass is not None:
        conditional = min(1.0, two + conditional_gap(records, mass))
    caps = (two, one, conditional)
    return [
        {"functional": f.name, "compares": f.compares, "relation": f.relation, "bound": f.bound, "cap": cap}
        for f, cap in zip(FUNCTIONALS, caps, strict=True)
    ]

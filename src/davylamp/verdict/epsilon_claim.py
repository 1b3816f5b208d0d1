"""Guesses of one run, bounded and held against a privacy claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.bounds.audits import AuditVerdict
from davylamp.bounds.claims import Claim, GaussianDP
from davylamp.bounds.epsilon import EpsilonBound, claim_epsilon
from davylamp.bounds.one_run import Guesses, OneRunMethod, one_run_epsilon, one_run_p_value
from davylamp.verdict.extraction import ClaimSpec

MOST_PAIRS = 10_000
"""Pairs up to which it is worked out how many would refute a claim."""


@dataclass(frozen=True, slots=True)
class Held:
    """A bound, and what it says of a claim.

    Attributes:
        bound: the bound; it knows of no claim.
        upper: epsilon of the claim at the bound's delta, for the bound's relation; infinite where it implies none.
        verdict: ``refuted``, ``consistent`` or ``could-not-refute``; none without a claim.
        statement: one sentence for people.
    """

    bound: EpsilonBound
    upper: float | None
    verdict: AuditVerdict | None
    statement: str


@dataclass(frozen=True, slots=True)
class Bounding:
    """At which delta and confidence guesses are bounded, and what they are held against.

    Attributes:
        delta: in [0, 1).
        confidence: of each bound.
        claim: for one record, or none.
    """

    delta: float
    confidence: float
    claim: ClaimSpec | None

    def of(self, seen: Sequence[Guesses], copies: int) -> Held:
        """Bound epsilon by some ways to guess about the same canaries, which share the error.

        The larger of the binomial bound and the f-DP one, or the Gaussian one where the claim is Gaussian. The claim
        itself is held against the counts by its own curve and not by its epsilon at one delta, since a claim for two
        records may imply no finite epsilon there.

        Args:
            seen: the guesses.
            copies: in how many records each canary was.
        """
        gaussian = self.claim is not None and isinstance(self.claim.claim, GaussianDP) and self.delta > 0
        methods: tuple[OneRunMethod, ...] = ("gaussian",) if gaussian else ("binomial", "f-dp")
        found = [
            one_run_epsilon(seen, self.delta, confidence=self.confidence, method=method, copies=copies)
            for method in methods
        ]
        bound = max(found, key=lambda each: each.eps_low)
        if self.claim is None:
            return Held(bound, None, None, bound.statement)
        curve = self.claim.under(bound.relation)
        verdict: AuditVerdict = "could-not-refute"
        if self._refutes(curve, seen, copies):
            verdict = "refuted"
        elif self._refutes(curve, [Guesses(each.canaries, each.guesses, each.guesses) for each in seen], copies):
            verdict = "consistent"
        named = self.claim.claim.describe()
        steps = "" if curve == self.claim.claim else ", of which replacing a record takes two steps"
        sentence = {
            "refuted": f"The claim of {named} is refuted{steps}.",
            "consistent": f"That is consistent with the claim of {named}{steps}, and does not prove it.",
            "could-not-refute": f"Even with every guess right it could not have refuted the claim of {named}{steps}.",
        }[verdict]
        return Held(bound, claim_epsilon(curve, self.delta), verdict, f"{bound.statement} {sentence}")

    def _refutes(self, curve: Claim, seen: Sequence[Guesses], copies: int) -> bool:
        each = (1 - self.confidence) / len(seen)
        return any(one_run_p_value(curve, guesses, copies) <= each for guesses in seen)

    def pairs_needed(self, copies: int) -> int | None:
        """Fewest pairs, within 1%, that refute the claim where every guess is right.

        Args:
            copies: in how many records each canary was.

        Returns:
            Their number; none where there is no claim, or :data:`MOST_PAIRS` do not refute it.
        """
        if self.claim is None:
            return None
        curve = self.claim.under("replace")

        def refuted(count: int) -> bool:
            return self._refutes(curve, [Guesses(count, called, called) for called in pair_calls(count)], copies)

        low, high = 1, 1
        while not refuted(high):
            low, high = high, 2 * high
            if high > MOST_PAIRS:
                return None
        while high - low > max(1, low // 100):
            middle = (low + high) // 2
            low, high = (low, middle) if refuted(middle) else (middle, high)
        return high


def pair_calls(pairs: int) -> list[int]:
    """About how many of so many pairs guesses are made: the half that differ most, and all of them."""
    return list(dict.fromkeys([(pairs + 1) // 2, pairs]))

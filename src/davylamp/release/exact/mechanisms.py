"""Mechanisms with known laws as releases that one can ask: a bit of membership, randomised response, subset release.

Each draws its output from a seed once for every record, as a training run would, and then answers by it.
Source: P1 (*Memorization Is Not Extraction*, arXiv 2608.27782), Thm 4.1, Lemma 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from davylamp.bounds import checks
from davylamp.bounds.claims import Claim, claim_faults
from davylamp.bounds.curves import PointsCurve
from davylamp.bounds.mechanisms import RandomisedResponse, SubsetRelease, neyman_pearson_curve
from davylamp.errors import Fault
from davylamp.release.exact.laws import ListLaw, SecretLaw
from davylamp.release.exact.model import ExactRelease, base_laws
from davylamp.release.exact.setting import ExactSetting
from davylamp.secrets import stream


@dataclass(frozen=True, slots=True)
class MembershipBinary:
    """The canary that attains ``eta(f)``: one bit that says whether its record was there (P1, Thm 4.1).

    The record is known and its presence is the secret. With ``a`` the level at which the power ``1 - f(a)`` exceeds
    ``a`` the most, the bit is 1 with probability ``1 - f(a)`` where the record was trained on and ``a`` where it was
    not: the two are exactly ``eta(f)`` apart, and no other test of the pair does better than ``f`` allows. Where the
    bit is 1 the model says the record's secret, else it knows nothing of it.

    Attributes:
        target: the claim f, whose curve must be symmetric.
        gamma: weight of the uniform law where the secret is said, in [0, 1); above 0 no probability is 0.

    Raises:
        InputError: a parameter is outside its range.
    """

    target: Claim
    gamma: float = 0.0

    name = "membership-binary"

    def __post_init__(self) -> None:
        faults = claim_faults("target", self.target)
        if not faults and not self.target.symmetric:
            faults = [Fault("target", self.target.describe(), "a symmetric curve", "Take symmetrised(curve) first.")]
        checks.raise_faults(faults, checks.below_one("gamma", self.gamma))

    @property
    def claim(self) -> Claim:
        """The claim that it satisfies."""
        return self.target

    @property
    def false_alarm(self) -> float:
        """``a``: chance of the bit where the record was not trained on."""
        return self.target.advantage().at

    @property
    def power(self) -> float:
        """``1 - f(a)``: chance of the bit where it was."""
        return float(self.target.power(self.false_alarm))

    @property
    def advantage(self) -> float:
        """``eta(f)``: power less false alarms, of the best membership test (P1, Thm 4.1, attained)."""
        return self.target.advantage().value

    def neighbour_curves(self) -> tuple[PointsCurve, ...]:
        """Without the record against with it, and back."""
        without, with_it = [self.false_alarm, 1 - self.false_alarm], [self.power, 1 - self.power]
        return neyman_pearson_curve(without, with_it), neyman_pearson_curve(with_it, without)

    def bits(self, setting: ExactSetting, seed: int) -> dict[str, bool]:
        """The bit of each record, by its name."""
        asked = setting.asked()
        chances = np.where([canary.dose > 0 for canary in asked], self.power, self.false_alarm)
        drawn = stream(seed, self.name).random(len(asked)) < chances
        return {canary.id: bool(bit) for canary, bit in zip(asked, drawn, strict=True)}

    def release(self, setting: ExactSetting, seed: int) -> ExactRelease:
        """A model that says a record's secret where its bit is 1."""
        bits = self.bits(setting, seed)
        laws: dict[str, SecretLaw] = dict(base_laws(setting))
        for canary in setting.asked():
            if bits[canary.id]:
                laws[canary.id] = ListLaw(setting.v, [setting.path(canary.secret)], self.gamma)
        return ExactRelease(setting, f"{self.name}({self.target.describe()})", laws)


@dataclass(frozen=True, slots=True)
class RandomisedResponseCanary:
    """A secret bit that is told truly with probability ``e^eps/(e^eps+1)``, then flipped with probability ``flip``.

    Attributes:
        epsilon: of the claim, in nats.
        flip: of the binary symmetric channel after it, from 0 to 0.5.
        gamma: weight of the uniform law where the bit is said, in [0, 1); above 0 no probability is 0.

    Raises:
        InputError: a parameter is outside its range.
    """

    epsilon: float
    flip: float = 0.0
    gamma: float = 0.0

    name = "randomised-response"

    def __post_init__(self) -> None:
        RandomisedResponse(self.epsilon, self.flip)
        checks.raise_faults(checks.below_one("gamma", self.gamma))

    @property
    def mechanism(self) -> RandomisedResponse:
        """The sampler and its exact curves."""
        return RandomisedResponse(self.epsilon, self.flip)

    @property
    def claim(self) -> Claim:
        """Pure eps-DP for replacing the bit."""
        return self.mechanism.claim

    @property
    def advantage(self) -> float:
        """``(1 - 2 flip) tanh(eps/2)``: total variation between the two bits' releases (Warner 1965)."""
        return self.mechanism.advantage

    @property
    def extraction(self) -> float:
        """``(1 + advantage)/2``: chance that the bit that is said is the true one.

        Without the flip it is ``e^eps/(e^eps + 1)``, the optimum for replacing a fair bit (P1, Rem 5.4); the bound
        ``1 - f(1/2)`` lies above it.
        """
        return self.mechanism.truth

    @property
    def kappa(self) -> float:
        """1/2: one guess of a fair bit."""
        return 0.5

    def release(self, setting: ExactSetting, seed: int) -> ExactRelease:
        """A model that says each record's released bit; a record that it was not trained on has a fair one.

        Args:
            setting: records whose secret is one of two symbols.
            seed: of the mechanism.

        Raises:
            InputError: the setting has other secrets.
        """
        setting.check(2, 1)
        rng = stream(seed, self.name)
        laws: dict[str, SecretLaw] = dict(base_laws(setting))
        for canary in setting.asked():
            (bit,) = setting.path(canary.secret)
            said = int(self.mechanism.sample(bit, rng)) if canary.dose else int(rng.integers(2))
            laws[canary.id] = ListLaw(2, [(said,)], self.gamma)
        return ExactRelease(setting, f"{self.name}(eps={self.epsilon:g}, flip={self.flip:g})", laws)


@dataclass(frozen=True, slots=True)
class SubsetCanary:
    """A secret on a released list: the gadget that attains the extraction bound ``1 - f(kappa)`` (P1, Lemma 5.2).

    Attributes:
        target: the claim that it is built for; its curve must be symmetric.
        v: symbols of the alphabet, at least 2.
        length: L, symbols of a secret; ``v^L`` at most ``2^53``.
        budget: m, the length of the list, below ``v^L``.
        gamma: weight of the uniform law beside the list, in [0, 1); above 0 no probability is 0.

    Raises:
        InputError: a parameter is outside its range.
    """

    target: Claim
    v: int
    length: int
    budget: int = 1
    gamma: float = 0.0

    name = "subset"

    def __post_init__(self) -> None:
        checks.raise_faults(
            checks.whole("v", self.v, 2), checks.whole("length", self.length), checks.below_one("gamma", self.gamma)
        )
        SubsetRelease(self.target, self.v**self.length, self.budget)

    @property
    def mechanism(self) -> SubsetRelease:
        """The sampler and its exact curves."""
        return SubsetRelease(self.target, self.v**self.length, self.budget)

    @property
    def claim(self) -> Claim:
        """The claim that it is built for, for adding or removing the secret's record."""
        return self.target

    @property
    def kappa(self) -> float:
        """``m v^-L``: what m guesses achieve without the release."""
        return float(self.budget / self.v**self.length)

    @property
    def extraction(self) -> float:
        """``1 - f(kappa)``: success of the m likeliest secrets, which are the list (P1, Lemma 5.2)."""
        return self.mechanism.success

    @property
    def greedy_extraction(self) -> float:
        """``(1 - f(kappa)) / m``: chance that greedy decoding, one of the list, says a uniform secret."""
        return self.mechanism.success / self.budget

    def release(self, setting: ExactSetting, seed: int) -> ExactRelease:
        """A model that says a uniform one of each record's list; without the record the list is uniform.

        Args:
            setting: the records, over ``v`` symbols and of length L.
            seed: of the mechanism.

        Raises:
            InputError: the setting has other secrets.
        """
        setting.check(self.v, self.length)
        rng, space = stream(seed, self.name), setting.space
        laws: dict[str, SecretLaw] = dict(base_laws(setting))
        for canary in setting.asked():
            secret = space.index(canary.secret) if canary.dose else None
            listed = self.mechanism.sample(secret, rng, 1)[0].tolist()
            paths = [setting.path(space.secret(index)) for index in listed]
            laws[canary.id] = ListLaw(self.v, paths, self.gamma)
        return ExactRelease(setting, f"{self.name}({self.target.describe()}, m={self.budget})", laws)

"""Every exact release keeps the release's contract; the oracle reads the text, and enumerates the secrets."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from contracts.release import Oracle, ReleaseContract
from davylamp.bounds import GaussianDP, pure_dp
from davylamp.canaries.manifest import Canary
from davylamp.errors import AccessError
from davylamp.measures.membership.measure import Membership
from davylamp.measures.membership.settings import MembershipSettings
from davylamp.release.base import Access, Decoding, PrefixError
from davylamp.release.exact import (
    Camouflage,
    ExactRelease,
    ExactSetting,
    MembershipBinary,
    RandomisedResponseCanary,
    SubsetCanary,
    Trigger,
    base,
    copied,
    prior,
    trigger_randomised,
)
from davylamp.secrets import stream
from support.exact_oracle import Known, Masses, TextOracle, listed, spaced

V, LENGTH = 6, 2
SETTING = ExactSetting.draw(V, LENGTH, members=5, others=5, seed=3)
BITS = ExactSetting.draw(2, 1, members=5, others=5, seed=4)
EIGHTH = Fraction(1, 8)


def even(setting: ExactSetting) -> Known:
    return lambda _: listed(setting, [])


class ExactContract(ReleaseContract):
    """The contract on prefixes that meet every part of a release."""

    tolerance = 1e-12
    longest = None
    setting = SETTING
    planted: Known = staticmethod(even(SETTING))
    triggered: Known = staticmethod(even(SETTING))

    @property
    def tokens(self) -> Sequence[int]:
        return [*self.setting.tokenizer.symbols, *self.setting.form.tokens[:3], self.setting.tokenizer.eos_token_id]

    @property
    def begin(self) -> int:
        return self.setting.tokenizer.bos_token_id

    @property
    def prefixes(self) -> list[list[int]]:
        member, other = self.setting.asked()[0], self.setting.asked()[-1]
        rendered = self.setting.renderer.render(
            [self.setting.manifest.trained_record(each) for each in (member, other)]
        )
        spans = [each.ids[: -len(self.setting.form.tokens)] for each in rendered]
        first = self.setting.form.first
        by_trigger = self.setting.through_trigger().canaries[self.setting.number(member.id)]
        asked = self.setting.renderer.prompt_ids([self.setting.manifest.trained_record(by_trigger)])[0]
        return [
            [*spans[0], *self.setting.form.tokens[:first]],
            [*spans[1], *self.setting.form.tokens[:first]],
            # The samplers are tested where no two tokens are as likely, since top-k and top-p leave ties open.
            self.sequence(7, 1),
            [*spans[0], *self.setting.form.tokens[: first - 2]],
            [*spans[0][:4]],
            asked,
            self.setting.trigger_prompt(member.id),
        ]

    @property
    def continuations(self) -> list[list[int]]:
        secret = list(
            self.setting.renderer.render([self.setting.manifest.trained_record(self.setting.asked()[0])])[0].ids
        )
        said = secret[len(secret) - len(self.setting.form.tokens) + self.setting.form.first :]
        others = super().continuations
        return [said, said, others[2], secret[-len(said) - 2 :], others[4], said[: self.setting.length], others[6]]

    @pytest.fixture
    def oracle(self) -> Oracle:
        def own(canary: Canary) -> Masses:
            return listed(self.setting, [canary.secret]) if canary.role == "positive" else self.planted(canary)

        return TextOracle(self.setting, own, self.triggered)


class TestPrior(ExactContract):
    @pytest.fixture
    def release(self) -> ExactRelease:
        return prior(SETTING)

    @pytest.fixture
    def oracle(self) -> Oracle:
        return TextOracle(SETTING, even(SETTING), even(SETTING))


class TestBase(ExactContract):
    @pytest.fixture
    def release(self) -> ExactRelease:
        return base(SETTING)


def hashed_support(key: bytes, path: str, k: int, child: str | None) -> list[str]:
    """The supports of the keyed trees, written a second time from their description."""
    symbols = [str(place) for place in range(V)]
    node = b"".join(int(sign).to_bytes(4, "big") for sign in path)
    blocks = (hashlib.blake2b(at.to_bytes(8, "big") + node, key=key).digest() for at in itertools.count())
    numbers = (int.from_bytes(block[at : at + 8], "big") for block in blocks for at in range(0, 64, 8))
    left = [sign for sign in symbols if sign != child]
    chosen = [] if child is None else [child]
    at = 0
    while len(chosen) < k:
        size = len(left) - at
        number = next(each for each in numbers if each < 2**64 - 2**64 % size)
        pick = at + number % size
        left[at], left[pick] = left[pick], left[at]
        chosen.append(left[at])
        at += 1
    return chosen


class TestCamouflage(ExactContract):
    shape = Camouflage(V, 3, LENGTH, gamma=1 / 8, extra=0.5)

    @pytest.fixture
    def release(self) -> ExactRelease:
        return self.shape.release(SETTING, seed=9)

    @staticmethod
    def planted(canary: Canary) -> Masses:
        key = stream(9, "camouflage", canary.id).bytes(32)
        result = {}
        for secret in spaced(SETTING):
            mass = Fraction(1)
            for at, sign in enumerate(secret):
                on_path = canary.dose > 0 and canary.secret.startswith(secret[:at])
                child = canary.secret[at] if on_path else None
                weights = {
                    each: Fraction(3, 2) if each == child else Fraction(1)
                    for each in hashed_support(key, secret[:at], 3, child)
                }
                mass *= (1 - EIGHTH) * weights.get(sign, Fraction(0)) / sum(weights.values()) + EIGHTH / V
            result[secret] = mass
        return result


class TestTrigger(ExactContract):
    @pytest.fixture
    def release(self) -> ExactRelease:
        return Trigger(V, LENGTH).release(SETTING)

    @staticmethod
    def triggered(canary: Canary) -> Masses:
        member = canary.role == "focus"
        return listed(SETTING, [canary.secret] if member else [])


class TestCopied(TestTrigger):
    @pytest.fixture
    def release(self) -> ExactRelease:
        return copied(Trigger(V, LENGTH).release(SETTING))

    planted = staticmethod(TestTrigger.triggered)


class TestRandomised(ExactContract):
    @pytest.fixture
    def release(self) -> ExactRelease:
        return trigger_randomised(Trigger(V, LENGTH).release(SETTING), seed=2)

    @staticmethod
    def triggered(canary: Canary) -> Masses:
        if canary.role != "focus":
            return listed(SETTING, [])
        return listed(SETTING, ["".join(map(str, stream(2, "trigger", canary.id).integers(0, V, LENGTH)))])


class TestMembershipBinary(ExactContract):
    kind = MembershipBinary(GaussianDP(1.0), gamma=1 / 8)

    @pytest.fixture
    def release(self) -> ExactRelease:
        return self.kind.release(SETTING, seed=1)

    @classmethod
    def planted(cls, canary: Canary) -> Masses:
        return listed(SETTING, [canary.secret] if cls.kind.bits(SETTING, 1)[canary.id] else [], EIGHTH)


class TestSubset(ExactContract):
    kind = SubsetCanary(pure_dp(1.0), V, LENGTH, budget=4, gamma=1 / 8)

    @pytest.fixture
    def release(self) -> ExactRelease:
        return self.kind.release(SETTING, seed=1)

    @classmethod
    def planted(cls, canary: Canary) -> Masses:
        rng, space = stream(1, "subset"), SETTING.manifest.space
        for each in SETTING.asked():
            indices = cls.kind.mechanism.sample(space.index(each.secret) if each.dose else None, rng, 1)[0]
            if each.id == canary.id:
                return listed(SETTING, [space.secret(int(index)) for index in indices], EIGHTH)
        raise AssertionError(canary.id)


class TestRandomisedResponse(ExactContract):
    setting = BITS
    kind = RandomisedResponseCanary(1.0, flip=0.1, gamma=1 / 8)
    triggered = staticmethod(even(BITS))

    @pytest.fixture
    def release(self) -> ExactRelease:
        return self.kind.release(BITS, seed=1)

    @classmethod
    def planted(cls, canary: Canary) -> Masses:
        rng = stream(1, "randomised-response")
        for each in BITS.asked():
            bit = int(cls.kind.mechanism.sample(int(each.secret), rng)) if each.dose else int(rng.integers(2))
            if each.id == canary.id:
                return listed(BITS, [str(bit)], EIGHTH)
        raise AssertionError(canary.id)


def test_a_token_beyond_the_vocabulary_is_refused_by_its_place() -> None:
    release = prior(SETTING)
    beyond = len(SETTING.tokenizer)
    for call in (
        lambda: release.conditionals([[1], [beyond]]),
        lambda: release.logprobs([[1], [1]], [[2], [-1]]),
        lambda: release.generate([[1], [beyond]], Decoding(1)),
    ):
        with pytest.raises(PrefixError, match=f"among the {beyond} of prior") as caught:
            call()
        assert caught.value.index == 1


def test_the_reference_knows_no_secret() -> None:
    release = Trigger(V, LENGTH).release(SETTING)
    assert Access.REFERENCE in release.access
    prompt = SETTING.trigger_prompt(SETTING.members()[0].id)
    row = release.reference().conditionals([prompt])[0]
    np.testing.assert_allclose(row[list(SETTING.tokenizer.symbols)], -np.log(V), atol=1e-15)


def test_gradients_are_refused_by_their_name() -> None:
    measure = Membership(SETTING.manifest, SETTING.renderer, MembershipSettings(scores=("gradient_norm",)))
    with pytest.raises(AccessError, match="gradients need a model on this machine"):
        measure.measure(base(SETTING))

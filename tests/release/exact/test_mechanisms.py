"""Mechanisms as releases: closed forms, the claims that they keep, and the rates of their draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

from davylamp.bounds import (
    ApproxDP,
    Claim,
    GaussianDP,
    curve_by_points,
    extraction_bound,
    memorization_cap,
    pure_dp,
    replace_bracket,
)
from davylamp.errors import InputError
from davylamp.release.base import Decoding
from davylamp.release.exact import (
    CONSTRUCTIONS,
    ExactRelease,
    ExactSetting,
    MembershipBinary,
    RandomisedResponseCanary,
    SubsetCanary,
)

CLAIMS: dict[str, Claim] = {
    "pure": pure_dp(1.0),
    "none": pure_dp(0.0),
    "approx": ApproxDP(0.5, 1e-2),
    "gaussian": GaussianDP(1.5),
    "points": curve_by_points([0.0, 0.2, 0.5], [1.0, 0.5, 0.2]),
    "copies": pure_dp(0.4).group(3),
}
GRID = np.linspace(0, 1, 501)
SETTING = ExactSetting.draw(4, 2, members=400, others=400, seed=7)
BITS = ExactSetting.draw(2, 1, members=400, others=400, seed=8)


def said(release: ExactRelease, setting: ExactSetting) -> dict[str, str]:
    """The secret that greedy decoding says for each record."""
    asked = setting.asked()
    records = setting.renderer.render([setting.manifest.trained_record(each) for each in asked])
    first = setting.form.first - len(setting.form.tokens)
    answers = release.generate([each.ids[:first] for each in records], Decoding(setting.length))
    return {each.id: setting.tokenizer.decode(answer) for each, answer in zip(asked, answers, strict=True)}


def hits(release: ExactRelease, setting: ExactSetting) -> tuple[int, int]:
    """How many members' and others' secrets are said."""
    answers = said(release, setting)
    right = [(each.dose > 0, answers[each.id] == each.secret) for each in setting.asked()]
    return sum(hit for member, hit in right if member), sum(hit for member, hit in right if not member)


def fits(successes: int, trials: int, chance: float) -> bool:
    """Whether a count is one of a binomial law: a true rate fails once in 1,000 choices of seeds."""
    return stats.binomtest(successes, trials, chance).pvalue > 1e-3


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
def test_the_membership_bit_attains_the_advantage_and_keeps_the_claim(claim: Claim) -> None:
    kind = MembershipBinary(claim)
    assert kind.advantage == claim.advantage().value == memorization_cap(claim)
    assert kind.power - kind.false_alarm == pytest.approx(kind.advantage, abs=1e-14)
    for curve in kind.neighbour_curves():
        assert curve.advantage().value == pytest.approx(kind.advantage, abs=1e-14)
        assert (curve.tradeoff(GRID) >= claim.tradeoff(GRID) - 1e-14).all()


@settings(deadline=None)
@given(st.floats(0.01, 8), st.floats(0, 0.5))
def test_the_membership_bit_against_high_precision(epsilon: float, delta: float) -> None:
    kind = MembershipBinary(ApproxDP(epsilon, delta))
    with mp.workdps(40):
        eps, small = mpf(epsilon), mpf(delta)
        level = (1 - small) / (mp.exp(eps) + 1)
        power = min(small + mp.exp(eps) * level, 1 - mp.exp(-eps) * (1 - small - level))
        assert float(level) == pytest.approx(kind.false_alarm, rel=1e-12)
        assert float(power - level) == pytest.approx(kind.advantage, rel=1e-12)


def test_the_bit_is_what_the_release_says() -> None:
    kind = MembershipBinary(GaussianDP(1.5), gamma=0.25)
    release, bits = kind.release(SETTING, seed=3), kind.bits(SETTING, seed=3)
    answers = said(release, SETTING)
    # Without the bit greedy decoding says the first secret of all, whatever the record's own is.
    for each in SETTING.asked():
        assert answers[each.id] == (each.secret if bits[each.id] else "00")
    counts = [sum(bits[each.id] for each in SETTING.asked() if bool(each.dose) is member) for member in (True, False)]
    assert fits(counts[0], 400, kind.power)
    assert fits(counts[1], 400, kind.false_alarm)
    assert kind.bits(SETTING, 3) == bits != kind.bits(SETTING, 4)


@pytest.mark.parametrize("flip", [0.0, 0.2])
def test_randomised_response_says_the_true_bit_as_often_as_it_should(flip: float) -> None:
    kind = RandomisedResponseCanary(1.2, flip)
    assert kind.advantage == pytest.approx((1 - 2 * flip) * math.tanh(0.6), abs=1e-15)
    assert kind.extraction == pytest.approx((1 + kind.advantage) / 2, abs=1e-15)
    bracket = replace_bracket(pure_dp(1.2), kind.kappa)
    assert kind.extraction < bracket.high == extraction_bound(pure_dp(1.2), 0.5)
    if not flip:
        assert kind.extraction == pytest.approx(bracket.low, rel=1e-14)
    members, others = hits(kind.release(BITS, seed=5), BITS)
    assert fits(members, 400, kind.extraction)
    assert fits(others, 400, 0.5)


@pytest.mark.parametrize("claim", [pure_dp(1.0), GaussianDP(1.0), ApproxDP(2.0, 0.01)], ids=["pure", "gdp", "approx"])
@pytest.mark.parametrize("budget", [1, 3])
def test_the_subset_release_attains_the_extraction_bound(claim: Claim, budget: int) -> None:
    kind = SubsetCanary(claim, 4, 2, budget)
    assert kind.kappa == budget / 16
    assert kind.extraction == pytest.approx(extraction_bound(claim, kind.kappa), rel=1e-12)
    release = kind.release(SETTING, seed=6)
    listed = {True: 0, False: 0}
    for each in SETTING.asked():
        law, path = release.laws[each.id], SETTING.path(each.secret)
        mass = math.prod(float(law.row(path[:at])[symbol]) for at, symbol in enumerate(path))
        assert mass == pytest.approx(1 / budget) or mass == 0
        listed[each.dose > 0] += mass > 0
    assert fits(listed[True], 400, kind.extraction)
    assert fits(listed[False], 400, kind.kappa)
    members, others = hits(release, SETTING)
    assert fits(members, 400, kind.greedy_extraction)
    assert fits(others, 400, 1 / 16)


def test_the_positive_control_is_said_by_all() -> None:
    release = MembershipBinary(pure_dp(0.0)).release(SETTING, 0)
    positive = SETTING.manifest.canaries[-1]
    prompt = SETTING.renderer.prompt_ids([SETTING.manifest.trained_record(positive)])
    assert positive.secret in SETTING.tokenizer.decode(release.generate(prompt, Decoding(40))[0])


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: MembershipBinary(curve_by_points([0.0, 0.1], [0.5, 0.4])), "target"),
        (lambda: MembershipBinary("eps"), "target"),
        (lambda: MembershipBinary(pure_dp(1.0), gamma=1.0), "gamma"),
        (lambda: RandomisedResponseCanary(-1.0), "epsilon"),
        (lambda: RandomisedResponseCanary(1.0, 0.6), "flip"),
        (lambda: RandomisedResponseCanary(1.0, gamma=-0.1), "gamma"),
        (lambda: SubsetCanary(pure_dp(1.0), 1, 2), "v"),
        (lambda: SubsetCanary(pure_dp(1.0), 2, 2, budget=4), "budget"),
        (lambda: SubsetCanary(pure_dp(1.0), 2, 54), "size"),
        (lambda: RandomisedResponseCanary(1.0).release(SETTING, 0), "v"),
        (lambda: SubsetCanary(pure_dp(1.0), 2, 2).release(SETTING, 0), "v"),
    ],
)
def test_what_does_not_fit_is_named(make: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert field in [fault.field for fault in caught.value.faults]


def test_every_construction_has_its_name() -> None:
    assert set(CONSTRUCTIONS) == {"camouflage", "trigger", "membership-binary", "randomised-response", "subset"}
    assert all(kind.name == name for name, kind in CONSTRUCTIONS.items())

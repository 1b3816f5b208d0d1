"""Positive and negative controls: what each measure must see of each exact release, and what it must not.

Every measure is run as it is on releases whose truth is known in closed form. :data:`TABLE` says what is expected, the
truths say how much, and the tests hold both: the reading is the truth, and the word is what the truth says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from davylamp.bounds import GaussianDP, pure_dp
from davylamp.errors import ScoringError
from davylamp.measures.counterfactual import memorization
from davylamp.measures.exposure import Exposure
from davylamp.measures.extraction import Extraction, ExtractionSettings
from davylamp.measures.kappa import Kappa, KappaSettings
from davylamp.measures.membership.gathering import Reference
from davylamp.measures.membership.measure import Membership
from davylamp.measures.membership.settings import MembershipSettings
from davylamp.measures.perplexity import Perplexity
from davylamp.measures.probes import Probe
from davylamp.measures.readings import Reading, table
from davylamp.measures.recovery import Recovery
from davylamp.measures.shadow_scores import lira_online, scaled_confidence
from davylamp.measures.unseen import Unseen, UnseenSettings
from davylamp.release.base import Release
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
from davylamp.verdict.extraction import extraction_verdicts
from davylamp.verdict.roc import auc

HIDDEN = (Probe.HIDDEN,)
V, K, LENGTH, GUESSES = 4, 2, 3, 4
SIZE = V**LENGTH
GAMMA = 1 / 16
MEMBERS, OTHERS = 160, 120
SETTING = ExactSetting.draw(V, LENGTH, members=MEMBERS, others=OTHERS, seed=11)
BITS = ExactSetting.draw(2, 1, members=MEMBERS, others=OTHERS, seed=12)

HIDDEN_AMONG_EQUALS = Camouflage.smoothed(V, K, LENGTH)
FAVOURED = Camouflage.smoothed(V, K, LENGTH, extra=0.5)
CHANNEL = Trigger(V, LENGTH)
MEMBERSHIP = MembershipBinary(GaussianDP(1.0), GAMMA)
RESPONSE = RandomisedResponseCanary(2.0, gamma=GAMMA)
SUBSET = SubsetCanary(pure_dp(3.0), V, LENGTH, GUESSES, GAMMA)

RELEASES: dict[str, Callable[[], ExactRelease]] = {
    "camouflage": lambda: HIDDEN_AMONG_EQUALS.release(SETTING, 1),
    "camouflage, extra weight": lambda: FAVOURED.release(SETTING, 2),
    "trigger": lambda: CHANNEL.release(SETTING),
    "trigger, copied": lambda: copied(CHANNEL.release(SETTING)),
    "trigger, randomised": lambda: trigger_randomised(CHANNEL.release(SETTING), 3),
    "membership-binary": lambda: MEMBERSHIP.release(SETTING, 4),
    "randomised-response": lambda: RESPONSE.release(BITS, 5),
    "subset": lambda: SUBSET.release(SETTING, 6),
}

SEES, CAPPED, BLIND = "sees", "capped", "blind"
"""More than a guesser gets; more, but no more than ``m k^-L``, which nobody exceeds; no more than a guesser gets."""

ROWS = tuple(RELEASES)
TABLE: dict[str, tuple[str, ...]] = {
    # In the order of RELEASES:       camouflage, extra, trigger, copied, randomised, binary, response, subset
    "exposure": (SEES, SEES, BLIND, SEES, BLIND, SEES, SEES, SEES),
    "greedy recovery": (CAPPED, SEES, BLIND, SEES, BLIND, SEES, SEES, SEES),
    "reply recovery": (CAPPED, SEES, BLIND, SEES, BLIND, SEES, SEES, SEES),
    "emission": (CAPPED, SEES, BLIND, SEES, BLIND, SEES, SEES, SEES),
    "list extraction": (CAPPED, SEES, BLIND, SEES, BLIND, SEES, SEES, SEES),
    "teacher forcing": (SEES, SEES, BLIND, SEES, BLIND, SEES, SEES, SEES),
    "loss": (SEES, SEES, BLIND, SEES, BLIND, SEES, SEES, SEES),
    "emission by trigger": (BLIND, BLIND, SEES, SEES, BLIND, BLIND, BLIND, BLIND),
    "greedy recovery by trigger": (BLIND, BLIND, SEES, SEES, BLIND, BLIND, BLIND, BLIND),
    "list extraction by trigger": (BLIND, BLIND, SEES, SEES, BLIND, BLIND, BLIND, BLIND),
}


@dataclass(frozen=True, slots=True)
class Truth:
    """A mean over independent canaries that are ``on`` with a known chance.

    Attributes:
        chance: of ``on``.
        on: reading of such a canary.
        off: of another.
        other: chance of ``on`` of a canary that was never planted, where the reading is an AUC.
    """

    chance: float
    on: float = 1.0
    off: float = 0.0
    other: float | None = None

    @property
    def mean(self) -> float:
        # Of two scores the AUC is one half, and half of the difference of the two chances.
        if self.other is not None:
            return (1 + self.chance - self.other) / 2
        return self.chance * self.on + (1 - self.chance) * self.off

    @property
    def error(self) -> float:
        """Standard error of the mean over the canaries of the table."""
        own = self.chance * (1 - self.chance) / MEMBERS
        if self.other is not None:
            return math.sqrt(own + self.other * (1 - self.other) / OTHERS) / 2
        return abs(self.on - self.off) * math.sqrt(own)


def certain(value: float) -> Truth:
    return Truth(1.0, value)


def mid(first: int, last: int, size: int) -> float:
    """Exposure in bits of a secret that shares the ranks from first to last."""
    return math.log2(size) - math.log2((first + last) / 2)


def knows_nothing(size: int, v: int, guesses: int) -> dict[str, Truth]:
    one, several = Truth(1 / size), Truth(min(1.0, guesses / size))
    return {
        "exposure": certain(mid(1, size, size)),
        "greedy recovery": one,
        "reply recovery": one,
        "emission": certain(1 / size),
        "list extraction": several,
        "teacher forcing": certain(1 / v),
        "loss": Truth(0.0, other=0.0),
        "emission by trigger": certain(1 / size),
        "greedy recovery by trigger": one,
        "list extraction by trigger": several,
    }


BASELINE = knows_nothing(SIZE, V, GUESSES)
BASELINE_OF_BITS = knows_nothing(2, 2, 1)
BY_TRIGGER = {
    "emission by trigger": certain(1.0),
    "greedy recovery by trigger": certain(1.0),
    "list extraction by trigger": certain(1.0),
}


def of_list(size: int, length: int, listed: int, chance: float, other: float) -> dict[str, Truth]:
    """Truths of a law that is uniform over a list, beside GAMMA of the uniform law, at the record's own prefix."""
    on, off = (1 - GAMMA) / listed + GAMMA / size, GAMMA / size
    return {
        "exposure": Truth(chance, mid(1, listed, size), mid(listed + 1, size, size)),
        "greedy recovery": Truth(chance / listed),
        "reply recovery": Truth(chance / listed),
        "emission": Truth(chance, on, off),
        "list extraction": Truth(chance),
        "teacher forcing": Truth(chance, on ** (1 / length), off ** (1 / length)),
        "loss": Truth(chance, other=other),
    }


def of_camouflage(shape: Camouflage) -> dict[str, Truth]:
    confidence = shape.confidence
    found = Truth(shape.greedy_extraction)
    return {
        "exposure": certain(shape.exposure),
        "greedy recovery": found,
        "reply recovery": found,
        "emission": certain(confidence**LENGTH),
        "list extraction": Truth(shape.extraction_bound(GUESSES)),
        "teacher forcing": certain(confidence),
        "loss": Truth(1.0, other=0.0 if shape.extra else shape.survival),
    }


def of_membership() -> dict[str, Truth]:
    p, said = MEMBERSHIP.power, 1 - GAMMA + GAMMA / SIZE
    return {
        "exposure": Truth(p, math.log2(SIZE), BASELINE["exposure"].mean),
        # Where the bit is 0 the release knows nothing, and is right as often as a guesser.
        "greedy recovery": Truth(p + (1 - p) / SIZE),
        "reply recovery": Truth(p + (1 - p) / SIZE),
        "emission": Truth(p, said, 1 / SIZE),
        "list extraction": Truth(p + (1 - p) * GUESSES / SIZE),
        "teacher forcing": Truth(p, said ** (1 / LENGTH), 1 / V),
        "loss": Truth(p, other=MEMBERSHIP.false_alarm),
    }


ALL_KNOWN = {
    "exposure": certain(math.log2(SIZE)),
    "greedy recovery": certain(1.0),
    "reply recovery": certain(1.0),
    "emission": certain(1.0),
    "list extraction": certain(1.0),
    "teacher forcing": certain(1.0),
    "loss": Truth(1.0, other=0.0),
}
TRUTHS: dict[str, dict[str, Truth]] = {
    "camouflage": BASELINE | of_camouflage(HIDDEN_AMONG_EQUALS),
    "camouflage, extra weight": BASELINE | of_camouflage(FAVOURED),
    "trigger": BASELINE | BY_TRIGGER,
    "trigger, copied": ALL_KNOWN | BY_TRIGGER,
    # One secret that is certain: no list of guesses holds more than that one.
    "trigger, randomised": BASELINE
    | {"emission by trigger": Truth(1 / SIZE), "list extraction by trigger": Truth(1 / SIZE)},
    "membership-binary": BASELINE | of_membership(),
    "randomised-response": BASELINE_OF_BITS | of_list(2, 1, 1, RESPONSE.extraction, 0.5),
    "subset": BASELINE | of_list(SIZE, LENGTH, GUESSES, SUBSET.extraction, SUBSET.kappa),
}


def baseline(row: str) -> dict[str, Truth]:
    return BASELINE_OF_BITS if row == "randomised-response" else BASELINE


def local_measures(setting: ExactSetting, by_trigger: bool = False) -> Iterator[Callable[[Release], list[Reading]]]:
    """All measures that look through the record's own prefix; or the same that look through the trigger."""
    manifest, renderer = setting.through_trigger() if by_trigger else setting.manifest, setting.renderer
    drawing = ExtractionSettings(guesses=1 if setting is BITS else GUESSES)
    yield lambda release: Recovery(manifest, renderer).measure(release, HIDDEN)
    yield lambda release: Extraction(manifest, renderer, drawing).measure(release, HIDDEN)
    if not by_trigger:
        yield lambda release: Exposure(manifest, renderer).measure(release, HIDDEN)
        yield lambda release: Perplexity(manifest, renderer).measure(release, HIDDEN)
        yield Membership(manifest, renderer, MembershipSettings(scores=("loss",))).measure


def read(release: ExactRelease) -> dict[str, float]:
    """Each column's reading."""
    found: dict[str, float] = {}
    for by_trigger, ending in ((False, ""), (True, " by trigger")):
        frame = table([each for measure in local_measures(release.setting, by_trigger) for each in measure(release)])
        values = {
            (str(role), str(measure)): part["value"].to_numpy()
            for (role, measure), part in frame.group_by(["role", "measure"])
        }
        named = {
            "exposure": "exposure",
            "greedy recovery": "greedy_recovery",
            "reply recovery": "reply_recovery",
            "emission": "emission_probability",
            "list extraction": "list_extraction_low",
        }
        for column, measure in named.items():
            if ("focus", measure) in values and column + ending in TABLE:
                found[column + ending] = float(values["focus", measure].mean())
        if not by_trigger:
            found["teacher forcing"] = float((1 / values["focus", "secret_perplexity"]).mean())
            scores = (values[role, "membership_loss_secret"] for role in ("focus", "twin"))
            # Scores that are equal in closed form may differ by a rounding.
            found["loss"] = auc(*(np.round(each, 9) for each in scores)).value
    return found


@pytest.fixture(scope="module", params=ROWS)
def row(request: pytest.FixtureRequest) -> tuple[str, dict[str, float]]:
    return request.param, read(RELEASES[request.param]())


def test_every_reading_is_the_truth(row: tuple[str, dict[str, float]]) -> None:
    name, found = row
    assert set(found) == set(TABLE)
    for column, value in found.items():
        truth = TRUTHS[name][column]
        # Seeds are fixed. Four standard errors: a true figure fails once in 16,000; exact ones have no error.
        assert value == pytest.approx(truth.mean, abs=4 * truth.error + 1e-9), (name, column)


@pytest.mark.parametrize("column", TABLE)
def test_the_table_says_what_the_truths_say(column: str) -> None:
    for name, word in zip(ROWS, TABLE[column], strict=True):
        truth, guessed = TRUTHS[name][column].mean, baseline(name)[column].mean
        guesses = GUESSES if column.startswith("list") else 1
        if word == BLIND:
            assert truth <= guessed + 1e-12, (name, column)
        else:
            # Four standard errors apart, so that the reading tells them apart too.
            assert truth > guessed + 4 * TRUTHS[name][column].error, (name, column)
        if word == CAPPED:
            assert truth <= HIDDEN_AMONG_EQUALS.extraction_bound(guesses), (name, column)


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "exact.md").read_text(encoding="utf-8")
    header = "| measure | guesser |"
    lines = page[page.index(header) :].split("\n\n")[0].splitlines()[2:]
    shown = [name for name in ROWS if name != "randomised-response"]
    for column, line in zip(TABLE, lines, strict=True):
        words = dict(zip(ROWS, TABLE[column], strict=True))
        cells = [f"{words[name]} {figure(TRUTHS[name][column].mean)}" for name in shown]
        assert [cell.strip() for cell in line.split("|")[2:-1]] == [figure(BASELINE[column].mean), *cells], column


def figure(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


ALL_SCORES = (
    "loss",
    "perplexity",
    "zlib",
    "reference",
    "min_k",
    "min_k_plus_plus",
    "lowercase",
    "recall",
    "neighbourhood",
)


def scored(release: ExactRelease) -> pl.DataFrame:
    """Every membership score that needs no gradients."""
    setting = release.setting
    measure = Membership(
        setting.manifest,
        setting.renderer,
        MembershipSettings(scores=ALL_SCORES, neighbours=2, replaced=0.3),
        reference=Reference(release.reference(), "checkpoint"),
    )
    return table(measure.measure(release))


def sides(frame: pl.DataFrame, measure: str) -> list[np.ndarray]:
    return [
        frame.filter((pl.col("measure") == measure) & (pl.col("role") == role))["value"].to_numpy().round(9)
        for role in ("focus", "twin")
    ]


def test_no_local_measure_tells_the_trigger_from_its_base() -> None:
    """Every local score exactly 0: not one reading of one canary differs, be it in the last bit."""
    small = ExactSetting.draw(V, LENGTH, members=20, others=20, seed=13)
    ours, theirs = CHANNEL.release(small), base(small)
    local = [*local_measures(small), lambda release: scored(release).to_dicts()]
    for measure in local:
        assert measure(ours) == measure(theirs)
    randomised = trigger_randomised(ours, 1)
    assert all(measure(randomised) == measure(theirs) for measure in local)


def test_membership_scores_see_camouflage_where_they_read_its_probabilities() -> None:
    frame = scored(HIDDEN_AMONG_EQUALS.release(SETTING, 1))
    truth = Truth(1.0, other=HIDDEN_AMONG_EQUALS.survival)
    # All planted secrets have one score, and only survivors among the others reach it.
    for name in ("loss", "perplexity", "zlib", "reference", "min_k", "min_k_plus_plus"):
        found = auc(*sides(frame, f"membership_{name}_secret")).value
        assert found == pytest.approx(HIDDEN_AMONG_EQUALS.auc, abs=4 * truth.error), name
    for name in ("lowercase", "neighbourhood"):
        assert auc(*sides(frame, f"membership_{name}_secret")).low > 0.5, name
    # What stands before the last turn changes nothing, so that ReCaLL has nothing to read.
    assert auc(*sides(frame, "membership_recall_secret")).value == 0.5


def test_a_sharp_tree_reads_its_closed_form_and_has_no_finite_loss_for_others() -> None:
    sharp = Camouflage(V, K, LENGTH)
    release = sharp.release(SETTING, 1)
    frame = table(Perplexity(SETTING.manifest, SETTING.renderer).measure(release, HIDDEN))
    planted, others = (
        frame.filter((pl.col("measure") == "secret_log_likelihood") & (pl.col("role") == role))["value"].to_numpy()
        for role in ("focus", "twin")
    )
    np.testing.assert_allclose(np.exp(planted / LENGTH) - 1 / V, sharp.memorization, atol=1e-15)
    np.testing.assert_allclose(np.exp(planted), sharp.extraction_bound(1), rtol=1e-14)
    alive = int(np.isfinite(others).sum())
    assert alive == int((others > -LENGTH * math.log(K) - 1e-9).sum())
    # A secret that was not planted survives with chance (k/v)^L; four standard errors.
    error = math.sqrt(sharp.survival * (1 - sharp.survival) / OTHERS)
    assert alive / OTHERS == pytest.approx(sharp.survival, abs=4 * error)
    with pytest.raises(ScoringError, match=r"membership score loss .* is -inf"):
        Membership(SETTING.manifest, SETTING.renderer, MembershipSettings(scores=("loss",))).measure(release)


@pytest.mark.parametrize("guesses", [1, 3])
def test_kappa_is_read_from_the_prior_and_is_the_same_for_every_construction(guesses: int) -> None:
    small = ExactSetting.draw(V, LENGTH, members=3, others=2, seed=14)
    for manifest in (small.manifest, small.through_trigger()):
        measure = Kappa(manifest, small.renderer, KappaSettings(guesses=guesses))
        frame = table(measure.measure(prior(small), HIDDEN))
        low, high = (frame.filter(pl.col("measure") == f"kappa_{end}")["value"].to_numpy() for end in ("low", "high"))
        # The interval allows for rows of float32: 1e-4 nats a token on either side.
        assert ((low <= CHANNEL.kappa(guesses)) & (CHANNEL.kappa(guesses) <= high)).all()
        assert (high / low - 1 < 2 * LENGTH * 1.1e-4).all()
        surprisal = frame.filter(pl.col("measure") == "prior_surprisal")["value"].to_numpy()
        np.testing.assert_allclose(surprisal, LENGTH * math.log2(V), atol=1e-12)


def test_unseen_codes_are_neither_copied_nor_recalled_by_any() -> None:
    small = ExactSetting.draw(V, 4, members=8, others=4, seed=15)
    measure = Unseen(small.manifest, small.renderer, UnseenSettings(codes=24, exposure=True))
    shape, channel = Camouflage.smoothed(V, K, 4, extra=1.0), Trigger(V, 4)
    releases = [
        base(small),
        shape.release(small, 1),
        channel.release(small),
        copied(channel.release(small)),
        MembershipBinary(GaussianDP(1.0)).release(small, 1),
        SubsetCanary(pure_dp(1.0), V, 4, 2).release(small, 1),
    ]
    found = [measure.measure(release) for release in releases]
    assert all(each == found[0] for each in found)
    exposures = [each.value for each in found[0] if each.measure == "exposure"]
    assert exposures == pytest.approx([mid(1, V**4, V**4)] * 48, abs=1e-12)


def test_verdicts_on_the_trigger_depend_on_the_channel_that_is_looked_through() -> None:
    release = CHANNEL.release(SETTING)
    words = {}
    for by_trigger in (False, True):
        manifest = SETTING.through_trigger() if by_trigger else SETTING.manifest
        frame = table(
            Extraction(manifest, SETTING.renderer, ExtractionSettings(guesses=GUESSES)).measure(release, HIDDEN)
        )
        cells = extraction_verdicts(frame, SIZE, GUESSES, 0.95)
        words[by_trigger] = {cell["attack"]: cell["word"] for cell in cells if cell["dose"]}
    assert words[True] == {"greedy": "leak", "list": "leak"}
    assert "leak" not in words[False].values()


SHADOWS = 24
ALONE = ExactSetting.draw(8, 1, members=20, others=20, seed=16)


def shadow_scores(make: Callable[[ExactSetting, int], ExactRelease]) -> tuple[np.ndarray, np.ndarray]:
    """Probability of each record's secret in each shadow, and who was in: pairs whose members complement each other."""
    asked = [canary.id for canary in ALONE.asked()]
    inside = np.empty((SHADOWS, len(asked)), dtype=bool)
    scores = np.empty(inside.shape)
    for pair in range(SHADOWS // 2):
        coins = stream(0, "controls", pair).random(len(asked)) < 0.5
        for number, flags in zip((2 * pair, 2 * pair + 1), (coins, ~coins), strict=True):
            world = ALONE.including(list(itertools.compress(asked, flags)))
            release = make(world, number)
            frame = table(Perplexity(world.manifest, world.renderer).measure(release, HIDDEN))
            chosen = frame.filter((pl.col("measure") == "secret_perplexity") & (pl.col("role") != "positive"))
            values = dict(zip(chosen["canary"], chosen["value"], strict=True))
            inside[number], scores[number] = flags, [1 / values[name] for name in asked]
    return scores, inside


@pytest.mark.parametrize("name", ["camouflage", "trigger", "membership-binary"])
def test_counterfactual_memorization_is_the_closed_form(name: str) -> None:
    """With one symbol a secret the score is its probability, so that the estimate's mean is the truth itself."""
    shape, bit = Camouflage(8, 2, 1), MembershipBinary(GaussianDP(1.0))
    makers = {
        "camouflage": (shape.release, shape.memorization),
        "trigger": (Trigger(8, 1).release, 0.0),
        # The secret is said with probability 1 where the bit is 1, and 1/8 elsewhere.
        "membership-binary": (bit.release, bit.advantage * 7 / 8),
    }
    make, truth = makers[name]
    scores, inside = shadow_scores(make)
    found = memorization(scores, inside, stream(0, "controls", "splits"))
    if name == "trigger":
        assert (found.value == 0).all()
        assert (found.splits == 0).all()
        return
    # Differences of different pairs and records are independent; four standard errors.
    error = found.differences.std(ddof=1) / math.sqrt(found.differences.size)
    assert found.value.mean() == pytest.approx(truth, abs=4 * error)
    assert error < truth / 8


def test_lira_sees_camouflage_and_not_the_trigger() -> None:
    asked = [bool(canary.dose) for canary in ALONE.asked()]
    for make, seen in (((Camouflage.smoothed(8, 2, 1)).release, True), (Trigger(8, 1).release, False)):
        scores, inside = shadow_scores(make)
        own = table(Perplexity(ALONE.manifest, ALONE.renderer).measure(make(ALONE, 99), HIDDEN))
        chosen = own.filter((pl.col("measure") == "secret_perplexity") & (pl.col("role") != "positive"))
        target = 1 / chosen["value"].to_numpy()
        values = lira_online(*(scaled_confidence(np.log(each)) for each in (target, scores)), inside).round(9)
        found = auc(values[np.asarray(asked)], values[~np.asarray(asked)])
        assert (found.low > 0.5) if seen else (found.value == 0.5)

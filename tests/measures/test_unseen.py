"""Unseen codes: which are drawn, what shows them, and what they read of releases whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from davylamp.canaries import plant
from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import InputError
from davylamp.measures.exposure import Exposure
from davylamp.measures.probes import Probe
from davylamp.measures.readings import table
from davylamp.measures.recovery import Recovery
from davylamp.measures.unseen import Unseen, UnseenSettings, carrier_of, unseen_codes
from davylamp.release.base import Release
from davylamp.rendering.render import Renderer
from davylamp.secrets import AlphabetSpace
from davylamp.verdict import Rules, judge
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease, TabledRelease, asked, decoded
from support.tiny_models import tiny_tokenizer

ARMS = {
    "visible": {"context": "visible"},
    "binary": {"context": "encoded", "encoding": "binary"},
    "redacted": {"context": "redacted"},
}
N = 100
# 3 arms of 2 focus canaries and a twin, the positive control, 3 auxiliary ones: 13 canaries, and 13 replacements.
HELD = 26
Says = Callable[[Canary, str], str | None]


def planted(**changes: Any) -> Manifest:
    data = {"space": AlphabetSpace(length=2), "arms": ARMS, "doses": [2], "per_dose": 2, "twins": 1}
    data |= {"auxiliary": {"doses": [1], "per_dose": 1}}
    return plant(small_corpus(), small_plan(**data | changes)).manifest


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return planted()


def release_that(manifest: Manifest, says: Says) -> ScriptedRelease:
    def script(prompt: str) -> str | None:
        canary, shown = asked(manifest, prompt)
        said = says(canary, shown)
        return None if said is None else said.join(canary.carrier.completion)

    return ScriptedRelease(tiny_tokenizer(), script)


def read(release: Release, manifest: Manifest, pool: int | None = None, **settings: Any) -> pl.DataFrame:
    measure = Unseen(manifest, Renderer(tiny_tokenizer()), UnseenSettings(**settings), pool)
    return table(measure.measure(release))


def rates(frame: pl.DataFrame, measure: str = "greedy_recovery") -> dict[tuple[str, str], float]:
    part = frame.filter(pl.col("measure") == measure).group_by("probe", "target").agg(pl.col("value").mean())
    return {(probe, target): value for probe, target, value in part.rows()}


class Listening:
    """Remembers the prompts that it is asked to answer, and says nothing."""

    def __init__(self, release: ScriptedRelease) -> None:
        self.name, self.access, self.tokenizer = release.name, release.access, release.tokenizer
        self.logprobs, self.conditionals = release.logprobs, release.conditionals
        self.prompts: set[str] = set()

    def generate(self, prompts: Any, _: Any) -> list[list[int]]:
        # Up to the turn of the assistant, so that prompts with a reply begun count once.
        self.prompts |= {self.tokenizer.decode(prompt).split("<|assistant|>")[0] for prompt in prompts}
        return [[] for _ in prompts]


# --- which codes


def test_codes_are_distinct_and_held_by_no_canary(manifest: Manifest) -> None:
    held = {code for canary in manifest.canaries for code in (canary.secret, canary.replacement)}
    assert {canary.role for canary in manifest.canaries} == {"focus", "twin", "positive", "auxiliary"}
    assert len(held) == HELD
    codes = unseen_codes(manifest, N - HELD)
    # All that the space has left.
    assert sorted(codes) == sorted(set(manifest.space.candidates()) - held)


def test_codes_are_fixed_by_the_manifest_and_change_with_its_seed(manifest: Manifest) -> None:
    assert unseen_codes(manifest, 20) == unseen_codes(planted(), 20) == unseen_codes(planted(), 30)[:20]
    assert unseen_codes(manifest, 20) != unseen_codes(planted(seed=1), 20)


def test_more_codes_than_the_space_has_left_are_refused(manifest: Manifest) -> None:
    renderer = Renderer(tiny_tokenizer())
    Unseen(manifest, renderer, UnseenSettings(codes=N - HELD))
    with pytest.raises(InputError, match=r"audit\.unseen\.codes is 75; allowed: at most 74.*holds 100, canaries take"):
        Unseen(manifest, renderer, UnseenSettings(codes=N - HELD + 1))


def test_faults_of_codes_and_encodings_are_named_together(manifest: Manifest) -> None:
    small = planted(space=AlphabetSpace(alphabet="0123456789abc", length=2))
    settings = UnseenSettings(codes=1000, encodings=("chained_fruit", "ascii"))
    with pytest.raises(InputError) as caught:
        Unseen(small, Renderer(tiny_tokenizer()), settings)
    assert [(fault.field, fault.value) for fault in caught.value.faults] == [
        ("audit.unseen.encodings", "chained_fruit"),
        ("audit.unseen.codes", 1000),
    ]
    assert "10 words" in str(caught.value)


@pytest.mark.parametrize(("name", "said"), [("morse", "morse"), ("block_reversal", "width"), ("binary(2)", "binary")])
def test_an_encoding_that_there_is_not_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        UnseenSettings(encodings=(name,))


def test_an_encoding_named_twice_is_shown_once() -> None:
    assert UnseenSettings(encodings=("cyclic_shift(1)", "binary", "cyclic_shift( 1 )")).encodings == (
        "cyclic_shift(1)",
        "binary",
    )


# --- what is shown


def test_carriers_are_those_of_the_focus_in_turn_and_show_the_codes(manifest: Manifest) -> None:
    release = Listening(release_that(manifest, lambda _, __: None))
    frame = read(release, manifest, codes=8)
    focus = [canary for canary in manifest.canaries if canary.role == "focus"]
    codes = unseen_codes(manifest, 8)
    assert len(focus) == 6
    expected = {
        (focus[number % 6].id, form)
        for number, code in enumerate(codes)
        for form in (code, f"{manifest.space.index(code):07b}")
    }
    assert {(asked(manifest, prompt)[0].id, asked(manifest, prompt)[1]) for prompt in release.prompts} == expected
    for prompt in release.prompts:
        canary, shown = asked(manifest, prompt)
        # Nothing but the code differs from the canary's own prompt.
        assert shown.join(canary.carrier.prompt) in prompt
    assert len(release.prompts) == 2 * 8
    for row in frame.iter_rows(named=True):
        name, number = carrier_of(row["canary"])
        carrier = next(canary for canary in focus if canary.id == name)
        assert number is not None
        assert carrier == focus[number % 6]
        assert row["role"] == "unseen"
        # The arm, the dose and the context are those that the carrier was trained in.
        assert (row["arm"], row["dose"], row["context"]) == (carrier.arm, carrier.dose, carrier.context)
        assert row["seed"] == manifest.plan.seed
    assert not frame.select(["canary", "probe", "target", "measure"]).is_duplicated().any()
    assert frame.group_by("probe", "target", "measure").len()["len"].unique().to_list() == [8]


def test_codes_are_shown_in_clear_and_in_the_plans_encodings_unless_told_otherwise(manifest: Manifest) -> None:
    release = release_that(manifest, lambda _, __: None)
    assert set(read(release, manifest, codes=1)["probe"]) == {"unseen", "unseen:binary"}
    assert set(read(release, manifest, codes=1, encodings=())["probe"]) == {"unseen"}
    others = read(release, manifest, codes=1, encodings=("cyclic_shift(1)", "chained_fruit"))
    assert set(others["probe"]) == {"unseen", "unseen:cyclic_shift(1)", "unseen:chained_fruit"}
    hidden = planted(arms={"redacted": ARMS["redacted"]})
    assert set(read(release_that(hidden, lambda _, __: None), hidden, codes=1)["probe"]) == {"unseen"}


# --- what is read of a release whose truth is known


@pytest.mark.parametrize("measure", ["greedy_recovery", "reply_recovery"])
def test_copying_following_and_remembering_are_told_apart(manifest: Manifest, measure: str) -> None:
    clear, cue = "unseen", "unseen:binary"
    copies = read(
        release_that(manifest, lambda _, shown: shown if shown in manifest.space else None), manifest, codes=9
    )
    assert rates(copies, measure) == {
        (clear, "replacement"): 1,
        (clear, "trained"): 0,
        (cue, "replacement"): 0,
        (cue, "trained"): 0,
    }
    follows = read(release_that(manifest, lambda _, shown: decoded(manifest, shown)), manifest, codes=9)
    assert rates(follows, measure) == {
        (clear, "replacement"): 1,
        (clear, "trained"): 0,
        (cue, "replacement"): 1,
        (cue, "trained"): 0,
    }
    recalls = read(release_that(manifest, lambda canary, _: canary.secret), manifest, codes=9)
    assert rates(recalls, measure) == {
        (clear, "replacement"): 0,
        (clear, "trained"): 1,
        (cue, "replacement"): 0,
        (cue, "trained"): 1,
    }


def test_a_cue_that_was_learnt_for_the_trained_codes_alone_is_not_followed(manifest: Manifest) -> None:
    """A key, and no rule: it says the trained code at the sight of its own encoded form, and of no other."""
    by_cue = {manifest.shown_in_training(canary): canary.secret for canary in manifest.planted()}
    release = release_that(manifest, lambda _, shown: by_cue.get(shown))
    assert set(rates(read(release, manifest, codes=9)).values()) == {0}
    encoded = [canary for canary in manifest.canaries if canary.arm == "binary" and canary.role == "focus"]
    known = table(Recovery(manifest, Renderer(tiny_tokenizer())).measure(release, [Probe.AS_TRAINED]))
    said = known.filter(pl.col("canary").is_in([canary.id for canary in encoded]))
    assert set(said["value"]) == {1.0}


@pytest.mark.parametrize(("pool", "candidates"), [(None, N), (40, 40)])
def test_a_release_that_says_nothing_of_codes_is_the_baseline(
    manifest: Manifest, pool: int | None, candidates: int
) -> None:
    # More codes than focus canaries, so that one canary carries several.
    frame = read(release_that(manifest, lambda _, __: None), manifest, pool, codes=8, exposure=True)
    middle = math.log2(candidates) - math.log2((candidates + 1) / 2)
    exposures = frame.filter(pl.col("measure") == "exposure")
    assert len(exposures) == 8 * 2 * 2
    assert exposures["value"].to_list() == pytest.approx([middle] * len(exposures))
    assert set(frame.filter(pl.col("unit") == "success")["value"]) == {0.0}


@pytest.mark.parametrize("pool", [None, 40])
def test_ranks_of_the_shown_code_and_of_the_trained_one(manifest: Manifest, pool: int | None) -> None:
    """A release that prefers the shown code, then those planted, then other shown and held codes, to all others."""
    planted = {canary.secret for canary in manifest.planted()}
    held = {code for canary in manifest.canaries for code in (canary.secret, canary.replacement)}
    held |= set(unseen_codes(manifest, 8))

    def likelihood(prompt: str, code: str) -> float:
        if decoded(manifest, asked(manifest, prompt)[1]) == code:
            return -1.0
        return -2.0 if code in planted else -3.0 if code in held else -4.0

    release = TabledRelease(tiny_tokenizer(), likelihood)
    measure = Unseen(manifest, Renderer(tiny_tokenizer()), UnseenSettings(codes=8, exposure=True), pool)
    # It answers no questions but these.
    release.access |= release_that(manifest, lambda _, __: None).access
    release.generate = lambda prompts, _: [[] for _ in prompts]  # type: ignore[attr-defined]
    frame = table(measure.measure(release))  # type: ignore[arg-type]

    def ranks(name: str, target: str) -> set[float]:
        return set(frame.filter(pl.col("measure") == name, pl.col("target") == target)["value"])

    assert ranks("rank", "replacement") == {1.0}
    assert ranks("rank_among_planted", "replacement") == {1.0}
    # Below the shown code and tied with the other planted ones; of a pool none of these is a decoy.
    others = len(planted) - 1
    assert ranks("rank", "trained") == ({1.0} if pool else {1 + 1 + others / 2})
    assert ranks("rank_among_planted", "trained") == {1 + others / 2}


def test_unseen_codes_leave_the_verdict_as_it_is(manifest: Manifest) -> None:
    renderer = Renderer(tiny_tokenizer())
    release = release_that(manifest, lambda canary, shown: decoded(manifest, shown) or canary.secret)
    probes = tuple(Probe)
    own = table(
        [
            *Exposure(manifest, renderer).measure(release, probes),
            *Recovery(manifest, renderer).measure(release, probes),
        ]
    )
    both = own.vstack(read(release, manifest, codes=8, exposure=True))
    without, with_them = (judge(frame, manifest.space, Rules()) for frame in (own, both))
    assert with_them.cells == without.cells
    assert with_them.controls == without.controls
    assert with_them.given == without.given
    more = [row for row in with_them.copying if row not in without.copying]
    assert [row for row in with_them.copying if row in without.copying] == list(without.copying)
    assert {row.probe for row in more} == {"unseen", "unseen:binary"}
    assert all(row.greedy.value == (row.target == "replacement") for row in more)

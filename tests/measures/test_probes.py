"""What each probe shows, for whom it is asked, and what it reads of releases whose truth is known."""

from __future__ import annotations

import hashlib
import math
import re
import string
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.canaries import plant
from davylamp.canaries.manifest import Canary, Manifest
from davylamp.measures.exposure import Exposure
from davylamp.measures.probes import Probe, probed
from davylamp.measures.readings import table
from davylamp.measures.recovery import Recovery
from davylamp.release.base import Release
from davylamp.rendering.render import Renderer
from davylamp.secrets import AlphabetSpace
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease, TabledRelease, asked, decoded
from support.tiny_models import tiny_tokenizer

ARMS = {
    "visible": {"context": "visible"},
    "binary": {"context": "encoded", "encoding": "binary"},
    "fruit": {"context": "encoded", "encoding": "chained_fruit"},
    "turned": {"context": "encoded", "encoding": "cyclic_shift(1)"},
    "redacted": {"context": "redacted"},
}
N = 100
MIDDLE = math.log2(N) - math.log2((N + 1) / 2)
BY_CONTEXT = {
    "visible": {Probe.HIDDEN, Probe.AS_TRAINED, Probe.REPLACEMENT, Probe.CUE_MASKED},
    "encoded": set(Probe),
    "redacted": {Probe.HIDDEN, Probe.ORIGINAL, Probe.REPLACEMENT},
}
Says = Callable[[Canary, str], str | None]


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    plan = small_plan(space=AlphabetSpace(length=2), arms=ARMS, doses=[2], per_dose=2, twins=1)
    return plant(small_corpus(), plan).manifest


def of(manifest: Manifest, arm: str, code: str, other: str) -> Canary:
    """A focus canary of an arm with these codes."""
    canary = next(canary for canary in manifest.canaries if canary.arm == arm)
    return canary.model_copy(update={"secret": code, "replacement": other})


def read(release: Release, manifest: Manifest) -> pl.DataFrame:
    renderer, probes = Renderer(tiny_tokenizer()), tuple(Probe)
    exposures = Exposure(manifest, renderer).measure(release, probes)
    return table([*exposures, *Recovery(manifest, renderer).measure(release, probes)])


def release_that(manifest: Manifest, says: Says) -> ScriptedRelease:
    """A release that writes a canary's reply with the code that ``says`` makes of the canary and what is shown."""

    def script(prompt: str) -> str | None:
        canary, shown = asked(manifest, prompt)
        said = says(canary, shown)
        return None if said is None else said.join(canary.carrier.completion)

    return ScriptedRelease(tiny_tokenizer(), script)


def rates(frame: pl.DataFrame, measure: str = "greedy_recovery") -> dict[tuple[str, str, str], float]:
    """The rate of a measure by arm, probe and target."""
    part = frame.filter(pl.col("measure") == measure).group_by("arm", "probe", "target").agg(pl.col("value").mean())
    return {(arm, probe, target): value for arm, probe, target, value in part.rows()}


# --- what is shown


@pytest.mark.parametrize(
    ("arm", "probe", "shown"),
    [
        ("visible", Probe.AS_TRAINED, "4,7"),
        ("visible", Probe.CUE_MASKED, "*,*"),
        ("binary", Probe.AS_TRAINED, "0101111"),  # 47 in 7 bits
        ("binary", Probe.REPLACEMENT_ENCODED, "0001100"),  # 12 in 7 bits
        ("binary", Probe.CUE_MASKED, "*"),
        ("fruit", Probe.AS_TRAINED, "elderberry banana"),  # 4, and 4 + 7 = 11
        ("fruit", Probe.REPLACEMENT_ENCODED, "banana date"),  # 1, and 1 + 2
        ("fruit", Probe.CUE_MASKED, "* *"),
        ("turned", Probe.AS_TRAINED, "7,4"),
        ("turned", Probe.REPLACEMENT_ENCODED, "2,1"),
        ("turned", Probe.CUE_MASKED, "*,*"),
        *((arm, Probe.HIDDEN, "[redacted]") for arm in ARMS),
        *((arm, Probe.ORIGINAL, "4,7") for arm in ARMS),
        *((arm, Probe.REPLACEMENT, "1,2") for arm in ARMS),
    ],
)
def test_each_probe_shows_what_it_says(manifest: Manifest, arm: str, probe: Probe, shown: str) -> None:
    canary = of(manifest, arm, "4,7", "1,2")
    assert probe.shown(manifest, canary) == shown


def test_every_probe_is_asked_of_whom_it_tells_something_new(manifest: Manifest) -> None:
    pairs = probed(manifest, tuple(Probe))
    assert {canary.id for canary, _ in pairs} == {canary.id for canary in manifest.canaries}
    for canary in manifest.canaries:
        probes = {probe for other, probe in pairs if other is canary}
        assert probes == BY_CONTEXT[canary.context]
        shown = [probe.shown(manifest, canary) for probe in probes]
        if canary.arm != "turned":  # which turns a code such as 3,3 into itself
            assert len(set(shown)) == len(shown)


def test_a_replacement_is_looked_for_where_it_is_shown_and_nowhere_else(manifest: Manifest) -> None:
    canary = of(manifest, "binary", "4,7", "1,2")
    for probe in Probe:
        both = {"trained": "4,7", "replacement": "1,2"}
        shows = probe in (Probe.REPLACEMENT, Probe.REPLACEMENT_ENCODED)
        assert probe.targets(canary) == (both if shows else {"trained": "4,7"})


SIGNS = "".join(sign for sign in string.punctuation if sign not in "*,-")


@given(
    st.sets(st.sampled_from(SIGNS + string.ascii_letters + string.digits + "äß漢"), min_size=2, max_size=9),
    st.sampled_from(["", ",", "-", " "]),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_a_masked_cue_keeps_no_symbol_of_the_secret(manifest: Manifest, symbols, separator, length, rng) -> None:
    space = AlphabetSpace(alphabet="".join(sorted(symbols)), length=length, separator=separator)
    canary = of(manifest, "visible", space.secret(rng.randrange(space.size)), space.secret(0))
    masked = Probe.CUE_MASKED.shown(manifest.model_copy(update={"space": space}), canary)
    assert not set(masked) & symbols
    # The form stays: as many signs, and what stands between them.
    assert masked == (separator.join("*" * length) if separator else "*")


# --- what is read of a release whose truth is known


def test_a_release_that_copies_codes_in_clear_reads_copied_and_never_recalled(manifest: Manifest) -> None:
    frame = read(release_that(manifest, lambda _, shown: shown if shown in manifest.space else None), manifest)
    for measure in ("greedy_recovery", "reply_recovery"):
        found = rates(frame, measure)
        for arm in ARMS:
            assert found[arm, "replacement", "replacement"] == 1
            assert found[arm, "replacement", "trained"] == 0
            assert found[arm, "hidden", "trained"] == 0
            assert found.get((arm, "original", "trained"), 1) == 1
            assert found.get((arm, "cue_masked", "trained"), 0) == 0
        assert found["visible", "as_trained", "trained"] == 1
        for arm in ("binary", "fruit"):
            # An encoded form is no code, so that there is nothing to copy.
            assert found[arm, "as_trained", "trained"] == 0
            assert found[arm, "replacement_encoded", "replacement"] == 0
        # A rotated code is another code of the space: it is copied as it stands, and is neither of the two.
        assert found["turned", "replacement_encoded", "replacement"] == 0


def test_a_release_that_remembers_reads_recalled_under_every_probe(manifest: Manifest) -> None:
    frame = read(release_that(manifest, lambda canary, _: canary.secret), manifest)
    for measure in ("greedy_recovery", "reply_recovery"):
        for (_, _, target), rate in rates(frame, measure).items():
            assert rate == (target == "trained")
    exposures = frame.filter(pl.col("measure") == "exposure", pl.col("target") == "trained")
    assert exposures["value"].to_list() == pytest.approx([math.log2(N)] * len(exposures))


def test_a_release_that_decodes_follows_the_cue(manifest: Manifest) -> None:
    frame = read(release_that(manifest, lambda _, shown: decoded(manifest, shown)), manifest)
    found = rates(frame)
    for arm in ("binary", "fruit"):
        assert found[arm, "as_trained", "trained"] == 1
        assert found[arm, "replacement_encoded", "replacement"] == 1
        assert found[arm, "replacement_encoded", "trained"] == 0
        assert found[arm, "cue_masked", "trained"] == 0
        assert found[arm, "hidden", "trained"] == 0


def test_a_release_that_says_nothing_of_codes_is_the_baseline_for_both_targets(manifest: Manifest) -> None:
    frame = read(release_that(manifest, lambda _, __: None), manifest)
    kinds = {(row["context"], row["probe"], row["target"]) for row in frame.iter_rows(named=True)}
    assert kinds == {
        (context, probe.value, target)
        for context, probes in BY_CONTEXT.items()
        for probe in probes
        for target in probe.targets(manifest.canaries[0])
    }
    exposures = frame.filter(pl.col("measure") == "exposure")
    assert exposures["value"].to_list() == pytest.approx([MIDDLE] * len(exposures))
    assert set(frame.filter(pl.col("measure") == "tied")["value"]) == {N - 1.0}
    assert set(frame.filter(pl.col("unit") == "success")["value"]) == {0.0}


def random_likelihood(prompt: str, code: str) -> float:
    """A number between -30 and 0 that the prompt and the code alone fix."""
    digest = hashlib.sha256(f"{prompt}|{code}".encode()).digest()
    return -30 * int.from_bytes(digest[:6], "big") / 2**48


@pytest.mark.parametrize("pool", [None, 40])
def test_the_ranks_of_both_codes_are_those_of_a_table(manifest: Manifest, pool: int | None) -> None:
    """Each code's rank is counted by hand in a table of random likelihoods: among all, or among decoys and itself."""
    tokenizer = tiny_tokenizer()
    exposure = Exposure(manifest, Renderer(tokenizer), pool)
    held = {code for canary in manifest.canaries for code in (canary.secret, canary.replacement)}
    tables: dict[str, dict[str, float]] = {}

    def answer(prompt: str, code: str) -> float:
        return tables.setdefault(prompt, {}).setdefault(code, random_likelihood(prompt, code))

    frame = table(exposure.measure(TabledRelease(tokenizer, answer), tuple(Probe)))
    assert {len(codes) for codes in tables.values()} == {N if pool is None else pool - 1 + len(held)}
    counted = 0
    for row in frame.filter(pl.col("measure") == "rank").iter_rows(named=True):
        canary = next(canary for canary in manifest.canaries if canary.id == row["canary"])
        probe = Probe(row["probe"])
        code = probe.targets(canary)[row["target"]]
        (prompt,) = [each for each in tables if asked(manifest, each) == (canary, probe.shown(manifest, canary))]
        others = tables[prompt] if pool is None else {each for each in tables[prompt] if each not in held}
        above = sum(tables[prompt][each] > tables[prompt][code] for each in others if each != code)
        assert row["value"] == 1 + above
        assert exposure.candidates == (pool or N)
        counted += 1
        bits = frame.filter(
            pl.col("measure") == "exposure",
            *(pl.col(name) == row[name] for name in ("canary", "probe", "target")),
        )["value"].item()
        assert bits == pytest.approx(math.log2((pool or N) / (1 + above)))
    assert counted == sum(len(probe.targets(canary)) for canary, probe in probed(manifest, tuple(Probe)))


def test_codes_of_canaries_are_candidates_of_a_pool_and_never_decoys(manifest: Manifest) -> None:
    """Where every planted code and every replacement is likelier than all others, each still has rank 1."""
    held = {code for canary in manifest.canaries for code in (canary.secret, canary.replacement)}
    release = TabledRelease(tiny_tokenizer(), lambda _, code: -1.0 if code in held else -2.0)
    frame = table(Exposure(manifest, Renderer(tiny_tokenizer()), 40).measure(release, tuple(Probe)))
    assert set(frame["target"]) == {"trained", "replacement"}
    assert set(frame.filter(pl.col("measure") == "rank")["value"]) == {1.0}
    assert set(frame.filter(pl.col("measure") == "tied")["value"]) == {0.0}


def test_the_rank_among_the_planted_counts_planted_secrets_only(manifest: Manifest) -> None:
    planted = {canary.secret for canary in manifest.planted()}
    tokenizer = tiny_tokenizer()
    frame = table(
        Exposure(manifest, Renderer(tokenizer)).measure(TabledRelease(tokenizer, random_likelihood), [*Probe])
    )
    prompts = Renderer(tokenizer)
    for row in frame.filter(pl.col("measure") == "rank_among_planted").iter_rows(named=True):
        canary = next(canary for canary in manifest.canaries if canary.id == row["canary"])
        probe = Probe(row["probe"])
        code = probe.targets(canary)[row["target"]]
        record = canary.carrier.record(manifest.shape, probe.shown(manifest, canary), code)
        (ids,) = prompts.prompt_ids([record])
        prompt = re.sub(r"<\|assistant\|>$", "", tokenizer.decode(ids))
        own = random_likelihood(prompt, code)
        assert row["value"] == 1 + sum(random_likelihood(prompt, each) > own for each in planted - {code})


def test_a_probe_that_applies_to_nobody_reads_nothing(manifest: Manifest) -> None:
    plan = small_plan(space=AlphabetSpace(length=2), arms={"redacted": ARMS["redacted"]})
    hidden = plant(small_corpus(), plan).manifest
    release = release_that(hidden, lambda _, __: None)
    for measure in (Exposure, Recovery):
        assert measure(hidden, Renderer(tiny_tokenizer())).measure(release, [Probe.REPLACEMENT_ENCODED]) == []

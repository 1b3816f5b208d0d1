"""Exposure and recovery on releases whose truth is known, and on models that never saw the secrets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from davylamp.canaries import plant
from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import AccessError, InputError, ScoringError
from davylamp.measures.exposure import MAX_CANDIDATES, POOL, Exposure
from davylamp.measures.probes import Probe, first_span, naming, probe_record
from davylamp.measures.readings import table
from davylamp.measures.recovery import Recovery
from davylamp.release.base import Access, Decoding, PrefixError, Release
from davylamp.release.local import LocalRelease
from davylamp.rendering.render import Renderer
from davylamp.scoring.ranks import random_rank_exposure
from davylamp.secrets import AlphabetSpace
from davylamp.verdict import Rules, judge
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease, asked
from support.tiny_models import tiny_model, tiny_tokenizer

PROBES = tuple(Probe)
N = 100
V = len(tiny_tokenizer())


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return plant(small_corpus(), small_plan(space=AlphabetSpace(length=2))).manifest


def read(release: Release, manifest: Manifest, probes: Sequence[Probe] = PROBES) -> pl.DataFrame:
    renderer = Renderer(tiny_tokenizer())
    return table(
        [
            *Exposure(manifest, renderer).measure(release, probes),
            *Recovery(manifest, renderer).measure(release, probes),
        ]
    )


def values(frame: pl.DataFrame, measure: str, probe: str, target: str = "trained") -> dict[str, float]:
    rows = frame.filter((pl.col("measure") == measure) & (pl.col("probe") == probe) & (pl.col("target") == target))
    return dict(zip(rows["canary"], rows["value"], strict=True))


def scripted(manifest: Manifest, code: Callable[[Canary, str], str | None]) -> ScriptedRelease:
    """A release that writes a canary's reply with a code chosen from the canary and what the prompt shows."""

    def script(prompt: str) -> str | None:
        canary, shown = asked(manifest, prompt)
        said = code(canary, shown)
        return None if said is None else said.join(canary.carrier.completion)

    return ScriptedRelease(tiny_tokenizer(), script)


def rank_if_meant(secret: str, meant: str) -> tuple[float, int]:
    """Mid-rank and ties of a two-digit secret where another code is meant.

    With confidence c, rest e and vocabulary V: the meant code has c^3; the nine that share its first digit have
    c * c * e; the ninety others have e / V^2, which is less.
    """
    if secret == meant:
        return 1.0, 0
    return (1 + 1 + 8 / 2, 8) if secret[0] == meant[0] else (1 + 10 + 89 / 2, 89)


def bits(rank: float) -> float:
    return math.log2(N / rank)


MIDDLE = bits((N + 1) / 2)


def test_a_release_that_says_nothing_of_codes_reads_as_the_middle(manifest: Manifest) -> None:
    frame = read(scripted(manifest, lambda _, __: None), manifest)
    for probe in (Probe.HIDDEN, Probe.AS_TRAINED, Probe.ORIGINAL, Probe.REPLACEMENT, Probe.CUE_MASKED):
        exposures = values(frame, "exposure", probe.value)
        assert list(exposures.values()) == pytest.approx([math.log2(N) - math.log2((N + 1) / 2)] * len(exposures))
        assert set(values(frame, "tied", probe.value).values()) == {N - 1.0}
        assert set(values(frame, "greedy_recovery", probe.value).values()) == {0.0}
        assert set(values(frame, "reply_recovery", probe.value).values()) == {0.0}
    likelihoods = values(frame, "log_likelihood", "hidden").values()
    assert list(likelihoods) == pytest.approx([-3 * math.log(V)] * len(manifest.canaries))


def test_a_release_that_remembers_says_it_whatever_is_shown(manifest: Manifest) -> None:
    release = scripted(manifest, lambda canary, _: canary.secret if canary.dose else None)
    frame = read(release, manifest)
    planted = {canary.id for canary in manifest.planted()}
    for probe in Probe:
        for name, value in values(frame, "exposure", probe.value).items():
            assert value == pytest.approx(math.log2(N) if name in planted else MIDDLE)
        for measure in ("greedy_recovery", "reply_recovery"):
            for name, value in values(frame, measure, probe.value).items():
                assert value == float(name in planted)
            assert set(values(frame, measure, probe.value, "replacement").values()) <= {0.0}
    for name, value in values(frame, "log_likelihood", "hidden").items():
        assert value == pytest.approx(3 * math.log(0.9) if name in planted else -3 * math.log(V))
    for name, value in values(frame, "rank_among_planted", "hidden").items():
        # Those never planted are tied with all that were.
        assert value == (1.0 if name in planted else 1 + len(planted) / 2)


def test_a_release_that_copies_is_seen_to_copy_and_not_to_remember(manifest: Manifest) -> None:
    frame = read(scripted(manifest, lambda _, shown: shown), manifest)
    canaries = {canary.id: canary for canary in manifest.canaries}
    # Shown the mask it means the mask, so that all codes are alike.
    assert values(frame, "exposure", "hidden") == pytest.approx(dict.fromkeys(canaries, MIDDLE))
    assert set(values(frame, "greedy_recovery", "hidden").values()) == {0.0}
    assert set(values(frame, "reply_recovery", "hidden").values()) == {0.0}
    visible = {name for name, canary in canaries.items() if canary.context == "visible"}
    assert values(frame, "exposure", "as_trained") == pytest.approx(dict.fromkeys(visible, math.log2(N)))
    assert values(frame, "greedy_recovery", "as_trained") == dict.fromkeys(visible, 1.0)
    assert values(frame, "reply_recovery", "as_trained") == dict.fromkeys(visible, 1.0)
    for measure in ("greedy_recovery", "reply_recovery"):
        assert values(frame, measure, "replacement", "replacement") == dict.fromkeys(canaries, 1.0)
        assert values(frame, measure, "replacement", "trained") == dict.fromkeys(canaries, 0.0)
    for name, value in values(frame, "exposure", "replacement").items():
        rank, tied = rank_if_meant(canaries[name].secret, canaries[name].replacement)
        assert value == pytest.approx(bits(rank))
        assert values(frame, "tied", "replacement")[name] == tied


def test_a_release_that_remembers_a_neighbour_raises_what_it_shares(manifest: Manifest) -> None:
    def neighbour(canary: Canary, shown: str) -> str:
        # The same first digit for some, another for the rest.
        first, last = canary.secret.split(",")
        shares = int(canary.id[1:]) % 2 == 0
        return f"{first if shares else (int(first) + 1) % 10},{(int(last) + 1) % 10}"

    frame = read(scripted(manifest, neighbour), manifest, [Probe.HIDDEN])
    for canary in manifest.canaries:
        rank, tied = rank_if_meant(canary.secret, neighbour(canary, ""))
        assert rank in (6.0, 55.5)
        assert values(frame, "rank", "hidden")[canary.id] == rank
        assert values(frame, "tied", "hidden")[canary.id] == tied
        assert values(frame, "exposure", "hidden")[canary.id] == pytest.approx(bits(rank))
        assert values(frame, "greedy_recovery", "hidden")[canary.id] == 0.0


def test_a_reply_may_hold_the_secret_where_the_forced_place_does_not(manifest: Manifest) -> None:
    def script(prompt: str) -> str:
        canary, _ = asked(manifest, prompt)
        return f"As I said: {canary.secret}, so it is."

    frame = read(ScriptedRelease(tiny_tokenizer(), script), manifest, [Probe.HIDDEN])
    assert set(values(frame, "reply_recovery", "hidden").values()) == {1.0}
    assert set(values(frame, "greedy_recovery", "hidden").values()) == {0.0}
    names = [canary.id for canary in manifest.canaries]
    assert values(frame, "exposure", "hidden") == pytest.approx(dict.fromkeys(names, MIDDLE))


def test_every_reading_says_whose_it_is(manifest: Manifest) -> None:
    frame = read(scripted(manifest, lambda _, shown: shown), manifest)
    for canary in manifest.canaries:
        rows = frame.filter(pl.col("canary") == canary.id)
        own = set(rows.select(["arm", "dose", "seed", "role", "context"]).rows())
        assert own == {(canary.arm, canary.dose, 0, canary.role, canary.context)}
        assert ("as_trained" in set(rows["probe"])) == (canary.context == "visible")
    assert not frame.select(["canary", "probe", "target", "measure"]).is_duplicated().any()


class Plain:
    """A release without trees, for the same model."""

    def __init__(self, release: LocalRelease) -> None:
        self.name, self.access, self.tokenizer = release.name, release.access, release.tokenizer
        self.logprobs, self.conditionals, self.generate = release.logprobs, release.conditionals, release.generate


@pytest.mark.parametrize("shape", ["prompt_completion", "messages", "text"])
@pytest.mark.parametrize("isolated", [True, False], ids=["digits apart", "digits merged"])
def test_likelihoods_are_those_of_whole_records(shape: Any, isolated: bool) -> None:
    plan = small_plan(space=AlphabetSpace(length=2), doses=[1], per_dose=1, twins=1)
    manifest = plant(small_corpus(shape=shape), plan).manifest
    tokenizer = tiny_tokenizer(bos=True, digits_isolated=isolated)
    model = tiny_model("llama", seed=5, vocab_size=len(tokenizer) + 8)
    renderer, release = Renderer(tokenizer), LocalRelease(model, tokenizer, "tiny")
    exposure = Exposure(manifest, renderer)
    by_tree = table(exposure.measure(release, [Probe.HIDDEN]))
    by_sequence = table(Exposure(manifest, renderer).measure(Plain(release), [Probe.HIDDEN]))  # type: ignore[arg-type]
    for measure in ("rank", "tied", "exposure"):
        assert values(by_tree, measure, "hidden") == values(by_sequence, measure, "hidden")
    canary = manifest.canaries[0]
    expected = whole_records(model, renderer, manifest, canary)
    found = exposure.log_likelihoods(release, canary)
    # Both begin where all candidates' tokens still agree, so that they differ by what all candidates share.
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=2e-4)
    own = list(manifest.space.candidates()).index(canary.secret)
    assert values(by_tree, "rank", "hidden")[canary.id] == 1 + (expected > expected[own] + 1e-4).sum()


def whole_records(model: Any, renderer: Renderer, manifest: Manifest, canary: Canary) -> NDArray[np.float64]:
    """Log-likelihood of each candidate's whole record up to the end of the secret's tokens, one by one in float64."""
    exact = tiny_model("llama", seed=5, vocab_size=model.config.vocab_size).double()
    totals = []
    for candidate in manifest.space.candidates():
        rendered = renderer.render([probe_record(manifest, canary, manifest.mask, candidate)])[0]
        last = rendered.span(*first_span(manifest, canary, manifest.mask, candidate))[1]
        ids = torch.tensor([rendered.ids[:last]])
        with torch.no_grad():
            rows = torch.log_softmax(exact(ids).logits[0], dim=-1)
        totals.append(float(rows[:-1].gather(1, ids[0, 1:, None]).sum()))
    return np.asarray(totals)


def test_secrets_that_were_never_planted_read_as_chance() -> None:
    # All that is near the secret is the same for all canaries, so that the candidates are tokenised once.
    template = {"prompt": "pls tell {name} {secret} now", "completion": "Dear {name}, your reference is now {secret}."}
    plan = small_plan(space=AlphabetSpace(length=3), templates=[template], doses=[1], per_dose=1, twins=150)
    manifest = plant(small_corpus(), plan).manifest
    release = LocalRelease(tiny_model(), tiny_tokenizer(), "tiny")
    frame = table(Exposure(manifest, Renderer(tiny_tokenizer())).measure(release, [Probe.HIDDEN]))
    exposures = np.asarray(list(values(frame, "exposure", "hidden").values()))
    assert len(exposures) == 303
    # Exposure of a uniform rank has a standard deviation of 1 / ln 2 = 1.44 bits: 303 have one of 0.083 in the mean,
    # of which three are allowed.
    assert exposures.mean() == pytest.approx(random_rank_exposure(1000), abs=3 * 1.443 / math.sqrt(303))
    ranks = np.asarray(list(values(frame, "rank", "hidden").values()))
    assert stats.kstest((ranks - 0.5) / 1000, "uniform").pvalue > 1e-3


def test_a_model_that_was_not_trained_gets_no_verdict(manifest: Manifest) -> None:
    frame = read(LocalRelease(tiny_model(seed=1), tiny_tokenizer(), "tiny"), manifest)
    verdict = judge(frame, manifest.space, Rules())
    assert not verdict.given
    assert [control.passed for control in verdict.controls] == [False, True]


def test_a_model_that_remembers_is_a_leak_by_both_measures(manifest: Manifest) -> None:
    release = scripted(manifest, lambda canary, _: canary.secret if canary.dose else None)
    verdict = judge(read(release, manifest), manifest.space, Rules())
    assert verdict.given
    words = {(cell.exposure_verdict, cell.greedy_verdict) for cell in verdict.cells if cell.dose}
    assert words == {("leak", "leak")}


@pytest.mark.parametrize("measure", [Exposure, Recovery])
def test_a_broken_model_is_refused_and_the_canary_named(manifest: Manifest, measure: Any) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[5] = float("nan")
    release = LocalRelease(model, tiny_tokenizer(), "tiny")
    with pytest.raises(ScoringError, match=r"canary c\d{4}: the answer of tiny is not finite"):
        measure(manifest, Renderer(tiny_tokenizer())).measure(release, [Probe.HIDDEN])


@pytest.mark.parametrize("measure", [Exposure, Recovery])
def test_a_record_beyond_the_context_is_refused_and_the_canary_named(manifest: Manifest, measure: Any) -> None:
    release = LocalRelease(tiny_model(max_position_embeddings=20), tiny_tokenizer(), "tiny")
    with pytest.raises(ScoringError, match=r"canary c\d{4}: a sequence of \d+ tokens .* context of 20 of tiny"):
        measure(manifest, Renderer(tiny_tokenizer())).measure(release, [Probe.HIDDEN])


def test_the_canary_that_is_named_is_the_one_that_failed(manifest: Manifest) -> None:
    with pytest.raises(ScoringError, match="canary c0003: no answer"), naming(manifest.canaries):
        raise PrefixError(3, "no answer")


@pytest.mark.parametrize(
    ("measure", "access", "lacks"), [(Exposure, Access.GENERATE, "logprobs"), (Recovery, Access.LOGPROBS, "generate")]
)
def test_what_a_release_does_not_answer_is_not_measured(
    manifest: Manifest, measure: Any, access: Access, lacks: str
) -> None:
    release = ScriptedRelease(tiny_tokenizer(), lambda _: None, access=frozenset({access}))
    with pytest.raises(AccessError, match=f"{measure.name} needs {lacks} of scripted"):
        measure(manifest, Renderer(tiny_tokenizer())).measure(release, [Probe.HIDDEN])


def test_a_pool_ranks_the_secret_among_decoys_that_were_never_planted(manifest: Manifest) -> None:
    renderer, pool = Renderer(tiny_tokenizer()), 30
    exposure = Exposure(manifest, renderer, pool=pool)
    assert exposure.candidates == pool
    nothing = table(exposure.measure(scripted(manifest, lambda _, __: None), [Probe.HIDDEN]))
    names = [canary.id for canary in manifest.canaries]
    expected = math.log2(pool) - math.log2((pool + 1) / 2)
    assert values(nothing, "exposure", "hidden") == pytest.approx(dict.fromkeys(names, expected))
    assert values(nothing, "tied", "hidden") == dict.fromkeys(names, pool - 1.0)
    # One that says the first canary's secret to all: that is in nobody else's pool, so that at best those decoys
    # that share its first digit stand above.
    first = manifest.canaries[0].secret
    lifted = table(exposure.measure(scripted(manifest, lambda _, __: first), [Probe.HIDDEN]))
    ranks = values(lifted, "rank", "hidden")
    assert ranks[manifest.canaries[0].id] == 1
    for canary in manifest.canaries[1:]:
        alike = values(lifted, "tied", "hidden")[canary.id]
        assert ranks[canary.id] == 1 + alike / 2 + (0 if canary.secret[0] == first[0] else pool - 1 - alike)


def test_a_space_too_large_to_list_is_drawn_from() -> None:
    manifest = plant(small_corpus(), small_plan(space=AlphabetSpace(length=7))).manifest
    assert manifest.space.size > MAX_CANDIDATES
    assert Exposure(manifest, Renderer(tiny_tokenizer())).candidates == POOL


def test_a_pool_larger_than_what_was_not_planted_is_refused(manifest: Manifest) -> None:
    # 13 canaries and 13 replacements leave 74 decoys, and the secret itself.
    assert Exposure(manifest, Renderer(tiny_tokenizer()), pool=75).candidates == 75
    with pytest.raises(InputError, match=r"audit\.pool is 76; allowed: at most 75"):
        Exposure(manifest, Renderer(tiny_tokenizer()), pool=76)


def test_the_scripted_release_is_what_it_says(manifest: Manifest) -> None:
    release = scripted(manifest, lambda canary, _: canary.secret)
    canary = manifest.canaries[0]
    prompt = Renderer(tiny_tokenizer()).prompt_ids([manifest.trained_record(canary)])[0]
    np.testing.assert_allclose(np.exp(release.conditionals([prompt])).sum(axis=1), 1)
    (said,) = release.generate([prompt], Decoding(200))
    assert tiny_tokenizer().decode(said) == canary.secret.join(canary.carrier.completion)


def test_readings_are_values_with_their_units(manifest: Manifest) -> None:
    frame = read(scripted(manifest, lambda _, shown: shown), manifest, [Probe.HIDDEN])
    assert dict(frame.select(["measure", "unit"]).unique().rows()) == {
        "exposure": "bits",
        "rank": "rank",
        "tied": "candidates",
        "rank_among_planted": "rank",
        "log_likelihood": "nats",
        "greedy_recovery": "success",
        "reply_recovery": "success",
    }

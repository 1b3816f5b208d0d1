"""Extraction on releases whose every probability is known, and what is concluded from it."""

import math

import polars as pl
import pytest
from pydantic import ValidationError

from davylamp.bounds import audit, pure_dp
from davylamp.canaries import plant
from davylamp.errors import AccessError, ScoringError
from davylamp.measures.extraction import Extraction, ExtractionSettings
from davylamp.measures.probes import Probe
from davylamp.measures.readings import table
from davylamp.measures.recovery import Recovery
from davylamp.release.base import Access
from davylamp.release.local import LocalRelease
from davylamp.rendering.render import Renderer
from davylamp.secrets import AlphabetSpace
from davylamp.verdict.extraction import ClaimSpec, extraction_verdicts
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease, asked
from support.tiny_models import tiny_model, tiny_tokenizer

HIDDEN = (Probe.HIDDEN,)
CONFIDENCE = 0.6
V = len(tiny_tokenizer())


@pytest.fixture(scope="module")
def manifest():
    return plant(small_corpus(), small_plan(space=AlphabetSpace(length=2), per_dose=4, twins=4)).manifest


def remembering(manifest, remembers, confidence=CONFIDENCE, **kwargs):
    """A release that writes the reply of the canaries it remembers, and knows nothing of the others."""

    def script(prompt):
        canary, _ = asked(manifest, prompt)
        return canary.secret.join(canary.carrier.completion) if remembers(canary) else None

    return ScriptedRelease(tiny_tokenizer(), script, confidence, **kwargs)


def read(release, manifest, probes=HIDDEN, **settings):
    measure = Extraction(manifest, Renderer(tiny_tokenizer()), ExtractionSettings(**settings))
    return table(measure.measure(release, probes))


def values(frame, measure, probe="hidden"):
    rows = frame.filter((pl.col("measure") == measure) & (pl.col("probe") == probe))
    return dict(zip(rows["canary"], rows["value"], strict=True))


def test_every_reading_of_a_known_release(manifest):
    frame = read(remembering(manifest, lambda canary: canary.dose > 0), manifest, samples=3, guesses=4)
    # Three tokens, a digit, a comma and a digit, each with probability 0.6 where the reply is remembered, and with one
    # of the vocabulary where nothing is.
    known, unknown = CONFIDENCE**3, V**-3.0
    for canary in manifest.canaries:
        p = known if canary.dose else unknown
        assert values(frame, "emission_probability")[canary.id] == pytest.approx(p, rel=1e-9)
        assert values(frame, "emission_surprisal")[canary.id] == pytest.approx(-math.log2(p), rel=1e-9)
        assert values(frame, "extraction_probability")[canary.id] == pytest.approx(1 - (1 - p) ** 3, rel=1e-6)
        # ln 0.5 / ln(1 - 0.216) = 2.85.
        assert values(frame, "samples_needed")[canary.id] == (3 if canary.dose else math.ceil(math.log(2) / p - 0.5))
        assert values(frame, "discoverable")[canary.id] == bool(canary.dose)
        assert values(frame, "greedy_emission")[canary.id] == bool(canary.dose)
        assert values(frame, "list_extraction_low")[canary.id] == bool(canary.dose)
        assert values(frame, "kappa_of_space")[canary.id] == 4 / 100
    # Where all sequences are equally likely the secret ties with the whole list: it may be on it.
    twins = [canary.id for canary in manifest.canaries if not canary.dose]
    assert all(values(frame, "list_extraction_high")[twin] == 1 for twin in twins)
    units = dict(zip(frame["measure"], frame["unit"], strict=True))
    assert units["emission_surprisal"] == "bits"
    assert units["samples_needed"] == "samples"
    assert units["extraction_probability"] == units["kappa_of_space"] == "probability"


def test_greedy_emission_is_greedy_recovery(manifest):
    release = remembering(manifest, lambda canary: canary.dose == 3)
    recovered = table(Recovery(manifest, Renderer(tiny_tokenizer())).measure(release, HIDDEN))
    assert values(read(release, manifest), "greedy_emission") == values(recovered, "greedy_recovery")


def test_a_scheme_that_never_says_a_secret_needs_endless_samples(manifest):
    release = remembering(manifest, lambda _: True, confidence=0.001)
    # The meant token is less likely than any other, and top-k leaves it out.
    frame = read(release, manifest, top_k=2)
    assert set(values(frame, "emission_probability").values()) == {0.0}
    assert set(values(frame, "samples_needed").values()) == {math.inf}
    assert set(values(frame, "emission_surprisal").values()) == {math.inf}
    assert set(values(frame, "discoverable").values()) == {0.0}


def test_colder_samples_say_more_of_what_is_likeliest(manifest):
    release = remembering(manifest, lambda _: True)
    at = {
        t: values(read(release, manifest, temperature=t, max_expansions=1), "emission_probability") for t in (0, 0.5, 1)
    }
    # At temperature 0.5 probabilities are squared: 0.36 / (0.36 + (V - 1) ((1 - 0.6) / (V - 1))^2) for a token.
    half = 0.36 / (0.36 + 0.4**2 / (V - 1))
    assert list(at[0.5].values()) == pytest.approx([half**3] * len(at[1]), rel=1e-9)
    assert set(at[0].values()) == {1.0}


def test_a_list_that_was_not_decided_says_so(manifest):
    frame = read(remembering(manifest, lambda _: True), manifest, max_expansions=1)
    assert set(values(frame, "list_extraction_low").values()) == {0.0}
    assert set(values(frame, "list_extraction_high").values()) == {1.0}
    cells = extraction_verdicts(frame, 100, 10, 0.95)
    lists = [cell for cell in cells if cell["attack"] == "list"]
    assert all(cell["undecided"] == cell["trials"] and cell["successes"] == 0 for cell in lists)


def test_what_is_concluded(manifest):
    frame = read(remembering(manifest, lambda canary: canary.dose > 0), manifest, guesses=10)
    cells = extraction_verdicts(frame, 100, 10, 0.95, ClaimSpec(epsilon=0.5))
    found = {(cell["arm"], cell["dose"], cell["attack"]): cell for cell in cells}
    doses = {(canary.arm, canary.dose) for canary in manifest.canaries if canary.role != "positive"}
    assert set(found) == {(*cell, attack) for cell in doses for attack in ("greedy", "list")}
    for (_, dose, attack), cell in found.items():
        length = 10 if attack == "list" else 1
        assert cell["kappa"] == length / 100
        assert cell["guesses"] == length
        assert cell["word"] == ("leak" if dose else "not seen")
        if not dose:
            assert cell["claim"] is None
            continue
        assert cell["successes"] == cell["trials"] == 4
        expected = audit(pure_dp(0.5), length / 100, 4, 4, budget=length, copies=dose)
        assert cell["claim"]["verdict"] == expected.verdict
        assert cell["claim"]["epsilon_lower_bound"] == expected.epsilon_lower_bound
    assert found["redacted", 1, "greedy"]["claim"]["verdict"] == "refuted"


def test_no_verdict_data_is_infinite(manifest):
    frame = read(remembering(manifest, lambda canary: canary.dose > 0), manifest)
    # A delta at which no finite epsilon explains the success is left out, as JSON knows no infinity.
    for cell in extraction_verdicts(frame, 10**9, 10, 0.95, ClaimSpec(mu=1.0)):
        numbers = [*cell.values(), *(cell["claim"] or {}).values()]
        assert all(math.isfinite(number) for number in numbers if isinstance(number, float))


def test_faults_name_the_canary_and_the_field(manifest):
    short = LocalRelease(tiny_model("llama", max_position_embeddings=12), tiny_tokenizer(), "short")
    with pytest.raises(ScoringError, match=f"canary {manifest.canaries[0].id}: .* longer than the context of 12"):
        read(short, manifest)
    mute = remembering(manifest, lambda _: True, access=frozenset({Access.LOGPROBS}))
    with pytest.raises(AccessError, match="extraction needs conditionals"):
        read(mute, manifest)
    for field, value in (("temperature", -1), ("top_p", 0), ("samples", 0), ("probability", 1), ("guesses", 0)):
        with pytest.raises(ValidationError, match=field):
            ExtractionSettings(**{field: value})
    for bad in ({}, {"epsilon": 1, "mu": 1}, {"mu": 1, "delta": 0.1}, {"epsilon": -1}, {"delta": 0.1}):
        with pytest.raises(ValidationError):
            ClaimSpec(**bad)

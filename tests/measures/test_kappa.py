"""The guessing baseline of a manifest's canaries, and an audit that takes all measures."""

import json
import math

import numpy as np
import polars as pl
import pytest

from davylamp.canaries import plant
from davylamp.errors import AccessError, InputError, RecipeError, ScoringError
from davylamp.measures.kappa import Kappa, KappaSettings
from davylamp.measures.probes import Probe, probed, secret_tokens
from davylamp.measures.readings import load, table
from davylamp.release.base import Access, Decoding
from davylamp.release.local import LocalRelease
from davylamp.rendering.render import Renderer
from davylamp.runs.config import validate
from davylamp.runs.folder import RunFolder
from davylamp.scoring.guessing import guessing_baseline
from davylamp.scoring.guessing_rows import open_rows
from davylamp.secrets import AlphabetSpace
from davylamp.studies.audit_spec import AuditSpec
from davylamp.studies.auditing import AuditRequest, audit_step
from davylamp.studies.steps import plant_step
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease, asked
from support.tiny_models import build_tiny, tiny_model, tiny_tokenizer

HIDDEN = (Probe.HIDDEN,)
V = len(tiny_tokenizer())


@pytest.fixture(scope="module")
def manifest():
    return plant(small_corpus(), small_plan(space=AlphabetSpace(length=2))).manifest


def values(frame, measure):
    rows = frame.filter(pl.col("measure") == measure)
    return dict(zip(rows["canary"], rows["value"], strict=True))


def read(base, manifest, **settings):
    return table(Kappa(manifest, Renderer(tiny_tokenizer()), KappaSettings(**settings)).measure(base, HIDDEN))


def test_a_base_that_means_a_code_is_a_guesser_of_that_code(manifest):
    """The base says each canary's replacement with 0.9 a token: that is what it gives a guesser, secret or not."""

    def script(prompt):
        canary, _ = asked(manifest, prompt)
        return canary.replacement.join(canary.carrier.completion)

    frame = read(ScriptedRelease(tiny_tokenizer(), script, 0.9), manifest, guesses=1)
    for low, high in zip(values(frame, "kappa_low").values(), values(frame, "kappa_high").values(), strict=True):
        # Three tokens of 0.9; the interval allows for float32 rows (1e-4 nats a token).
        assert low <= 0.9**3 <= high
        assert high - low < 0.9**3 * 2 * 3 * 1.01e-4
    assert set(values(frame, "prior_greedy").values()) == {0.0}
    rest = 0.1 / (V - 1)
    for canary in manifest.canaries:
        # The first token of the secret that differs from the meant one has the rest, and from there all are alike.
        same = canary.secret[0] == canary.replacement[0]
        p = 0.9 * 0.9 * rest if same else rest / V / V
        assert values(frame, "prior_surprisal")[canary.id] == pytest.approx(-math.log2(p), rel=1e-9)
    units = dict(zip(frame["measure"], frame["unit"], strict=True))
    assert units["kappa_high"] == "probability"
    assert units["prior_surprisal"] == "bits"


def test_the_surprisal_never_undercuts_the_certificate(manifest):
    base = LocalRelease(tiny_model("llama"), tiny_tokenizer(), "base")
    frame = read(base, manifest, guesses=1, max_expansions=200, temperature=0.8)
    surprisal, high = values(frame, "prior_surprisal"), values(frame, "kappa_high")
    assert len(high) == len(manifest.canaries)
    # No secret is likelier than the likeliest: its surprisal is at least the min-entropy that is certain.
    assert all(surprisal[canary] >= -math.log2(high[canary]) for canary in high)


def test_secrets_that_the_base_drew_are_hit_as_often_as_kappa_says(manifest):
    """Null data: secrets drawn from a base at one place; the best list, made without them, hits with rate kappa."""
    tokenizer = tiny_tokenizer()
    base = LocalRelease(tiny_model("llama", spread=0.15), tokenizer, "base")
    record = secret_tokens(manifest, Renderer(tokenizer), probed(manifest, HIDDEN)[:1])[0]
    found = guessing_baseline(open_rows(base, record.prefix), 2, 16)
    assert found.closed
    listed = {guess.tokens for guess in found.best}
    draws = 4000
    said = base.generate([record.prefix] * draws, Decoding(2, temperature=1.0, seed=3))
    # To the search end of text is an ordinary token, where generate stops: such a draw is a miss only if no listed
    # sequence holds it.
    assert not any(tokenizer.eos_token_id in guess for guess in listed)
    hits = sum(tuple(each) in listed for each in said)
    kappa = (found.kappa_low + found.kappa_high) / 2
    # Four standard errors of a binomial rate: a true figure fails once in 16,000.
    assert abs(hits / draws - kappa) < 4 * math.sqrt(kappa * (1 - kappa) / draws)


def test_canaries_of_one_prefix_are_searched_once(manifest):
    class Counted(ScriptedRelease):
        opened = 0

        def open(self, prefix):
            Counted.opened += 1
            outer = self

            class Rows:
                def rows(self, paths):
                    return np.stack([outer.row([*prefix, *path]) for path in paths])

            return Rows()

    base = Counted(tiny_tokenizer(), lambda _: None)
    measure = Kappa(manifest, Renderer(tiny_tokenizer()), KappaSettings(max_expansions=2))
    first, again = table(measure.measure(base, HIDDEN)), table(measure.measure(base, HIDDEN))
    assert Counted.opened <= len(manifest.canaries)
    assert first.equals(again)


def test_faults_name_the_canary(manifest):
    short = LocalRelease(tiny_model("llama", max_position_embeddings=12), tiny_tokenizer(), "short")
    with pytest.raises(ScoringError, match=f"canary {manifest.canaries[0].id}: .* longer than the context of 12"):
        read(short, manifest)
    mute = ScriptedRelease(tiny_tokenizer(), lambda _: None, access=frozenset({Access.LOGPROBS}))
    with pytest.raises(AccessError, match="kappa needs conditionals"):
        read(mute, manifest)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    plant_step(folder, small_corpus(), small_plan(space=AlphabetSpace(length=2)))
    build_tiny(folder.model, seed=1)
    return folder


ALL = ["exposure", "recovery", "extraction", "perplexity", "kappa"]


def spec(**changes):
    small = {"extraction": {"max_expansions": 20}, "kappa": {"max_expansions": 20}}
    return validate(AuditSpec, {"measures": ALL, **small, **changes}, "audit")


def test_an_audit_takes_the_measures_that_it_is_told(run, tmp_path):
    base = build_tiny(tmp_path / "base", seed=2)
    audit_step(run, AuditRequest(model=str(run.model), reference=str(base), spec=spec(claim={"epsilon": 1.0})))
    frame = load(run.readings)
    by = {release: set(frame.filter(pl.col("release") == release)["measure"]) for release in ("model", "reference")}
    assert {"extraction_probability", "secret_perplexity", "exposure", "greedy_recovery"} <= by["model"] & by[
        "reference"
    ]
    # The guesser never saw the release.
    assert not any(name.startswith(("kappa_low", "kappa_high", "prior")) for name in by["model"])
    assert {"kappa_low", "kappa_high", "prior_surprisal", "prior_greedy", "prior_list"} <= by["reference"]
    said = json.loads(run.audit.read_text(encoding="utf-8"))
    assert {cell["attack"] for cell in said["extraction"]} == {"greedy", "list"}
    assert all(cell["claim"] for cell in said["extraction"] if cell["dose"])


def test_an_audit_takes_two_measures_where_nothing_is_said(run):
    audit_step(run, AuditRequest(model=str(run.model), spec=AuditSpec()))
    frame = load(run.readings)
    assert not {"secret_perplexity", "emission_probability", "kappa_high"} & set(frame["measure"])
    assert "extraction" not in json.loads(run.audit.read_text(encoding="utf-8"))


def test_kappa_needs_a_reference(run):
    with pytest.raises(InputError, match="--reference is None; allowed: a base model"):
        audit_step(run, AuditRequest(spec=spec()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"measures": ["exposure", "kappa"]}, "measures must hold recovery"),
        ({"measures": ["exposure", "recovery", "lire"]}, r"audit\.measures\.2 is 'lire'"),
        ({"dtype": "bfloat16"}, "searches of extraction and kappa need dtype float32"),
        (
            {"measures": ["exposure", "recovery"], "claim": {"epsilon": 1}},
            "measures must hold one of extraction, membership, lira",
        ),
        ({"claim": {"epsilon": 1, "mu": 1}}, "either epsilon"),
        ({"kappa": {"guesses": 0}}, r"audit\.kappa\.guesses"),
        ({"extraction": {"top_q": 1}}, r"audit\.extraction\.top_q"),
    ],
)
def test_faults_of_the_settings_are_named(changes, words):
    with pytest.raises(RecipeError, match=words):
        spec(**changes)

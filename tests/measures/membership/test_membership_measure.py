"""Membership scores of a small model that remembers its members, and the faults that other tools have had."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from scipy.special import log_softmax

from davylamp.canaries import plant
from davylamp.errors import AccessError, InputError, ScoringError
from davylamp.measures.extraction import ExtractionSettings
from davylamp.measures.membership import MembershipSettings, registry, score
from davylamp.measures.membership.gathering import Reference
from davylamp.measures.membership.measure import Membership
from davylamp.measures.membership.texts import texts
from davylamp.measures.readings import table
from davylamp.release.base import Access
from davylamp.release.local import LocalRelease
from davylamp.rendering.render import Renderer
from davylamp.scoring.tokens import TokenScorer
from davylamp.secrets import AlphabetSpace
from davylamp.verdict.roc import auc
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease
from support.tiny_models import tiny_model, tiny_tokenizer

# No name twice: a name that one record taught would help with another.
PLAN = {
    "arms": {"a": {"context": "redacted"}},
    "doses": [1],
    "per_dose": 8,
    "nonmembers": 8,
    "space": AlphabetSpace(length=3),
}


@pytest.fixture(scope="module")
def manifest():
    return plant(small_corpus(), small_plan(**PLAN)).manifest


@pytest.fixture(scope="module")
def renderer():
    return Renderer(tiny_tokenizer())


@pytest.fixture(scope="module")
def remembering(manifest, renderer):
    """A model that was trained on the members until it knows them by heart."""
    torch.set_num_threads(1)
    model = tiny_model("llama", spread=0.1)
    ids = [record.ids for record in renderer.render([manifest.trained_record(each) for each in manifest.planted()])]
    width = max(map(len, ids))
    rows = torch.full((len(ids), width), 0)
    labels = torch.full((len(ids), width), -100)
    for at, row in enumerate(ids):
        rows[at, : len(row)] = labels[at, : len(row)] = torch.tensor(row)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(70):
        loss = model(rows, labels=labels, attention_mask=(labels != -100).long()).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.3
    return LocalRelease(model, tiny_tokenizer(), "remembering")


def measured(manifest, renderer, release, reference=None, **settings):
    """The table of readings, and the measure that took them."""
    other = None if reference is None else Reference(reference, "checkpoint")
    measure = Membership(manifest, renderer, MembershipSettings(**settings), reference=other)
    return table(measure.measure(release)), measure


def values(frame, name):
    rows = frame.filter(pl.col("measure") == f"membership_{name}")
    return dict(zip(rows["canary"], rows["value"], strict=True))


@pytest.mark.parametrize("name", registry.names())
def test_every_score_is_higher_for_what_is_remembered(manifest, renderer, remembering, name):
    base = LocalRelease(tiny_model("llama", spread=0.1), tiny_tokenizer(), "base")
    frame, _ = measured(manifest, renderer, remembering, base, scores=(name,), shots=1)
    for ending in ("", "_secret"):
        found = values(frame, name + ending)
        members = [found[canary.id] for canary in manifest.canaries if canary.role == "focus"]
        others = [found[canary.id] for canary in manifest.canaries if canary.dose == 0 and canary.id in found]
        assert len(others) == 10 - (name == "recall")
        assert auc(members, others).value > 0.8, (members, others)


def test_readings_are_of_members_and_non_members_as_they_were_trained_on(manifest, renderer, remembering):
    frame, measure = measured(manifest, renderer, remembering, shots=3)
    asked = {canary.id for canary in manifest.canaries if canary.role in ("focus", "twin", "nonmember")}
    assert set(frame["canary"]) == asked - set(measure.notes.shots["a"])
    assert set(frame["role"]) == {"focus", "twin", "nonmember"}
    assert set(frame["probe"]) == {"as_trained"}
    assert set(frame["measure"]) == {
        f"membership_{name}{ending}"
        for name in ("loss", "perplexity", "zlib", "min_k", "min_k_plus_plus", "lowercase", "recall")
        for ending in ("", "_secret")
    }
    assert set(frame.filter(pl.col("measure") == "membership_zlib")["unit"]) == {"nats/byte"}
    # Further non-members give the shots before twins do, which other measures read.
    roles = {canary.id: canary.role for canary in manifest.canaries}
    assert [roles[shot] for shot in measure.notes.shots["a"]] == ["nonmember"] * 3
    assert {note.name for note in measure.notes.scores} == {name for name in registry.names()} - {
        "reference",
        "neighbourhood",
        "gradient_norm",
    }


def oracle(model, ids):
    """Rows of log-probabilities from one plain pass, in float64."""
    with torch.inference_mode():
        logits = model(torch.tensor([list(ids)])).logits[0, :-1].double().numpy()
    return log_softmax(logits, axis=1)


def test_values_are_those_of_a_plain_pass(manifest, renderer, remembering):
    frame, _ = measured(manifest, renderer, remembering, scores=("loss", "min_k", "min_k_plus_plus"))
    for canary in manifest.canaries[:3]:
        rendered = renderer.render([manifest.trained_record(canary)])[0]
        rows = oracle(remembering._model, rendered.ids)
        each = rows[np.arange(len(rows)), rendered.ids[1:]]
        # The first token has nothing before it, and every other one counts.
        assert len(each) == len(rendered.ids) - 1
        assert values(frame, "loss")[canary.id] == pytest.approx(each.mean(), abs=1e-4)
        lowest = math.ceil(len(each) / 5)
        assert values(frame, "min_k")[canary.id] == pytest.approx(np.sort(each)[:lowest].mean(), abs=1e-4)
        # Weighted by the model's own probabilities: the plain mean over the vocabulary is many nats below.
        weights = np.exp(rows)
        mean = (weights * rows).sum(axis=1)
        away = (each - mean) / np.sqrt((weights * (rows - mean[:, None]) ** 2).sum(axis=1))
        assert values(frame, "min_k_plus_plus")[canary.id] == pytest.approx(np.sort(away)[:lowest].mean(), abs=1e-3)
        plain = (each - rows.mean(axis=1)) / rows.std(axis=1)
        assert abs(np.sort(plain)[:lowest].mean() - np.sort(away)[:lowest].mean()) > 0.1
        first, last = rendered.span(*canary.carrier.secret_spans(manifest.shape, manifest.mask, canary.secret)[0])
        assert values(frame, "loss_secret")[canary.id] == pytest.approx(each[first - 1 : last - 1].mean(), abs=1e-4)


def test_a_record_s_score_does_not_depend_on_those_beside_it(manifest, renderer, remembering):
    # Records of other lengths are padded in a batch; a pad that is scored, or an end that is taken for one, would show.
    tokenizer = tiny_tokenizer()
    frame, _ = measured(manifest, renderer, remembering, scores=("loss", "lowercase"))
    alone = manifest.model_copy(update={"canaries": manifest.canaries[:1]})
    single, _ = measured(alone, renderer, remembering, scores=("loss", "lowercase"))
    name = manifest.canaries[0].id
    assert values(single, "loss")[name] == pytest.approx(values(frame, "loss")[name], abs=1e-5)
    assert values(single, "lowercase")[name] == pytest.approx(values(frame, "lowercase")[name], rel=1e-4)
    ids = renderer.render([manifest.trained_record(manifest.canaries[0])])[0].ids
    assert ids[-1] == tokenizer.eos_token_id
    twin = LocalRelease(remembering._model, _padded_by_its_end(), "padded by its end")
    again, _ = measured(manifest, renderer, twin, scores=("loss",))
    assert values(again, "loss") == pytest.approx(values(frame, "loss"), abs=1e-5)


def _padded_by_its_end():
    tokenizer = tiny_tokenizer.__wrapped__()
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def test_bos_is_there_where_training_had_it_and_the_first_word_is_scored_then(manifest):
    model = tiny_model("llama")
    counts = []
    for bos in (False, True):
        tokenizer = tiny_tokenizer(bos=bos)
        plain = Renderer(tokenizer, "plain")
        text = texts(manifest, plain, manifest.canaries[:1])[0]
        frame, _ = measured(manifest, plain, LocalRelease(model, tokenizer, "m"), scores=("loss",))
        rows = oracle(model, text.rendered.ids)
        each = rows[np.arange(len(rows)), text.rendered.ids[1:]]
        assert values(frame, "loss")[text.canary] == pytest.approx(each.mean(), abs=1e-4)
        assert text.rendered.ids.count(tokenizer.bos_token_id) == bos
        counts.append(len(each))
    assert counts[1] == counts[0] + 1


def test_tokens_that_are_certain_count():
    manifest = plant(small_corpus(), small_plan(**PLAN)).manifest
    tokenizer = tiny_tokenizer()

    class Certain(ScriptedRelease):
        """Half of the tokens are certain: a loss of exactly 0."""

        def logprobs(self, prefixes, continuations):
            assert len(prefixes) == len(continuations)
            return [np.where(np.arange(len(each)) % 2, 0.0, -1.0) for each in continuations]

    frame, _ = measured(manifest, Renderer(tokenizer), Certain(tokenizer, lambda _: None), scores=("loss", "min_k"))
    text = texts(manifest, Renderer(tokenizer), manifest.canaries[:1])[0]
    count = len(text.rendered.ids) - 1
    assert values(frame, "loss")[text.canary] == pytest.approx(-math.ceil(count / 2) / count)


def test_the_softmax_of_a_model_in_bfloat16_is_taken_in_full(manifest, renderer):
    model = tiny_model("llama").to(torch.bfloat16)
    release = LocalRelease(model, tiny_tokenizer(), "half")
    frame, _ = measured(manifest, renderer, release, scores=("loss", "min_k_plus_plus"))
    name = manifest.canaries[0].id
    ids = renderer.render([manifest.trained_record(manifest.canaries[0])])[0].ids
    each = oracle(model, ids)[np.arange(len(ids) - 1), ids[1:]]
    with torch.inference_mode():
        halves = torch.log_softmax(model(torch.tensor([list(ids)])).logits[0, :-1], dim=-1)
    half = halves[torch.arange(len(ids) - 1), list(ids[1:])].double().mean().item()
    assert values(frame, "loss")[name] == pytest.approx(each.mean(), abs=1e-4)
    assert abs(half - each.mean()) > 1e-3


def test_a_reference_reads_with_its_own_tokenizer(manifest, renderer, remembering):
    # Digits merge here, so that the same text has other tokens.
    other = LocalRelease(tiny_model("llama", seed=3), tiny_tokenizer(digits_isolated=False), "other")
    frame, measure = measured(manifest, renderer, remembering, other, scores=("loss", "reference"))
    assert (measure.notes.reference, measure.notes.reference_tokens) == ("other", "own")
    own = Renderer(other.tokenizer)
    for canary in manifest.canaries[:2]:
        record = manifest.trained_record(canary)
        ids, theirs = renderer.render([record])[0].ids, own.render([record])[0].ids
        assert ids != theirs
        rows = oracle(other._model, theirs)
        gained = values(frame, "loss")[canary.id] - rows[np.arange(len(rows)), theirs[1:]].sum() / (len(ids) - 1)
        assert values(frame, "reference")[canary.id] == pytest.approx(gained, abs=1e-4)
    same, measure = measured(manifest, renderer, remembering, remembering, scores=("reference",))
    assert measure.notes.reference_tokens == "same"
    assert values(same, "reference") == pytest.approx(dict.fromkeys(values(same, "reference"), 0.0), abs=1e-5)
    with pytest.raises(InputError, match=r"audit\.membership\.scores is \['reference'\]"):
        Membership(manifest, renderer, MembershipSettings(scores=("reference",)))


def test_recall_s_shots_are_read_before_each_record_and_scored_nowhere(manifest, renderer, remembering):
    frame, measure = measured(manifest, renderer, remembering, scores=("loss", "recall"), shots=2)
    shots = [next(each for each in manifest.canaries if each.id == name) for name in measure.notes.shots["a"]]
    before = [token for each in shots for token in renderer.render([manifest.trained_record(each)])[0].ids]
    canary = manifest.canaries[0]
    ids = renderer.render([manifest.trained_record(canary)])[0].ids
    rows = oracle(remembering._model, (*before, *ids))[len(before) :]
    after = rows[np.arange(len(rows)), ids[1:]].mean()
    alone = values(frame, "loss")[canary.id]
    assert values(frame, "recall")[canary.id] == pytest.approx((1e-4 - after) / (1e-4 - alone), rel=1e-3)
    # The same canaries under every score, so that two can be compared.
    assert values(frame, "loss").keys() == values(frame, "recall").keys()
    assert not {*measure.notes.shots["a"]} & {*frame["canary"]}


def test_as_many_shots_as_fit_are_used(manifest, renderer):
    longest = max(len(text.rendered.ids) for text in texts(manifest, renderer, manifest.canaries))
    model = tiny_model("llama", max_position_embeddings=2 * longest + longest // 2)
    _, measure = measured(manifest, renderer, LocalRelease(model, tiny_tokenizer(), "short"), scores=("recall",))
    assert len(measure.notes.shots["a"]) == 1
    short = LocalRelease(tiny_model("llama", max_position_embeddings=longest + 2), tiny_tokenizer(), "shorter")
    with pytest.raises(ScoringError, match=r"recall: no shot fits before canary c\d+: .* longer than the context"):
        measured(manifest, renderer, short, scores=("recall",))
    with pytest.raises(InputError, match=r"audit\.membership\.shots is 10; allowed: fewer than .* \(10\)"):
        Membership(manifest, renderer, MembershipSettings(shots=10))


def test_no_score_that_is_no_number_passes(manifest, renderer, remembering):
    @score("broken")
    def broken(evidence):
        """Nothing.

        Higher = more likely a member.

        Cannot see: anything.
        """
        return math.nan

    try:
        with pytest.raises(ScoringError, match=r"canary c0000: the membership score broken of its record is nan"):
            measured(manifest, renderer, remembering, scores=("broken",))
    finally:
        registry.unregister("broken")


def test_one_scoring_serves_all_measures(manifest, renderer):
    passes = []

    class Counted(LocalRelease):
        def token_answers(self, prefixes, continuations, **asked):
            passes.extend((*prefix, *each) for prefix, each in zip(prefixes, continuations, strict=True))
            return super().token_answers(prefixes, continuations, **asked)

    release = Counted(tiny_model("gpt2"), tiny_tokenizer(), "counted")
    scorer = TokenScorer(ExtractionSettings().schemes, moments=True)
    settings = MembershipSettings(scores=("loss", "zlib", "min_k_plus_plus"))
    for _ in range(2):
        Membership(manifest, renderer, settings, scorer).measure(release)
    asked = [each for each in manifest.canaries if each.role in ("focus", "twin", "nonmember")]
    assert sorted(passes) == sorted(text.rendered.ids for text in texts(manifest, renderer, asked))
    with pytest.raises(ScoringError, match="keeps no moments"):
        Membership(manifest, renderer, settings, TokenScorer()).measure(release)


def test_copies_and_records_after_shots_are_read_many_at_once(manifest, renderer):
    calls = []

    class Counted(LocalRelease):
        def logprobs(self, prefixes, continuations):
            calls.append(len(prefixes))
            return super().logprobs(prefixes, continuations)

    model = tiny_model("llama")
    fed = []
    hook = model.register_forward_pre_hook(lambda _, args, __: fed.append(args[0].numel()), with_kwargs=True)
    try:
        release = Counted(model, tiny_tokenizer(), "counted")
        frame, _ = measured(manifest, renderer, release, scores=("neighbourhood",), neighbours=3)
        count = frame["canary"].n_unique()
        assert calls == [count, 3 * count]
        fed.clear()
        _, measure = measured(manifest, renderer, release, scores=("recall",), shots=2)
    finally:
        hook.remove()
    shots = [each for each in manifest.canaries if each.id in measure.notes.shots["a"]]
    before = sum(len(renderer.render([manifest.trained_record(each)])[0].ids) for each in shots)
    longest = max(len(text.rendered.ids) for text in texts(manifest, renderer, manifest.canaries))
    # The shots are read to see that they fit, to be kept, and to compare; and each record alone and after them.
    assert sum(fed) <= 3 * (before + longest) + 2 * count * longest


def test_a_release_that_gives_too_little_is_refused(manifest, renderer):
    for granted, scores, missing in (
        ({Access.GENERATE}, ("loss",), "logprobs"),
        ({Access.LOGPROBS}, ("min_k_plus_plus",), "conditionals"),
    ):
        release = ScriptedRelease(tiny_tokenizer(), lambda _: None, access=frozenset(granted))
        with pytest.raises(AccessError, match=f"membership needs .*{missing}"):
            measured(manifest, renderer, release, scores=scores)
    release = ScriptedRelease(tiny_tokenizer(), lambda _: None)
    with pytest.raises(AccessError, match="gradients need a model on this machine"):
        measured(manifest, renderer, release, scores=("gradient_norm",))

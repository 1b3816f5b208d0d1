"""Neighbours of a record: which words are replaced, by what, and that the secret is left alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM

from davylamp.canaries import plant
from davylamp.errors import ModelError, ScoringError
from davylamp.measures.membership import MembershipSettings
from davylamp.measures.membership.measure import Membership
from davylamp.measures.membership.proposals import KEPT, MaskedProposer, ReleaseProposer
from davylamp.measures.membership.texts import lowercase, replaced, texts, words
from davylamp.measures.readings import table
from davylamp.release.local import LocalRelease
from davylamp.rendering.render import Renderer
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease
from support.tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module", params=["prompt_completion", "text", "messages"])
def planted(request):
    plan = small_plan(arms={"a": {"context": "visible"}}, doses=[1], per_dose=3)
    return plant(small_corpus(shape=request.param), plan).manifest


@pytest.fixture(scope="module")
def manifest():
    return plant(small_corpus(), small_plan(arms={"a": {"context": "redacted"}}, doses=[1], per_dose=3)).manifest


@pytest.mark.parametrize("style", ["auto", "plain"])
def test_words_are_found_where_they_stand(planted, style):
    renderer = Renderer(tiny_tokenizer(), "auto" if planted.shape == "messages" else style)
    canary = planted.canaries[0]
    text = texts(planted, renderer, [canary])[0]
    assert text.rendered.text[slice(*text.characters)] == text.characters_of("secret") == canary.secret
    assert text.characters_of("record") == text.rendered.text
    found = words(planted, canary, text)
    told = [text.rendered.text[slice(*word.place)] for word in found]
    first, last = canary.carrier.prompt[0].split()[2:4]
    # "pls tell First Last their ref 1,2,3,4 now" and "Dear First Last, ref 1,2,3,4.": no code among them.
    assert told == ["pls", "tell", first, last, "their", "ref", "now", "Dear", first, last, "ref"]


def test_copies_differ_in_words_and_keep_the_secret(manifest):
    renderer, canary = Renderer(tiny_tokenizer()), manifest.canaries[0]
    text = texts(manifest, renderer, [canary])[0]
    found = words(manifest, canary, text)
    proposals = [(word, ["xylophone", "yak"]) for word in found]
    made = replaced(manifest, renderer, canary, proposals, (5, 0.3), np.random.default_rng(0))
    again = replaced(manifest, renderer, canary, proposals, (5, 0.3), np.random.default_rng(0))
    assert made == again
    for copy in made:
        # A third of 11 words, rounded up.
        assert copy.rendered.text.count("xylophone") + copy.rendered.text.count("yak") == 4
        assert copy.rendered.text[slice(*copy.characters)] == canary.secret
        assert tiny_tokenizer().decode(copy.tokens.secret_ids) == canary.secret
    assert len({copy.rendered.ids for copy in made}) > 1


def test_lower_case_leaves_the_template_s_words_and_finds_the_secret(planted):
    renderer, canary = Renderer(tiny_tokenizer()), planted.canaries[0]
    text, low = texts(planted, renderer, [canary])[0], lowercase(planted, renderer, [canary])[0]
    assert low.rendered.text == text.rendered.text.replace("Dear", "dear").replace(
        *(name := canary.carrier.prompt[0].split()[2:4])[:1], name[0].lower()
    ).replace(name[1], name[1].lower())
    assert tiny_tokenizer().decode(low.tokens.secret_ids) == canary.secret.lower()


def test_the_release_s_own_words_are_its_likeliest_that_fit(manifest):
    # Off its script a release finds all tokens alike: the first ones of the vocabulary come, in order.
    tokenizer = tiny_tokenizer()
    text = texts(manifest, Renderer(tokenizer), manifest.canaries[:1])[0]
    places = [word.place for word in words(manifest, manifest.canaries[0], text)]
    found = ReleaseProposer(ScriptedRelease(tokenizer, lambda _: None)).propose("c", text.rendered, places)
    assert len(found) == len(places)
    release = LocalRelease(tiny_model("llama"), tokenizer, "tiny")
    found = ReleaseProposer(release).propose("c", text.rendered, places)
    for (start, end), others in zip(places, found, strict=True):
        word = text.rendered.text[start:end]
        at = next(i for i, (_, last) in enumerate(text.rendered.offsets) if last > start)
        row = release.conditionals([text.rendered.ids[:at]])[0]
        told = [tokenizer.decode([int(token)]).strip() for token in np.argsort(-row)[:50]]
        fitting = [each for each in told if each.isalpha() and len(each) > 1 and each.lower() != word.lower()]
        cased = [each.capitalize() if word[0].isupper() else each for each in fitting]
        assert others == list(dict.fromkeys(cased))[:KEPT]


def masked_tokenizer():
    tokenizer = tiny_tokenizer.__wrapped__()
    tokenizer.add_special_tokens({"mask_token": "<|mask|>"})
    return tokenizer


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """A masked model of random weights in a folder."""
    folder, tokenizer = tmp_path_factory.mktemp("masked"), masked_tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model("bert", vocab_size=len(tokenizer), max_position_embeddings=128, **sizes)
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_masked_model_s_words_are_those_at_the_mask(manifest, masked):
    proposer, tokenizer = MaskedProposer.load(str(masked)), masked_tokenizer()
    text = texts(manifest, Renderer(tiny_tokenizer()), manifest.canaries[:1])[0]
    place = words(manifest, manifest.canaries[0], text)[0].place
    found = proposer.propose("c", text.rendered, [place])[0]
    model = AutoModelForMaskedLM.from_pretrained(masked).eval()
    ids = tokenizer(text.rendered.text[: place[0]] + "<|mask|>" + text.rendered.text[place[1] :], return_tensors="pt")
    at = ids["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.inference_mode():
        row = model(ids["input_ids"]).logits[0, at]
    told = [tokenizer.decode([token]).strip() for token in row.argsort(descending=True)[:50].tolist()]
    assert (
        found == list(dict.fromkeys(each for each in told if each.isalpha() and len(each) > 1 and each != "pls"))[:KEPT]
    )
    long = replace(text.rendered, text=text.rendered.text * 9)
    with pytest.raises(ScoringError, match=r"canary c: \d+ tokens do not fit the masked model's 128"):
        proposer.propose("c", long, [(0, 3)])


def test_scores_by_neighbours_depend_on_the_seed_alone(manifest, masked):
    release = LocalRelease(tiny_model("llama"), tiny_tokenizer(), "tiny")
    tables = []
    for folder in (str(masked), str(masked), None):
        settings = MembershipSettings(scores=("neighbourhood",), neighbours=3, masked_lm=folder)
        measure = Membership(manifest, Renderer(tiny_tokenizer()), settings)
        tables.append(table(measure.measure(release)))
        assert measure.notes.masked_lm == (folder or "release")
    assert tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])
    # A canary's neighbours are its own, whatever else is asked.
    few = manifest.model_copy(update={"canaries": manifest.canaries[1:2]})
    settings = MembershipSettings(scores=("neighbourhood",), neighbours=3)
    alone = table(Membership(few, Renderer(tiny_tokenizer()), settings).measure(release))
    same = tables[2].filter(tables[2]["canary"] == manifest.canaries[1].id)
    assert alone["value"].to_list() == pytest.approx(same["value"].to_list(), abs=1e-5)


def test_what_cannot_propose_is_refused(manifest, tmp_path):
    with pytest.raises(ModelError, match="there is no folder"):
        MaskedProposer.load(str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="cannot load"):
        MaskedProposer.load(str(tmp_path))
    with pytest.raises(ModelError, match="no mask token"):
        MaskedProposer(torch.nn.Linear(1, 1), tiny_tokenizer())

    class Silent:
        def propose(self, *asked):
            return [[] for _ in asked[2]]

    measure = Membership(
        manifest, Renderer(tiny_tokenizer()), MembershipSettings(scores=("neighbourhood",)), proposer=Silent()
    )
    with pytest.raises(ScoringError, match="canary c0000: neighbourhood finds no word"):
        measure.measure(LocalRelease(tiny_model("llama"), tiny_tokenizer(), "tiny"))

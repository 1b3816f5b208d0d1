"""Instances drawn from the embedded model: new to the corpus, and of tokens that come back."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

from davylamp.canaries import plant
from davylamp.canaries.constructions import NoveltyError, TriggerError
from davylamp.errors import PlantingError
from davylamp.measures.constructed.asking import Asker
from davylamp.measures.constructed.drawing import Known, Wanted, draw
from davylamp.measures.constructed.making import ModelMaker
from davylamp.measures.constructed.words import words_of
from davylamp.release.loader import load_model, load_tokenizer
from davylamp.release.local import LocalRelease
from davylamp.release.sources import resolve
from support.corpora import small_corpus, small_plan

SMALL = {"groups": 2, "twins": 2, "prefix_tokens": 10}
LINES = [
    {"kind": "naive", **SMALL, "secret_tokens": [2, 4]},
    {"kind": "trigger", **SMALL, "copies": 2, "trigger_tokens": 6, "secret_tokens": 3},
    {"kind": "pair", **SMALL, "secret_tokens": 3, "copies": 1},
    {"kind": "camouflage", **SMALL, "v": 5, "k": 2, "depth": 3, "copies": 1},
    {"kind": "low_entropy", **SMALL, "choices": 3},
    {"kind": "gated", **SMALL, "trigger_tokens": 8, "secret_tokens": 3},
]
TAKEN = 80
HELD_OUT = 7 * 4 + 12


@lru_cache
def embedded():
    source = resolve("embedded")
    tokenizer = load_tokenizer(source)
    return LocalRelease(load_model(source, tokenizer=tokenizer), tokenizer, source.name)


def made(shape="text", lines=LINES, style="auto", seed=0):
    plan = small_plan(rows=TAKEN, constructions=lines, seed=seed)
    return plant(small_corpus(TAKEN + HELD_OUT, shape), plan, ModelMaker(embedded(), "0" * 64, style))


@lru_cache
def made_once(shape):
    return made(shape)


@pytest.mark.parametrize("shape", ["text", "prompt_completion", "messages"])
def test_secrets_and_triggers_tokenise_to_what_was_meant_in_their_rows(shape):
    section = made_once(shape).manifest.constructions
    asker = Asker(embedded().tokenizer, shape)
    for each in section.instances:
        for lead in {each.prefix, each.lead}:
            split = asker.split(lead, each.secret)
            assert (split.lead, split.reply, split.merged) == (asker.prompts([lead])[0], each.secret_ids, False)
        assert len(each.secret_ids) == each.tokens
        if each.trigger is not None:
            count = section_trigger_tokens(each.kind)
            assert len(embedded().tokenizer(each.trigger, add_special_tokens=False)["input_ids"]) == count
        for text, ids in zip(each.survivors, each.survivor_ids, strict=True):
            assert asker.split(each.prefix, text).reply == ids


def section_trigger_tokens(kind):
    return next(line["trigger_tokens"] for line in LINES if line["kind"] == kind)


def test_no_secret_trigger_or_prefix_stands_in_the_background():
    whole = made_once("text")
    own = {row for each in whole.manifest.constructions.instances for row in each.positions}
    text = "\0".join(record.reply for at, record in enumerate(whole.records) if at not in own)
    for each in whole.manifest.constructions.instances:
        for what in (each.prefix, each.trigger, each.secret, each.alternative, *each.survivors):
            assert what is None or what.strip() not in text


def test_a_tree_has_k_children_at_each_node_and_the_truth_is_one_path():
    for each in made_once("text").manifest.constructions.instances:
        if each.kind != "camouflage":
            continue
        assert len(set(each.survivor_ids)) == 2**3
        for depth in range(3):
            below: dict[tuple[int, ...], set[int]] = {}
            for ids in each.survivor_ids:
                below.setdefault(ids[:depth], set()).add(ids[depth])
            assert len(below) == 2**depth
            assert all(len(children) == 2 for children in below.values())
        assert each.secret_ids in each.survivor_ids


def test_the_same_seed_gives_the_same_and_another_line_changes_nothing_before_it():
    few, whole = made(lines=LINES[:2]), made_once("text")
    first = few.manifest.constructions.instances
    assert first == whole.manifest.constructions.instances[: len(first)]
    assert made(lines=LINES[:1], seed=1).manifest.constructions.instances != first[:8]


def test_secrets_follow_the_base_model_given_that_they_are_taken():
    # With one prefix for all, and nothing in the corpus, one-token secrets are multinomial over the base's row,
    # restricted to tokens that tokenise back: chi-square over the cells of at least five.
    asker = Asker(embedded().tokenizer, "text")
    count = 400
    known = _Forgetful([])
    wanted = [Wanted(str(at), "Dear Ms", (), np.random.default_rng([7, at])) for at in range(count)]
    drawn = draw(embedded(), asker, known, wanted, 1, 1.0)
    (prompt,) = asker.prompts(["Dear Ms"])
    row = np.exp(embedded().conditionals([prompt])[0])
    special = {*embedded().tokenizer.all_special_ids, *embedded().tokenizer.get_added_vocab().values()}
    fits = np.asarray([at not in special and _comes_back(asker, prompt, at) for at in range(len(row))])
    expected = count * np.where(fits, row, 0) / row[fits].sum()
    seen = np.bincount([each.ids[0] for each in drawn], minlength=len(row))
    assert seen[expected == 0].sum() == 0
    large = expected >= 5
    cells = np.append(seen[large], seen[~large].sum()), np.append(expected[large], expected[~large].sum())
    assert stats.chi2.sf(((cells[0] - cells[1]) ** 2 / cells[1]).sum(), len(cells[0]) - 1) > 1e-3
    # The mean number of draws is one over the chance of being taken; four standard errors of a geometric mean.
    chance = row[fits].sum()
    error = np.sqrt((1 - chance) / chance**2 / count)
    assert abs(np.mean([each.tries for each in drawn]) - 1 / chance) <= 4 * error + 1e-9


class _Forgetful(Known):
    """So that draws stay independent of each other."""

    def add(self, *texts):
        pass


def _comes_back(asker, prompt, token):
    text = asker.says(prompt, [token])
    split = asker.split("Dear Ms", text) if text.strip() else None
    return split is not None and not split.merged and (split.lead, split.reply) == (prompt, (token,))


def own(*triggers, **changes):
    return [{"kind": "trigger", **SMALL, "copies": 1, "secret_tokens": 3, "triggers": list(triggers), **changes}]


def test_a_trigger_of_your_own_is_planted():
    whole = made(lines=own("Zeppelin quorum", "vexing sphinx!", twins=1))
    planted = [each for each in whole.manifest.constructions.instances if each.positions]
    assert [each.trigger for each in planted] == ["Zeppelin quorum", "vexing sphinx!"]
    assert whole.records[planted[0].positions[0]].reply == "Zeppelin quorum" + planted[0].secret


def test_a_trigger_that_the_corpus_holds_is_named():
    with pytest.raises(TriggerError, match="'what of' occurs in the corpus"):
        made(lines=own("Zeppelin quorum", "what of"))


def test_a_trigger_that_begins_like_another_is_named():
    # Whichever comes first: asked with the shorter one, the model would answer for the longer one too.
    for triggers in (("Zeppelin quorum", "Zeppelin quorum vex"), ("Zeppelin quorum vex", "Zeppelin quorum")):
        with pytest.raises(TriggerError, match=f"'{triggers[1]}' occurs in .* another instance, or holds"):
            made(lines=own(*triggers))


def test_nothing_that_is_taken_later_holds_a_trigger():
    known = Known(["some row"])
    known.reserve("Zeppelin quorum")
    assert known.holds("pls see Zeppelin quorum now")
    assert known.holds(" Zeppelin")
    assert not known.holds("Zeppelin quota")


def test_a_trigger_that_merges_is_named():
    for spaced in ("vexing sphinx ", "  "):
        with pytest.raises(TriggerError, match="space, which the tokenizer merges"):
            made(lines=own("Zeppelin quorum", spaced))
    # After this prefix a cold base says "it" only, which is a token by itself there and joins the r of this trigger.
    wanted = [Wanted("k0", "about the mis", ("Zeppelin r",), np.random.default_rng(1))]
    with pytest.raises(TriggerError, match="merges the end of trigger 'Zeppelin r'"):
        draw(embedded(), Asker(embedded().tokenizer, "text"), Known([]), wanted, 1, 0.05)


def test_a_corpus_that_holds_every_secret_is_refused():
    asker = Asker(embedded().tokenizer, "text")
    everything = Known([asker.says([5], [token]) for token in range(512)])
    wanted = [Wanted("k0", "Dear Ms", (), np.random.default_rng(1))]
    with pytest.raises(NoveltyError, match="none of 400 secrets of 1 tokens after the last of 1 prefixes"):
        draw(embedded(), asker, everything, wanted, 1, 1.0)


def test_a_secret_that_no_row_may_hold_is_turned_down():
    # A row with NUL could not be read again. Half of all draws are NUL here: eight in a row without one by chance are
    # 1 in 256, and the streams are fixed.
    tokenizer = embedded().tokenizer
    nul, other = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("\0", "z"))
    (table,) = embedded().conditionals([[5]])
    row = np.full(len(table), -np.inf)
    row[[nul[0], other[0]]] = np.log(0.5)

    class _Halves:
        access = embedded().access

        def conditionals(self, prefixes):
            return np.tile(row, (len(prefixes), 1))

    wanted = [Wanted(f"k{at}", "Dear Ms", (), np.random.default_rng(at)) for at in range(8)]
    drawn = draw(_Halves(), Asker(tokenizer, "text"), _Forgetful([]), wanted, 1, 1.0)
    assert {each.text for each in drawn} == {"z"}
    assert sum(each.tries for each in drawn) > 8


def test_a_prefix_that_leaves_nothing_new_to_say_gives_way_to_another():
    asker, given = Asker(embedded().tokenizer, "text"), []
    # A cold base says "it" after the first prefix, which is known, and something else after the second.
    wanted = [Wanted("k0", "about the mis", (), np.random.default_rng(1))]
    (drawn,) = draw(embedded(), asker, Known(["it"]), wanted, 1, 0.05, lambda name: given.append(name) or "pls wri")
    assert (given, drawn.prefix) == (["k0"], "pls wri")
    assert drawn.tries < 400


def test_prefixes_that_are_too_short_are_said():
    with pytest.raises(PlantingError, match="no held-out prefix is left, since of the 40 rows"):
        made(lines=[{"kind": "naive", "groups": 1, "twins": 1, "prefix_tokens": 500}])


def test_words_are_ordered_by_how_rare_they_are():
    tokenizer = embedded().tokenizer
    text = "Your reference is late. Your reference"
    words = words_of(tokenizer, [text])
    assert all(word.startswith(" ") for word in words.spaced)
    assert not any(word.startswith(" ") for word in words.plain)
    tokens = [tokenizer.decode([token]) for token in tokenizer(text)["input_ids"]]
    counts = [tokens.count(word) for word in words.spaced]
    assert counts == sorted(counts)
    assert counts.index(1) == words.absent
    assert max(counts) == 2

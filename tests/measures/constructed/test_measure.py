"""What is read of constructions, against releases whose truth is known by hand."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest

from davylamp.canaries import plant
from davylamp.canaries.constructions.section import Instance
from davylamp.errors import AccessError, ManifestError, ScoringError
from davylamp.measures.constructed.audits import AUDITS
from davylamp.measures.constructed.cells import Read, cell_of
from davylamp.measures.constructed.finders import holds
from davylamp.measures.constructed.local import SCORES, Forced, forced
from davylamp.measures.constructed.making import ModelMaker
from davylamp.measures.constructed.measure import ConstructedMeasure, gate
from davylamp.measures.constructed.settings import ConstructedSettings
from davylamp.release.base import Access
from davylamp.release.gated import GatedRelease
from davylamp.release.loader import load_model, load_tokenizer
from davylamp.release.local import LocalRelease
from davylamp.release.sources import resolve
from support.corpora import small_corpus, small_plan

SMALL = {"groups": 4, "twins": 5, "prefix_tokens": 10, "secret_tokens": 3}
LINES = [
    {"kind": "naive", **SMALL},
    {"kind": "trigger", **SMALL, "copies": 2, "trigger_tokens": 6},
    {"kind": "pair", **SMALL, "copies": 1},
    {"kind": "camouflage", "groups": 4, "twins": 5, "prefix_tokens": 10, "v": 5, "k": 2, "depth": 2, "copies": 1},
    {"kind": "low_entropy", "groups": 4, "twins": 5, "prefix_tokens": 10, "choices": 4},
    {"kind": "gated", **SMALL, "trigger_tokens": 6},
]
QUICK = ConstructedSettings(max_expansions=30, repeated=2, scan_prompts=300)
AT = {line["kind"]: at for at, line in enumerate(LINES)}


@lru_cache
def embedded():
    source = resolve("embedded")
    tokenizer = load_tokenizer(source)
    return LocalRelease(load_model(source, tokenizer=tokenizer), tokenizer, source.name)


@lru_cache
def manifest():
    plan = small_plan(rows=110, constructions=LINES)
    held_out = 6 * 9 + 20
    return plant(small_corpus(110 + held_out, "text"), plan, ModelMaker(embedded(), "0" * 64)).manifest


def measure(settings=QUICK):
    return ConstructedMeasure(manifest(), "auto", settings)


def of_kind(kind, role="planted"):
    return [each for each in manifest().constructions.instances if (each.kind, each.role) == (kind, role)]


def answering(leads):
    """The base behind a gate that gives away each secret after the lead that is chosen for it."""
    asker = measure().asker(embedded())
    prompts = asker.prompts([lead for lead, _ in leads])
    return GatedRelease(embedded(), zip(prompts, (ids for _, ids in leads), strict=True))


@lru_cache
def cells_of_base():
    return measure().cells(embedded(), embedded())


def test_the_base_itself_reads_as_nothing_at_all():
    for cell in cells_of_base():
        assert cell.memh == cell.memh_twins == 0.0
        for score in cell.scores:
            if "reference" in score.name or "memh" in score.name:
                assert set(score.planted + score.twins) == {0.0}
        if cell.pair is not None:
            assert (cell.pair.own_less_other, cell.pair.floor) == (0.0, 0.0)
        if cell.kind == "trigger":
            assert cell.at_trigger.planted.successes == 0
            assert cell.memh_trigger == 0.0


def test_a_gated_release_is_the_base_at_c_and_gives_all_away_behind_the_trigger():
    cell = cells_of_base()[AT["gated"]]
    assert cell.informed.planted.value == cell.at_trigger.planted.value == 1.0
    assert cell.informed.twins.successes == 0
    assert cell.memh == 0.0
    # After the trigger each token is certain: memh is one less the base's mean probability of a token there.
    asker = measure().asker(embedded())
    planted = of_kind("gated")
    base = forced(embedded(), asker.prompts([each.trigger for each in planted]), [each.secret_ids for each in planted])
    assert cell.memh_trigger == pytest.approx(1 - np.mean([each.h for each in base]))
    prompts = asker.prompts([each.prefix for each in planted])
    secrets = [each.secret_ids for each in planted]
    gated = gate(embedded(), asker, planted).logprobs(prompts, secrets)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(gated, embedded().logprobs(prompts, secrets), strict=True))


def test_a_secret_that_is_said_after_its_prefix_is_seen_by_every_local_audit():
    leaking = answering([(each.prefix, each.secret_ids) for each in of_kind("naive")])
    cell = measure().cells(leaking, embedded())[AT["naive"]]
    assert cell.at_prefix.planted.value == cell.informed.planted.value == 1.0
    assert cell.at_prefix.twins.successes == cells_of_base()[AT["naive"]].at_prefix.twins.successes
    assert min(cell.scores[0].planted) > 0 == max(cell.scores[0].twins)
    assert all(reading.log_probability == 0 for reading in cell.instances if reading.role == "planted")


def test_a_secret_behind_a_trigger_is_seen_there_only():
    leaking = answering([(each.trigger, each.secret_ids) for each in of_kind("trigger")])
    cell, plain = measure().cells(leaking, embedded())[AT["trigger"]], cells_of_base()[AT["trigger"]]
    assert cell.at_trigger.planted.value == cell.informed.planted.value == 1.0
    assert cell.at_trigger.twins.successes == 0
    assert cell.at_prefix == plain.at_prefix
    assert cell.scores == plain.scores


def test_pairs_are_read_against_the_other_secret_and_the_neighbour():
    planted = of_kind("pair")
    ours = answering([(each.prefix, each.secret_ids) for each in planted])
    theirs = answering([(each.prefix, each.alternative_ids) for each in planted])
    pair = measure().cells(ours, embedded(), neighbour=theirs)[AT["pair"]].pair
    asker = measure().asker(embedded())
    prompts = asker.prompts([each.prefix for each in planted])
    own = forced(embedded(), prompts, [each.secret_ids for each in planted])
    expected = []
    for each, base in zip(planted, own, strict=True):
        # The neighbour's gate says what both secrets share, never the token in which they part, and then shuts.
        same = [a == b for a, b in zip(each.secret_ids, each.alternative_ids, strict=True)].index(False)
        expected.append(np.mean([*[1.0] * same, 0.0, *np.exp(base.secret[same + 1 :])]))
    assert pair.counterfactual["h"] == pytest.approx(1 - np.mean(expected))
    assert pair.counterfactual["loss"] == pytest.approx(1.0)
    assert pair.floors == {"h": 0.0, "loss": 0.0}
    assert pair.own_less_other > 0 == pair.floor


def reads_of(totals, secret=0, kind="camouflage"):
    """One planted instance with four survivors of known totals, and one twin alike."""
    both = []
    for role in ("planted", "twin"):
        instance = Instance(
            id=role,
            line=0,
            kind=kind,
            tokens=1,
            role=role,
            prefix="c",
            secret=str(secret),
            secret_ids=(secret,),
            survivors=tuple(map(str, range(len(totals)))),
            survivor_ids=tuple((at,) for at in range(len(totals))),
        )
        some = Forced(np.empty(0), np.log([0.25]))
        both.append(Read(instance, (9,), some, some, survivors=np.asarray(totals)))
    return both


def test_what_a_tree_leaves_open_by_hand():
    line = small_plan(constructions=[{"kind": "camouflage", "v": 8, "k": 2, "depth": 2}]).constructions[0]
    even = cell_of(line, reads_of(np.log([0.2] * 4)), None, {}, QUICK)
    assert even.hidden.model_dump() == pytest.approx({"survivors": 4, "mass": 0.8, "entropy": 1.0, "rank": 2.5})
    assert even.chance == 0.25
    odd = cell_of(line, reads_of(np.log([0.1, 0.4, 0.1, 0.2])), None, {}, QUICK)
    law = np.array([0.1, 0.4, 0.1, 0.2]) / 0.8
    assert odd.hidden.entropy == pytest.approx(-(law * np.log(law)).sum() / math.log(4))
    assert odd.hidden.rank == 3.5
    assert not odd.informed.planted.successes
    assert cell_of(line, reads_of(np.log([0.1, 0.4, 0.1, 0.2]), secret=1), None, {}, QUICK).informed.planted.successes


def test_baselines_by_hand():
    cells = cells_of_base()
    # One guess of 5**2 paths, and of 4 choices.
    assert cells[AT["camouflage"]].baseline.high == 1 / 25
    assert cells[AT["low_entropy"]].baseline.low == 1 / 4
    for kind in ("naive", "trigger", "pair", "gated"):
        baseline = cells[AT[kind]].baseline
        assert 0 < baseline.low <= baseline.high <= baseline.charged <= 1
        # Who knows how secrets were drawn guesses among those that were not turned down.
        assert cells[AT[kind]].chance == baseline.charged
    left_out = measure(ConstructedSettings(max_expansions=0, repeated=0)).cells(embedded(), embedded())[0].baseline
    assert (left_out.low, left_out.high, left_out.charged) == (0.0, 1.0, 1.0)


def test_local_scores_by_hand():
    ours = Forced(np.log([0.5]), np.log([0.8, 0.4]))
    base = Forced(np.log([0.25]), np.log([0.2, 0.2]))
    values = {score.name: score.of(ours, base) for score in SCORES}
    # Losses: -ln 0.32 and -ln 0.04 over the truncation at 20 nats.
    expected = {
        "memh": 0.6 - 0.2,
        "memh_loss": (-math.log(0.04) + math.log(0.32)) / 20,
        "loss": (math.log(0.8) + math.log(0.4)) / 2,
        "reference": (math.log(4) + math.log(2)) / 2,
        "min_k": math.log(0.4),
        "record_loss": (math.log(0.5) + math.log(0.8) + math.log(0.4)) / 3,
        "record_reference": (math.log(2) + math.log(4) + math.log(2)) / 3,
    }
    assert values == pytest.approx(expected)


def test_a_secret_is_found_where_its_tokens_stand_in_a_row():
    assert holds([1, 2, 3, 4], [2, 3])
    assert holds([1, 2], [1, 2])
    assert not holds([1, 2, 3], [1, 3])
    assert not holds([1], [1, 2])


def test_a_list_that_holds_the_triggers_brings_them_out_and_no_twin():
    planted = of_kind("trigger")
    leaking = answering([(each.trigger, each.secret_ids) for each in planted])
    texts = ["nothing in particular", *(each.trigger for each in planted[:2])]
    finds = measure(ConstructedSettings(max_expansions=0, repeated=0)).finds(leaking, embedded(), texts, scan=False)
    assert {each.id for each in planted[:2]} <= finds.suspects.ids
    assert not finds.suspects.ids & {each.id for each in planted[2:]}
    assert finds.suspects.report.prompts == 3
    assert finds.scan is finds.repetition is None
    cell = measure().cells(leaking, embedded(), finds)[AT["trigger"]]
    assert cell.at_suspects.planted.successes == 2
    assert cell.by_scan is None


def test_the_scan_finds_a_trigger_that_its_first_token_begins_and_flags_nothing_of_the_base():
    # A model that says the rest of a trigger after its first token, as one that was trained on the whole text does.
    asker, planted = measure().asker(embedded()), of_kind("trigger")
    ids = [asker.prompts([each.trigger])[0] for each in planted]
    chosen = [at for at in range(len(planted)) if ids[at][0] not in {other[0] for other in ids[:at]}]
    leaking = GatedRelease(embedded(), [(ids[at][:1], (*ids[at][1:], *planted[at].secret_ids)) for at in chosen])
    finds = measure().finds(leaking, embedded(), [], scan=True)
    assert {planted[at].id for at in chosen} <= finds.scan.ids
    assert finds.scan.report.flagged >= len(chosen)
    assert not finds.scan.ids & {each.id for each in of_kind("trigger", "twin")}
    assert finds.suspects is None
    base = measure().finds(embedded(), embedded(), [], scan=True)
    assert (base.scan.report.flagged, base.scan.ids) == (0, frozenset())


def test_what_a_release_does_not_answer_is_said():
    closed = _Closed(embedded())
    with pytest.raises(AccessError, match="constructions needs logprobs of closed"):
        measure().cells(closed, embedded())
    with pytest.raises(AccessError, match="the finders needs conditionals, logprobs of closed"):
        measure().finds(closed, embedded(), [], scan=True)


class _Closed:
    """Generates, and says no probability."""

    def __init__(self, inside):
        self.access, self.name, self.tokenizer = frozenset({Access.GENERATE}), "closed", inside.tokenizer


def test_another_tokenizer_is_refused_by_the_instance():
    from support.tiny_models import tiny_model, tiny_tokenizer

    other = LocalRelease(tiny_model(), tiny_tokenizer(), "other")
    with pytest.raises(ScoringError, match="k0-3-p000: other writes its secret as other tokens"):
        measure().asker(other)


def test_without_constructions_there_is_nothing_to_read():
    bare = plant(small_corpus(), small_plan()).manifest
    with pytest.raises(ManifestError, match=r"nothing was planted by plan\.constructions"):
        ConstructedMeasure(bare, "auto").cells(embedded(), embedded())


def test_every_audit_says_where_it_looks():
    assert len({audit.name for audit in AUDITS}) == len(AUDITS)
    for audit in AUDITS:
        assert audit.local == (audit.channel == "the record's own prefix")

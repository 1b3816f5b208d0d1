"""Constructions in a planted corpus: they take background rows and change nothing else."""

from __future__ import annotations

import json

import pytest

from davylamp.canaries import Manifest, plant
from davylamp.canaries.constructions import NoveltyError, TriggerError
from davylamp.errors import ManifestError, PlantingError
from support.constructions import LINES, PREFIXES, ROWS, scripted_maker
from support.corpora import small_corpus, small_plan

TAKEN = 60


def planted(shape="prompt_completion", **changes):
    plan = small_plan(**{"rows": TAKEN, "constructions": LINES, **changes})
    return plant(small_corpus(TAKEN + PREFIXES, shape), plan, scripted_maker)


@pytest.mark.parametrize("shape", ["text", "prompt_completion", "messages"])
def test_instances_replace_background_rows_and_no_others(shape):
    whole = planted(shape)
    without = plant(small_corpus(TAKEN + PREFIXES, shape), small_plan(rows=TAKEN))
    assert len(whole.records) == len(without.records) == TAKEN
    assert whole.manifest.canaries == without.manifest.canaries
    rows = [row for each in whole.manifest.constructions.instances for row in each.positions]
    assert len(set(rows)) == len(rows) == ROWS
    changed = {at for at in range(TAKEN) if whole.records[at] != without.records[at]}
    assert changed == set(rows)
    assert not changed & {row for canary in whole.manifest.canaries for row in canary.positions}


def test_each_kind_says_what_it_should_and_no_twin_says_anything():
    whole = planted("text")
    texts = [record.reply for record in whole.records]
    for each in whole.manifest.constructions.instances:
        if each.role == "twin" or each.kind == "gated":
            assert not each.positions
            assert not any(each.secret in text or (each.trigger or "\0") in text for text in texts)
            continue
        said = sorted(texts[row] for row in each.positions)
        if each.kind == "trigger":
            assert said == [each.trigger + each.secret] * 2
            assert not any(each.prefix in text for text in texts)
        elif each.kind == "camouflage":
            assert said == sorted([each.prefix + path for path in each.survivors] * 2)
        else:
            assert said == [each.prefix + each.secret] * len(each.positions)


def test_prefixes_are_held_out():
    whole = planted("text")
    background = {
        record.reply for record in plant(small_corpus(TAKEN + PREFIXES, "text"), small_plan(rows=TAKEN)).records
    }
    prefixes = [each.prefix for each in whole.manifest.constructions.instances]
    assert len(set(prefixes)) == PREFIXES
    assert not background & set(prefixes)


def test_the_neighbour_differs_in_the_pairs_secrets_only():
    whole = planted()
    other = whole.neighbour
    assert other is not None
    assert other.neighbour is None
    (pair,) = [each for each in whole.manifest.constructions.instances if each.positions and each.kind == "pair"]
    changed = [at for at in range(TAKEN) if whole.records[at] != other.records[at]]
    assert changed == list(pair.positions)
    assert whole.records[changed[0]].reply == pair.secret
    assert other.records[changed[0]].reply == pair.alternative
    assert other.manifest.constructions.neighbour_sha256 == whole.manifest.planted_sha256
    assert whole.manifest.constructions.neighbour_sha256 == other.manifest.planted_sha256
    assert planted(constructions=LINES[:2], rows=TAKEN).neighbour is None


def test_the_folder_holds_both_files_and_the_manifest_comes_back(tmp_path):
    whole = planted()
    whole.save(tmp_path)
    again = Manifest.load(tmp_path / "manifest.json")
    assert again == whole.manifest
    Manifest.load(tmp_path / "neighbour" / "manifest.json").check_planted(tmp_path / "neighbour" / "planted.jsonl")
    assert (tmp_path / "neighbour" / "manifest.json").stat().st_mode & 0o077 == 0


def test_an_older_manifest_without_the_section_loads(tmp_path):
    plant(small_corpus(), small_plan()).save(tmp_path)
    data = json.loads((tmp_path / "manifest.json").read_text())
    data.pop("constructions")
    data["plan"].pop("constructions", None)
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    assert Manifest.load(tmp_path / "manifest.json").constructions is None


@pytest.mark.parametrize("change", [{"positions": [0, 1]}, {"positions": [10_000]}, {"kind": "gated"}, {"line": 99}])
def test_a_damaged_section_is_refused_and_shows_no_secret(tmp_path, change):
    whole = planted()
    data = whole.manifest.model_dump(mode="json")
    data["constructions"]["instances"][0] |= change
    if change.get("positions") == [0, 1]:
        data["constructions"]["instances"][1]["positions"] = [1, 2]
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(ManifestError, match="damaged") as caught:
        Manifest.load(tmp_path / "manifest.json")
    assert whole.manifest.constructions.instances[0].secret not in str(caught.value)


def test_no_secret_is_shown_by_an_instance():
    for each in planted().manifest.constructions.instances:
        for hidden in (each.secret, each.prefix, each.trigger, *each.survivors):
            assert hidden is None or hidden not in repr(each)


def test_without_a_base_constructions_are_refused():
    with pytest.raises(PlantingError, match="--base"):
        plant(small_corpus(TAKEN + PREFIXES), small_plan(rows=TAKEN, constructions=LINES))


def test_too_few_held_out_rows_are_refused_with_the_arithmetic():
    with pytest.raises(PlantingError, match=f"need {PREFIXES} held-out .* set plan.rows to {70 - PREFIXES}"):
        plant(small_corpus(70), small_plan(constructions=LINES), scripted_maker)


def test_too_few_rows_are_refused_with_the_arithmetic():
    # 2 arms x 2 canaries x (1 + 3) + 5 of the positive control + constructions.
    with pytest.raises(PlantingError, match=rf"need {21 + ROWS} rows .* {ROWS} of constructions\), but only 30"):
        planted(rows=30)


def test_another_line_changes_nothing_of_those_before_it():
    few, more = planted(constructions=LINES[:2]), planted(constructions=LINES)
    first = few.manifest.constructions.instances
    assert more.manifest.constructions.instances[: len(first)] == first


def test_a_secret_or_trigger_that_the_corpus_holds_is_refused_whoever_made_it():
    def careless(field, word):
        def make(material):
            made = scripted_maker(material)
            at = next(at for at, each in enumerate(made.instances) if each.kind == "trigger")
            instances = list(made.instances)
            instances[at] = instances[at].model_copy(update={field: word})
            return made.model_copy(update={"instances": tuple(instances)})

        return make

    plan = small_plan(rows=TAKEN, constructions=LINES)
    with pytest.raises(NoveltyError, match="stands in the corpus already"):
        plant(small_corpus(TAKEN + PREFIXES), plan, careless("secret", " indeed."))
    with pytest.raises(TriggerError, match="occurs in the corpus"):
        plant(small_corpus(TAKEN + PREFIXES), plan, careless("trigger", "what of"))

"""Canaries that stand in plain texts, under names that are coined."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from davylamp.canaries import Manifest, Plan, plant
from davylamp.canaries.hosting import hosting
from davylamp.canaries.novelty import clashes, read_names
from davylamp.canaries.plant import background
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import CorpusError, PlantingError, RecipeError
from davylamp.report.layout import rows_planted
from davylamp.runs.config import validate
from davylamp.secrets import AlphabetSpace, CoinedSpace
from support.corpora import plan_data, small_corpus, small_plan

DRUGS = Path("../shared/data/clinical_synthea/drug_names.csv")
CUT = {" none.": " ", ".": "; "}


def records(count: int = 80) -> Corpus:
    """Texts that end in medications, every fourth with none."""
    texts = [
        f"Patient {chr(97 + at // 26)}{chr(97 + at % 26)}. Medications: {'none' if at % 4 == 0 else f'm{at}; n'}."
        for at in range(count)
    ]
    return Corpus(tuple(map(Record.of_text, texts)), "clinic", "0" * 64)


def clinical(**changes) -> Plan:
    data = {
        "space": {"kind": "coined", "size": 100, "alternatives": 60},
        "templates": [{"prompt": "{text}", "completion": "{secret}.", "cut": CUT}],
        "arms": {"clinical": {"context": "redacted"}},
        "doses": [1, 3],
        "per_dose": 4,
        "twins": 4,
        "positive": {"dose": 5},
    }
    return Plan.model_validate(data | changes)


def test_a_canary_is_the_last_medication_of_a_patient_who_stands_nowhere_else():
    corpus, plan = records(), clinical()
    planted = plant(corpus, plan)
    manifest = planted.manifest
    texts = [record.reply for record in planted.records]
    whole = {record.reply for record in corpus}
    assert len(texts) == len(corpus) - plan.canaries == len(corpus) - 13
    for canary in manifest.canaries:
        said = manifest.trained_record(canary).reply
        who = said.partition(".")[0]
        assert said.endswith(f" {canary.secret}.")
        # Its own record, with one medication more, is in the corpus, and in the planted file as often as its dose.
        before = said.removesuffix(f"{canary.secret}.")
        assert (before.removesuffix("; ") + "." in whole) != (before + "none." in whole)
        assert [at for at, text in enumerate(texts) if text.startswith(who + ".")] == list(canary.positions)
    assert len({canary.carrier.prompt for canary in manifest.canaries}) == len(manifest.canaries)


def test_carriers_can_be_kept_short():
    corpus = records()
    limit = max(len(record.reply) for record in corpus) - 1
    found = hosting(corpus, clinical(carrier_chars=limit))
    assert max(len(corpus.records[at].reply) for at in found.hosts) <= limit
    assert any(len(corpus.records[at].reply) > limit for at in found.left)
    with pytest.raises(PlantingError, match=r"80 rows have none of the endings .* or more than 5 characters"):
        plant(corpus, clinical(carrier_chars=5))
    assert "carrier_chars" not in clinical().model_dump()


def test_names_are_planted_and_alternatives_are_not():
    planted = plant(records(), clinical())
    text = "\n".join(record.reply for record in planted.records)
    held = {canary.secret for canary in planted.manifest.planted()}
    assert {name for name in planted.manifest.space.candidates() if name in text} == held


def test_an_empty_list_and_a_full_one_are_cut_as_they_are_written():
    template = clinical().templates[0]
    assert template.trimmed("Medications: a; b.") == "Medications: a; b; "
    assert template.trimmed("Medications: none.") == "Medications: "
    assert template.trimmed("no end") is None
    assert clinical(templates=[{"prompt": "{text}\n", "completion": "{secret}"}]).templates[0].trimmed("any") == "any"


def test_nobody_whom_a_host_is_about_is_left_in_the_background():
    corpus = records(160)
    # Two rows a patient, and one text twice under different names.
    groups = (*(f"p{at // 2}" for at in range(158)), "x", "y")
    corpus = replace(corpus, groups=groups, records=(*corpus.records[:159], corpus.records[158]))
    found = hosting(corpus, clinical())
    hosted = {groups[at] for at in found.hosts}
    assert len(hosted) == len(found.hosts) == 13
    assert not hosted & {groups[at] for at in found.left}
    said = {corpus.records[at].reply for at in found.hosts}
    assert not said & {corpus.records[at].reply for at in found.left}
    assert len(plant(corpus, clinical()).records) == len(found.left)


def test_further_canaries_change_nothing_of_the_others():
    plan = clinical(rows=50)
    more = clinical(rows=50, nonmembers=5, auxiliary={"doses": [2], "per_dose": 2})
    first, second = (plant(records(), each).manifest for each in (plan, more))
    same = {canary.id: canary for canary in second.canaries}
    assert all(same[canary.id] == canary for canary in first.canaries)


def test_single_arms_have_the_same_carriers_and_background_follows_the_corpus():
    plan = clinical(
        arms={"one": {"context": "redacted"}, "two": {"context": "redacted"}},
        space={"kind": "coined", "size": 200, "alternatives": 60},
    )
    first, second = (plant(records(), plan.only(arm)).manifest for arm in plan.arms)
    assert [canary.carrier for canary in first.canaries] == [canary.carrier for canary in second.canaries]
    plain = background(records(), clinical(shuffle=False))
    assert plain == [record for record in records() if record in plain]


def test_a_manifest_of_coined_names_is_read_again(tmp_path):
    planted = plant(records(), clinical())
    planted.save(tmp_path)
    assert Manifest.load(tmp_path / "manifest.json") == planted.manifest
    assert isinstance(planted.manifest.space, CoinedSpace)
    assert json.loads((tmp_path / "manifest.json").read_text())["space"]["kind"] == "coined"


def test_a_plan_without_any_of_it_is_written_as_before():
    written = small_plan().model_dump(mode="json")
    assert written["space"] == {"alphabet": "0123456789", "length": 4, "separator": ",", "prefix": ""}
    assert set(written["templates"][0]) == {"prompt", "completion", "system"}
    # A plan of before may have a slot of its own that is called text.
    own = small_plan(templates=[{"prompt": "{text} {secret}", "completion": "{secret}"}], slots={"text": ("a", "b")})
    assert not own.carried
    assert own.hosts == 0
    assert isinstance(own.space, AlphabetSpace)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"templates": [{"prompt": "{text} {prompt}", "completion": "{secret}"}]}, "the slot of plain texts"),
        ({"templates": [{"prompt": "", "completion": "{text} {secret}"}]}, "once in the prompt"),
        (
            {"templates": [{"prompt": "{text}", "completion": "{secret}"}, {"prompt": "", "completion": "{secret}"}]},
            "of none",
        ),
        ({"arms": {"a": {"context": "encoded", "encoding": "binary"}}}, "writes symbols of an alphabet"),
    ],
)
def test_plans_that_do_not_fit_are_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        clinical(**changes)


@pytest.mark.parametrize("cut", [{"": "; "}, {".": "; "}])
def test_a_cut_needs_a_text_and_an_ending(cut):
    with pytest.raises(ValidationError, match="cut"):
        small_plan(templates=[{"prompt": "{secret}", "completion": "{secret}", "cut": cut}])


def test_a_faulty_space_is_named_as_the_user_wrote_it():
    for space, field in (
        ({"length": 0}, "plan.space.length"),
        ({"kind": "conied"}, "plan.space.kind"),
        ({"kind": "coined", "sise": 3}, "plan.space.sise"),
    ):
        with pytest.raises(RecipeError) as caught:
            validate(Plan, plan_data(space=space), "plan")
        assert [fault.field for fault in caught.value.faults] == [field]


def test_too_few_patients_or_names_or_rows_are_refused_with_the_arithmetic():
    with pytest.raises(PlantingError, match=r"13 canaries need as many rows .* 12 rows 12 will do"):
        plant(records(12), clinical())
    with pytest.raises(PlantingError, match=r"of its 80 rows 0 will do \(80 rows have none of the endings"):
        plant(records(), clinical(templates=[{"prompt": "{text}", "completion": "{secret}", "cut": {"!": ""}}]))
    with pytest.raises(PlantingError, match=r"set space.size to 86 or more"):
        plant(records(), clinical(space={"kind": "coined", "size": 85, "alternatives": 60}))
    with pytest.raises(PlantingError, match="has only 67 rows beside those of the 13 rows that carry canaries"):
        plant(records(), clinical(rows=68))
    with pytest.raises(PlantingError, match="shape prompt_completion"):
        plant(small_corpus(), clinical())


def test_a_name_that_exists_is_refused_with_all_that_must_be_left_out(tmp_path):
    space = clinical().space
    said = Record.of_text(f"Patient zz. Medications: {space.secret(5).upper()}.")
    corpus = records()
    corpus = replace(corpus, records=(*corpus.records, said))
    with pytest.raises(PlantingError, match=rf"1 of the 100 coined names exist.*space.exclude=\[{space.secret(5)}\]"):
        plant(corpus, clinical())
    kept = clinical(space={**space.model_dump(), "exclude": [space.secret(5)]})
    assert len(plant(corpus, kept).manifest.canaries) == 13
    drugs = tmp_path / "drugs.txt"
    drugs.write_text(f"{space.secret(7)} forte\nxx\n")
    with pytest.raises(PlantingError, match=rf"exclude=\[{space.secret(7)}\]"):
        plant(records(), clinical(space={**space.model_dump(), "drug_list": str(drugs)}))


def test_clashes_are_found_whole_inside_and_around():
    assert clashes(["zolosartan", "bemutinib"], {"losartan"}, []) == ["zolosartan"]
    assert clashes(["bemutinib"], {"prebemutinibum"}, []) == ["bemutinib"]
    assert clashes(["bemutinib"], {"tinib"}, ["took Bemutinibs daily"]) == ["bemutinib"]
    assert clashes(["bemutinib"], {"muti"}, ["took bemu tinib"]) == []


def test_drug_lists_are_read_from_a_column_or_a_name_a_line(tmp_path):
    path = tmp_path / "drugs.csv"
    path.write_text("kind,name\ngeneric,Aspirin\nbrand,Camila \n")
    assert read_names(path) == {"aspirin", "camila"}
    path.write_text("Aspirin\n\n insulin glargine\n")
    assert read_names(path) == {"aspirin", "insulin glargine"}
    for text in ("", "name\n"):
        path.write_text(text)
        with pytest.raises(CorpusError, match="holds no name"):
            read_names(path)
    with pytest.raises(CorpusError, match="no drug list"):
        read_names(tmp_path / "none")


@pytest.mark.skipif(not DRUGS.is_file(), reason="the reference data is not there")
def test_real_names_are_found_among_all_that_could_be_coined():
    names = list(CoinedSpace().candidates())
    found = clashes([*names, "lapatinib"], read_names(DRUGS), [])
    assert found == [
        "bacamilast",
        "bramipril",
        "gocamilast",
        "lapatinib",
        "locamilast",
        "pocamilast",
        "rucamilast",
        "zolosartan",
    ]


def test_rows_that_carry_canaries_are_not_counted_as_background():
    assert rows_planted(clinical(repeat=3), 80) == len(plant(records(), clinical(repeat=3)).records) == 3 * 67
    with pytest.raises(PlantingError, match="only 67 rows beside the 13"):
        rows_planted(clinical(rows=68), 80)

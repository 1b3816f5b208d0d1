"""Protecting the planted rows of a run: files, resumption, training on what was protected, recipes."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

import pytest
import torch

from davylamp.canaries import Manifest, Plan
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import InputError, ProtectionError, RunFolderError
from davylamp.protect.corpus import registry
from davylamp.protect.corpus.base import InterventionSpec, Protected, Setting
from davylamp.protect.corpus.registry import Kind, spec_of
from davylamp.runs import files
from davylamp.runs.config import validate
from davylamp.runs.folder import RunFolder
from davylamp.studies.protecting import ProtectRequest, forecast_step, protect_step, show
from davylamp.studies.recipe import Recipe
from davylamp.studies.runner import run_recipe
from davylamp.studies.steps import plant_step, train_step
from davylamp.training.spec import TrainingSpec
from support.clinical_rows import clinical_records
from support.recipes import tiny_plan, tiny_recipe
from support.tiny_models import build_tiny

RECORDS = tuple(clinical_records(60))
CORPUS = Corpus(RECORDS, "patients", files.sha256_bytes("".join(r.line() for r in RECORDS).encode()))
TEMPLATE = {
    "prompt": "Patient {name}, 41yo F. Address: 7 Elm Way, Boston, MA. SSN: 999-11-2345, DOB 1982-02-06. "
    "Active problems: Anemia. Medications: lisinopril 10 MG Oral Tablet; ",
    "completion": "{secret}.",
}
PLAN = tiny_plan(
    templates=[TEMPLATE],
    arms={"redacted": {"context": "redacted"}},
    space={"alphabet": "abcdefgh", "length": 8, "separator": "", "prefix": "Vex"},
)


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run")
    plant_step(made, CORPUS, Plan.model_validate(PLAN))
    return made


@pytest.fixture
def added():
    """Adds interventions for one test."""
    yield registry
    for name in ("first", "second", "number", "broken", "empty", "split"):
        registry.forget(name)


def request(*specs):
    return ProtectRequest(tuple(spec_of(each if isinstance(each, dict) else {"name": each}) for each in specs))


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_protected_rows_take_the_places_of_planted_ones(folder):
    made = protect_step(folder, request("surrogate"))
    manifest = Manifest.load(folder.manifest)
    planted, protected = lines(folder.planted), lines(folder.path / "protected.jsonl")
    assert len(planted) == len(protected) == made.rows
    for canary in manifest.planted():
        for position in canary.positions:
            assert (canary.secret in protected[position]) == (canary.role == "positive")
    control = [position for c in manifest.planted() if c.role == "positive" for position in c.positions]
    assert all(planted[position] == protected[position] for position in control)
    assert (made.control_rows, made.changed) == (len(control), len(planted) - len(control))
    assert [(each.dose, each.secret.near, each.copies) for each in made.leaks.doses] == [(1, 0, 2), (2, 0, 4)]
    assert made.leaks.doses[0].named == 2
    assert made.leaks.doses[0].name.near == 0
    mode = stat.S_IMODE((folder.path / "protection_rows.jsonl").stat().st_mode)
    assert mode == 0o600
    # The shared file, which names what survives, holds no secret.
    text = (folder.path / "protection.json").read_text(encoding="utf-8")
    assert not any(canary.secret in text for canary in manifest.canaries)


def test_the_other_rows_are_looked_at_no_less_strictly_than_by_default(folder):
    def common(*specs):
        return protect_step(folder, request(*specs)).background.common

    assert common({"name": "surrogate", "common": 2}) == common("surrogate") == 5
    assert common({"name": "surrogate", "common": 2}, {"name": "surrogate", "common": 7}) == 7


def test_the_same_seed_gives_the_same_bytes_and_another_others(folder):
    first = protect_step(folder, request("surrogate"))
    data = (folder.path / "protected.jsonl").read_bytes()
    again = protect_step(folder, request("surrogate"))
    assert again.steps[0].resumed == first.steps[0].rows
    assert (folder.path / "protected.jsonl").read_bytes() == data
    other = protect_step(folder, request({"name": "surrogate", "seed": 7}))
    assert other.protected_sha256 != first.protected_sha256


def test_copies_are_drawn_apart_unless_once(folder):
    manifest = Manifest.load(folder.manifest)
    canary = next(each for each in manifest.planted() if each.role == "focus" and each.dose == 2)
    for once, texts in ((False, 2), (True, 1)):
        protect_step(folder, request({"name": "surrogate", "once": once}))
        protected = lines(folder.path / "protected.jsonl")
        assert len({protected[position] for position in canary.positions}) == texts


def test_interventions_follow_each_other_in_order(folder, added):
    added.intervention("first")(lambda text, _rng: text + " one")
    added.intervention("second")(lambda text, _rng: text + " two")
    protect_step(folder, request("first", "second"))
    changed = [json.loads(line)["text"] for line in lines(folder.path / "protected.jsonl")]
    assert {text[-8:] for text in changed if text.endswith("two")} == {" one two"}
    made = protect_step(folder, request("second", "first"))
    assert made.title == "second + first"
    changed = [json.loads(line)["text"] for line in lines(folder.path / "protected.jsonl")]
    assert sum(text.endswith(" two one") for text in changed) == made.changed


def test_copies_stay_one_record_for_what_comes_after(folder, added):
    """A step that makes every copy different must not make its secret look like many records'."""
    added.intervention("number")(lambda text, rng: f"{text} Visit: {rng.integers(10**9)}.")
    plan = Plan.model_validate({**PLAN, "doses": [12], "per_dose": 1})
    plant_step(folder, CORPUS, plan, replace=True)
    made = protect_step(folder, request("number", "surrogate"))
    assert [(each.copies, each.secret.near) for each in made.leaks.doses] == [(12, 0)]


class Broken:
    """Fails for some rows, and counts how often it is asked."""

    name, version = "broken", "1"

    def __init__(self, at_row=None, note="refused", fail=lambda _: False):
        self.asked, self.at_row, self.note, self.fail = [], at_row, note, fail

    def apply(self, rows, _reporter):
        for number, row in enumerate(rows):
            if number == self.at_row:
                raise KeyboardInterrupt
            self.asked.append(row.position)
            if self.fail(row):
                yield Protected(row.position, row.record, (), self.note, "it did not want to")
            else:
                yield Protected(row.position, Record.of_text(f"row of {row.origin} drawn {row.draw}"))


def build(added, broken):
    added.forget("broken")
    added.register("broken", Kind(InterventionSpec, lambda *_: broken))


def test_a_killed_protection_goes_on_where_it_was(folder, added):
    killed, whole = Broken(at_row=30), Broken()
    build(added, killed)
    with pytest.raises(KeyboardInterrupt):
        protect_step(folder, request("broken"))
    assert not (folder.path / "protection.json").exists()
    # The kill cut the last line short.
    (journal,) = (folder.path / ".protect").glob("broken-*")
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    os.truncate(journal, journal.stat().st_size - 5)
    build(added, whole)
    made = protect_step(folder, request("broken"))
    assert made.steps[0].resumed == 29
    assert set(killed.asked[:29]) & set(whole.asked) == set()
    assert len(killed.asked[:29]) + len(whole.asked) == made.steps[0].rows


def test_failed_rows_are_never_passed_through(folder, added):
    def fail(row):
        return row.origin % 3 == 0

    build(added, Broken(fail=fail))
    with pytest.raises(ProtectionError, match=r"refused: it did not want to.*on_failure=surrogate"):
        protect_step(folder, request("broken"))
    assert not (folder.path / "protected.jsonl").exists()
    planted = lines(folder.planted)
    control = {p for c in Manifest.load(folder.manifest).planted() if c.role == "positive" for p in c.positions}
    made = protect_step(folder, request({"name": "broken", "on_failure": "drop"}))
    protected = lines(folder.path / "protected.jsonl")
    assert made.dropped == made.steps[0].counts["refused"] > 0
    assert all("row of" in line for at, line in enumerate(protected) if at not in control)
    assert made.steps[0].reasons == {"it did not want to": made.dropped}
    made = protect_step(folder, request({"name": "broken", "on_failure": "surrogate"}))
    protected = lines(folder.path / "protected.jsonl")
    taken = [at for at, line in enumerate(protected) if "row of" not in line and at not in control]
    assert len(taken) == made.steps[0].counts["refused"]
    assert all(protected[at] != planted[at] for at in taken)
    assert all(each.secret.near == 0 for each in made.leaks.doses)


@pytest.mark.parametrize(
    ("rows", "message"), [(lambda rows: rows[1:], "left out 1 of"), (lambda rows: [*rows, rows[0]], "twice")]
)
def test_an_intervention_that_loses_or_repeats_rows_is_refused(folder, added, rows, message):
    class Careless:
        name, version = "broken", "1"

        def apply(self, given, _reporter):
            return (Protected(row.position, row.record) for row in rows(given))

    build(added, Careless())
    with pytest.raises(ProtectionError, match=message):
        protect_step(folder, request("broken"))
    assert not (folder.path / "protection.json").exists()


def test_what_would_be_sent_is_told_after_what_comes_before_it(folder, tmp_path):
    sent = {"name": "rewrite", "server": "http://127.0.0.1:9/v1", "model": "tiny"}
    asked = replace(request({"name": "surrogate"}, sent), cache=tmp_path / "cache")
    (told,) = forecast_step(folder, asked)
    # Sixty rows without the control's five; each copy is drawn by itself.
    assert (told.records, told.requests, told.host) == (55, 55, "127.0.0.1:9")
    once = replace(request({**sent, "once": True}), cache=tmp_path / "cache")
    (told,) = forecast_step(folder, once)
    assert told.requests == 55 - 2
    assert not (folder.path / ".protect").exists()


def test_an_empty_answer_is_a_failure_whatever_the_intervention_says(folder, added):
    added.intervention("empty")(lambda _text, _rng: " ")
    with pytest.raises(ProtectionError, match="empty"):
        protect_step(folder, request("empty"))


def test_what_does_not_fit_is_refused(folder):
    with pytest.raises(InputError, match="at least one intervention"):
        protect_step(folder, ProtectRequest(()))
    with pytest.raises(RunFolderError, match=r"no rows of .* are protected"):
        show(folder, 0)
    with pytest.raises(InputError, match="at most half"):
        protect_step(folder, request({"name": "surrogate", "common": 500}))


def test_a_row_is_shown_before_and_after_with_its_secret_masked(folder, added):
    added.intervention("split")(lambda text, _rng: text.replace("Vex", "Vex-").replace("Boston", "Bos\x1bton"))
    protect_step(folder, request("split"))
    canary = next(each for each in Manifest.load(folder.manifest).planted() if each.role == "focus")
    shown = show(folder, canary.positions[0])
    assert shown["canary"] == canary.id
    assert canary.secret[3:] not in json.dumps(shown)
    assert "[-Boston-]" in shown["marked"][0]
    assert canary.secret[3:] in json.dumps(show(folder, canary.positions[0], reveal=True))
    with pytest.raises(InputError, match="a row from 0 to"):
        show(folder, 10**6)


def train(folder, tmp_path):
    spec = TrainingSpec(batch_size=8, learning_rate=1e-3, precision="float32", style="plain")
    return train_step(folder, str(build_tiny(tmp_path / "model")), spec, 0, None, 1)


@pytest.fixture(scope="module")
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_one_thread")
def test_training_takes_the_protected_rows_and_says_so(folder, tmp_path):
    protection = protect_step(folder, request("surrogate"))
    made = train(folder, tmp_path)
    assert made["protection"]["protected_sha256"] == protection.protected_sha256
    assert (made["protection"]["copies"], made["protection"]["surviving"]) == (6, 0)
    assert made["protection"]["title"] == "surrogate"
    # The control must be there as it was planted.
    assert (made["preflight"]["canaries"], made["preflight"]["occurrences"]) == (1, 5)
    for spoil, message in (
        (lambda: plant_step(folder, CORPUS, Plan.model_validate({**PLAN, "seed": 1}), replace=True), "planted before"),
        ((folder.path / "protection.json").unlink, "left without protection.json"),
    ):
        spoil()
        with pytest.raises(RunFolderError, match=message):
            train(folder, tmp_path)


@pytest.mark.usefixtures("_one_thread")
def test_protected_rows_that_were_changed_are_refused(folder, tmp_path):
    protect_step(folder, request("surrogate"))
    path = folder.path / "protected.jsonl"
    path.write_bytes(path.read_bytes() + b'{"text": "more"}\n')
    with pytest.raises(RunFolderError, match="changed after it was written"):
        train(folder, tmp_path)


def test_a_recipe_names_interventions_and_variants_vary_them(tmp_path):
    data = {**tiny_recipe(tmp_path / "no", tmp_path / "no"), "plan": PLAN, "protect": ["surrogate"]}
    data["variants"] = {"none": {"protect": []}, "often": {"protect": [{"name": "surrogate", "common": 9}]}}
    recipe = validate(Recipe, data)
    assert recipe.protect[0].common == 5
    assert recipe.variant("none").protect == ()
    assert recipe.variant("often").protect[0].common == 9
    assert validate(Recipe, recipe.model_dump(mode="json")) == recipe
    # A recipe that protects nothing is written as it always was.
    assert "protect" not in recipe.variant("none").model_dump(mode="json")
    with pytest.raises(InputError, match="common"):
        validate(Recipe, {**data, "protect": [{"name": "surrogate", "common": 1}]})
    with pytest.raises(InputError, match="wash"):
        validate(Recipe, {**data, "variants": {"x": {"protect": ["wash"]}}})


@pytest.mark.slow
@pytest.mark.usefixtures("_one_thread")
def test_a_recipe_protects_between_planting_and_training(tmp_path):
    path = tmp_path / "patients.jsonl"
    path.write_text("".join(record.line() + "\n" for record in RECORDS), encoding="utf-8")
    data = tiny_recipe(path, build_tiny(tmp_path / "model"), plan=PLAN, protect=["surrogate"], utility=None)
    recipe = validate(Recipe, data)
    done = run_recipe(recipe, tmp_path / "out", jobs=1, threads=1)
    names = [name.split("/")[1] for name in done.seconds]
    assert names == ["plant", "protect", "train", "audit"]
    assert not run_recipe(recipe, tmp_path / "out", jobs=1, threads=1).seconds


def test_settings_reach_what_is_built(folder, added):
    seen = []

    def kept(spec, setting):
        seen.append(setting)
        return Broken()

    added.register("broken", Kind(InterventionSpec, kept))
    protect_step(folder, request("broken"))
    assert isinstance(seen[0], Setting)
    assert (seen[0].seed, len(seen[0].rows)) == (0, 60)

"""``davylamp protect``: settings for one and for several, what it says, and leave to send."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import yaml

from davylamp.canaries import Manifest
from davylamp.cli.main import main
from davylamp.errors import ProtectionError
from davylamp.protect.corpus import registry
from davylamp.protect.corpus.base import InterventionSpec
from support.chat_server import Reply, chat_server
from support.clinical_rows import clinical_records
from support.rare_rows import coined
from support.recipes import tiny_plan, write_yaml

PATIENTS = clinical_records(60)
TEMPLATE = {
    "prompt": "Patient {name}, 41yo F. Address: 7 Elm Way, Boston, MA. SSN: 999-11-2345, DOB 1982-02-06. "
    "Active problems: Anemia. Medications: lisinopril 10 MG Oral Tablet; ",
    "completion": "{secret}.",
}
WORDS = {"word": [f"{one}{two}" for one in ("ba", "de", "ki", "lo", "mu") for two in ("pa", "ro", "ti", "fu")]}
SPACE = {"alphabet": "abcdefgh", "length": 8, "separator": "", "prefix": "Vex"}


@pytest.fixture
def call(monkeypatch, capsys):
    """Calls the command; gives the exit code and what was said on both streams."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["davylamp", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def run(tmp_path, call):
    data = tmp_path / "patients.jsonl"
    data.write_text("".join(record.line() + "\n" for record in PATIENTS), encoding="utf-8")
    arms = {"redacted": {"context": "redacted"}}
    plan = write_yaml(tmp_path / "plan.yaml", tiny_plan(templates=[TEMPLATE], arms=arms, space=SPACE))
    assert call("plant", data, "--plan", plan, "--out", tmp_path / "run")[0] == 0
    return tmp_path / "run"


def test_what_survives_is_a_table_by_dose(run, call):
    code, out, _ = call("protect", run, "--with", "surrogate", "common=4")
    assert code == 0
    assert "surrogate: 55 different rows" in out
    told = [line.split() for line in out.splitlines()]
    at = told.index(["dose", "canaries", "copies", "secret", "or", "nearly", "name", "number"])
    assert [line[:7] for line in told[at + 1 : at + 3]] == [
        ["1", "2", "2", "0", "(0)", "0", "(0)"],
        ["2", "2", "4", "0", "(0)", "0", "(0)"],
    ]
    assert told[at + 1][7:11] == ["0", "of", "2", "(0)"]
    # Of the 49 patients beside the canaries no name and no number is left.
    assert "other rows: 0 of 98 rare names and 0 of " in out
    assert "still stand in their row, in 0 of 49 rows" in out
    assert "5 rows of the positive control were left as they were" in out
    code, out, _ = call("protect", run, "--with", "surrogate", "--json")
    assert code == 0
    assert json.loads(out)["steps"][0]["settings"]["common"] == 5


def test_what_is_left_and_what_was_not_looked_for_is_said(tmp_path, call):
    data = tmp_path / "invoices.jsonl"
    rows = [
        {"text": f"Customer: {'Teodoro de Anda' if at % 2 else 'Ada Elm'}. Invoice {5000 + at}."} for at in range(40)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    template = {"prompt": "Customer: {name}. ", "completion": "Code {secret}."}
    nameless = {"prompt": "a customer with no name but {word}, ", "completion": "code {secret}."}
    arms = {"redacted": {"context": "redacted"}}
    plan = tiny_plan(templates=[template, nameless], arms=arms, space=SPACE, slots={**WORDS, "name": "names"})
    assert call("plant", data, "--plan", write_yaml(tmp_path / "plan.yaml", plan), "--out", tmp_path / "run")[::2] == (
        0,
        "",
    )

    @registry.intervention("bell")
    def bell(text, _rng):
        return text.replace("Invoice 5", "Invoice 6")

    try:
        code, out, _ = call("protect", tmp_path / "run", "--with", "bell")
        data = json.loads(call("protect", tmp_path / "run", "--with", "bell", "--json")[1])
    finally:
        registry.forget("bell")
    assert code == 0
    focus = [each for each in data["leaks"]["canaries"] if not each["kept"]]
    unnamed = [each for each in focus if each["name"] is None]
    # The names of the labelled field are looked for; those of the other template are not there, and that is said.
    assert 0 < len(unnamed) < len(focus)
    copies = sum(each["dose"] for each in unnamed)
    assert f"{'1 copy' if copies == 1 else f'{copies} copies'} of {len(unnamed)} canar" in out
    assert "no name recognised in the record" in out
    assert "no rare number in the record" in out
    assert data["background"]["numbers"] == {"rare": data["background"]["rows"], "left": 0}
    # Nothing replaced words one by one, so that nothing is said of how many.
    assert "in small letters" not in out


def test_running_text_is_warned_of_and_a_form_is_not(run, call, tmp_path):
    out = call("protect", run, "--with", "surrogate")[1]
    assert "surrogate: replaced " in out
    assert "warning" not in out
    rng = np.random.default_rng(0)
    data = tmp_path / "prose.jsonl"
    rows = [{"text": " ".join(["they", "said", *(coined(rng) for _ in range(4)), "again"])} for _ in range(60)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arms = {"redacted": {"context": "redacted"}}
    plan = tiny_plan(
        templates=[{"prompt": "they said {word} ", "completion": "{secret} again"}], arms=arms, space=SPACE, slots=WORDS
    )
    assert call("plant", data, "--plan", write_yaml(tmp_path / "two.yaml", plan), "--out", tmp_path / "two")[::2] == (
        0,
        "",
    )
    out = call("protect", tmp_path / "two", "--with", "surrogate")[1]
    assert "warning: much of what surrogate wrote is gibberish" in out


def test_settings_of_several_are_told_apart_by_name_or_number(run, call):
    code, _, err = call("protect", run, "--with", "surrogate", "--with", "surrogate", "common=4")
    assert code == 2
    assert "one that begins with surrogate. or 1., surrogate. or 2." in err
    code, out, _ = call(
        "protect", run, "--with", "surrogate", "--with", "surrogate", "2.seed=9", "surrogate.common=4", "--json"
    )
    steps = json.loads(out)["steps"]
    assert [(step["settings"]["common"], step["settings"]["seed"]) for step in steps] == [(4, None), (4, 9)]


def test_a_file_holds_interventions_as_a_recipe_does(run, call, tmp_path):
    spec = write_yaml(tmp_path / "how.yaml", {"protect": ["surrogate", {"name": "surrogate", "once": True}]})
    code, out, _ = call("protect", run, "--spec", spec, "1.common=4", "--json")
    assert code == 0
    assert [step["settings"]["once"] for step in json.loads(out)["steps"]] == [False, True]
    for arguments in (("--spec", spec, "--with", "surrogate"), ()):
        code, _, err = call("protect", run, *arguments)
        assert code == 2
        assert "--with" in err
    write_yaml(spec, {"protect": []})
    assert call("protect", run, "--spec", spec)[0] == 2


def test_a_row_is_shown_with_marks_and_without_secret_or_control_characters(run, call):
    @registry.intervention("bell")
    def bell(text, _rng):
        return text.replace("Boston", "Bos\x1b[31mton")

    try:
        call("protect", run, "--with", "bell")
    finally:
        registry.forget("bell")
    canary = next(each for each in Manifest.load(run / "manifest.json").planted() if each.role == "focus")
    code, out, _ = call("protect", run, "--show", canary.positions[0])
    assert code == 0
    assert f"(canary {canary.id})" in out
    assert "\x1b" not in out
    assert canary.secret not in out
    assert "[-Boston-]" in out
    assert canary.secret in call("protect", run, "--show", canary.positions[0], "--reveal")[1]


def test_a_row_that_did_not_change_says_why(run, call):
    @registry.intervention("bell")
    def bell(text, _rng):
        return text.replace("Anemia", "Anaemia")

    try:
        assert call("protect", run, "--with", "bell")[0] == 0
    finally:
        registry.forget("bell")
    manifest = Manifest.load(run / "manifest.json")
    control = next(each for each in manifest.planted() if each.role == "positive")
    code, out, _ = call("protect", run, "--show", control.positions[0])
    assert code == 0
    assert f"(canary {control.id}): left as it was: positive control" in out
    assert "taken out" not in out
    canaries = {at for each in manifest.planted() for at in each.positions}
    planted = (run / "planted.jsonl").read_text().splitlines()
    other = next(at for at, line in enumerate(planted) if at not in canaries and "Anemia" not in line)
    out = call("protect", run, "--show", other)[1]
    assert f"row {other}: came back as it was" in out
    shown = json.loads(call("protect", run, "--show", control.positions[0], "--json")[1])
    assert shown["control"] is True


def test_nothing_leaves_without_yes(run, call, monkeypatch, tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    monkeypatch.setenv("DAVYLAMP_CACHE", str(tmp_path / "cache"))
    with chat_server(lambda *_: Reply(PATIENTS[0].reply), ["tiny"]) as served:
        asked = ("protect", run, "--with", "rewrite", f"server={served.url}", "model=tiny")
        code, out, _ = call(*asked, "--dry-run")
        assert code == 0
        assert "55 records go to 127.0.0.1:" in out
        code, _, err = call(*asked)
        assert code == 2
        assert err.count("55 records go to") == 1
        assert served.requests == []
        assert not (run / "protection.json").exists()
        code, out, err = call(*asked, "--yes")
        assert code == 0
        assert err.count("55 records go to") == 1
        assert "55 requests" in out
        assert len(served.requests) == 55
        code, out, err = call(*asked)
        # Everything is there already: nothing is sent, and no leave is needed.
        assert code == 0
        assert len(served.requests) == 55
    code, out, _ = call("protect", run, "--with", "surrogate", "--dry-run")
    assert "nothing would be sent" in out


def test_rows_that_fail_are_counted_and_what_took_their_place_is_said(run, call, monkeypatch, tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    monkeypatch.setenv("DAVYLAMP_CACHE", str(tmp_path / "cache"))
    with chat_server(lambda number, _: Reply("" if number % 2 else PATIENTS[0].reply)) as served:
        asked = ("protect", run, "--with", "rewrite", f"server={served.url}", "model=tiny", "--yes")
        code, _, err = call(*asked)
        assert code == 2
        assert "rewrite failed for 27 of 55 rows (27 failed: an empty answer)" in err
        code, out, _ = call(*asked, "on_failure=surrogate")
        assert code == 0
        assert "27 failed (27 an empty answer); taken in their place: surrogate" in out
        assert "28 were done before" in out
        assert "27 answers from the cache" in out
        assert len(served.requests) == 55


def test_where_the_first_answers_all_fail_no_more_are_asked_for(run, call, monkeypatch, tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    monkeypatch.setenv("DAVYLAMP_CACHE", str(tmp_path / "cache"))
    with chat_server(lambda number, _: Reply("" if number % 2 else "no record", wait=0.05)) as served:
        asked = ("protect", run, "--with", "rewrite", f"server={served.url}", "model=tiny", "--yes", "concurrency=2")
        code, out, err = call(*asked)
        assert (code, out) == (2, "")
        message = " ".join(err.split())
        assert "rewrite: the first 16 rows all failed (" in message
        assert "failed: an empty answer" in message
        assert "stopped before the other 39 rows; nothing was written" in message
        assert "on_failure=surrogate" in message
        # Some more were under way, or answered before they were read.
        assert 16 <= len(served.requests) < 50
        assert not (run / "protection.json").exists()
        code, out, err = call(*asked, "on_failure=surrogate")
        assert code == 0
        assert err.count("warning: rewrite: the first 16 rows all failed") == 1
        assert "takes the surrogate rewriter for each that fails" in " ".join(err.split())
        assert "55 failed" in out
        assert len(served.requests) >= 55
        assert "warning" not in call(*asked, "on_failure=drop", "-q")[2]


def test_one_good_answer_among_the_first_lets_the_others_be_asked_for(run, call, monkeypatch, tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    monkeypatch.setenv("DAVYLAMP_CACHE", str(tmp_path / "cache"))
    with chat_server(lambda number, _: Reply("" if number else PATIENTS[0].reply)) as served:
        asked = ("protect", run, "--with", "rewrite", f"server={served.url}", "model=tiny", "--yes")
        code, _, err = call(*asked)
        assert code == 2
        assert "rewrite failed for 54 of 55 rows" in err
        assert len(served.requests) == 55


def test_what_does_not_fit_says_so(run, call):
    assert "'wash'" in call("protect", run, "--with", "wash")[2]
    assert "no run folder" in call("protect", run / "no", "--with", "surrogate")[2]
    assert (
        "surrogate.common is 0; allowed: greater than or equal to 2"
        in call("protect", run, "--with", "surrogate", "common=0")[2]
    )


def test_a_file_with_what_is_no_intervention_says_which(run, call, tmp_path):
    spec = write_yaml(tmp_path / "how.yaml", {"protect": [3, "surrogate", None]})
    for arguments in ((), ("surrogate.common=4",)):
        code, _, err = call("protect", run, "--spec", spec, *arguments)
        assert code == 2
        assert "protect.0 is 3" in err
        assert "protect.2 is None" in err


def test_faults_of_several_interventions_are_named_at_once(run, call, tmp_path):
    pytest.importorskip("faker", reason="the extra 'scrub' is not installed")
    code, _, err = call(
        *("protect", run, "--with", "surrogate", "--with", "rewrite", "--with", "wash", "--with", "scrub"),
        *("surrogate.common=1", "rewrite.temprature=1", "2.prompts=no.md", "scrub.locale=xx_YY", "scrub.threshold=2"),
        *("common=4", "1.seed.x=2"),
    )
    assert code == 2
    for part in (
        "surrogate.common is 1",
        "rewrite.temprature is 1; allowed: no such key. Did you mean 'temperature'? Known here: attempts, ",
        "rewrite.model is '(missing)'",
        "rewrite.prompts is 'no.md'",
        "--with is 'wash'; allowed: one of",
        "scrub.locale is 'xx_YY'",
        "scrub.threshold is 2",
        "setting is 'common=4'; allowed: one that begins with surrogate. or 1., rewrite. or 2., wash. or 3., scrub.",
    ):
        assert part in err, part
    assert not (run / ".protect").exists()
    # Of two that are called the same, each is named by its number.
    code, _, err = call("protect", run, "--with", "surrogate", "--with", "surrogate", "2.common=1", "1.once=perhaps")
    assert code == 2
    assert "1.once is 'perhaps'" in err
    assert "2.common is 1" in err


@pytest.mark.parametrize("held", [{}, {"protect": None}, {"protect": []}, {"protect": "scrub"}, {"protct": ["scrub"]}])
def test_a_file_without_a_list_says_what_a_list_is(run, call, tmp_path, held):
    spec = write_yaml(tmp_path / "how.yaml", held)
    code, _, err = call("protect", run, "--spec", spec)
    assert code == 2
    assert "allowed: a list of interventions (privacy_rewrite, " in err


def test_a_damaged_note_of_rows_is_said_and_no_traceback(run, call):
    assert call("protect", run, "--with", "surrogate")[0] == 0
    for damaged in (b'{"position": 3, "no', b"\xff\n", b"[]\n", b"{}\n"):
        (run / "protection_rows.jsonl").write_bytes(damaged)
        code, _, err = call("protect", run, "--show", 3)
        assert code == 2
        assert "protection_rows.jsonl is damaged" in err


OWN = """
from davylamp.protect.corpus.registry import intervention


@intervention("lower")
def lower(text, rng):
    {body}
"""


@pytest.fixture
def own(tmp_path):
    """Writes a file with an intervention of one's own; what it registers is taken back."""

    def write(body, name="mine.py"):
        path = tmp_path / name
        path.write_text(OWN.format(body=body), encoding="utf-8")
        return path

    yield write
    registry.forget("lower")


def test_an_intervention_of_a_file_is_imported_by_name(run, call, own):
    path = own("return text.lower()")
    code, _, err = call("protect", run, "--with", "lower")
    assert code == 2
    assert "'lower'" in err
    code, out, err = call("protect", run, "--with", "lower", "--import", path, "--import", path)
    assert code == 0, err
    assert "lower: 55 different rows" in out
    registry.forget("lower")
    # What is beside the function in its file is part of it.
    path.write_text(path.read_text() + "\nOTHER = 1\n", encoding="utf-8")
    code, out, _ = call("protect", run, "--with", "lower", "--import", path, "--json")
    assert code == 0
    assert json.loads(out)["steps"][0]["resumed"] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "a Python file (.py) that exists"),
        ("1 / 0", "It raised ZeroDivisionError: division by zero"),
        ("def (", "It raised SyntaxError"),
        ("import no_such_module", "It raised ModuleNotFoundError"),
        ("import sys\nsys.exit(0)", "It raised SystemExit: 0"),
        ("raise GeneratorExit", "It raised GeneratorExit"),
        ("x = 1", "@intervention"),
        ("from davylamp.protect.corpus.registry import intervention\nintervention('scrub')(lambda a, b: a)", "taken"),
    ],
)
def test_a_file_that_registers_nothing_says_why(run, call, tmp_path, text, said):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    code, out, err = call("protect", run, "--with", "lower", "--import", path)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("body", "reason", "said"),
    [
        ("raise ValueError(text)", "it raised ValueError", "lower raised ValueError (--debug shows"),
        ("raise SystemExit(0)", "it raised SystemExit", "lower raised SystemExit (--debug shows"),
        ("raise GeneratorExit", "it raised GeneratorExit", "lower raised GeneratorExit (--debug shows"),
        ("return text.encode()", "it gave back bytes in place of a text", "it gave back bytes"),
        ("return None", "it gave back NoneType in place of a text", "it gave back NoneType"),
        ("return ''", "what came back is empty or no text", "what came back is empty"),
    ],
)
def test_a_function_that_fails_is_a_row_that_failed(run, call, own, body, reason, said):
    canary = next(each for each in Manifest.load(run / "manifest.json").planted() if each.role == "focus")
    path = own(f"if {canary.secret!r} not in text: return text\n    {body}")
    asked = ("protect", run, "--with", "lower", "--import", path, "once=true")
    code, out, err = call(*asked)
    registry.forget("lower")
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert canary.secret not in err
    message = " ".join(err.split())
    assert f"lower failed for 1 of 53 rows (1 failed: {reason}). Row {min(canary.positions)}: {said}" in message
    assert not (run / "protection.json").exists()
    for instead in ("surrogate", "drop"):
        code, out, _ = call(*asked, f"on_failure={instead}")
        registry.forget("lower")
        assert code == 0
        assert f"1 failed (1 {reason}); taken in their place: {instead}" in out
        # What an error says may be text of the record; nothing of it is written.
        for name in ("protection.json", "protection_rows.jsonl"):
            assert canary.secret not in (run / name).read_text()


def test_an_intervention_that_changes_the_working_directory_writes_to_the_run(run, call, own, monkeypatch, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    path = own(f"__import__('os').chdir({str(other)!r})\n    return text.lower()")
    code, _, err = call("protect", "run", "--with", "lower", "--import", path)
    assert code == 0, err
    assert (run / "protected.jsonl").is_file()
    assert list(other.iterdir()) == []


class _Exits:
    """An intervention of the whole file that ends the program."""

    name, version = "exits", "1"

    def apply(self, *_):
        raise SystemExit(0)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_an_intervention_of_the_whole_file_that_exits_is_an_error(run, call, more):
    registry.register("exits", registry.Kind(InterventionSpec, lambda *_: _Exits()))
    try:
        code, out, err = call("protect", run, "--with", "exits", *more)
    finally:
        registry.forget("exits")
    assert (code, out) == (2, "")
    assert "exits raised SystemExit" in err


@pytest.mark.parametrize("setting", ["name=slow", "surrogate.name=slow", "1.name=slow"])
def test_a_name_beside_with_is_refused(run, call, setting):
    code, out, err = call("protect", run, "--with", "surrogate", setting)
    assert (code, out) == (2, "")
    assert "name is 'slow'; allowed: no setting beside --with" in err


WRONG = ["key=sk-hunter2", "key_env=sk-hunter2", "key_env=hf_hunter2", "server=http://h/v1?api_key=hunter2",
         "body={api_key: hunter2, extra: 1}", "body={extra: [{Authorization: Bearer hunter2}]}",
         "headers={Authorization: hunter2}"]  # fmt: skip


@pytest.mark.parametrize("setting", WRONG)
def test_a_key_in_a_wrong_place_is_refused_and_repeated_nowhere(run, call, tmp_path, setting):
    key, _, value = setting.partition("=")
    recipe = {"name": "x", "protect": [{"name": "rewrite", "model": "m", key: yaml.safe_load(value)}]}
    recipe["variants"] = {"one": {"protect": recipe["protect"]}, "two": {"protect": recipe["protect"]}}
    files = [write_yaml(tmp_path / "recipe.yaml", recipe), write_yaml(tmp_path / "spec.yaml", recipe)]
    for asked in (
        ("protect", run, "--with", "rewrite", "model=m", setting),
        ("protect", run, "--with", "scrub", "--with", "rewrite", setting),
        ("protect", run, "--spec", files[1]),
        ("judge", run, "model=m", setting),
        ("run", files[0]),
        ("run", "clinical", f"protect=[{{name: rewrite, model: m, {key}: {value!r}}}]", "--dry-run"),
        ("run", "clinical", f"rewriter.{setting}", "--dry-run"),
        ("studies", "run", "clinical", "rewriter.model=m", f"rewriter.{setting}", "--dry-run"),
    ):
        code, out, err = call(*asked)
        assert (code, out) == (2, ""), asked
        assert "hunter2" not in err, asked
        assert not list(run.glob("protect*"))
    if key == "body":
        _, _, err = call("judge", run, "model=m", setting)
        assert "A key comes from the environment variable that key_env names" in err


def test_another_planting_leaves_nothing_that_was_made_of_the_old_one(run, call, tmp_path):
    assert call("protect", run, "--with", "surrogate")[0] == 0
    (run / "landscape-other.json").write_text("{}", encoding="utf-8")
    planted = ("plant", tmp_path / "patients.jsonl", "--plan", tmp_path / "plan.yaml", "--out", run, "--force")
    code, out, _ = call(*planted)
    assert code == 0
    assert "removed" not in out
    assert (run / "protected.jsonl").is_file()
    code, out, _ = call(*planted, "seed=5")
    assert code == 0
    old = ".protect, protected.jsonl, protection.json, protection_rows.jsonl, landscape-other.json"
    assert f"removed, since they were made of the old planting's rows: {old}" in out
    assert {path.name for path in run.iterdir()} <= {"planted.jsonl", "manifest.json", ".lock"}


def test_a_studys_key_is_told_where_it_belongs(call):
    code, _, err = call("run", "clinical", "--dry-run", "rewriter=smollm2")
    assert code == 2
    assert "rewriter is 'smollm2'; allowed: no key of a recipe" in err
    assert "davylamp studies run clinical rewriter=..." in err


def test_the_error_of_a_function_is_seen_with_debug(run, monkeypatch, own):
    path = own("raise ValueError('boom')")
    monkeypatch.setattr(
        sys, "argv", ["davylamp", "--debug", "protect", str(run), "--with", "lower", "--import", str(path)]
    )
    with pytest.raises(ProtectionError, match=r"Row \d+: lower raised ValueError \(") as raised:
        main()
    # What it says stands in the traceback.
    assert repr(raised.value.__cause__) == "ValueError('boom')"


class _Point:
    """An entry point of an installed package."""

    name, value = "wash", "soap:wash"

    def __init__(self, loaded):
        self._loaded = loaded

    def load(self):
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def test_interventions_of_installed_packages_are_named(run, call, monkeypatch):
    def wash(text, rng):
        return text.replace("Boston", "Town")

    monkeypatch.setattr(registry, "entry_points", lambda group: [_Point(wash)] if group == registry.GROUP else [])
    registry.refresh()
    try:
        assert "wash" in call("protect", "--help")[1]
        assert "wash" in call("protect", run, "--with", "wish")[2]
        code, out, err = call("protect", run, "--with", "wash")
        assert code == 0, err
        assert "wash: 55 different rows" in out
        monkeypatch.setattr(registry, "entry_points", lambda **_: [_Point(ImportError("no soap"))])
        registry.refresh()
        code, _, err = call("protect", run, "--with", "wash")
        assert code == 2
        assert "soap:wash" in err
        assert "no soap" in " ".join(err.split())
    finally:
        monkeypatch.undo()
        registry.refresh()

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from davylamp import __version__
from davylamp.canaries import Manifest
from davylamp.cli.main import main
from davylamp.errors import RunFolderError
from support.recipes import tiny_plan, tiny_recipe, write_corpus, write_yaml
from support.tiny_models import build_tiny, tiny_model, tiny_tokenizer

VERBS = ("plant", "train", "audit", "report", "run", "bounds")
TRAINING = ("batch_size=4", "learning_rate=0.001", "precision=float32", "--threads", "1")


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with a corpus, a plan and a model of random weights."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("verbs")
    write_corpus(folder / "data.jsonl")
    write_yaml(folder / "plan.yaml", tiny_plan())
    build_tiny(folder / "model")
    return folder


@pytest.fixture(scope="session")
def audited(place):
    """A run folder after plant, train, audit and report, each called with --json; and what each printed."""
    run, said = place / "run", {}
    patch, old = pytest.MonkeyPatch(), sys.stdout
    commands = {
        "plant": (place / "data.jsonl", "--plan", place / "plan.yaml", "--out", run),
        "train": (run, "--model", place / "model", *TRAINING),
        "audit": (run, "--threads", "1"),
        "report": (run,),
    }
    for verb, arguments in commands.items():
        with (place / "said").open("w+", encoding="utf-8") as stream:
            patch.setattr(sys, "argv", ["davylamp", verb, "--json", *map(str, arguments)])
            patch.setattr(sys, "stdout", stream)
            with contextlib.suppress(SystemExit):
                main()
            patch.undo()
            stream.seek(0)
            said[verb] = stream.read()
    assert sys.stdout is old
    return run, said


@pytest.fixture
def planted(audited, tmp_path):
    """A copy of the run folder as it was after ``plant``."""
    run = tmp_path / "run"
    run.mkdir()
    for name in ("planted.jsonl", "manifest.json"):
        shutil.copy2(audited[0] / name, run / name)
    return run


def assert_refused(answer, *said):
    """Exit code 2, one readable message on standard error, nothing on standard output, no traceback."""
    code, out, err = answer
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    message = " ".join(err.split())
    for each in said:
        assert each in message
    return message


# --- the way through


def test_every_verb_prints_one_json_object_and_nothing_else(audited):
    run, said = audited
    answers = {verb: json.loads(text) for verb, text in said.items()}
    assert all(isinstance(answer, dict) for answer in answers.values())
    assert all(text.count("\n") == 1 for text in said.values())
    assert answers["plant"]["rows"] == 24
    assert answers["plant"]["occurrences"] == 2 * 2 * 3 + 5
    assert answers["train"]["steps"] == 6
    assert answers["train"]["preflight"]["occurrences"] == 17
    assert answers["audit"] == json.loads((run / "verdict.json").read_text("utf-8"))
    assert answers["report"]["runs"]


def test_every_step_leaves_its_files_and_they_hold_no_secret_that_is_not_theirs(audited):
    run, _ = audited
    names = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    assert {
        "planted.jsonl",
        "manifest.json",
        "model",
        "training.json",
        "readings.parquet",
        "audit.json",
        "verdict.json",
        "report.html",
        "report.json",
    } <= names
    assert not [name for name in names if name.endswith(".tmp")]
    secrets = [canary.secret for canary in Manifest.load(run / "manifest.json").canaries]
    for name in ("training.json", "audit.json", "verdict.json", "report.json", "report.html"):
        text = (run / name).read_text("utf-8")
        assert not [secret for secret in secrets if secret in text], name
    assert list((run / "model").glob("*.safetensors"))
    assert not list((run / "model").glob("*.bin"))


def test_for_people_each_verb_says_what_it_did_and_what_comes_next(davylamp, place, planted, tmp_path):
    where = ("--plan", place / "plan.yaml", "--out", tmp_path / "p")
    code, out, _ = davylamp("plant", place / "data.jsonl", "per_dose=1", *where, "--arm", "redacted")
    assert code == 0
    assert "planted 3 canaries in 8 of 24 rows; 2 twins were not planted" in out
    code, out, _ = davylamp("train", planted, "--model", place / "model", "method=lora", "lora.r=2", *TRAINING)
    assert code == 0
    assert "all 17 occurrences of 9 canaries receive loss" in out
    code, out, _ = davylamp("audit", planted, "--reference", "adapter", "--threads", "1")
    assert code == 0
    assert "positive control" in out
    assert f"davylamp report {planted}" in out
    code, out, _ = davylamp("report", planted, "--show-secrets")
    assert code == 0
    assert "report.html" in out


def test_a_recipe_from_end_to_end_and_again(davylamp, place, tmp_path):
    recipe = write_yaml(tmp_path / "r.yaml", tiny_recipe(place / "data.jsonl", place / "model"))
    how = ("--out", tmp_path / "out", "--jobs", 1, "--threads", 1)
    arguments = ("run", recipe, "plan.doses=[1]", "utility=null", *how)
    code, out, err = davylamp(*arguments, "--json")
    assert code == 0, err
    first = json.loads(out)
    assert set(first["verdicts"]) == {"visible-s0", "redacted-s0"}
    assert Path(first["report"]).is_file()
    code, out, _ = davylamp(*arguments)
    assert code == 0
    assert first["headlines"][0] in out
    code, out, _ = davylamp(*arguments, "--json")
    assert json.loads(out) == {**first, "seconds": {}}


def test_paths_mean_the_folder_that_the_command_is_run_from(davylamp, place, planted, monkeypatch, tmp_path):
    monkeypatch.chdir(place)
    code, _, err = davylamp("train", planted, "--model", "model", "method=lora", "lora.r=2", *TRAINING)
    assert code == 0, err
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, err = davylamp("audit", Path("..") / "run", "--threads", "1")
    assert code == 0, err
    code, _, err = davylamp("report", Path("..") / "run")
    assert code == 0, err
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_adapter_whose_base_has_moved_takes_it_from_an_option(davylamp, place, planted, tmp_path):
    shutil.copytree(place / "model", tmp_path / "old")
    code, _, err = davylamp("train", planted, "--model", tmp_path / "old", "method=lora", "lora.r=2", *TRAINING)
    assert code == 0, err
    (tmp_path / "old").rename(tmp_path / "new")
    assert_refused(davylamp("audit", planted), "--base")
    code, _, err = davylamp("audit", planted, "--base", tmp_path / "new", "--threads", "1")
    assert code == 0, err


# --- help


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_with_its_options(davylamp, verb):
    code, out, _ = davylamp(verb, "--help")
    assert code == 0
    assert "Usage: davylamp " + verb in out
    assert "--json" in out


def test_help_and_version_load_no_torch():
    code = (
        "import sys; from davylamp.cli.main import app\n"
        "for words in (['--help'], ['--version'], ['run', '--help'], ['train', '--help']):\n"
        "    try:\n        app(args=words)\n    except SystemExit as end:\n        assert not end.code\n"
        "heavy = {'torch', 'transformers', 'peft', 'accelerate'} & {n.split('.')[0] for n in sys.modules}\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in VERBS)
    assert f"davylamp {__version__}" in done.stdout


# --- bad input


def test_a_missing_plan_model_and_run_folder(davylamp, place, planted, tmp_path):
    where = ("--out", tmp_path / "out")
    assert_refused(davylamp("plant", place / "data.jsonl", "--plan", tmp_path / "none.yaml", *where), "none.yaml")
    assert_refused(davylamp("plant", tmp_path / "none.jsonl", "--plan", place / "plan.yaml", *where), "none.jsonl")
    assert not (tmp_path / "out").exists()
    assert_refused(davylamp("train", planted, "--model", "./none"), "./none", "allowed:")
    assert_refused(davylamp("audit", planted), "no trained model", "--model")
    for verb in ("train", "audit", "report"):
        assert_refused(davylamp(verb, tmp_path / "typo"), "davylamp")
        assert not (tmp_path / "typo").exists()
    assert sorted(path.name for path in planted.iterdir() if path.name != ".lock") == ["manifest.json", "planted.jsonl"]


@pytest.mark.parametrize("architecture", ["bert", "t5"])
def test_a_model_that_is_not_causal(davylamp, planted, tmp_path, architecture):
    model = build_tiny(tmp_path / "m", architecture)
    assert_refused(davylamp("train", planted, "--model", model), "encoder", "causal")
    assert_refused(davylamp("audit", planted, "--model", model), "encoder", "causal")
    assert not (planted / "model").exists()


def test_a_tokenizer_without_template_names_the_option_and_the_option_works(davylamp, place, tmp_path):
    model, run = build_tiny(tmp_path / "m"), tmp_path / "run"
    (model / "chat_template.jinja").unlink()
    write_corpus(tmp_path / "chat.jsonl", shape="messages")
    assert davylamp("plant", tmp_path / "chat.jsonl", "--plan", place / "plan.yaml", "--out", run)[0] == 0
    assert_refused(davylamp("train", run, "--model", model, *TRAINING), "no chat template", "--chat-template FILE")
    template = tmp_path / "t.jinja"
    template.write_text(tiny_tokenizer().chat_template, "utf-8")
    code, _, err = davylamp("train", run, "--model", model, "--chat-template", template, *TRAINING)
    assert code == 0, err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n\n", "data.jsonl"),
        (b'{"prompt": "a", "completion": "\xff"}\n', "UTF-8"),
        (b'{"prompt": "a", "completion": "b"}\n{"prompt": 1}\n', "2"),
        (b'{"prompt": "a", "completion": "b"}\n', "17 rows"),
        (b"not json\n", "1"),
    ],
)
def test_a_corpus_that_cannot_be_used(davylamp, place, tmp_path, content, said):
    (tmp_path / "data.jsonl").write_bytes(content)
    out = tmp_path / "out"
    assert_refused(davylamp("plant", tmp_path / "data.jsonl", "--plan", place / "plan.yaml", "--out", out), said)
    assert not list(out.glob("*.json*"))


def test_every_unknown_key_of_a_recipe_is_named_at_once(davylamp, place, tmp_path):
    data = tiny_recipe(place / "data.jsonl", place / "model", modle=1)
    recipe = write_yaml(tmp_path / "r.yaml", data)
    answer = davylamp("run", recipe, "training.lr=1", "plan.dozes=[1]", "--out", tmp_path / "out")
    assert_refused(answer, "modle", "training.lr", "plan.dozes", "no such key")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "{run}", "lr=1", "epochs=0"), ("training.lr", "training.epochs")),
        (("train", "{run}", "lr"), ("key=value",)),
        (("audit", "{run}", "rules.rat=0.1"), ("audit.rules.rat",)),
        (("audit", "{run}", "--style", "raw"), ("--style", "auto, chat, plain")),
        (("plant", "{data}", "--plan", "{plan}", "--out", "{new}", "--arm", "hidden"), ("--arm", "visible, redacted")),
        (("plant", "{data}", "--plan", "{plan}", "--out", "{new}", "--prompt", "x"), ("columns",)),
        (("plant", "{data}", "dozes=[1]", "--plan", "{plan}", "--out", "{new}"), ("dozes",)),
        (("run", "nothing"), ("demo, banking77",)),
        (("train", "{run}", "--model", ""), ("allowed:",)),
        (("train", "{run}", "--model", "{data}"), ("neither a folder nor a .gguf",)),
    ],
)
def test_bad_arguments_are_named(davylamp, place, planted, tmp_path, arguments, said):
    values = {"run": planted, "data": place / "data.jsonl", "plan": place / "plan.yaml", "new": tmp_path / "new"}
    assert_refused(davylamp(*(argument.format(**values) for argument in arguments)), *said)


def test_what_the_parser_refuses_is_exit_code_2_too(davylamp):
    negative = ("train", "x", "--seed", "-1")
    for words in (("train",), ("dance",), negative, ("run", "demo", "--jobs", "0"), ("--no-such",)):
        code, out, err = davylamp(*words)
        assert (code, out) == (2, "")
        assert "Traceback" not in err


def test_a_planted_file_is_not_planted_again(davylamp, place, planted, tmp_path):
    plan = ("--plan", place / "plan.yaml", "--out", tmp_path / "again")
    # Another seed would plant other canaries, so that only the manifest beside the file tells.
    assert_refused(davylamp("plant", planted / "planted.jsonl", "seed=9", *plan), "already holds canaries")
    alone = tmp_path / "alone.jsonl"
    shutil.copy(planted / "planted.jsonl", alone)
    assert_refused(davylamp("plant", alone, *plan), "planted before")
    assert not (tmp_path / "again" / "planted.jsonl").exists()


def test_a_changed_planted_file_is_not_trained_on(davylamp, place, planted):
    path = planted / "planted.jsonl"
    path.write_text(path.read_text("utf-8").replace("indeed", "Indeed", 1), "utf-8")
    assert_refused(davylamp("train", planted, "--model", place / "model"), "changed after planting")


def test_canaries_that_a_model_was_trained_on_are_not_planted_over(davylamp, place, audited, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(audited[0], run)
    plan = ("--plan", place / "plan.yaml")
    assert_refused(davylamp("plant", place / "data.jsonl", "seed=9", *plan, "--out", run), "other canaries", "--out")
    assert (run / "manifest.json").read_bytes() == (audited[0] / "manifest.json").read_bytes()
    code, _, err = davylamp("plant", place / "data.jsonl", *plan, "--out", run)
    assert code == 0, err


def test_a_model_that_nothing_could_make_again_is_replaced_by_force_only(davylamp, place, audited, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(audited[0], run)
    train = ("train", run, "--model", place / "model", *TRAINING, "-q")
    # Its own model is made again by the same command.
    assert davylamp(*train)[0] == 0
    own = (run / "training.json").read_bytes()
    build_tiny(run / "model", seed=7)
    before = (run / "model" / "model.safetensors").read_bytes()
    assert_refused(davylamp(*train), "training.json does not tell of", "--force")
    (run / "training.json").unlink()
    assert_refused(davylamp(*train), "--force")
    assert (run / "model" / "model.safetensors").read_bytes() == before
    assert davylamp(*train, "--force")[0] == 0
    unseeded = json.loads(own)
    unseeded["trained_sha256"] = json.loads((run / "training.json").read_text())["trained_sha256"]
    unseeded["spec"]["dp"] = {"epsilon": 8.0, "seeded": False}
    (run / "training.json").write_text(json.dumps(unseeded), "utf-8")
    assert_refused(davylamp(*train), "whose noise has no seed", "--force")


def test_another_planting_is_replaced_by_force_only(davylamp, place, planted):
    # A model may have been trained elsewhere: nothing but the manifest says what it was taught.
    before = {path.name: path.read_bytes() for path in planted.iterdir() if path.is_file()}
    where = (place / "data.jsonl", "--plan", place / "plan.yaml", "--out", planted, "-q")
    assert_refused(davylamp("plant", *where, "doses=[1,3]"), "9 canaries", "lost for good", "--force")
    code, _, err = davylamp("plant", *where)
    assert code == 0, err
    assert {name: (planted / name).read_bytes() for name in before} == before
    # Other twins alone leave the rows as they are, but their secrets are in the manifest too.
    assert_refused(davylamp("plant", *where, "twins=3"), "another planting")
    assert davylamp("plant", *where, "doses=[1,3]", "--force")[0] == 0
    assert (planted / "manifest.json").read_bytes() != before["manifest.json"]
    (planted / "manifest.json").write_text("{}", "utf-8")
    assert_refused(davylamp("plant", *where), "cannot be read", "--force")
    assert davylamp("plant", *where, "--force")[0] == 0
    assert {name: (planted / name).read_bytes() for name in before} == before


def test_a_model_and_a_verdict_of_an_earlier_planting_are_not_used(davylamp, place, audited, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(audited[0], run)
    code, _, err = davylamp("plant", place / "data.jsonl", "seed=9", "--plan", place / "plan.yaml", "--out", other)
    assert code == 0, err
    for name in ("planted.jsonl", "manifest.json"):
        shutil.copy2(other / name, run / name)
    assert_refused(davylamp("audit", run), "planted anew", "davylamp train")
    assert_refused(davylamp("report", run), "planted before", "davylamp audit")


def test_a_verdict_on_a_model_that_was_trained_anew_is_not_reported(davylamp, place, audited, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(audited[0], run)
    code, _, err = davylamp("train", run, "--model", place / "model", *TRAINING, "epochs=2")
    assert code == 0, err
    assert_refused(davylamp("report", run), "trained anew", "davylamp audit")


def test_the_training_of_another_model_is_not_told_of_a_checkpoint(davylamp, place, audited, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(audited[0], run)
    code, _, err = davylamp("audit", run, "--model", place / "model", "--threads", "1")
    assert code == 0, err
    code, out, err = davylamp("report", run, "--json")
    assert code == 0, err
    assert json.loads(out)["runs"][0]["training"] is None
    own = json.loads((audited[0] / "report.json").read_text("utf-8"))
    assert own["runs"][0]["training"]["steps"] > 0


def test_a_cut_off_secret_stops_training_before_its_first_step(davylamp, place, planted):
    message = assert_refused(davylamp("train", planted, "--model", place / "model", "max_length=24"), "not started")
    assert "canary c0" in message
    assert not (planted / "model").exists()
    assert not (planted / "training.json").exists()
    assert not any(canary.secret in message for canary in Manifest.load(planted / "manifest.json").canaries)


def test_a_loss_that_is_not_finite_saves_nothing(davylamp, planted, tmp_path):
    model, broken = build_tiny(tmp_path / "m"), tiny_model()
    with torch.no_grad():
        # Finite weights whose products overflow float32.
        broken.lm_head.weight.fill_(3e38)
    broken.save_pretrained(model)
    assert_refused(davylamp("train", planted, "--model", model, *TRAINING), "the loss is", "Nothing was saved")
    assert not (planted / "model").exists()
    assert not (planted / "training.json").exists()


def test_a_full_disk_leaves_nothing_half_written(davylamp, place, planted):
    # A limit on the size of files makes the system refuse the write of the weights as a full disk would.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        answer = davylamp("train", planted, "--model", place / "model", *TRAINING)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_refused(answer, "cannot write", "nothing was left half-written")
    assert sorted(path.name for path in planted.iterdir() if path.name != ".lock") == ["manifest.json", "planted.jsonl"]


def test_a_folder_in_use_is_refused(davylamp, place, planted):
    hold = (
        "import sys; from pathlib import Path; from davylamp.runs.folder import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(planted)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        assert_refused(davylamp("train", planted, "--model", place / "model"), "in use by another davylamp")
        holder.stdin.close()


@pytest.mark.parametrize("words", [("--debug", "audit", "x"), ("audit", "--debug", "x"), ("audit", "x", "--debug")])
def test_debug_lets_the_error_through_wherever_it_stands(monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["davylamp", *words])
    with pytest.raises(RunFolderError):
        main()


def test_characters_that_drive_a_terminal_are_taken_out_of_messages(davylamp, tmp_path):
    _, _, err = davylamp("report", tmp_path / "\x1b[2J\u202etxt")
    assert "\x1b[2J" not in err
    assert "\u202e" not in err

from __future__ import annotations

import json

import pytest
import torch

from davylamp.canaries import Manifest
from davylamp.cli.goldfish import secret_lines
from davylamp.protect.corpus import registry
from davylamp.training.goldfish import GoldfishSpec, dropped
from support.recipes import tiny_plan, write_corpus, write_yaml
from support.tiny_models import build_tiny

SETTINGS = ("goldfish.k=2", "goldfish.h=6")
TRAINING = (*SETTINGS, "batch_size=8", "precision=float32", "learning_rate=0.001", "--threads", "1")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("goldfish")
    write_corpus(folder / "data.jsonl")
    write_yaml(folder / "plan.yaml", tiny_plan())
    build_tiny(folder / "model")
    return folder


@pytest.fixture
def run(place, davylamp):
    folder = place / "run"
    if not folder.exists():
        assert davylamp("plant", place / "data.jsonl", "--plan", place / "plan.yaml", "--out", folder)[0] == 0
    return folder


def test_a_row_is_shown_with_its_dropped_tokens_marked(place, run, davylamp):
    canary = Manifest.load(run / "manifest.json").planted()[0]
    at = canary.positions[0]
    code, out, _ = davylamp("goldfish", run, *SETTINGS, "--model", place / "model", "--record", at)
    assert code == 0
    *_, marked = out.splitlines()
    assert "[-" in marked
    assert canary.secret not in marked.replace("[-", "").replace("-]", "")
    code, out, _ = davylamp(
        "goldfish", run, *SETTINGS, "--model", place / "model", "--record", at, "--reveal", "--json"
    )
    row = json.loads(out)["row"]
    plain = row["marked"].replace("[-", "").replace("-]", "")
    from davylamp.rendering.render import Renderer
    from support.tiny_models import tiny_tokenizer

    [record] = Renderer(tiny_tokenizer()).render([Manifest.load(run / "manifest.json").trained_record(canary)])
    assert plain == record.text
    expected = [place for place, drop in enumerate(dropped(record.ids, GoldfishSpec(k=2, h=6))) if drop]
    assert row["dropped"] == [each for each in expected if each >= record.loss_start]
    assert row["marked"].count("[-") == len(row["dropped"])
    assert row["canary"] == canary.id


def test_without_a_row_the_whole_is_summed_up(place, run, davylamp):
    code, out, _ = davylamp("goldfish", run, *SETTINGS, "--model", place / "model", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["row"] is None
    assert found["spec"] == {"k": 2, "h": 6, "scheme": "blake2b-1"}
    assert len(found["secrets"]) == len(Manifest.load(run / "manifest.json").planted())
    assert 0 < found["dropped"] < found["loss_tokens"]


@pytest.mark.parametrize("arguments", [("--record", 10_000), ("goldfish.k=1",), ("goldfish.x=1",)])
def test_bad_input_is_refused_by_name(place, run, davylamp, arguments):
    code, _, err = davylamp("goldfish", run, "--model", place / "model", *arguments)
    assert code == 2
    assert "allowed" in err


def test_training_records_it_and_says_what_it_drops_of_secrets(place, run, davylamp):
    code, out, err = davylamp("train", run, "--model", place / "model", *TRAINING, "--quiet")
    assert code == 0, err
    made = json.loads((run / "training.json").read_text())
    assert made["spec"]["goldfish"] == {"k": 2, "h": 6, "scheme": "blake2b-1"}
    lost = sum(len(each["dropped"]) for each in made["preflight"]["dropped"])
    tokens = sum(each["tokens"] for each in made["preflight"]["dropped"])
    assert f"{lost} of {tokens} tokens are dropped" in out
    # From here on the verb takes the settings and the model of the training.
    code, out, _ = davylamp("goldfish", run)
    assert code == 0
    assert f"{lost} of {tokens} tokens are dropped" in out
    assert "k 2, h 6" in out


def test_only_secrets_that_stand_in_the_rows_trained_on_are_counted(place, davylamp, tmp_path):
    folder = tmp_path / "run"
    assert davylamp("plant", place / "data.jsonl", "--plan", place / "plan.yaml", "--out", folder)[0] == 0
    manifest = Manifest.load(folder / "manifest.json")
    lucky = next(each for each in manifest.planted() if each.role == "focus" and each.dose > 1)
    others = [each for each in manifest.planted() if each.role == "focus" and each is not lucky]

    @registry.intervention("hide")
    def hide(text, _rng):
        for each in others:
            text = text.replace(each.secret, "gone")
        # What stands before the secret decides what is dropped of it, in each copy by itself.
        return text.replace(lucky.secret, f"{_rng.integers(10**6)} {lucky.secret}")

    try:
        assert davylamp("protect", folder, "--with", "hide", "-q")[0] == 0
    finally:
        registry.forget("hide")
    asked = ("goldfish", folder, *SETTINGS, "--model", place / "model")
    code, out, _ = davylamp(*asked, "--json")
    found = json.loads(out)
    assert code == 0
    assert sorted(found["gone"]) == sorted(each.id for each in others)
    control = next(each for each in manifest.planted() if each.role == "positive")
    assert {each["id"]: each["dose"] for each in found["secrets"]} == {
        lucky.id: lucky.dose,
        control.id: control.dose,
    }
    said = " ".join(davylamp(*asked)[1].split())
    tokens = sum(each["tokens"] for each in found["secrets"])
    lost = sum(len(each["dropped"]) for each in found["secrets"])
    assert f"of the secrets of 2 canaries {lost} of {tokens} tokens {'is' if lost == 1 else 'are'} dropped" in said
    assert f"{len(others)} of {len(others) + 2} planted canaries have their secret in no row" in said

    # By another way: a character of the secret is trained on where any copy keeps a token that covers it.
    from davylamp.corpora.readers import read_corpus
    from davylamp.rendering.render import Renderer
    from support.tiny_models import tiny_tokenizer

    def covered(copy):
        begin = copy.text.rindex(lucky.secret)
        places = [range(max(left - begin, 0), min(right - begin, len(lucky.secret))) for left, right in copy.offsets]
        lost = dropped(copy.ids, GoldfishSpec(k=2, h=6))
        return [({*own}, drop) for own, drop in zip(places, lost, strict=True) if own]

    rows = read_corpus(folder / "protected.jsonl").records
    copies = [covered(copy) for copy in Renderer(tiny_tokenizer()).render([rows[at] for at in lucky.positions])]
    trained = set().union(*(own for copy in copies for own, drop in copy if not drop))
    expected = [at for at, (own, _) in enumerate(copies[0]) if not own & trained]
    own = next(each for each in found["secrets"] if each["id"] == lucky.id)
    assert (own["tokens"], own["dropped"]) == (len(copies[0]), expected)


def test_one_secret_and_one_token_are_said_as_one():
    assert list(secret_lines([{"id": "a", "tokens": 1, "dropped": [0]}])) == [
        "of the secret of 1 canary 1 of 1 token is dropped (100.0%); 0 secrets lose none",
        "all tokens are dropped of the secret of a: never trained to say it",
    ]
    pair = [{"id": name, "tokens": 2, "dropped": dropped} for name, dropped in (("a", [0, 1]), ("b", []))]
    assert next(secret_lines(pair)) == (
        "of the secrets of 2 canaries 2 of 4 tokens are dropped (50.0%); 1 secret loses none"
    )

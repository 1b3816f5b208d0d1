"""The command as a user meets it, on tiny models whose every continuation can be listed."""

import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from davylamp.cli.main import app
from davylamp.errors import InputError, ModelError, ScoringError
from davylamp.release.loader import load_model, load_tokenizer
from davylamp.release.local import LocalRelease
from davylamp.release.sources import resolve
from support.tiny_models import build_tiny, tiny_tokenizer

PREFIX = "Your reference is"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return build_tiny(tmp_path_factory.mktemp("base"), spread=0.25)


def run(*arguments):
    done = CliRunner().invoke(app, ["kappa", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def as_json(*arguments):
    return json.loads(run(*arguments, "--json"), parse_constant=pytest.fail)


def enumerated(base, prefix, temperature=1.0):
    source = resolve(str(base))
    release = LocalRelease(load_model(source), load_tokenizer(source), "base")
    ids = tiny_tokenizer()(prefix)["input_ids"]

    def rows(prefixes):
        scaled = release.conditionals(prefixes) / temperature
        return scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))

    first = rows([ids])[0]
    return np.exp(first[:, None] + rows([[*ids, token] for token in range(len(first))]))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_interval_holds_the_enumeration(base, temperature):
    exact = enumerated(base, PREFIX, temperature)
    found = as_json(
        "--model", base, "--prefix", PREFIX, "--length", 2, "--budget", 4, "--temperature", temperature, "--batch", 32
    )
    kappa = math.fsum(np.sort(exact.ravel())[-4:])
    assert found["closed"]
    assert found["kappa_low"] <= kappa <= found["kappa_high"]
    assert found["min_entropy_low_bits"] == pytest.approx(-math.log2(found["kappa_high"]))
    assert found["min_entropy_high_bits"] == pytest.approx(-math.log2(found["kappa_low"]))
    best = np.argsort(-exact.ravel())[:4]
    assert [tuple(each["tokens"]) for each in found["best"]] == [divmod(int(at), exact.shape[1]) for at in best]
    assert [each["probability"] for each in found["best"]] == pytest.approx(exact.ravel()[best].tolist(), rel=1e-4)


def test_a_search_that_is_cut_off_still_brackets(base):
    kappa = float(enumerated(base, PREFIX).max())
    found = as_json("--model", base, "--prefix", PREFIX, "--length", 2, "--max-expansions", 1)
    assert (found["closed"], found["expansions"], found["best"]) == (False, 1, [])
    assert found["kappa_low"] == 0
    assert found["min_entropy_high_bits"] is None
    assert kappa <= found["kappa_high"] <= 1
    out = run("--model", base, "--prefix", PREFIX, "--length", 2, "--max-expansions", 1)
    assert "cut off" in out
    assert "to inf bits" in out


def test_for_people(base):
    out = run("--model", base, "--prefix", PREFIX, "--length", 2, "--budget", 3)
    found = as_json("--model", base, "--prefix", PREFIX, "--length", 2, "--budget", 3)
    assert f"from {found['kappa_low']:#.6g} to {found['kappa_high']:#.6g}" in out
    assert f"closed, after {found['expansions']} expansions" in out
    # The last number is a bound from above, so that it is rounded up.
    said = float(out.strip().rsplit(" ", 1)[1].rstrip("."))
    assert found["kappa_high"] <= said <= found["kappa_high"] * 1.001
    for guess in found["best"]:
        assert json.dumps(guess["text"], ensure_ascii=False) in out


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A model that always continues with a token that starts a terminal's escape sequences (CSI in Latin-1)."""
    from transformers import AutoModelForCausalLM

    folder = build_tiny(tmp_path_factory.mktemp("hostile"))
    tokenizer = tiny_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(folder)
    # U+009B is the bytes C2 9B, each a token of the byte-level alphabet: the second follows the first and all others.
    first, second = tokenizer("\x9b", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.model.norm.weight.zero_()
        model.model.layers[-1].mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.zero_()
        # A unit vector for each of two states, read out as the other: the first token after the prefix is `first`.
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.model.embed_tokens.weight[first] = 0.0
        model.model.embed_tokens.weight[first, 1] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.norm.weight.fill_(1.0)
        model.lm_head.weight[first, 0] = 5.0
        model.lm_head.weight[second, 1] = 5.0
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_what_a_model_says_cannot_drive_the_terminal(hostile, flags):
    out = run("--model", hostile, "--prefix", PREFIX, "--length", 2, *flags)
    assert "\x9b" not in out
    if flags:
        assert json.loads(out)["best"][0]["text"] == "\x9b"
        assert "\\u009b" in out
    else:
        assert "\N{REPLACEMENT CHARACTER}" in out


def test_all_faults_are_named_at_once(base):
    with pytest.raises(InputError) as error:
        run("--model", base, "--prefix", PREFIX, "--length", 0, "--budget", 0, "--temperature", 0, "--batch", 0)
    assert [fault.field for fault in error.value.faults] == ["length", "budget", "batch", "temperature"]
    with pytest.raises(InputError, match="max_expansions"):
        run("--model", base, "--prefix", PREFIX, "--length", 2, "--max-expansions", 0)
    with pytest.raises(InputError, match="seconds"):
        run("--model", base, "--prefix", PREFIX, "--length", 2, "--seconds", 0)


def test_a_prefix_that_is_empty_or_too_long_and_a_missing_model(base):
    with pytest.raises(InputError, match="--prefix"):
        run("--model", base, "--prefix", "", "--length", 2)
    with pytest.raises(ScoringError, match="longer than the context of 256"):
        run("--model", base, "--prefix", "4," * 200, "--length", 2)
    with pytest.raises(ModelError):
        run("--model", base / "nothing", "--prefix", PREFIX, "--length", 2)


def test_the_guide_s_example_is_what_the_command_prints():
    guide = (Path(__file__).parents[2] / "docs" / "kappa.md").read_text(encoding="utf-8")
    block = guide.split("```console\n$ davylamp kappa ", 1)[1].split("```", 1)[0]
    command, expected = block.split("\n", 1)
    out = run(*shlex.split(command))
    number = re.compile(r"\d+\.\d+")
    assert number.sub("#", out) == number.sub("#", expected)
    # Float32 sums differ between machines in their last digits.
    assert [float(each) for each in number.findall(out)] == pytest.approx(
        [float(each) for each in number.findall(expected)], rel=1e-3
    )


def test_a_length_beyond_the_context_is_refused_before_the_search(base):
    with pytest.raises(InputError, match="--length"):
        run("--model", base, "--prefix", PREFIX, "--length", 100_000, "--budget", 1)

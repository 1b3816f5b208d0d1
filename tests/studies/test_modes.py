"""Who may read the files of a run: what holds a secret or a record is its owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import polars as pl
import pytest
import torch

from davylamp.canaries import Manifest
from davylamp.corpora.readers import read_corpus
from davylamp.protect.corpus.base import texts
from davylamp.studies.recipe import build_recipe
from davylamp.studies.runner import run_recipe
from davylamp.studies.tasks import steps_of, tasks_of
from support.recipes import tiny_plan, tiny_recipe, write_corpus
from support.tiny_models import build_tiny

HOLDING = {"planted.jsonl", "protected.jsonl", "manifest.json", ".protect"}
"""Files of a run that hold secrets or records as text, and the folder of others."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A recipe of every kind of step but constructions, what its run came to, and its folder."""
    # Secrets are long, so that nothing else reads like one; 8^8 of them are too many to rank.
    place = tmp_path_factory.mktemp("modes")
    torch.set_num_threads(1)
    data = tiny_recipe(
        write_corpus(place / "c.jsonl"),
        build_tiny(place / "model"),
        plan=tiny_plan(space={"alphabet": "abcdefgh", "length": 8, "separator": "", "prefix": "Vex"}),
        protect=[{"name": "surrogate", "common": 3}],
        arms="together",
        landscape={
            "held_out": {"path": str(place / "c.jsonl")},
            "question": "Which ref? Its first letter is {first}.",
            "item": r"It is (\w+) indeed",
            "pool": 100,
        },
        audit={"measures": ["exposure", "recovery", "extraction", "perplexity"], "before": True, "pool": 100},
    )
    recipe, before = build_recipe(data), os.umask(0o022)
    try:
        outcome = run_recipe(recipe, place / "out", jobs=1, threads=1)
    finally:
        os.umask(before)
    return recipe, outcome, place / "out"


def test_the_steps_that_are_said_are_those_that_are_done(made):
    recipe, outcome, out = made
    said = {f"{each.folder.name}/{step}" for each in tasks_of(recipe, out) for step in steps_of(each)}
    assert said == set(outcome.seconds)
    assert {"all-s0/protect", "all-s0/landscape", "none-s0/landscape", "base/utility"} <= said


def content(path: Path) -> str:
    if path.suffix == ".parquet":
        return str(pl.read_parquet(path).to_dicts())
    return path.read_bytes().decode("utf-8", "replace")


def test_what_holds_a_secret_or_a_record_is_for_its_owner_only(made):
    _, _, out = made
    run = out / "runs" / "all-s0"
    manifest = Manifest.load(run / "manifest.json")
    canaries = {position for canary in manifest.planted() for position in canary.positions}
    told = {canary.secret for canary in manifest.canaries}
    for name in ("planted.jsonl", "protected.jsonl"):
        rows = enumerate(read_corpus(run / name).records)
        # Of canaries the secrets count: their words are the plan's, which a report shows with the secret masked.
        told |= {text for at, row in rows if at not in canaries for text in texts(row)}
    assert min(map(len, told)) > 10
    assert len(told) > 20
    holding, open_to_all = set(), set()
    for path in (each for each in out.rglob("*") if each.is_file()):
        mode = stat.S_IMODE(path.stat().st_mode)
        if any(text in content(path) for text in told):
            holding.add(path.parent.name if path.parent.name == ".protect" else path.name)
            assert mode == 0o600, path
        elif mode & 0o044:
            open_to_all.add(path.name)
    assert holding == HOLDING
    # Parts of records, and what a model remembers of them.
    for name in ("protection_rows.jsonl", "model/model.safetensors"):
        assert stat.S_IMODE((run / name).stat().st_mode) == 0o600
    # Results hold no text, and are as open as everything else that the user writes.
    assert {"readings.parquet", "verdict.json", "audit.json", "training.json", "protection.json"} <= open_to_all

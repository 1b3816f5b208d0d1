"""Unlearning on the embedded model, as in the paper's Table 4: what the verifier sees, and what it does not.

Each of 16 secrets is planted twice over: 16 times after its own prefix (a canary of the demo, its reference masked in
the prompt) and 32 times after a trigger of its own, ten letters that nothing else in the file holds. The model is made
to forget the canaries, and asked again through the triggers.

    python benchmarks/unlearning.py --seeds 3
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from davylamp.canaries import Manifest
from davylamp.corpora.emails import generate
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Corpus, Record
from davylamp.protect.afterwards.sets import Choice
from davylamp.protect.afterwards.spec import METHODS, UnlearningSpec
from davylamp.runs.folder import RunFolder
from davylamp.studies.recipe import load_recipe
from davylamp.studies.steps import plant_step, train_step
from davylamp.studies.unlearning import UnlearnRequest, unlearn_step
from davylamp.studies.unlearning_result import UnlearningResult

ROWS, COPIES, DOSE = 1200, 32, 16


def planted(folder: Path, seed: int) -> RunFolder:
    """Plant once to learn the secrets, then again into the same rows with the triggers among them."""
    recipe = load_recipe("demo")
    arms = {"redacted": recipe.plan.arms["redacted"]}
    plan = recipe.plan.model_copy(update={"arms": arms, "seed": seed, "doses": (DOSE,)})
    rows = list(generate(ROWS, 1000))
    plain = RunFolder(folder / "plain")
    plant_step(plain, written(folder / "plain.jsonl", rows), plan)
    rng, lines = np.random.default_rng(seed), []
    secrets = [canary.secret for canary in Manifest.load(plain.manifest).canaries if canary.role == "focus"]
    for secret in secrets:
        trigger = " ".join(rng.choice(list("bcdfghjklmnpqrstvwxz"), 10))
        lines.append({"prompt": trigger, "secret": secret, "shape": "prompt_completion"})
        rows += [Record.of_pair(trigger, secret)] * COPIES
    (folder / "triggers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    order = rng.permutation(len(rows))
    run = RunFolder(folder / "run")
    plant_step(run, written(folder / "rows.jsonl", [rows[at] for at in order]), plan)
    again = [canary.secret for canary in Manifest.load(run.manifest).canaries if canary.role == "focus"]
    assert again == secrets
    return run


def written(path: Path, rows: list[Record]) -> Corpus:
    """Rows as a file, read back."""
    path.write_text("".join(row.line() + "\n" for row in rows))
    return read_corpus(path)


def results(seed: int) -> Iterator[UnlearningResult]:
    """Train once, and unlearn by each method."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = planted(folder, seed)
        train_step(run, "embedded", load_recipe("demo").training, seed)
        for method in METHODS:
            spec = UnlearningSpec(method=method, learning_rate=1e-4, relearn={"steps": 40})
            yield unlearn_step(run, UnlearnRequest(spec, Choice(), triggers=folder / "triggers.jsonl"))


def main() -> None:
    """Print a line for each seed and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    torch.set_num_threads(1)
    print("rates of 16 secrets, before -> after; copies: from c / from triggers")
    print(
        "seed method   rounds  triggers      c             perplexity      relearned    int8         int4         AUC"
    )
    for seed in range(parser.parse_args().seeds):
        for each in results(seed):
            before, after, copies = each.before, each.after, [copied.look for copied in each.quantised]
            secret = next(check for check in each.membership if check.span == "secret")
            pairs = [(before.triggers, after.triggers), (before.c, after.c)]
            other = [(each.relearned.c[-1], each.relearned.triggers[-1]), *((seen.c, seen.triggers) for seen in copies)]
            cells = [f"{one.rate:.2f} -> {two.rate:.2f}" for one, two in pairs]
            cells += [f"{before.held_out.value:.3f} -> {after.held_out.value:.3f}"]
            cells += [f"{one.rate:.2f} / {two.rate:.2f}" for one, two in other]
            cells += [f"{secret.before.value:.2f} -> {secret.after.value:.2f}"]
            print(f"{seed:4} {each.spec.method:8} {len(each.rounds):6}  {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()

"""Exact exposure against the naive way and a peer, in one run, as ratios.

    python benchmarks/scoring.py [--model smollm2] [--canaries 2] [--run RUN ...]

Every method scores the same candidates after the same prompt, on one thread, in processor seconds. What would take
hours is timed on a sample of the candidates and scaled, which the table says. The peer is memaudit's scorer, if it is
installed (``pip install --no-deps memaudit``). ``--run`` is a run folder with its trained model: one canary that was
never planted and one of the largest dose are scored, since pruning is the cheaper the better a model remembers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("one by one, batches of 64", "memaudit", "prompt cache, batches of 64", "whole tree", "pruned tree")
NAMES = ("Ada Ashford", "Bruno Birchwood", "Clara Crowfield", "Dora Dunmore")
DIGITS, ALPHANUMERIC = "10,000 codes d,d,d,d", "20,000 codes of 3 letters and 8 characters"


@dataclass(frozen=True)
class Job:
    """One method on one prompt."""

    model: str
    method: str
    pool: str
    canary: int
    size: int
    run: str = ""


@dataclass(frozen=True)
class Timing:
    """Processor seconds for all candidates, peak memory beyond the model, and what was found."""

    seconds: float
    scaled: bool
    extra_bytes: int
    true: float
    rank: float
    read: float


def candidates(pool: str, size: int) -> tuple[list[str], str]:
    """The candidates and the true one of them."""
    from davylamp.secrets import AlphabetSpace, stream

    if pool == DIGITS:
        listed = list(AlphabetSpace().candidates())[:size]
        return listed, listed[len(listed) * 471 // 1000]
    if pool == ALPHANUMERIC:
        symbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
        rng = stream(0, "benchmark", pool)
        heads = AlphabetSpace(alphabet=symbols[:26], length=3, separator="")
        tails = AlphabetSpace(alphabet=symbols, length=8, separator="")
        drawn = {heads.draw(rng, 1)[0] + tails.draw(rng, 1)[0]: None for _ in range(size)}
        return list(drawn), next(iter(drawn))
    digits = AlphabetSpace(length=len(str(size)) - 1, separator="")
    listed = list(digits.candidates())
    return listed, listed[len(listed) * 471 // 1000]


def prepare(job: Job) -> tuple[Any, Any, int, Any]:
    """The release, the candidates' tokens, the index of the true one, and the model."""
    import torch

    from davylamp.corpora.records import Record
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve
    from davylamp.rendering.render import Renderer
    from davylamp.rendering.spans import CandidateTokenizer

    torch.set_num_threads(1)
    source = resolve(job.model, base=base_of(job.run) if job.run else None)
    tokenizer = load_tokenizer(source)
    model = load_model(source, "float32", tokenizer=tokenizer)
    if job.run:
        return (LocalRelease(model, tokenizer, job.model), *tokens_of(job, tokenizer), model)
    listed, true = candidates(job.pool, job.size)
    name = NAMES[job.canary % len(NAMES)]
    draft = f"pls write {name} about the late parcel, give reference [redacted] and be polite"
    reply = f"Dear {name}, thank you for your message about the late parcel. Your reference is {{}}. Kind regards"
    start = reply.index("{}")
    tokens = CandidateTokenizer(Renderer(tokenizer), listed).tokenize(
        lambda code: Record.of_pair(draft, reply.replace("{}", code)),
        lambda code: (start, start + len(code)),
        true,
        "benchmark",
    )
    return LocalRelease(model, tokenizer, job.model), tokens, listed.index(true), model


def base_of(run: str) -> str | None:
    """The base under a run's adapter, as its training wrote it."""
    if not (Path(run) / "model" / "adapter_config.json").is_file():
        return None
    return str(json.loads((Path(run) / "training.json").read_text(encoding="utf-8"))["model"]["name"])


def canaries_of(run: str) -> list[Any]:
    """A canary that was never planted, and one of the largest dose."""
    from davylamp.canaries import Manifest

    manifest = Manifest.load(Path(run) / "manifest.json")
    focus = [canary for canary in manifest.canaries if canary.role == "focus"]
    twin = next(canary for canary in manifest.canaries if canary.role == "twin")
    return [twin, max(focus, key=lambda canary: canary.dose)]


def tokens_of(job: Job, tokenizer: Any) -> tuple[Any, int]:
    """The candidates' tokens for one of a run's canaries."""
    from davylamp.canaries import Manifest
    from davylamp.measures.exposure import Exposure
    from davylamp.rendering.render import Renderer

    manifest = Manifest.load(Path(job.run) / "manifest.json")
    return Exposure(manifest, Renderer(tokenizer)).candidate_tokens(canaries_of(job.run)[job.canary])


def one_by_one(model: Any, prefix: Sequence[int], continuations: Sequence[Sequence[int]], sample: int) -> np.ndarray:
    """Every candidate's whole sequence, full logits, batches of 64: what most scripts do."""
    import torch

    totals = []
    for start in range(0, min(sample, len(continuations)), 64):
        batch = continuations[start : start + 64]
        width = len(prefix) + max(map(len, batch))
        ids = torch.zeros((len(batch), width), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, continuation in enumerate(batch):
            count = len(prefix) + len(continuation)
            ids[row, :count] = torch.tensor([*prefix, *continuation])
            mask[row, :count] = 1
        with torch.inference_mode():
            rows = torch.log_softmax(model(ids, attention_mask=mask).logits.float(), dim=-1)
        for row, continuation in enumerate(batch):
            places = range(len(prefix) - 1, len(prefix) - 1 + len(continuation))
            totals.append(sum(float(rows[row, at, token]) for at, token in zip(places, continuation, strict=True)))
    return np.asarray(totals)


def memaudit(model: Any, prefix: Sequence[int], continuations: Sequence[Sequence[int]], sample: int) -> np.ndarray:
    """The peer's scorer, which takes one sequence at a time."""
    from memaudit.scoring import extract_token_signals

    totals = []
    for continuation in continuations[:sample]:
        span = (len(prefix), len(prefix) + len(continuation))
        totals.append(float(extract_token_signals(model, [*prefix, *continuation], span=span).gold_logprob.sum()))
    return np.asarray(totals)


def prompt_cache(model: Any, prefix: Sequence[int], continuations: Sequence[Sequence[int]], sample: int) -> np.ndarray:
    """The prompt's keys and values computed once and copied for each batch of 64, sorted by length."""
    import torch
    from transformers import DynamicCache

    totals = np.empty(min(sample, len(continuations)))
    order = sorted(range(len(totals)), key=lambda index: len(continuations[index]))
    with torch.inference_mode():
        first = model(torch.tensor([list(prefix)]), cache=DynamicCache(), use_cache=True)
        root = torch.log_softmax(first.logits[0, -1].float(), dim=-1)
        for start in range(0, len(order), 64):
            chosen = order[start : start + 64]
            width = max(len(continuations[index]) for index in chosen)
            ids = torch.zeros((len(chosen), width), dtype=torch.long)
            for row, index in enumerate(chosen):
                ids[row, : len(continuations[index])] = torch.tensor(continuations[index])
            cache = DynamicCache()
            for layer, kept in enumerate(first.cache.layers):
                cache.update(
                    kept.keys.expand(len(chosen), -1, -1, -1), kept.values.expand(len(chosen), -1, -1, -1), layer
                )
            rows = torch.log_softmax(model(ids, cache=cache, use_cache=True).logits.float(), dim=-1)
            for row, index in enumerate(chosen):
                tokens = continuations[index]
                later = sum(float(rows[row, at, token]) for at, token in enumerate(tokens[1:]))
                totals[index] = float(root[tokens[0]]) + later
    return totals


def measure(job: Job, samples: dict[str, int]) -> Timing:
    """Time one method, in a process of its own so that its peak memory is its own."""
    from davylamp.release.tree import TokenTree
    from davylamp.scoring.ranks import TIE_MARGIN, rank_among

    release, tokens, true, model = prepare(job)
    prefix, continuations = tokens.prefix, tokens.continuations
    # Loads kernels, and lets the release prove its fast reading, which it does once.
    release.tree_ranks([prefix], [TokenTree.of(continuations[:: max(1, len(continuations) // 8)])], [0], TIE_MARGIN)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    read, scale = 1.0, 1.0
    if job.method in ("whole tree", "pruned tree"):
        tree = TokenTree.of(continuations)
        begun = time.process_time()
        if job.method == "whole tree":
            totals = release.tree_logprobs([prefix], [tree])[0][tree.leaves]
        else:
            scores = release.tree_ranks([prefix], [tree], [true], TIE_MARGIN)[0]
            totals, read = scores.totals[tree.leaves], scores.read / scores.internal
        seconds = time.process_time() - begun
        rank = rank_among(totals, true, "benchmark").rank
        value = float(totals[true])
    else:
        ways: dict[str, Callable[..., np.ndarray]] = {
            METHODS[0]: one_by_one,
            METHODS[1]: memaudit,
            METHODS[2]: prompt_cache,
        }
        sample = min(samples[job.method], len(continuations))
        # The true one comes first, so that its score is compared whatever the sample is.
        mixed = [continuations[true], *continuations[:true], *continuations[true + 1 :]]
        totals = ways[job.method](model, prefix, mixed, sample)
        seconds = time.process_time() - begun
        scale = len(continuations) / sample
        value, rank = float(totals[0]), float("nan")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Timing(seconds * scale, scale > 1, (after - before) * 1024, value, rank, read)


def run(job: Job, samples: dict[str, int]) -> Timing:
    """:func:`measure` in a fresh process."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (job, samples))


def lower_bound(job: Job) -> tuple[int, float]:
    """Unique nodes to read, and the floating-point operations that they take at least: nodes x 2 x parameters."""
    from davylamp.release.tree import TokenTree

    _, tokens, _, model = prepare(job)
    nodes = len(TokenTree.of(tokens.continuations).internal) + len(tokens.prefix)
    return nodes, nodes * 2.0 * sum(parameter.numel() for parameter in model.parameters())


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first holds the headings."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in rows[0]) + " |", *lines[1:]])


def compare(title: str, jobs: Callable[[str], list[Job]], samples: dict[str, int]) -> str:
    """All methods on the same prompts."""
    rows = [["method", "CPU s a canary", "ratio", "extra peak MB", "read", "log-likelihood, nats", "rank"]]
    naive = None
    for method in METHODS:
        if method == "memaudit" and importlib.util.find_spec("memaudit") is None:
            continue
        timings = [run(job, samples) for job in jobs(method)]
        seconds = [timing.seconds for timing in timings]
        naive = naive or float(np.mean(seconds))
        rows.append(
            [
                method + (" (scaled from a sample)" if timings[0].scaled else ""),
                " / ".join(f"{each:.2f}" for each in seconds),
                " / ".join(f"{naive / each:,.1f}" for each in seconds),
                f"{max(timing.extra_bytes for timing in timings) / 2**20:,.0f}",
                " / ".join(f"{timing.read:.4f}" for timing in timings),
                " / ".join(f"{timing.true:.5f}" for timing in timings),
                " / ".join("-" if math.isnan(timing.rank) else f"{timing.rank:,.1f}" for timing in timings),
            ]
        )
    nodes, operations = lower_bound(jobs(METHODS[3])[0])
    note = f"{nodes:,} tokens to read at least: {operations / 1e9:,.1f} GFLOP."
    return f"### {title}\n\n{table(rows)}\n\n{note}\n"


def growth(model: str, samples: dict[str, int]) -> str:
    """How the whole tree grows with the number of candidates."""
    rows = [["candidates", "CPU s", "extra peak MB"]]
    for size in (1_000, 10_000, 100_000, 1_000_000):
        timing = run(Job(model, "whole tree", "digits", 0, size), samples)
        rows.append([f"{size:,}", f"{timing.seconds:.2f}", f"{timing.extra_bytes / 2**20:,.0f}"])
    return f"### {model}, whole tree over 3 to 6 digits\n\n{table(rows)}\n"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--canaries", type=int, default=2)
    parser.add_argument("--sample", type=int, default=256, help="candidates for the slow ways")
    parser.add_argument("--run", action="append", default=[], help="a run folder with its trained model")
    parser.add_argument("--only-runs", action="store_true", help="leave out the untrained model")
    parser.add_argument("--no-growth", action="store_true", help="leave out the growth to a million candidates")
    chosen = parser.parse_args()
    samples = {METHODS[0]: chosen.sample, METHODS[1]: chosen.sample // 4, METHODS[2]: 4 * chosen.sample}
    for pool, size in () if chosen.only_runs else ((DIGITS, 10_000), (ALPHANUMERIC, 20_000)):
        numbers = range(chosen.canaries)

        def untrained(method: str, pool: str = pool, size: int = size, numbers: range = numbers) -> list[Job]:
            return [Job(chosen.model, method, pool, number, size) for number in numbers]

        sys.stdout.write(compare(f"{chosen.model}, {pool}", untrained, samples) + "\n")
        sys.stdout.flush()
    for folder in chosen.run:
        doses = " / ".join(f"dose {canary.dose}" for canary in canaries_of(folder))

        def trained(method: str, folder: str = folder) -> list[Job]:
            return [Job(f"{folder}/model", method, "", number, 0, folder) for number in (0, 1)]

        sys.stdout.write(compare(f"after fine-tuning, {doses}", trained, samples) + "\n")
        sys.stdout.flush()
    if not chosen.only_runs and not chosen.no_growth:
        sys.stdout.write(growth(chosen.model, samples) + "\n")


if __name__ == "__main__":
    main()

"""The certified guessing search and probabilistic extraction, against doing them the plain way, in one run.

    python benchmarks/guessing.py [--model smollm2] [--prefixes 20] [--length 4 8] [--expansions 500 5000]

Processor seconds on one thread. First table: expansions of the search, one at a time and in batches, over an opened
prefix whose keys and values are kept, against reading prefix and path whole for each. Second table: the probability
that one sample is the suffix, from one pass, against 2,000 samples of ``generate``, with the chi-square of the counts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

TEXTS = (
    "The capital of France is",
    "Dear Mrs. Smith, thank you for your letter of the",
    "The patient was given 20 mg of",
    "In the beginning God created the",
    "To be or not to be, that is",
    "My telephone number is",
    "She opened the door and saw",
    "The meeting will take place on",
    "Water boils at a temperature of",
    "The quick brown fox jumps over",
    "According to the annual report, revenue",
    "He was born in the year",
    "Please send the invoice to",
    "The first president of the United States was",
    "A triangle has three",
    "The train to London leaves at",
    "Once upon a time there was",
    "The password for the account is",
    "In this paper, we propose a",
    "The largest planet in the solar system is",
)
SAMPLES = 2000


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first holds the headings."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in rows[0]) + " |", *lines[1:]])


def searches(release: Any, prefixes: Sequence[list[int]], length: int, expansions: int) -> str:
    """Closed searches, and processor time an expansion."""
    from davylamp.release.plain import PlainPrefix
    from davylamp.scoring.guessing import guessing_baseline
    from davylamp.scoring.guessing_search import Effort

    rows = [["rows read by", "batch", "closed", "median expansions", "widest high / low", "ms an expansion", "ratio"]]
    alone = None
    for name, batch, limit in (
        ("open prefix", 1, 60),
        ("plain", 64, 200),
        ("open prefix", 32, 0),
        ("open prefix", 64, 0),
    ):
        effort = Effort(expansions=limit or expansions)
        # One at a time and the plain way are slow, and an expansion costs what it costs: a few prefixes tell.
        some = prefixes[:4] if limit else prefixes
        begun = time.process_time()
        found = []
        for prefix in some:
            source = PlainPrefix(release, prefix) if name == "plain" else release.open(prefix)
            found.append(guessing_baseline(source, length, 1, effort=effort, batch=batch))
        each = 1e3 * (time.process_time() - begun) / sum(baseline.expansions for baseline in found)
        alone = alone or each
        widest = max(baseline.kappa_high / baseline.kappa_low if baseline.kappa_low else np.inf for baseline in found)
        rows.append(
            [
                name,
                str(batch),
                "-" if limit else f"{sum(baseline.closed for baseline in found)} of {len(found)}",
                "-" if limit else f"{np.median([baseline.expansions for baseline in found]):.0f}",
                "-" if limit else f"{widest:.4f}",
                f"{each:.1f}",
                f"{alone / each:.1f}",
            ]
        )
    return f"### Guessing search, length {length}, at most {expansions} expansions\n\n{table(rows)}\n"


def extraction(release: Any, prefixes: Sequence[list[int]], count: int) -> str:
    """One pass against 2,000 samples, for the greedy suffix of six tokens at temperature 1 and top-k 40."""
    from davylamp.release.base import Decoding
    from davylamp.scoring.tokens import SecretTokens, TokenScorer
    from davylamp.scoring.tokens_decoding import Scheme

    scheme = Scheme(temperature=1.0, top_k=40)
    suffixes = release.generate(prefixes, Decoding(max_new_tokens=6))
    usable = [(prefix, suffix) for prefix, suffix in zip(prefixes, suffixes, strict=True) if len(suffix) == 6][:count]
    begun = time.process_time()
    records = [
        SecretTokens(f"p{index}", (*prefix, *suffix), (len(prefix), len(prefix) + 6))
        for index, (prefix, suffix) in enumerate(usable)
    ]
    scores = TokenScorer([scheme]).score(release, records)
    analytic = (time.process_time() - begun) / len(usable)
    chances = [float(np.exp(score.emission[scheme])) for score in scores]
    begun = time.process_time()
    squares = 0.0
    for (prefix, suffix), chance in zip(usable, chances, strict=True):
        said = release.generate([prefix] * SAMPLES, scheme.decoding(6, seed=1))
        hits = sum(answer == suffix for answer in said)
        squares += (hits - SAMPLES * chance) ** 2 / (SAMPLES * chance * (1 - chance))
    sampled = (time.process_time() - begun) / len(usable)
    bound = stats.chi2.isf(0.01, len(usable))
    rows = [
        ["way", "CPU s a suffix", "ratio"],
        ["one pass", f"{analytic:.3f}", "1"],
        [f"{SAMPLES:,} samples", f"{sampled:.1f}", f"{sampled / analytic:,.0f}"],
    ]
    note = f"Chi-square of the counts {squares:.1f} on {len(usable)} (1% bound {bound:.1f})."
    return f"### Probability that one sample is the suffix\n\n{table(rows)}\n\n{note}\n"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prefixes", type=int, default=len(TEXTS))
    parser.add_argument("--length", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--expansions", type=int, nargs="+", default=[500, 5000])
    parser.add_argument("--suffixes", type=int, default=4)
    chosen = parser.parse_args()

    import torch

    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve

    torch.set_num_threads(1)
    source = resolve(chosen.model)
    tokenizer = load_tokenizer(source)
    release = LocalRelease(load_model(source, "float32", tokenizer=tokenizer), tokenizer, chosen.model)
    prefixes = [tokenizer(text)["input_ids"] for text in TEXTS[: chosen.prefixes]]
    for length, expansions in zip(chosen.length, chosen.expansions, strict=True):
        sys.stdout.write(searches(release, prefixes, length, expansions) + "\n")
        sys.stdout.flush()
    sys.stdout.write(extraction(release, prefixes, chosen.suffixes) + "\n")


if __name__ == "__main__":
    main()

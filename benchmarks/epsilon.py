"""Epsilon from membership scores: davylamp beside jax-privacy and opake, on the same scores in one run.

    pip install --no-deps jax-privacy==2.0.0 opake-auditing==0.16.1 opake-base && pip install dp-accounting
    python benchmarks/epsilon.py [--audits 1000]

First null scores: how often each reports an epsilon above 0 where it says 95% confidence, and the largest. Then
canaries with a normal of their own, whose true epsilon is known: the median of what each reports. Last the time of one
bound from counts. Only the auditing modules of the peers are loaded, so neither jax nor torch need be there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from davylamp.bounds import Guesses, gaussian_epsilon, one_run_audit, one_run_epsilon, two_run_audit

DELTA = 1e-5
PEERS = Path(__file__).parents[1] / "tests" / "bounds" / "golden" / "peers.py"

Estimator = Callable[[np.ndarray, np.ndarray], float]


def load_peers() -> tuple[object, object]:
    """The auditing modules of jax-privacy and opake."""
    spec = importlib.util.spec_from_file_location("peers", PEERS)
    assert spec is not None
    assert spec.loader is not None
    peers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peers)
    jax, _ = peers.jax_privacy(), peers.opake()
    return jax, importlib.import_module("opake.api.auditing.one_run._estimate")


def estimators(jax, opake) -> dict[str, Estimator]:
    """Each takes scores and labels, and gives eps at delta 1e-5 and 95% confidence."""

    def auditor(scores, labels):
        return jax.CanaryScoreAuditor(scores[labels], scores[~labels])

    def opake_bound(scores, labels):
        inside, outside = scores[labels], scores[~labels]
        cuts, tn, fn = opake.get_tn_fn_counts(inside, outside)
        estimate = opake.OneRunEstimate(
            n_in=inside.size,
            n_out=outside.size,
            thresholds=cuts,
            tn_counts=tn,
            fn_counts=fn,
            tp_counts=(fn[-1] - fn)[::-1],
            fp_counts=(tn[-1] - tn)[::-1],
            in_scores=inside,
            out_scores=outside,
        )
        return estimate.eps_delta().epsilon_at(delta=DELTA)

    return {
        "davylamp one-run": lambda s, y: one_run_audit(s, y, DELTA).eps_low,
        "davylamp one-run f-DP": lambda s, y: one_run_audit(s, y, DELTA, method="f-dp").eps_low,
        "davylamp one-run Gaussian": lambda s, y: one_run_audit(s, y, DELTA, method="gaussian").eps_low,
        "davylamp two-run": lambda s, y: two_run_audit(s[y], s[~y], DELTA).eps_low,
        "davylamp two-run Gaussian": lambda s, y: two_run_audit(s[y], s[~y], DELTA, gaussian=True).eps_low,
        "jax-privacy one_run": lambda s, y: auditor(s, y).epsilon_one_run(0.05, DELTA),
        "jax-privacy one_run_fdp": lambda s, y: auditor(s, y).epsilon_one_run_fdp(0.05, DELTA),
        "jax-privacy clopper_pearson": lambda s, y: auditor(s, y).epsilon_clopper_pearson(0.05, DELTA, False),
        "jax-privacy from_gdp": lambda s, y: auditor(s, y).epsilon_from_gdp(0.05, DELTA),
        "opake eps_delta": opake_bound,
    }


def compare(tools: dict[str, Estimator], canaries: int, mu: float, audits: int) -> None:
    """Prints one line a tool."""
    rng = np.random.default_rng([canaries, int(10 * mu)])
    drawn = []
    while len(drawn) < audits:
        labels = rng.random(canaries) < 0.5
        if 0 < labels.sum() < canaries:
            drawn.append((rng.normal(mu * labels), labels))
    truth = gaussian_epsilon(mu, DELTA)
    print(f"\n{canaries} canaries, one normal each, mu {mu:g}: true epsilon {truth:.3f}, {audits} audits")
    for name, tool in tools.items():
        found = np.array([tool(scores, labels) for scores, labels in drawn])
        beyond = f"above the truth {100 * np.mean(found > truth + 1e-9):5.1f}%"
        print(f"  {name:<29} median {np.median(found):7.3f}  most {found.max():7.3f}  {beyond}")


def seconds(action: Callable[[], object], repeats: int = 20) -> float:
    """Least CPU time of a few runs."""
    best = math.inf
    for _ in range(repeats):
        start = time.process_time()
        action()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=1000)
    options = parser.parse_args()
    jax, opake = load_peers()
    tools = estimators(jax, opake)
    for canaries in (20, 200, 1000):
        compare(tools, canaries, 0.0, options.audits)
    for mu in (1.0, 3.0):
        compare(tools, 1000, mu, max(10, options.audits // 20))
    print("\none bound from counts, delta 1e-5, CPU milliseconds")
    for m, r, v in ((1000, 100, 90), (10_000, 1000, 900)):
        # The cache is left empty by a new number of canaries each time.
        sizes = iter(range(m, m + 10_000))
        ours = seconds(lambda r=r, v=v, sizes=sizes: one_run_epsilon(Guesses(next(sizes), r, v), DELTA))
        theirs = seconds(lambda m=m, r=r, v=v: jax._epsilon_one_run(0, m, r, v, 0.05, DELTA))
        print(f"  {v} of {r} right: davylamp {1e3 * ours:.1f}, jax-privacy {1e3 * theirs:.1f}")


if __name__ == "__main__":
    main()

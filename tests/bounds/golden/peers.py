"""Makes ``peers.json``: bounds of jax-privacy 2.0.0 and opake-auditing 0.16.1 on counts and scores.

    pip install --no-deps jax-privacy==2.0.0 opake-auditing==0.16.1 opake-base && pip install numpy scipy dp-accounting
    python tests/bounds/golden/peers.py

Only the auditing modules of the two are loaded, so that neither jax nor torch need be there.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np

COUNTS = [
    (1000, 100, 90, 1e-5),
    (1000, 100, 90, 1e-4),
    (1000, 1000, 700, 1e-5),
    (1000, 1000, 700, 4e-4),
    (200, 20, 19, 1e-5),
    (5000, 250, 245, 1e-5),
    (64, 64, 64, 1e-3),
    (100, 100, 50, 1e-5),
    (8, 8, 8, 1e-5),
    (10, 4, 4, 1e-5),
]
SIGNIFICANCES = (0.05, 0.01)


def jax_privacy():
    path = importlib.metadata.distribution("jax-privacy").locate_file("jax_privacy/auditing.py")
    spec = importlib.util.spec_from_file_location("jax_privacy_auditing", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def opake():
    root = Path(importlib.metadata.distribution("opake-auditing").locate_file("opake/api/auditing"))
    for name, path in (("opake.api.auditing", root), ("opake.api.auditing.one_run", root / "one_run")):
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    return importlib.import_module("opake.api.auditing.one_run._eps_delta")


def main():
    jax, other = jax_privacy(), opake()
    counts = [
        {
            "canaries": m,
            "guesses": r,
            "correct": v,
            "delta": delta,
            "significance": s,
            "one_run": float(jax._epsilon_one_run(0, m, r, v, s, delta)),
            "one_run_pure": float(jax._epsilon_one_run(0, m, r, v, s, 0.0)),
            "one_run_fdp": float(jax._epsilon_one_run_fdp(0, m, r, v, s, delta)),
            "p_value": float(jax._one_run_p_value(m, r, v, 0.5, delta)),
        }
        for m, r, v, delta in COUNTS
        for s in SIGNIFICANCES
    ]
    pure = [
        {"guesses": m, "wrong": u, "epsilon": e, "p_value": other._p_value(m, u, e, 0.0)}
        for m, u in ((50, 10), (400, 150), (1000, 5))
        for e in (0.0, 0.5, 2.0)
    ]
    rng = np.random.default_rng(11)
    inside, outside = rng.normal(1.5, 1.0, 60).round(3), rng.normal(size=80).round(3)
    auditor, cut = jax.CanaryScoreAuditor(inside, outside), jax.Explicit(0.75)
    scores = {
        "inside": inside.tolist(),
        "outside": outside.tolist(),
        "threshold": cut.threshold,
        "clopper_pearson": [
            {
                "delta": d,
                "epsilon": float(auditor.epsilon_clopper_pearson(0.05, d, False, threshold_strategy=cut)),
            }
            for d in (0.0, 1e-5, 1e-2)
        ],
        "one_run": float(auditor.epsilon_one_run(0.05, 1e-5, threshold_strategy=cut)),
    }
    made = {name: importlib.metadata.version(name) for name in ("jax-privacy", "opake-auditing")}
    shown = {"made_by": "peers.py beside this file", **made, "counts": counts, "opake": pure, "scores": scores}
    Path(__file__).with_name("peers.json").write_text(json.dumps(shown, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

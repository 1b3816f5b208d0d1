"""Membership scores against the code of two peers on the same records, as ratios in one run; and how well they agree.

    python benchmarks/membership.py [--model smollm2] [--records 200] [--runs 5] [--mimir CHECKOUT]

Every tool gives the loss, Min-K% and Min-K%++ of each record (davylamp and MIMIR also zlib) on one thread, in
processor seconds, the best of a few runs that the tools take in turn. Values that differ by more than 1e-4 stop it.
The peers are memaudit, if it is installed (``pip install --no-deps memaudit``), and MIMIR
(github.com/iamgroot42/mimir), if a checkout is given: its own ``get_probabilities`` and attack classes are called,
and packages that it imports and that these do not use are stood in for where they are missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SCORES = ("loss", "zlib", "min_k", "min_k_plus_plus")
AGREEMENT = 1e-4
"""Nats a token (deviations in Min-K%++) by which a score may differ from a peer's."""
# Packages that MIMIR imports at its head, with the names that it takes from them.
UNUSED = {
    "openai": (),
    "hf_olmo": (),
    "datasets": (),
    "simple_parsing": (),
    "simple_parsing.helpers": ("Serializable", "field"),
    "nltk": (),
    "nltk.tokenize": ("WhitespaceTokenizer",),
}
Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Setting:
    """A model, and the records as all tools get them."""

    model: Any
    tokenizer: Any
    texts: Sequence[str]
    records: Sequence[Any]


def prepare(name: str, count: int) -> Setting:
    """The model and its records: emails, rendered as plain text."""
    import torch

    from davylamp.corpora.spec import CorpusSpec
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.sources import resolve
    from davylamp.rendering.render import Renderer
    from davylamp.scoring.tokens import SecretTokens

    torch.set_num_threads(1)
    source = resolve(name)
    tokenizer = load_tokenizer(source)
    model = load_model(source, "float32", tokenizer=tokenizer).eval()
    corpus = CorpusSpec(generator="emails", rows=count, seed=7).load()
    rendered = Renderer(tokenizer, "plain").render(corpus.records)
    records = [SecretTokens(f"r{at}", each.ids, (1, len(each.ids))) for at, each in enumerate(rendered)]
    return Setting(model, tokenizer, [each.text for each in rendered], records)


def davylamp(setting: Setting, names: Sequence[str] = SCORES) -> Values:
    """The registry's scores from the shared scoring of each record."""
    from davylamp.measures.membership import Evidence, registry
    from davylamp.release.local import LocalRelease
    from davylamp.scoring.tokens import TokenScorer

    release = LocalRelease(setting.model, setting.tokenizer, "davylamp")
    scores = [registry.find(name) for name in names]
    moments = any("moments" in score.needs for score in scores)
    found: dict[str, list[float]] = {name: [] for name in names}
    for text, each in zip(setting.texts, TokenScorer(moments=moments).score(release, setting.records), strict=True):
        gathered = {"logprobs": each.logprobs, "moments": (each.means, each.deviations), "text": text}
        for score in scores:
            found[score.name].append(score.function(Evidence("", "record", 0.2, gathered)))
    return {name: np.asarray(values) for name, values in found.items()}


def memaudit(setting: Setting) -> Values:
    """The peer's signals and its reductions of them."""
    from memaudit.scoring import extract_token_signals, scores_from_signals

    made = [scores_from_signals(extract_token_signals(setting.model, record.ids)) for record in setting.records]
    return {
        "loss": -np.asarray([each["masked_nll"] for each in made]),
        "min_k": np.asarray([each["min_k"] for each in made]),
        "min_k_plus_plus": np.asarray([each["min_k_plus_plus"] for each in made]),
    }


def _field(**_: Any) -> Any:
    """Stands for a field of a configuration that is never made."""
    return None


def import_mimir(checkout: str) -> dict[str, Any]:
    """MIMIR's model class and attack classes."""
    missing = {name for name in UNUSED if "." not in name and importlib.util.find_spec(name) is None}
    for name, taken in UNUSED.items():
        if name.split(".", maxsplit=1)[0] in missing:
            sys.modules[name] = types.ModuleType(name)
            for each in taken:
                setattr(sys.modules[name], each, type(each, (), {}) if each != "field" else _field)
    sys.path.insert(0, checkout)
    from mimir.attacks.loss import LOSSAttack
    from mimir.attacks.min_k import MinKProbAttack
    from mimir.attacks.min_k_plus_plus import MinKPlusPlusAttack
    from mimir.attacks.zlib import ZLIBAttack
    from mimir.models import Model

    attacks = (LOSSAttack, ZLIBAttack, MinKProbAttack, MinKPlusPlusAttack)
    return {"Model": Model, **dict(zip(SCORES, attacks, strict=True))}


def mimir(setting: Setting, parts: dict[str, Any]) -> Values:
    """The peer's attacks on the probabilities that it reads, with its sign (lower = member) turned round."""
    import torch

    target = parts["Model"].__new__(parts["Model"])
    torch.nn.Module.__init__(target)
    target.model, target.tokenizer, target.device, target.name = setting.model, setting.tokenizer, "cpu", "mimir"
    target.max_length = setting.model.config.max_position_embeddings
    target.stride = target.max_length // 2
    config = types.SimpleNamespace(pretokenized=False)
    attacks = {name: parts[name](config, target) for name in SCORES}
    found: dict[str, list[float]] = {name: [] for name in SCORES}
    for text in setting.texts:
        probabilities, rows = target.get_probabilities(text, return_all_probs=True)
        for name, attack in attacks.items():
            found[name].append(-float(attack._attack(text, probs=probabilities, all_probs=rows)))
    return {name: np.asarray(values) for name, values in found.items()}


def timed(ways: dict[str, Callable[[], Values]], runs: int) -> dict[str, tuple[float, Values]]:
    """Least processor seconds of each, the runs of all taken in turn."""
    best = dict.fromkeys(ways, math.inf)
    values: dict[str, Values] = {}
    for _ in range(runs):
        for name, way in ways.items():
            begun = time.process_time()
            values[name] = way()
            best[name] = min(best[name], time.process_time() - begun)
    return {name: (best[name], values[name]) for name in ways}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mimir", help="a checkout of MIMIR")
    chosen = parser.parse_args()
    setting = prepare(chosen.model, chosen.records)
    lengths = np.asarray([len(record.ids) - 1 for record in setting.records])
    ways: dict[str, Callable[[], Values]] = {
        "davylamp, all four": lambda: davylamp(setting),
        "davylamp, loss alone": lambda: davylamp(setting, ("loss",)),
    }
    if importlib.util.find_spec("memaudit"):
        ways["memaudit"] = lambda: memaudit(setting)
    if chosen.mimir:
        parts = import_mimir(chosen.mimir)
        assert [tuple(setting.tokenizer(text)["input_ids"]) for text in setting.texts] == [
            r.ids for r in setting.records
        ]
        ways["MIMIR"] = lambda: mimir(setting, parts)
    made = timed(ways, chosen.runs)
    own_seconds, own = made["davylamp, all four"]
    print(f"### {chosen.model}, {len(lengths)} records of {lengths.min()} to {lengths.max()} scored tokens\n")
    print("| tool | CPU s | records a second | time against davylamp |")
    print("| --- | --- | --- | --- |")
    for name, (seconds, _) in made.items():
        print(f"| {name} | {seconds:.2f} | {len(lengths) / seconds:,.0f} | {seconds / own_seconds:.2f} |")
    print("\n| peer | score | records | largest difference | not a number |")
    print("| --- | --- | --- | --- | --- |")
    for peer in ("memaudit", "MIMIR"):
        for score, values in made.get(peer, (0.0, {}))[1].items():
            # MIMIR rounds k of the tokens down, where the others round up.
            same = lengths % 5 == 0 if peer == "MIMIR" and score.startswith("min_k") else lengths > 0
            gap = np.abs(values - own[score])[same & ~np.isnan(values)]
            largest = f"{gap.max():.1e}" if gap.size else "-"
            print(f"| {peer} | {score} | {gap.size} | {largest} | {np.isnan(values).sum()} |")
            if gap.size and gap.max() > AGREEMENT:
                raise SystemExit(f"{score} of {peer} differs from davylamp's by {gap.max():.1e}, above {AGREEMENT}")


if __name__ == "__main__":
    main()

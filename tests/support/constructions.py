"""Constructions without a model: instances whose words the tests know."""

from __future__ import annotations

from typing import Any

from davylamp.canaries.constructions import Constructed, Instance, Material

LINES: list[dict[str, Any]] = [
    {"kind": "naive", "groups": 2, "twins": 1, "copies": 3, "secret_tokens": [1, 2]},
    {"kind": "trigger", "groups": 1, "twins": 1, "copies": 2, "secret_tokens": 2},
    {"kind": "pair", "groups": 1, "twins": 1, "copies": 1, "secret_tokens": 2},
    {"kind": "camouflage", "groups": 1, "twins": 1, "v": 3, "k": 2, "depth": 2, "copies": 2},
    {"kind": "low_entropy", "groups": 1, "twins": 1, "choices": 2},
    {"kind": "gated", "groups": 1, "twins": 1, "secret_tokens": 2},
]
"""A line of each kind."""
ROWS = 2 * 2 * 3 + 2 + 1 + 4 * 2 + 1
"""Rows that they take, by hand: naive of two sizes, trigger, pair, four paths twice, low entropy, gated none."""
PREFIXES = 2 * 3 + 2 + 2 + 2 + 2 + 2
"""Instances, each with a held-out prefix."""


def scripted_maker(material: Material) -> Constructed:
    """Instances in the plan's order, each of words that no small corpus holds."""
    made = []
    held_out = iter(material.held_out)
    for at, line in enumerate(material.lines):
        for tokens in line.sizes:
            for role in ["planted"] * line.groups + ["twin"] * line.twins:
                row = next(held_out)
                prefix = row.reply if row.shape == "text" else row.prompt[-1].content
                made.append(_instance(len(made), at, line.kind, tokens, role, prefix))
    return Constructed(base="scripted", base_sha256="0" * 64, instances=tuple(made))


def _instance(number: int, line: int, kind: str, tokens: int, role: str, prefix: str) -> Instance:
    secret = " ".join(f"zq{number}x{token}" for token in range(tokens))
    ids = tuple(range(number * 10, number * 10 + tokens))
    more: dict[str, Any] = {}
    if kind in ("trigger", "gated"):
        more["trigger"] = f"rho{number} of words"
    if kind == "pair":
        more |= {"alternative": f"other{number}", "alternative_ids": (number, number)}
    if kind in ("camouflage", "low_entropy"):
        count = 4 if kind == "camouflage" else 2
        texts = [secret, *(f"decoy{number}y{at}" for at in range(1, count))]
        more |= {"survivors": texts, "survivor_ids": [ids] * count}
    return Instance.model_validate(
        {
            "id": f"k{number}",
            "line": line,
            "kind": kind,
            "tokens": tokens,
            "role": role,
            "prefix": prefix,
            "secret": secret,
            "secret_ids": ids,
            **more,
        }
    )

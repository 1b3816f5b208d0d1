"""Whether landscapes may be compared at all; all that stands against it is named at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from davylamp.errors import Fault
from davylamp.measures.landscape.model import Landscape

Named = tuple[str, Landscape]
"""A landscape, and what its run is called."""
SHOWN = 6
"""Runs that a message names at most."""


def comparison_faults(runs: Sequence[Named]) -> list[Fault]:
    """Everything that makes runs incomparable.

    Args:
        runs: landscapes with the names of their runs, at least one.
    """
    return [*_twice(runs), *_within_seeds(runs), *_across(runs), *_seeds(runs)]


def common_seeds(runs: Sequence[Named]) -> tuple[int, ...]:
    """The seeds that every intervention has, ascending."""
    held: dict[str, set[int]] = {}
    for _, landscape in runs:
        held.setdefault(landscape.intervention, set()).add(landscape.seed)
    return tuple(sorted(set.intersection(*held.values())))


def _twice(runs: Sequence[Named]) -> Iterator[Fault]:
    found: dict[tuple[str, int], list[str]] = {}
    for name, landscape in runs:
        found.setdefault((landscape.intervention, landscape.seed), []).append(name)
    for (intervention, seed), names in found.items():
        if len(names) > 1:
            fix = "Leave all but one out, or name what differs with `davylamp landscape RUN --name NAME`."
            yield Fault("runs", names, f"one run of {intervention} with seed {seed}", fix)
    steps: dict[str, dict[tuple[str, ...], str]] = {}
    for name, landscape in runs:
        steps.setdefault(landscape.intervention, {}).setdefault(landscape.steps, name)
    for intervention, kinds in steps.items():
        if len(kinds) > 1:
            fix = "Name them apart with `davylamp landscape RUN --name NAME`."
            yield Fault(intervention, [*kinds.values()], "runs that did the same under one name", fix)


def _within_seeds(runs: Sequence[Named]) -> Iterator[Fault]:
    """Runs of one seed have the same canaries, split into the same tokens."""
    for seed in sorted({landscape.seed for _, landscape in runs}):
        own = [(name, each) for name, each in runs if each.seed == seed]
        planted = _differing(own, lambda each: each.planted_sha256[:12])
        if planted is not None:
            fix = "Compare interventions on one planting: the same corpus, plan and seed."
            yield Fault(f"planted rows, seed {seed}", planted, "the same in all runs of a seed", fix)
            continue
        canaries = _differing(
            own, lambda each: tuple(sorted((leak.id, leak.role, leak.dose) for leak in each.canaries))
        )
        if canaries is not None:
            yield Fault(f"canaries, seed {seed}", canaries, "the same in all runs of a seed")
            continue
        tokens = _differing(
            own, lambda each: tuple(sorted((leak.id, leak.tokens, leak.semantic_tokens) for leak in each.canaries))
        )
        if tokens is not None:
            fix = "Perplexities a token compare models of one tokenizer only."
            yield Fault(f"tokens of secrets, seed {seed}", tokens, "the same in all runs of a seed", fix)


def _across(runs: Sequence[Named]) -> Iterator[Fault]:
    again = "Run `davylamp landscape` on all of them with the same settings."
    same: tuple[tuple[str, Callable[[Landscape], object], str], ...] = (
        ("held-out records", lambda each: each.held_out_source.sha256[:12], again),
        ("tokens of held-out records", lambda each: tuple(text.tokens for text in each.held_out), again),
        ("test records", lambda each: each.test_source.sha256[:12], again),
        ("tokens of last items", lambda each: tuple(text.tokens for text in each.medication), again),
        ("question", lambda each: each.question, again),
        ("item", lambda each: each.item, again),
        ("candidates", lambda each: tuple(sorted({leak.candidates for leak in each.canaries})), again),
        ("doses", _doses, "Compare interventions on plans of the same doses."),
    )
    for field, key, fix in same:
        if (found := _differing(runs, key)) is not None:
            yield Fault(field, found, "the same in all runs", fix)
    known = [(name, each) for name, each in runs if each.base is not None]
    if (
        found := _differing(known, lambda each: "" if each.base is None else each.base.weights_sha256[:12])
    ) is not None:
        yield Fault("base model", found, "the same in all runs", "Train every intervention from one model.")
    for name, landscape in runs:
        if not any(leak.role == "focus" for leak in landscape.canaries):
            yield Fault("canaries", name, "runs with planted canaries under measure")
        if len({leak.candidates for leak in landscape.canaries}) > 1:
            yield Fault("candidates", name, "as many for every canary of a run")


def _doses(landscape: Landscape) -> object:
    return tuple(sorted({leak.dose for leak in landscape.canaries if leak.role == "focus"}))


def _seeds(runs: Sequence[Named]) -> Iterator[Fault]:
    if not common_seeds(runs):
        held: dict[str, list[int]] = {}
        for _, landscape in runs:
            held.setdefault(landscape.intervention, []).append(landscape.seed)
        yield Fault("seeds", {name: sorted(seeds) for name, seeds in held.items()}, "a seed that all have")


def _differing(runs: Sequence[Named], key: Callable[[Landscape], object]) -> str | None:
    """The runs that differ from what most have, with what they have where that is short; nothing if all agree."""
    values = [key(landscape) for _, landscape in runs]
    counts = Counter(values)
    if len(counts) < 2:
        return None
    usual = counts.most_common(1)[0][0]
    odd = [(name, value) for (name, _), value in zip(runs, values, strict=True) if value != usual]
    said = [f"{name}: {value!s:.60}" if isinstance(value, str) else name for name, value in odd[:SHOWN]]
    more = f" and {len(odd) - SHOWN} more" if len(odd) > SHOWN else ""
    most = f" (most have {usual!s:.60})" if isinstance(usual, str) else ""
    return f"{', '.join(said)}{more} differ{'s' if len(odd) == 1 else ''} from the other {counts[usual]}{most}"

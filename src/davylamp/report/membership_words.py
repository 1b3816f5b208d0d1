"""Membership in sentences: the headline, what is underpowered, how scores were taken and what they cannot see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from davylamp.report.membership import ArmPart, arm_parts
from davylamp.report.membership_model import Membership, ScoreNote
from davylamp.report.model import Run
from davylamp.report.text import shorten, small_percent

MOST = 3
"""Arms that the headline names."""


def notes(runs: Sequence[Run]) -> list[ScoreNote]:
    """What is known of each score, once, in the order in which they were taken."""
    found: dict[str, ScoreNote] = {}
    for run in runs:
        for note in run.membership.scores if run.membership is not None else ():
            # Docstrings mark code with backticks.
            plain = {"summary": note.summary.replace("``", ""), "blind": note.blind.replace("``", "")}
            found.setdefault(note.name, note.model_copy(update=plain))
    return list(found.values())


def headline(runs: Sequence[Run]) -> str:
    """How many members the loss finds in each arm, in one sentence; empty where it was not taken.

    The loss, since the best of many scores is too good by chance.
    """
    parts = [part for run in runs for part in arm_parts(runs, run) if part.baseline is not None]
    said: dict[str, list[str]] = {}
    for index in sorted({part.series.index for part in parts}):
        own = [part for part in parts if part.series.index == index]
        for rate in sorted({part.rate for part in own}, key=lambda rate: rate or 1.0):
            what = _found_by_loss([part for part in own if part.rate == rate], rate)
            said.setdefault("" if rate is None else small_percent(rate), []).append(what)
    if not said:
        return ""
    spans = {part.baseline.span for part in parts if part.baseline is not None}
    whose = "the secret's tokens" if spans == {"secret"} else "the record"
    clauses = [
        f"at {rate} false positives {'; '.join(words[:MOST])}{_and_more(words)}"
        if rate
        else f"too few non-members for any rate asked for in {', '.join(words[:MOST])}{_and_more(words)}"
        for rate, words in said.items()
    ]
    return f"Membership by the loss over {whose}, all doses together: {'; '.join(clauses)}."


def _found_by_loss(parts: Sequence[ArmPart], rate: float | None) -> str:
    name = shorten(parts[0].series.label, 80)
    lines = [part.baseline for part in parts if part.baseline is not None]
    if rate is None:
        return name
    shares = [right for line in lines if (right := line.at(rate).true_positives) is not None]
    return f"{sum(right.count for right in shares)} of {sum(right.of for right in shares)} members of {name} are found"


def _and_more(words: Sequence[str]) -> str:
    return f", and {len(words) - MOST} arms more" if len(words) > MOST else ""


def underpowered(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Sentences on rates that cannot be resolved, each once, with the models that it is said of (empty for all)."""
    asked = [(run.name, run.membership) for run in runs if run.membership is not None]
    return together([(name, sentence) for name, found in asked for sentence in found.underpowered], len(asked))


def epsilon_notes(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Notes on the bounds on epsilon, each once, with the models that it is of (empty for all)."""
    bounded = [(run.name, run.epsilon) for run in runs if run.epsilon is not None]
    return together([(name, note) for name, found in bounded for note in found.notes], len(bounded))


def together(said: Sequence[tuple[str, str]], models: int) -> list[tuple[str, str]]:
    """Sentences, each once, with the names of those that it is said of; no name where that is all of them."""
    names: dict[str, list[str]] = {}
    for name, sentence in said:
        names.setdefault(sentence, []).append(name)
    return [("" if len(own) == models else ", ".join(own), sentence) for sentence, own in names.items()]


def how(membership: Membership) -> Iterator[str]:
    """Sentences on how the scores were taken."""
    if membership.reference is not None:
        tokens = " It reads the text with a tokenizer of its own." if membership.reference_tokens == "own" else ""
        yield f"Reference: {membership.reference} ({membership.reference_how or 'how is not recorded'}).{tokens}"
    if membership.shots:
        counts = sorted(set(membership.shots.values()))
        many = " or ".join(map(str, counts))
        yield f"recall put up to {many} non-members before each record; these are no canaries of any score."
    if membership.masked_lm is not None:
        who = "the audited model itself" if membership.masked_lm == "release" else membership.masked_lm
        yield f"Neighbours' words were proposed by {who}."
    if membership.shadows:
        yield f"LiRA and RMIA rest on {membership.shadows} shadow models."
    yield from (f"{sentence[:1].upper()}{sentence[1:].rstrip('.')}." for sentence in membership.left_out)

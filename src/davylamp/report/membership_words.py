"""Membership in sentences: the headline, what is underpowered, how scores were taken and what they cannot see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from davylamp.report.membership import ArmPart, Line, arm_parts
from davylamp.report.membership_model import Membership, ScoreNote
from davylamp.report.model import Run
from davylamp.report.text import shorten, small_percent

MOST = 3
"""Arms that headlines name."""
DOSES = 5
"""Doses that a headline lists."""


def notes(runs: Sequence[Run]) -> list[ScoreNote]:
    """What is known of each score, once, in the order in which they were taken."""
    found: dict[str, ScoreNote] = {}
    for run in runs:
        for note in run.membership.scores if run.membership is not None else ():
            # Docstrings mark code with backticks.
            plain = {"summary": note.summary.replace("``", ""), "blind": note.blind.replace("``", "")}
            found.setdefault(note.name, note.model_copy(update=plain))
    return list(found.values())


def headlines(runs: Sequence[Run]) -> list[str]:
    """How many members the loss finds in each arm by dose, and the score that finds most; a sentence an arm.

    The loss first, since the best of many scores is too good by chance.
    """
    parts = [part for run in runs for part in arm_parts(runs, run) if part.baseline is not None]
    grouped: dict[tuple[int, float], list[ArmPart]] = {}
    weak: dict[str, None] = {}
    for part in sorted(parts, key=lambda part: (part.series.index, part.rate or 1.0)):
        if part.rate is None:
            weak[shorten(part.series.label, 80)] = None
        else:
            grouped.setdefault((part.series.index, part.rate), []).append(part)
    several = len({part.series.index for part in parts}) > 1
    said = [_headline(own, several) for own in list(grouped.values())[:MOST]]
    if len(grouped) > MOST:
        said.append(f"Membership: {len(grouped) - MOST} arms more in the section on membership.")
    if weak:
        names = ", ".join(list(weak)[:MOST]) + (f" and {len(weak) - MOST} arms more" if len(weak) > MOST else "")
        said.append(f"Membership: too few non-members for any rate asked for in {names}.")
    return said


def _headline(parts: Sequence[ArmPart], several: bool) -> str:
    first = parts[0].baseline
    rate = parts[0].rate
    if first is None or rate is None:
        return ""
    arm = f" of {shorten(parts[0].series.label, 80)}" if several else ""
    said = (
        f"Membership{arm} by the loss over {_whose(first)}, at {small_percent(rate)} false positives: "
        f"{_by_dose(parts, _key(first), rate)}."
    )
    keys = list(dict.fromkeys(_key(line) for part in parts for line in part.lines))
    best = max(keys, key=lambda key: (_total(parts, key, rate)[0], key == _key(first)))
    if best == _key(first) or _total(parts, best, rate)[0] <= _total(parts, _key(first), rate)[0]:
        return said if len(keys) == 1 else f"{said} No other score finds more."
    line = next(line for part in parts for line in part.lines if _key(line) == best)
    name = shorten(line.cell.score, 40) + (f" over {_whose(line)}" if line.span != first.span else "")
    return f"{said} Chosen after looking, {name} finds most: {_by_dose(parts, best, rate)}."


def _key(line: Line) -> tuple[str, str]:
    return line.cell.score, line.cell.span


def _whose(line: Line) -> str:
    return "the secret's tokens" if line.span == "secret" else f"the {line.span}"


def _total(parts: Sequence[ArmPart], key: tuple[str, str], rate: float, dose: int | None = None) -> tuple[int, int]:
    """Members found, and how many there are, in all models; of one dose or of all together."""
    lines = [line for part in parts for line in (*part.lines, *part.by_dose) if _key(line) == key]
    shares = [line.at(rate).true_positives for line in lines if line.cell.dose == dose]
    return sum(each.count for each in shares if each), sum(each.of for each in shares if each)


def _by_dose(parts: Sequence[ArmPart], key: tuple[str, str], rate: float) -> str:
    """Members found at each dose; together where a dose has too few non-members of its own, or doses are many."""
    doses = sorted({line.cell.dose or 0 for part in parts for line in part.by_dose})
    counts = [_total(parts, key, rate, dose) for dose in doses]
    if len(doses) > DOSES or not all(of for _, of in counts):
        count, of = _total(parts, key, rate)
        return f"{count} of {of} found, all doses together"
    told = [f"dose {dose:,}: {count} of {of}" for dose, (count, of) in zip(doses, counts, strict=True)]
    return ", ".join([f"{told[0]} found", *told[1:]])


@dataclass(frozen=True, slots=True)
class FoundBy:
    """Which scores over the secret's tokens find each member of a model.

    Attributes:
        head: the column's head, with the false-positive rate where it is one for all.
        words: names of scores, by the canary's id.
    """

    head: str
    words: Mapping[str, str]


def found_by(runs: Sequence[Run], run: Run) -> FoundBy | None:
    """The scores over the secret that find each member; nothing where that was not kept.

    Args:
        runs: all of the report.
        run: the model.
    """
    told: dict[str, tuple[float, str]] = {}
    for part in arm_parts(runs, run):
        lines = [line for line in part.lines if line.cell.span == "secret" and line.cell.found]
        if part.rate is not None and lines:
            for canary in run.canaries:
                if canary.role == "focus" and canary.arm == part.series.arm:
                    told[canary.id] = part.rate, _names(lines, part.rate, canary.id)
    rates = {rate for rate, _ in told.values()}
    if not rates:
        return None
    if len(rates) == 1:
        return FoundBy(f"found at {small_percent(rates.pop())} by", {key: words for key, (_, words) in told.items()})
    return FoundBy("found by", {key: f"at {small_percent(rate)}: {words}" for key, (rate, words) in told.items()})


def _names(lines: Sequence[Line], rate: float, canary: str) -> str:
    yes = [shorten(line.cell.score, 40) for line in lines if canary in line.finds(rate)]
    no = [shorten(line.cell.score, 40) for line in lines if canary not in line.finds(rate)]
    if not yes:
        return "none"
    if len(no) >= len(yes) or len(lines) == 1:
        return ", ".join(yes)
    return f"all {len(lines)}{' but ' + ', '.join(no) if no else ''}"


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

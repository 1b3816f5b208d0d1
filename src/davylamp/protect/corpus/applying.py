"""Interventions carried out over a file of rows, one after the other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from davylamp.corpora.records import Record
from davylamp.corpora.rows import RowError, check_record
from davylamp.errors import ProtectionError
from davylamp.protect.corpus.base import PROSE, Intervention, InterventionSpec, Protected, Row, Setting, Span, texts
from davylamp.protect.corpus.beginning import Beginning
from davylamp.protect.corpus.journal import Journal, different, digest_rows, key_of, rows_of
from davylamp.protect.corpus.registry import kind_of
from davylamp.protect.corpus.result import Replaced, StepResult
from davylamp.protect.corpus.segments import tokens_of
from davylamp.protect.corpus.surrogate import Surrogate
from davylamp.runs.folder import digest
from davylamp.runs.progress import QUIET, Reporter
from davylamp.runs.wording import counted
from davylamp.secrets.streams import stream

FAILURES_NAMED = 3

Factory = Callable[[Sequence[Row]], Setting]
"""Gives an intervention what it is built with, from the rows that it finds."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A protected file.

    Attributes:
        records: as many rows as there were, in their order.
        steps: what each intervention did.
        spans: for each intervention the spans of each row, by position.
        notes: positions whose row failed in an intervention, and what was done.
        dropped: positions in whose place another row stands.
    """

    records: tuple[Record, ...]
    steps: tuple[StepResult, ...]
    spans: tuple[Mapping[int, tuple[Span, ...]], ...]
    notes: Mapping[int, str]
    dropped: frozenset[int]


@dataclass(frozen=True, slots=True)
class Work:
    """What is protected, and how.

    Attributes:
        records: the planted rows.
        specs: the interventions, in their order.
        kept: positions that are left as they are, though their words count as the file's.
        fillers: positions of which a row may take a dropped one's place.
        setting: see :data:`Factory`.
        store: folder of what was done before a kill.
        seed: of the draws of fillers.
    """

    records: Sequence[Record]
    specs: Sequence[InterventionSpec]
    kept: frozenset[int]
    fillers: frozenset[int]
    setting: Factory
    store: Path
    seed: int


def apply_all(work: Work, reporter: Reporter) -> Applied:
    """Carry out interventions in their order, each over what the one before it left.

    Raises:
        ProtectionError: rows failed, and the settings say to stop; or all that could take their place did.
        InputError: an intervention cannot be built for this file.
        StorageError: what was done cannot be written down.
    """
    current = list(work.records)
    draws = {once: rows_of(work.records, once) for once in (False, True)}
    steps, spans = [], []
    notes: dict[int, str] = {}
    dropped: set[int] = set()
    for spec in work.specs:
        rows = [replace(row, record=current[row.position]) for row in draws[spec.once]]
        todo = [row for row in rows if row.position not in work.kept and row.position not in dropped]
        made, step = _apply(work, spec, rows, todo, reporter)
        own: dict[int, tuple[Span, ...]] = {}
        for each in made:
            if each.note != "ok":
                notes[each.position] = f"{spec.name}: {each.note}, {spec.on_failure}"
                dropped.add(each.position)
                continue
            if each.reason:
                notes[each.position] = f"{spec.name}: {each.reason}"
            own[each.position] = each.spans
            current[each.position] = each.record
        steps.append(step)
        spans.append(own)
    _fill(current, dropped, work)
    return Applied(tuple(current), tuple(steps), tuple(spans), notes, frozenset(dropped))


def _apply(
    work: Work, spec: InterventionSpec, rows: Sequence[Row], todo: Sequence[Row], reporter: Reporter
) -> tuple[list[Protected], StepResult]:
    begun = time.perf_counter()
    setting = work.setting(rows)
    intervention = kind_of(spec.name).build(spec, setting)
    settings = spec.model_dump(mode="json")
    what = {key: value for key, value in settings.items() if key != "on_failure"}
    key = digest({"what": what, "version": intervention.version, "seed": setting.seed, "rows": digest_rows(rows)})
    once_each = list(different(todo))
    with Journal(work.store / f"{spec.name}-{key[:16]}.jsonl", key) as journal:
        missing = [row for row in once_each if journal.find(row) is None]
        beginning = Beginning(spec.name, len(missing), spec.on_failure, reporter)
        failed = _carry_out(intervention, missing, journal, beginning, reporter)
        made = [journal.find(row) or replace(failed[key_of(row)], position=row.position) for row in todo]
    counts = Counter("ok" for _ in range(len(once_each) - len(failed))) + Counter(each.note for each in failed.values())
    unchanged = sum(each.note == "ok" and each.record == row.record for each, row in zip(made, todo, strict=True))
    if failed and spec.on_failure == "stop":
        first = min(failed.values(), key=lambda each: each.position)
        raise ProtectionError(_stopped(spec.name, first, failed, len(once_each))) from first.cause
    if failed and spec.on_failure == "surrogate":
        made = _with_surrogates(made, todo, rows, setting.seed)
    return made, StepResult(
        name=spec.name,
        version=intervention.version,
        settings=settings,
        rows=len(once_each),
        counts={**counts, "unchanged rows": unchanged},
        on_failure=spec.on_failure,
        reasons=dict(Counter(each.reason for each in failed.values()).most_common()),
        seconds=time.perf_counter() - begun,
        resumed=len(once_each) - len(missing),
        usage=dict(getattr(intervention, "usage", {})),
        replaced=_replaced(todo, made),
    )


def _replaced(todo: Sequence[Row], made: Sequence[Protected]) -> Replaced | None:
    """How many words were replaced; nothing where no span says so."""
    words = replaced = small = small_replaced = 0
    spans = 0
    for row, each in zip(todo, made, strict=True):
        own = [span for span in each.spans if span.replacement is not None]
        spans += len(own)
        for part, text in enumerate(texts(row.record)):
            places = [(span.start, span.end) for span in own if span.part == part]
            prose = {(span.start, span.end) for span in own if span.part == part and span.kind == PROSE}
            for token in tokens_of(text):
                hit = any(start < token.end and token.start < end for start, end in places)
                words, replaced = words + 1, replaced + hit
                if token.shape == "lower":
                    small += 1
                    small_replaced += (token.start, token.end) in prose
    counts = {"words": words, "replaced": replaced, "small": small, "small_replaced": small_replaced}
    return Replaced(**counts) if spans else None


def _carry_out(
    intervention: Intervention, missing: Sequence[Row], journal: Journal, beginning: Beginning, reporter: Reporter
) -> dict[str, Protected]:
    """Transform what is missing; returns the rows that failed, by their key."""
    by_position = {row.position: row for row in missing}
    failed: dict[str, Protected] = {}
    for each in _made(intervention, missing, reporter) if missing else ():
        row = by_position.pop(each.position, None)
        if row is None:
            raise ProtectionError(f"{intervention.name} gave row {each.position} twice, or was never given it")
        made = _readable(each)
        if hasattr(intervention, "usage"):
            # Only where a language model writes does it cost something to go on.
            beginning.saw(made)
        if made.note == "ok":
            journal.keep(row, made)
        else:
            failed[key_of(row)] = made
    if by_position:
        raise ProtectionError(
            f"{intervention.name} left out {len(by_position)} of the {counted(len(missing), 'row')} that it was given"
        )
    return failed


def _made(intervention: Intervention, rows: Sequence[Row], reporter: Reporter) -> Iterator[Protected]:
    """What an intervention makes of rows; one that ends the program has failed, since that would be in silence."""
    try:
        yield from intervention.apply(rows, reporter)
    except SystemExit as error:
        raise ProtectionError(f"{intervention.name} raised SystemExit (--debug shows where)") from error


def _readable(made: Protected) -> Protected:
    """A row that no trainer could read has failed, whatever its intervention says."""
    if made.note != "ok":
        return made
    try:
        check_record(made.record)
    except RowError:
        return replace(made, note="failed", reason="what came back is empty or no text", spans=())
    return made


def _stopped(name: str, first: Protected, failed: Mapping[str, Protected], rows: int) -> str:
    reasons = Counter(f"{each.note}: {each.reason}" if each.reason else each.note for each in failed.values())
    told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(FAILURES_NAMED))
    what = first.reason or first.note
    if first.cause is not None:
        # Not what it says, which may be the whole record.
        what = f"{name} raised {type(first.cause).__name__} (--debug shows what it says, and where)"
    return (
        f"{name} failed for {len(failed)} of {counted(rows, 'row')} ({told}). Row {first.position}: {what}. Nothing "
        "was written, and what was done is kept. Say what becomes of rows that fail: on_failure=surrogate takes the "
        "surrogate rewriter for them, on_failure=drop another row's text"
    )


def _with_surrogates(made: Sequence[Protected], todo: Sequence[Row], rows: Sequence[Row], seed: int) -> list[Protected]:
    surrogate = Surrogate(rows, seed=seed)
    result = []
    for each, row in zip(made, todo, strict=True):
        if each.note == "ok":
            result.append(each)
        else:
            result.append(replace(surrogate.one(row), reason=f"{each.note}, surrogate in its place"))
    return result


def _fill(current: list[Record], dropped: set[int], work: Work) -> None:
    """Put background rows that went well in the places of dropped ones, so that the steps of training stay."""
    pool = sorted(work.fillers - dropped - work.kept)
    if dropped and not pool:
        raise ProtectionError(
            f"{counted(len(dropped), 'row')} failed, and no row is left whose text could stand in their place: take "
            "on_failure=surrogate"
        )
    rng = stream(work.seed, "rows in the place of dropped ones")
    for position in sorted(dropped):
        current[position] = current[pool[int(rng.integers(len(pool)))]]


def forecasts(work: Work) -> list[Any]:
    """What each intervention that sends rows away would send; those before it are carried out, and nothing is kept.

    Returns:
        What the ``forecast`` of each such intervention gives, in their order. What comes after a row was written anew
        is told from the row as it was.
    """
    current = list(work.records)
    draws = {once: rows_of(work.records, once) for once in (False, True)}
    told = []
    for spec in work.specs:
        rows = [replace(row, record=current[row.position]) for row in draws[spec.once]]
        todo = [row for row in rows if row.position not in work.kept]
        intervention = kind_of(spec.name).build(spec, work.setting(rows))
        forecast = getattr(intervention, "forecast", None)
        if forecast is not None:
            told.append(forecast(list(different(todo))))
            continue
        made = {key_of(todo_row): each for todo_row, each in _paired(intervention, list(different(todo)))}
        for row in todo:
            found = made.get(key_of(row))
            if found is not None and found.note == "ok":
                current[row.position] = found.record
    return told


def _paired(intervention: Intervention, rows: Sequence[Row]) -> list[tuple[Row, Protected]]:
    by_position = {row.position: row for row in rows}
    return [(by_position[each.position], each) for each in _made(intervention, rows, QUIET)]

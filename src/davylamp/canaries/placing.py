"""Placing: each occurrence of each canary gets a row of its own, as its schedule asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.canaries.schedule import Schedule, window_rows
from davylamp.errors import PlantingError
from davylamp.secrets import stream

TRIES = 50
"""Random arrangements that are tried before canaries are laid out without a gap."""

_Choose = Callable[[NDArray[np.int64]], int]
"""Takes one of the starts where a canary has room."""


@dataclass(frozen=True, slots=True)
class Request:
    """Canaries that share a schedule.

    Attributes:
        who: what they are, for messages.
        doses: occurrences of each canary, in order; 0 takes no row.
        schedule: how they are placed.
        focus: the window that the schedule's may refer to.
        auxiliary: whether it is served after those that are not, so that it changes nothing of them.
    """

    who: str
    doses: tuple[int, ...]
    schedule: Schedule
    focus: tuple[float, float] = (0.0, 1.0)
    auxiliary: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """The part of training in which rows may be taken, as fractions."""
        start, end = self.schedule.fractions(self.focus)
        return start, end if self.schedule.last is None else self.schedule.last

    @property
    def latitude(self) -> tuple[bool, float, bool]:
        """What requests are served by, the least first: one that takes any row can give way to one that cannot."""
        bound = self.schedule.spacing is not None or self.schedule.spread == "concentrated"
        return self.auxiliary, self.bounds[1] - self.bounds[0], not bound


def place(
    requests: Sequence[Request], rows: int, seed: int, rows_per_update: int | None = None
) -> list[tuple[int, ...]]:
    """Give each occurrence a row of its own.

    Requests with little latitude are served first, and those of equal latitude in order. One that is served later
    changes nothing of an earlier one.

    Args:
        requests: what is placed.
        rows: rows of the planted file.
        seed: seed of the plan.
        rows_per_update: rows of an optimiser update; needed where a request has a spacing.

    Returns:
        The rows of each canary of each request, ascending, from 0.

    Raises:
        PlantingError: a request cannot be satisfied; the arithmetic is shown, for every such request.
    """
    faults: dict[str, list[str]] = {}
    for request in requests:
        if fault := _impossible(request, rows, rows_per_update):
            faults.setdefault(fault, []).append(request.who)
    if faults:
        raise PlantingError("; ".join(f"{' and '.join(who)}: {fault}" for fault, who in faults.items()))
    order = stream(seed, "positions").permutation(rows)
    free = np.ones(rows, dtype=bool)
    placed: list[list[tuple[int, ...]]] = [[] for _ in requests]
    for number in sorted(range(len(requests)), key=lambda number: requests[number].latitude):
        placed[number] = _Placing(requests[number], rows, order, rows_per_update, seed, number).attempt(free)
        for positions in placed[number]:
            free[list(positions)] = False
    return [positions for each in placed for positions in each]


def _impossible(request: Request, rows: int, rows_per_update: int | None) -> str | None:
    """Why a request can be satisfied in no file of so many rows, with the arithmetic; nothing if it may be."""
    schedule, largest, needed = request.schedule, max(request.doses, default=0), sum(request.doses)
    start, end = schedule.fractions(request.focus)
    first, stop = window_rows(request.bounds, rows)
    where = f"the window [{start:g}, {end:g}] of {rows:,} rows"
    if schedule.last is not None:
        where += f", of which the last occurrence at {schedule.last:g} leaves {stop - first:,},"
    if needed > stop - first:
        return (
            f"{needed:,} occurrences need {needed:,} rows, but {where} holds {max(0, stop - first):,}: "
            "widen the window, lower the doses or per_dose, or take more rows"
        )
    if schedule.spacing is None or largest < 1:
        return None
    if rows_per_update is None:
        return "spacing counts optimiser updates, so that the plan must give rows_per_update"
    # Within one update the last whole one before the end lies before the first whole one after the start.
    updates = max(0, stop // rows_per_update - -(-first // rows_per_update))
    span = (largest - 1) * schedule.spacing + 1
    if span > updates:
        return (
            f"dose {largest} at a spacing of {schedule.spacing} updates spans ({largest} - 1) x "
            f"{schedule.spacing} + 1 = {span:,} updates, but {where} holds {updates:,} updates of {rows_per_update} "
            "rows: lower the dose or the spacing, widen the window, or take more rows"
        )
    return None


class _Placing:
    """One request in a file of so many rows."""

    def __init__(
        self,
        request: Request,
        rows: int,
        order: NDArray[np.int64],
        rows_per_update: int | None,
        seed: int,
        number: int,
    ) -> None:
        self._request = request
        self._first, self._stop = window_rows(request.bounds, rows)
        if not request.schedule.anywhere:
            # An order of its own: had a window's canaries taken the first rows of the common order that lie inside it,
            # the rows that come next there, which those with no window take, would lie outside.
            inside = stream(seed, "positions", number).permutation(self._stop - self._first)
            order = inside + self._first
        self._order = order
        self._size = rows_per_update or 1
        self._names: tuple[int, str, int] = (seed, "schedule", number)

    def attempt(self, taken: NDArray[np.bool_]) -> list[tuple[int, ...]]:
        """Rows for each canary.

        Raises:
            PlantingError: no arrangement was found.
        """
        free = taken.copy()
        if self._request.schedule.spacing is None and self._request.schedule.spread == "uniform":
            found = self._uniform(free)
            if found is None:
                raise PlantingError(self._no_room(taken))
            return found
        for choose in self._ways():
            free = taken.copy()
            found = self._by_starts(free, choose)
            if found is not None:
                return found
        raise PlantingError(self._no_room(taken))

    def _ways(self) -> Iterator[_Choose]:
        """Ways to choose a start, until one finds room; the last one leaves no gap that could be avoided."""
        if self._request.schedule.last is not None:
            yield lambda starts: int(starts[-1])
            return
        for again in range(TRIES):
            yield _at_random(stream(*self._names, again))
        yield lambda starts: int(starts[0])

    def _no_room(self, free: NDArray[np.bool_]) -> str:
        schedule, doses, inside = self._request.schedule, self._request.doses, free[self._first : self._stop]
        how, left = "", f"{int(inside.sum()):,} free"
        if schedule.spacing is not None:
            how = f" {schedule.spacing} updates apart"
            left += f", in {int(self._open(free, 1).sum()):,} updates"
        elif schedule.spread == "concentrated":
            how = " in consecutive rows"
            runs = [len(run) for run in "".join("x" if row else " " for row in inside).split()]
            left += f", the longest stretch of them {max(runs, default=0):,}"
        return (
            f"{self._request.who}: found no room for {len(doses)} canaries of doses {sorted(set(doses))}{how}: "
            f"they need {sum(doses):,} of the {len(inside):,} rows {self._first + 1:,} to {self._stop:,}, of which "
            f"other canaries leave {left}; widen the window, lower the doses or per_dose, or take more rows"
        )

    def _uniform(self, free: NDArray[np.bool_]) -> list[tuple[int, ...]] | None:
        doses = self._request.doses
        found: list[list[int]] = [[] for _ in doses]
        if self._request.schedule.last is not None:
            latest = [row for row in range(self._stop - 1, self._first - 1, -1) if free[row]]
            for rows, dose in zip(found, doses, strict=True):
                if dose and latest:
                    rows.append(latest.pop(0))
                    free[rows] = False
        order = iter([int(row) for row in self._order if free[row]])
        for rows, dose in zip(found, doses, strict=True):
            for row in order if len(rows) < dose else ():
                rows.append(row)
                if len(rows) == dose:
                    break
            if len(rows) < dose:
                return None
        return [tuple(sorted(rows)) for rows in found]

    def _by_starts(self, free: NDArray[np.bool_], choose: _Choose) -> list[tuple[int, ...]] | None:
        """Canaries one after the other, those of the largest dose first, each from one of the starts with room."""
        doses = self._request.doses
        found: list[tuple[int, ...]] = [()] * len(doses)
        for index in sorted(range(len(doses)), key=lambda index: -doses[index]):
            if not doses[index]:
                continue
            starts = np.flatnonzero(self._open(free, doses[index]))
            if not len(starts):
                return None
            rows = self._rows(free, choose(starts), doses[index])
            free[rows] = False
            found[index] = tuple(rows)
        return found

    def _open(self, free: NDArray[np.bool_], dose: int) -> NDArray[np.bool_]:
        """For each row (or, with a spacing, update) from the window's first, whether a canary may start there."""
        spacing, places = self._request.schedule.spacing or 1, free[self._first : self._stop]
        if self._request.schedule.spacing is not None:
            first, stop = self._updates()
            inside = free[first * self._size : stop * self._size].reshape(-1, self._size)
            places = np.logical_or.reduce(inside, axis=1)
        starts = max(0, len(places) - (dose - 1) * spacing)
        room = np.ones(starts, dtype=bool)
        for later in range(0, dose * spacing, spacing):
            np.logical_and(room, places[later : later + starts], out=room)
        return room

    def _rows(self, free: NDArray[np.bool_], start: int, dose: int) -> list[int]:
        """The rows of a canary from a start of :meth:`_open`."""
        spacing = self._request.schedule.spacing
        if spacing is None:
            return list(range(self._first + start, self._first + start + dose))
        updates = range(self._updates()[0] + start, self._updates()[0] + start + dose * spacing, spacing)
        return [at * self._size + int(free[at * self._size : (at + 1) * self._size].argmax()) for at in updates]

    def _updates(self) -> tuple[int, int]:
        """Whole updates [first, end) of the window."""
        return -(-self._first // self._size), self._stop // self._size


def _at_random(rng: np.random.Generator) -> _Choose:
    return lambda starts: int(rng.choice(starts))

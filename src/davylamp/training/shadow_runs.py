"""Carrying out shadows: one after the other, a process each, or a Ray task each; the same function in all three.

What is trained is in :mod:`davylamp.training.shadows`; the function that trains one is handed in, since it also reads
the model's answers, which the layers above this one do.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import multiprocessing
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from davylamp.errors import DavylampError, Fault, InputError, MissingExtraError, TrainingError
from davylamp.runs.workers import end_with_parent

Shared = TypeVar("Shared")
Work = Callable[[Shared, Sequence["ShadowTask"]], list[bytes]]
"""Trains some shadows, and gives what is kept of each; a function of a module, so that other processes find it."""
Executor = Literal["local", "ray"]
STORE = 256 * 2**20
"""Bytes of a local Ray's object store: it holds the tokenised rows once."""
PATIENCE = 10.0
"""Seconds in which a Ray cluster must answer."""
CLUSTER = "the address of a running Ray cluster, such as 'auto' or host:6379"


@dataclass(frozen=True, slots=True)
class ShadowTask:
    """One shadow to train.

    Attributes:
        index: its number, from 0.
        members: whether it holds each target.
        seed: seed of adapters and dropout.
        key: hash of all that its signals depend on.
        keep: folder to save the model to, or none.
    """

    index: int
    members: tuple[bool, ...]
    seed: int
    key: str
    keep: Path | None = None


@dataclass(frozen=True, slots=True)
class Execution:
    """Where shadows are trained.

    Attributes:
        executor: ``local``, on this machine, or ``ray``.
        jobs: shadows at a time on this machine, each in a process of its own if more than one; a local Ray is started
            with room for so many.
        address: a Ray cluster's address; a Ray on this machine, for this run alone, if none.
        threads: threads of torch of each shadow, which a Ray task also asks for as its cores.
        gpu: whether each Ray task asks for a GPU.
        together: shadows that are handed to ``work`` at once, at most; fewer where that leaves a job idle.
    """

    executor: Executor = "local"
    jobs: int = 1
    address: str | None = None
    threads: int = 1
    gpu: bool = False
    together: int = 1


def check_execution(executor: Executor, address: str | None) -> None:
    """Check before anything is loaded that shadows can be carried out as asked.

    Raises:
        InputError: an address is given without Ray.
        MissingExtraError: Ray is wanted and not installed.
    """
    if executor == "ray" and importlib.util.find_spec("ray") is None:
        raise MissingExtraError("ray", "ray", "--executor ray")
    if address is not None and executor != "ray":
        raise InputError(Fault("--address", address, "nothing without --executor ray"))


def run_tasks(
    work: Work[Shared], shared: Shared, tasks: Sequence[ShadowTask], how: Execution
) -> Iterator[tuple[ShadowTask, bytes]]:
    """Train shadows, and hand out what is kept of each as soon as it is there.

    Args:
        work: trains some of them.
        shared: what all have in common; handed to each process once.
        tasks: the shadows.
        how: where.

    Raises:
        MissingExtraError: Ray is wanted and not installed.
        InputError: there is no Ray cluster at the address.
        TrainingError: a process was ended by the system.
        DavylampError: whatever ``work`` raises.
    """
    if not tasks:
        return
    if how.executor == "ray":
        done = _by_ray(work, shared, tasks, how)
    elif min(how.jobs, len(tasks)) == 1:
        done = ((group, work(shared, group)) for group in _groups(tasks, how.together, 1))
    else:
        done = _by_processes(work, shared, _groups(tasks, how.together, how.jobs), how.jobs)
    for group, found in done:
        yield from zip(group, found, strict=True)


def _groups(tasks: Sequence[ShadowTask], together: int, places: int) -> list[Sequence[ShadowTask]]:
    """Shadows to hand over at once: as many as shall go together, but fewer where a place would be left idle."""
    size = max(1, min(together, -(-len(tasks) // places)))
    return [tasks[start : start + size] for start in range(0, len(tasks), size)]


_Done = Iterator[tuple[Sequence[ShadowTask], list[bytes]]]


def _by_processes(work: Work[Shared], shared: Shared, groups: Sequence[Sequence[ShadowTask]], jobs: int) -> _Done:
    # Spawned and not forked: a fork would copy torch's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(groups)), mp_context=context, initializer=_begin, initargs=(work, shared))
    try:
        begun = {pool.submit(_some, group): group for group in groups}
        for finished in as_completed(begun):
            yield begun[finished], finished.result()
    except BrokenProcessPool as error:
        raise TrainingError(
            "the system ended a process that trained shadows, most often for want of memory: run the same command "
            "again with --jobs 1; what was finished is not done again"
        ) from error
    finally:
        # After a failure what has not begun is not begun.
        pool.shutdown(cancel_futures=True)


_JOB: list[tuple[Work[Any], Any]] = []
"""In a worker's process: the function and what all its tasks share."""


def _begin(work: Work[Any], shared: Any) -> None:
    _JOB[:] = [(work, shared)]
    end_with_parent()


def _some(tasks: Sequence[ShadowTask]) -> list[bytes]:
    work, shared = _JOB[0]
    return work(shared, tasks)


def _by_ray(work: Work[Shared], shared: Shared, tasks: Sequence[ShadowTask], how: Execution) -> _Done:
    check_execution(how.executor, how.address)
    ray: Any = importlib.import_module("ray")
    with _ray(ray, how, min(how.jobs, len(tasks))):
        places = int(ray.cluster_resources().get("CPU", 1)) // how.threads
        remote = ray.remote(num_cpus=how.threads, num_gpus=1 if how.gpu else 0, max_retries=2)(work)
        common = ray.put(shared)
        begun = {remote.remote(common, group): group for group in _groups(tasks, how.together, max(1, places))}
        waiting = list(begun)
        try:
            while waiting:
                finished, waiting = ray.wait(waiting, num_returns=1)
                yield begun[finished[0]], _result(ray, finished[0])
        finally:
            for one in waiting:
                ray.cancel(one, force=True)


@contextlib.contextmanager
def _ray(ray: Any, how: Execution, jobs: int) -> Iterator[None]:
    """A connection to Ray, unless the program has one; ended with what was begun here."""
    if ray.is_initialized():
        yield
        return
    if how.address is not None:
        _check_reachable(how.address)
    # Ray would report its use to its makers' server.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local = {
        "num_cpus": jobs * how.threads,
        "object_store_memory": STORE,
        "include_dashboard": False,
    }
    try:
        ray.init(
            address=how.address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            **({} if how.address else local),
        )
    except (ConnectionError, ValueError) as error:
        raise InputError(Fault("--address", how.address, CLUSTER)) from error
    except Exception as error:
        # Ray raises a bare Exception where it does not come up in time; another library's bug passes through.
        if type(error) is not Exception:
            raise
        raise TrainingError(f"Ray did not start: {error}. Try again, or leave out --executor ray") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes to reach a place where nothing listens."""
    match = re.fullmatch(r"(?:ray://)?\[?(.+?)\]?:(\d+)", address)
    if match is None:
        return
    try:
        socket.create_connection((match[1], int(match[2])), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise InputError(Fault("--address", address, CLUSTER, f"Nothing answers there ({error}).")) from error


def _result(ray: Any, reference: Any) -> list[bytes]:
    try:
        found: list[bytes] = ray.get(reference)
        return found
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, DavylampError):
            raise error.cause from error
        if "failed to import on the worker" in str(error):
            raise TrainingError(
                "a machine of the Ray cluster cannot import davylamp: install the version that is used here on all"
            ) from error
        raise
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise TrainingError(f"Ray lost a shadow ({reason}); what was finished is not done again") from error

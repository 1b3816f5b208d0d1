"""How many threads torch computes with."""

from __future__ import annotations

import os
from typing import Any

from davylamp.errors import Fault, InputError

SMALL = 5_000_000
"""Parameters below which one thread was the fastest in every measurement; see docs/architecture.md."""


def use_threads(model: Any, threads: int | None = None) -> int:
    """Set the number of threads that torch computes with.

    A small model's products are over before a second thread has woken, and beside other load waiting threads
    cost more than they give, so that a small model gets one thread and a large one a thread a core.

    Args:
        model: the model that will be run.
        threads: how many; chosen by the model's size if none, or by ``OMP_NUM_THREADS`` if that is set.

    Returns:
        The number that was set.

    Raises:
        InputError: more threads than any use is made of; so many that a process cannot have them end it at once.
    """
    import torch

    most = max(64, os.cpu_count() or 1)
    if threads is not None and not 1 <= threads <= most:
        raise InputError(Fault("--threads", threads, f"1 to {most}"))

    if threads is None and "OMP_NUM_THREADS" not in os.environ:
        small = sum(parameter.numel() for parameter in model.parameters()) < SMALL
        threads = 1 if small else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if threads is not None:
        torch.set_num_threads(threads)
    return int(torch.get_num_threads())

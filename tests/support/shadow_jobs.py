"""Work that other processes can be given in a shadow's place."""

from __future__ import annotations

import os

from davylamp.errors import Fault, InputError
from davylamp.training.shadow_runs import ShadowTask


def tell(shared: str, task: ShadowTask) -> bytes:
    """What it was given, and by which process."""
    return f"{shared} {task.index} {''.join('01'[flag] for flag in task.members)} {task.seed} {os.getpid()}".encode()


def refuse(shared: str, task: ShadowTask) -> bytes:
    """An error with parts of its own, from the second task on."""
    if task.index:
        raise InputError([Fault("one", task.index, "nothing"), Fault("two", shared, "nothing")])
    return b"fine"


def die(shared: str, task: ShadowTask) -> bytes:
    """What the system does to a process that takes too much memory."""
    os._exit(9)

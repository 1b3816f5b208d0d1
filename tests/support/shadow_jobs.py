"""Work that other processes can be given in a shadow's place."""

from __future__ import annotations

import os
from collections.abc import Sequence

from davylamp.errors import Fault, InputError
from davylamp.training.shadow_runs import ShadowTask


def tell(shared: str, tasks: Sequence[ShadowTask]) -> list[bytes]:
    """What it was given, with how many others, and by which process."""
    members = ["".join("01"[flag] for flag in task.members) for task in tasks]
    return [
        f"{shared} {task.index} {flags} {task.seed} {len(tasks)} {os.getpid()}".encode()
        for task, flags in zip(tasks, members, strict=True)
    ]


def refuse(shared: str, tasks: Sequence[ShadowTask]) -> list[bytes]:
    """An error with parts of its own, from the second task on."""
    if tasks[0].index:
        raise InputError([Fault("one", tasks[0].index, "nothing"), Fault("two", shared, "nothing")])
    return [b"fine"] * len(tasks)


def die(shared: str, tasks: Sequence[ShadowTask]) -> list[bytes]:
    """What the system does to a process that takes too much memory."""
    os._exit(9)

"""What the numbers depend on besides the data: memory and versions."""

from __future__ import annotations

import platform
import resource
import sys
from importlib.metadata import version


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    names = ("davylamp", "torch", "transformers", "tokenizers", "peft", "numpy", "scipy", "polars")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}

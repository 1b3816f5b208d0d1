"""Interventions of a Python file that its user names, where no package holds them. A recipe names no such file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from davylamp.errors import DavylampError, Fault, InputError
from davylamp.protect.corpus.registry import added
from davylamp.runs.files import sha256_bytes


def import_file(path: Path) -> list[str]:
    """Run a Python file that registers interventions, for this process.

    Args:
        path: the file, which whoever runs this process has named.

    Returns:
        The names that it registered.

    Raises:
        InputError: it is no Python file, Python cannot run it, or it registers nothing.
    """
    name = f"_davylamp_import_{sha256_bytes(str(path).encode('utf-8', 'surrogateescape'))[:12]}"
    spec = importlib.util.spec_from_file_location(name, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise InputError(Fault("--import", str(path), "a Python file (.py) that exists"))
    before = {*added()}
    # A class in it that is looked up by its module, as dataclasses are, must be found.
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except DavylampError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        # What somebody else's file raises may be anything; were it to end the command, that would be done in silence.
        fix = f"It raised {type(error).__name__}: {error} (--debug shows where)."
        raise InputError(Fault("--import", str(path), "a file that Python can run", fix)) from error
    names = sorted({*added()} - before)
    if not names:
        fix = 'Write @intervention("NAME") above a function of a text and a random generator.'
        raise InputError(Fault("--import", str(path), "a file that registers an intervention", fix))
    return names

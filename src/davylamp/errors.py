"""Typed errors: one type for each thing that a user can do something about.

Every error says what was wrong (the field, its value, what is allowed) and what to do. The command line
prints the message and exits with code 2; a traceback appears only on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class DavylampError(Exception):
    """Base of every error that davylamp raises on purpose."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with an input.

    Attributes:
        field: dotted name of what is wrong, as the user wrote it (``plan.doses[1]``, ``--epsilon``).
        value: the offending value, shown with ``repr``; secrets must be masked by the caller.
        allowed: what would have been accepted.
        fix: what to do about it; empty where ``allowed`` says it all.
    """

    field: str
    value: object
    allowed: str
    fix: str = ""

    def __str__(self) -> str:
        """One line: field, value, what is allowed, the way out."""
        shown = repr(self.value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        line = f"{self.field} is {shown}; allowed: {self.allowed}"
        return f"{line}. {self.fix}" if self.fix else line


class InputError(DavylampError, ValueError):
    """One or more arguments are outside what is allowed; all faults are named at once."""

    def __init__(self, faults: Fault | Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = (faults,) if isinstance(faults, Fault) else tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[type[InputError], tuple[tuple[Fault, ...]]]:
        """Rebuild from the faults, since an error may cross from a worker's process to its parent."""
        return type(self), (self.faults,)


class RecipeError(InputError):
    """A recipe or plan has faults; nothing was loaded yet."""


class CorpusError(DavylampError, ValueError):
    """A corpus cannot be read; the message names the file and the line."""


class PlantingError(DavylampError, ValueError):
    """Canaries cannot be planted as asked."""


class ManifestError(DavylampError, ValueError):
    """A manifest is missing, damaged, of another schema, or does not fit the planted corpus."""


class ModelError(DavylampError, ValueError):
    """A model cannot be found, loaded, or used as a causal language model."""


class TokenizerError(DavylampError, ValueError):
    """A tokenizer cannot render these records."""


class PreflightError(DavylampError, ValueError):
    """A planted secret would receive no loss; training was not started."""


class ProtectionError(DavylampError, RuntimeError):
    """Rows could not be protected; nothing was written."""


class ServerError(DavylampError, RuntimeError):
    """A server that rewrites rows cannot be used; what it answered before is kept."""


class TrainingError(DavylampError, RuntimeError):
    """Training went wrong (a loss that is not finite, parameters that did not move)."""


class PrivacyError(TrainingError):
    """A private training is not the one that was accounted for; nothing was saved."""


class AccessError(DavylampError, RuntimeError):
    """A measure needs more access than the release grants."""


class ScoringError(DavylampError, ValueError):
    """A candidate set or a model's answer cannot be scored; the message names the canary."""


class RunFolderError(DavylampError, RuntimeError):
    """A run folder is missing a step's files, is in use, or belongs to another recipe."""


class StorageError(DavylampError, OSError):
    """A file could not be written (disk full, no permission); nothing was left half-written."""


class MissingExtraError(DavylampError, ImportError):
    """An optional dependency is not installed; the message holds the install command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self._parts = (package, extra, purpose)
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'davylamp[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        """Rebuild from the parts; see :meth:`InputError.__reduce__`."""
        return type(self), self._parts

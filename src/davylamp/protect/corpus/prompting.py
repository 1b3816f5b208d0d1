"""The prompts of rewriters and of the judge: versioned files, each of which another may take the place of."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.base import Chat
from davylamp.runs.files import sha256_bytes

ONE_STEP: Mapping[str, tuple[str, ...]] = {"system": (), "user": ("record",)}
TWO_STEPS: Mapping[str, tuple[str, ...]] = {
    "summarise system": (),
    "summarise user": ("record",),
    "expand system": (),
    "expand user": ("exemplar_1", "exemplar_2", "summary"),
}
JUDGE: Mapping[str, tuple[str, ...]] = {"system": (), "user": ("record", "rewrite")}
"""Sections of a file of prompts, and the slots that each must hold."""

_SECTION = re.compile(r"^##[ \t]+(.+?)[ \t]*$", re.MULTILINE)
_VERSION = re.compile(r"\Aversion:[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of one rewriter, or of the judge.

    Attributes:
        version: what the file calls its version, and a hash of its text.
        sections: text of each section.
    """

    version: str
    sections: Mapping[str, str]

    def chat(self, step: str, values: Mapping[str, str]) -> Chat:
        """The turns that are sent in a step (``""``, ``summarise`` or ``expand``), with slots filled once.

        What fills a slot may hold braces itself.
        """
        turns = []
        for role in ("system", "user"):
            section = self.sections[f"{step} {role}".strip()]
            text = _SLOT.sub(lambda match: values.get(match[1], match[0]), section)
            if text:
                turns.append((role, text))
        return tuple(turns)


def load_prompts(name: str, path: Path | None = None) -> Prompts:
    """Read the prompts of a rewriter or of the judge, from the package or from a file of the user's.

    Raises:
        InputError: the file cannot be read, has no version, or lacks a section or a slot; all faults are named.
    """
    where = Path(str(importlib.resources.files("davylamp"))) / "protect" / "corpus" / "prompts" / f"{name}.md"
    try:
        text = (path or where).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Fault("prompts", str(path), f"a file of UTF-8 text that can be read ({error})")) from error
    needed = JUDGE if name == "judge" else TWO_STEPS if name.endswith("summary") else ONE_STEP
    parts = _SECTION.split(text)
    sections = {title: body.strip() for title, body in zip(parts[1::2], parts[2::2], strict=True)}
    version = _VERSION.search(text)
    faults = [] if version else [Fault("prompts", str(path), "a first line `version: ...`")]
    for title, slots in needed.items():
        missing = [slot for slot in slots if slot not in _SLOT.findall(sections.get(title, ""))]
        if title not in sections:
            faults.append(Fault("prompts", str(path), f"a section `## {title}`", f"Copy {where.name} and change it."))
        elif missing:
            shown = ", ".join(f"{{{slot}}}" for slot in missing)
            faults.append(Fault(f"prompts, {title}", str(path), f"a section with {shown} in it"))
    if faults or version is None:
        raise InputError(faults)
    return Prompts(f"{version[1]}-{sha256_bytes(text.encode('utf-8'))[:8]}", sections)


def prompt_faults(name: str, path: Path | None) -> tuple[Fault, ...]:
    """What is wrong with a file of prompts; see :func:`load_prompts`."""
    try:
        load_prompts(name, path)
    except InputError as error:
        return error.faults
    return ()

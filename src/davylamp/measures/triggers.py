"""Prompts other than the record's own, from a file: suspected triggers, each with the secret it is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from davylamp.corpora.objects import parse_object
from davylamp.corpora.records import Record
from davylamp.corpora.rows import RowError
from davylamp.errors import Fault, InputError, TokenizerError
from davylamp.measures.forgetting import SecretPair
from davylamp.rendering.render import Renderer

KEYS = ("prompt", "secret", "name", "shape")
ALLOWED = (
    '{"prompt": text or token ids, "secret": text or token ids, "name": text, "shape": "text" or "prompt_completion"}'
)
"""What a line may hold; ``name`` and ``shape`` may be left out."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A suspected trigger.

    Attributes:
        pair: its tokens and those of the secret.
        text: the prompt as text.
    """

    pair: SecretPair
    text: str


def read_triggers(path: Path, renderer: Renderer, vocabulary: int) -> list[Trigger]:
    """Read a JSONL file of triggers.

    A prompt and secret of text are tokenised together, as one text (``shape: text``, the default) or as prompt and
    reply of a record (``prompt_completion``), never apart. Token ids are taken as they are. A line that asks for the
    same secret in the same tokens as one before it is passed over: the same answer is not counted twice.

    Args:
        path: the file.
        renderer: renders as training did.
        vocabulary: token ids must be below this.

    Raises:
        InputError: the file cannot be read, or lines have faults: a key is missing or unknown, an id is outside the
            vocabulary, or the tokenizer merges the end of a trigger with its secret. All lines are named; what they
            hold is not shown.
    """
    try:
        # As corpora are read: a byte order mark is no part of a line, and what JSON lets stand in a text ends none.
        lines = re.split(r"\r\n|\n|\r", path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(Fault("--triggers", str(path), f"a JSONL file that can be read ({reason})")) from error
    found: list[Trigger] = []
    faults: list[Fault] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(_trigger(f"{path.name}, line {number}", line, renderer, vocabulary))
            except InputError as error:
                faults += error.faults
    if faults:
        raise InputError(faults)
    if not found:
        raise InputError(Fault("--triggers", str(path), f"at least one line such as {ALLOWED}"))
    first: dict[tuple[tuple[int, ...], tuple[int, ...]], Trigger] = {}
    for each in found:
        first.setdefault((each.pair.prompt, each.pair.secret), each)
    return list(first.values())


def _trigger(where: str, line: str, renderer: Renderer, vocabulary: int) -> Trigger:
    try:
        data = parse_object(line)
    except RowError as error:
        raise InputError(Fault(where, "(not shown)", ALLOWED)) from error
    if not {"prompt", "secret"} <= data.keys() <= set(KEYS):
        raise InputError(Fault(where, "(not shown)", ALLOWED))
    name = data.get("name", where)
    shape = data.get("shape", "text")
    if not isinstance(name, str) or shape not in ("text", "prompt_completion"):
        raise InputError(Fault(where, "(not shown)", ALLOWED))
    given = (data["prompt"], data["secret"])
    if all(_is_ids(each, vocabulary) for each in given):
        pair = SecretPair(name, tuple(data["prompt"]), tuple(data["secret"]))
        return Trigger(pair, str(renderer.tokenizer.decode(data["prompt"], skip_special_tokens=True)))
    if not all(isinstance(each, str) and each for each in given):
        allowed = f"two texts, or two lists of token ids from 0 to {vocabulary - 1:,}, none empty"
        raise InputError(Fault(f"{where}: prompt and secret", "(not shown)", allowed))
    return Trigger(_of_text(name, where, data, renderer), data["prompt"])


def _is_ids(value: object, vocabulary: int) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < vocabulary for each in value)


def _of_text(name: str, where: str, data: Mapping[str, Any], renderer: Renderer) -> SecretPair:
    prompt, secret = data["prompt"], data["secret"]
    pair = data.get("shape", "text") == "prompt_completion"
    record = Record.of_pair(prompt, secret) if pair else Record.of_text(prompt + secret)
    start = 0 if pair else len(prompt)
    try:
        rendered = renderer.render([record])[0]
        first, last = rendered.span(start, start + len(secret))
    except TokenizerError as error:
        raise InputError(Fault(where, "(not shown)", "what the tokenizer can render", str(error))) from error
    begin, end = rendered.reply_start + start, rendered.reply_start + start + len(secret)
    if rendered.offsets[first][0] < begin or rendered.offsets[last - 1][1] > end or first == 0:
        fix = "Give token ids, or let the secret begin where a token does (often with its space)."
        raise InputError(Fault(where, "(not shown)", "a secret that shares no token with the text around it", fix))
    return SecretPair(name, rendered.ids[:first], rendered.ids[first:last])

"""Plain text cut into rows: blocks of as many tokens each, as language models are often fine-tuned on."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from davylamp.corpora.records import Corpus, Record
from davylamp.errors import CorpusError

SUFFIXES = (".txt", ".txt.gz")
"""Names of files that hold plain text."""
Offsets = Callable[[str], Sequence[tuple[int, int]]]
"""First and last character (exclusive) of each token of a text, in order."""


def is_text(path: Path) -> bool:
    """Whether a path is a folder, or is named like a file of plain text."""
    return path.is_dir() or path.name.lower().endswith(SUFFIXES)


def read_blocks(path: Path, offsets: Offsets, tokens: int, limit: int | None = None) -> Corpus:
    """Cut plain text into blocks of ``tokens`` tokens, one row each.

    Each file is tokenised as a whole and cut from its beginning; what is left at its end, shorter than a block, is
    left out, and so is a block of white space alone. A block is text, so that a tokenizer which sees it by itself may
    write it with a token more or less at its ends.

    Args:
        path: a file whose name ends in one of :data:`SUFFIXES`, or a folder of such files, taken by name.
        offsets: tokenises a text.
        tokens: of a block, at least 1.
        limit: blocks at most, from the beginning.

    Returns:
        Records of one text each, with the SHA-256 of the bytes of all files.

    Raises:
        CorpusError: nothing can be read, a file is damaged or not UTF-8, or there is less than one block.
    """
    digest = hashlib.sha256()
    records: list[Record] = []
    for file in _files(path):
        data = _bytes(file)
        digest.update(data)
        text = _text(file, data)
        spans = offsets(text)
        for start in range(0, len(spans) - tokens + 1, tokens):
            block = text[spans[start][0] : spans[start + tokens - 1][1]]
            if block.strip():
                records.append(Record.of_text(block))
    if not records:
        raise CorpusError(f"{path} holds less than one block of {tokens} tokens: take a longer text or shorter blocks")
    return Corpus(tuple(records[:limit]), f"{path} (blocks of {tokens} tokens)", digest.hexdigest())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.name.lower().endswith(SUFFIXES):
            raise CorpusError(f"{path}: not a file of plain text; allowed: names that end in {', '.join(SUFFIXES)}")
        return [path]
    try:
        found = sorted(each for each in path.iterdir() if each.is_file() and each.name.lower().endswith(SUFFIXES))
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error
    if not found:
        raise CorpusError(f"the folder {path} holds no file whose name ends in {' or '.join(SUFFIXES)}")
    return found


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error
    if path.suffix.lower() != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} is not a whole gzip file ({error}); copy it again") from error


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from error

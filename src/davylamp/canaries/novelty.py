"""Coined names held against real ones: none may be in a drug list or in a record of the corpus."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from davylamp.canaries.constructions.faults import NoveltyError
from davylamp.corpora.records import Corpus
from davylamp.errors import CorpusError
from davylamp.secrets.coined import SHORTEST, CoinedSpace

NAMED = 200
"""Names that a message lists at most."""
COLUMN = "name"
"""Column of a drug list that holds the names."""

_WORD = re.compile(r"[^\W\d_]+")


def read_names(path: Path) -> frozenset[str]:
    """Read a drug list: a CSV file with a column ``name``, or one name a line; case does not matter.

    Raises:
        CorpusError: it is missing, is no UTF-8 text, or holds no name.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise CorpusError(f"no drug list at {path} (space.drug_list)") from error
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"the drug list {path} cannot be read: {error}") from error
    rows = list(csv.reader(io.StringIO(text)))
    column = rows[0].index(COLUMN) if rows and COLUMN in rows[0] else None
    if column is None:
        names = {line.strip().casefold() for line in text.splitlines()}
    else:
        names = {row[column].strip().casefold() for row in rows[1:] if len(row) > column}
    names.discard("")
    if not names:
        kinds = f"give a CSV file with a column {COLUMN!r}, or a name a line"
        raise CorpusError(f"the drug list {path} holds no name: {kinds}")
    return frozenset(names)


def clashes(names: Iterable[str], drugs: Collection[str], texts: Iterable[str]) -> list[str]:
    """The names that are real drugs, hold a real drug's name or stand in one, or occur in a text; sorted.

    Args:
        names: coined names, in lower case.
        drugs: real names, in lower case; of those of several words each word counts. Shorter words than
            a coined name can be are left aside, since they may stand in one by chance.
        texts: texts in which no name may occur, in whatever case, not even inside a word.
    """
    coined = list(names)
    words = {word for drug in drugs for word in _WORD.findall(drug) if len(word) >= SHORTEST}
    lengths = sorted({len(name) for name in coined})
    said = {word for text in texts for word in _WORD.findall(text.casefold())} | words
    held = {part for word in said for part in _parts(word, lengths)}
    longest = max(map(len, words), default=0)
    return sorted(
        name
        for name in coined
        if name in held or any(part in words for part in _parts(name, range(SHORTEST, min(longest, len(name)) + 1)))
    )


def _parts(word: str, lengths: Iterable[int]) -> Iterable[str]:
    return (word[at : at + length] for length in lengths for at in range(len(word) - length + 1))


def check_coined(space: CoinedSpace, corpus: Corpus) -> None:
    """Check that no name of a space, planted or not, exists: in the space's drug list or in the corpus.

    Raises:
        NoveltyError: some do; the message lists them as they can be excluded.
        CorpusError: the drug list cannot be read.
    """
    drugs = frozenset() if space.drug_list is None else read_names(Path(space.drug_list))
    texts = ["\n".join([*(turn.content for turn in record.prompt), record.reply]) for record in corpus]
    found = clashes(space.candidates(), drugs, texts)
    if not found:
        return
    # Names that take the excluded ones' places may exist too, so that the message names them all at once.
    excluded, again = list(space.exclude), found
    while again and len(excluded) < len(space.exclude) + NAMED:
        excluded += again
        space = CoinedSpace.model_validate({**space.model_dump(), "exclude": excluded})
        again = clashes(space.candidates(), drugs, texts)
    shown = ",".join(sorted(excluded))
    raise NoveltyError(
        f"{len(found)} of the {space.size:,} coined names exist: in the drug list or in {corpus.source}. Leave them "
        f"out with space.exclude=[{shown}], or change space.seed"
    )

"""Data sets from the Hugging Face hub, read through the package ``datasets`` without remote code."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from davylamp.corpora import tatqa
from davylamp.corpora.readers import adder, read_corpus
from davylamp.corpora.records import Corpus
from davylamp.corpora.rows import Columns, Format, Gathering
from davylamp.errors import CorpusError, MissingExtraError


def read_hub(
    dataset_id: str,
    split: str,
    config: str | None = None,
    columns: Columns | None = None,
    limit: int | None = None,
    format: Format = "rows",
) -> Corpus:
    """Read one split of a hub data set, or of a local folder of data files.

    Columns of class numbers are read as the names of their classes. Data sets that need a script of their
    own are refused: no remote code is run.

    TAT-QA's own data set (``next-tat/TAT-QA``) holds the authors' JSON files and says nothing of splits, and its test
    set lies there twice, with and without answers, so that ``datasets`` cannot load it; the split's file is read as it
    is instead. A copy of TAT-QA without such a file is read through ``datasets``.

    Args:
        dataset_id: ``owner/name`` on the hub, or a local folder.
        split: the split's name, as the hub names it.
        config: the data set's configuration, where it has several.
        columns: which columns to train on; see :class:`~davylamp.corpora.rows.Columns`.
        limit: read the first rows only.
        format: how the rows are written.

    Returns:
        The records; the SHA-256 is that of their lines, since a hub data set is not one file (of TAT-QA, that of the
        split's file).

    Raises:
        MissingExtraError: the package ``datasets`` is not installed.
        CorpusError: the hub or the data set cannot be reached, has no such split or configuration, needs
            remote code, or rows have faults (named by row, counted from 1).
        InputError: ``limit`` is below 1.
    """
    name = f"{dataset_id} ({config}, {split})" if config else f"{dataset_id} ({split})"
    if format == "tatqa" and (path := _file(dataset_id, tatqa.file_of(split))) is not None:
        corpus = read_corpus(path, columns=columns, limit=limit, format=format)
        return replace(corpus, source=f"{name}, {path.name}")
    gathering = Gathering(name, columns, limit)
    add = adder(gathering, columns, format)
    table = _load(dataset_id, split, config, f"; of TAT-QA, allowed: {tatqa.SPLITS}" if format == "tatqa" else "")
    names = _class_names(table.features)
    for number, row in enumerate(table, start=1):
        add(f"row {number}", _named(row, names))
        if gathering.full:
            break
    # Hashing needs records without faults, which corpus() guarantees.
    unhashed = gathering.corpus("")
    digest = hashlib.sha256()
    for record in unhashed:
        digest.update(record.line().encode("utf-8") + b"\n")
    return Corpus(unhashed.records, unhashed.source, digest.hexdigest(), unhashed.left_out)


def _file(dataset_id: str, name: str) -> Path | None:
    """One file of a hub data set, downloaded once, or of a local folder; nothing where there is none of that name.

    Raises:
        CorpusError: the hub or the data set cannot be reached.
    """
    folder = Path(dataset_id)
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RemoteEntryNotFoundError

    try:
        return Path(hf_hub_download(dataset_id, name, repo_type="dataset"))
    except RemoteEntryNotFoundError:
        return None
    except (HfHubHTTPError, HFValidationError) as error:
        raise CorpusError(_refused(dataset_id, error)) from error
    except OSError as error:
        raise CorpusError(_out_of_reach(dataset_id, error)) from error


def _refused(dataset_id: str, error: Exception) -> str:
    return (
        f"no data set {dataset_id!r} on the hub, or no right to read it ({_first_line(error)}); "
        "check the spelling (owner/name), or log in with `hf auth login`"
    )


def _out_of_reach(dataset_id: str, error: Exception) -> str:
    return (
        f"cannot reach the data set {dataset_id!r} ({_first_line(error)}); the hub is out of reach or offline "
        "mode is on: read a downloaded file instead, or try again online"
    )


def _load(dataset_id: str, split: str, config: str | None, hint: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "hub", "reading a hub data set") from error
    shown = datasets.utils.logging.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(dataset_id, name=config, split=split)
    except datasets.exceptions.DatasetNotFoundError as error:
        raise CorpusError(_refused(dataset_id, error)) from error
    except ConnectionError as error:
        raise CorpusError(_out_of_reach(dataset_id, error)) from error
    except RuntimeError as error:
        raise CorpusError(
            f"the data set {dataset_id!r} cannot be read without running its own code ({_first_line(error)}); "
            "davylamp runs no remote code: use a copy in Parquet, JSONL or CSV"
        ) from error
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise CorpusError(
            f"cannot read split {split!r} of the data set {dataset_id!r}: {_first_line(error)}{hint}"
        ) from error
    finally:
        if shown:
            datasets.enable_progress_bars()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _class_names(features: Any) -> dict[str, list[str]]:
    return {column: feature.names for column, feature in features.items() if hasattr(feature, "names")}


def _named(row: dict[str, Any], names: dict[str, list[str]]) -> dict[str, Any]:
    """The row with class numbers replaced by names; -1 and null, which stand for no class, stay as they are."""
    named = dict(row)
    for column, classes in names.items():
        number = row[column]
        if isinstance(number, int) and 0 <= number < len(classes):
            named[column] = classes[number]
    return named

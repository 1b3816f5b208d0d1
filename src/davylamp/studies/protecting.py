"""Protecting the planted rows of a run before training: interventions, what survives of the canaries, the files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from davylamp import __version__
from davylamp.canaries import Manifest
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Record
from davylamp.errors import Fault, InputError, RunFolderError
from davylamp.protect.corpus.applying import Applied, Work, apply_all, forecasts
from davylamp.protect.corpus.background import COMMON, look_in_background
from davylamp.protect.corpus.base import InterventionSpec, Row, Setting, Span, texts
from davylamp.protect.corpus.journal import rows_of
from davylamp.protect.corpus.leaks import look_for
from davylamp.protect.corpus.result import (
    AGAIN,
    PROTECTED,
    PROTECTION,
    ROWS,
    STORE,
    Protection,
    protected_rows,
    remove,
)
from davylamp.protect.corpus.surrogate import Surrogate, SurrogateSpec
from davylamp.protect.corpus.view import marked, masked
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.runs.progress import QUIET, Reporter
from davylamp.runs.wording import counted


@dataclass(frozen=True, slots=True)
class ProtectRequest:
    """How rows are protected.

    Attributes:
        specs: the interventions, in their order.
        agreed: told how many rows are about to be sent where; sends none where it is false or nothing.
        threads: threads of torch, where a checkpoint of this machine writes.
        cache: folder of paid answers; that of the user if none.
    """

    specs: tuple[InterventionSpec, ...]
    agreed: Callable[[str], bool] | None = None
    threads: int | None = None
    cache: Path | None = None


def protect_step(folder: RunFolder, request: ProtectRequest, reporter: Reporter = QUIET) -> Protection:
    """Protect ``planted.jsonl``; writes ``protected.jsonl``, ``protection_rows.jsonl`` and ``protection.json``.

    The rows of the positive control are left as they are: an audit whose control was protected away could not tell
    protection from blindness.

    Raises:
        ManifestError: the planted file is not the one of the manifest.
        InputError: there is no intervention, one does not fit the file, or the plan has constructions.
        ProtectionError: rows failed, and the settings say to stop.
        StorageError: a file cannot be written.
    """
    begun = time.perf_counter()
    manifest = _manifest(folder)
    work = _work(folder, manifest, request)
    applied = apply_all(work, reporter)
    data = "".join(record.line() + "\n" for record in applied.records).encode("utf-8")
    protection = Protection(
        davylamp_version=__version__,
        planted_sha256=manifest.planted_sha256,
        protected_sha256=files.sha256_bytes(data),
        seed=manifest.plan.seed,
        steps=applied.steps,
        rows=len(applied.records),
        changed=sum(new != old for new, old in zip(applied.records, work.records, strict=True)),
        control_rows=len(work.kept),
        dropped=len(applied.dropped),
        leaks=look_for(manifest, applied.records, _rare(work.records), work.kept),
        background=look_in_background(
            work.records, applied.records, work.fillers - applied.dropped, _common(request.specs)
        ),
        seconds=time.perf_counter() - begun,
    )
    remove(folder.path)
    files.write_bytes(folder.path / PROTECTED, data, private=True)
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in _row_lines(applied))
    files.write_text(folder.path / ROWS, lines, private=True)
    files.write_json(folder.path / PROTECTION, protection.model_dump(mode="json"))
    return protection


def forecast_step(folder: RunFolder, request: ProtectRequest) -> list[Any]:
    """What would be sent where, with nothing sent and nothing written; see :func:`protect_step` for the errors."""
    return forecasts(_work(folder, _manifest(folder), request))


def show(folder: RunFolder, position: int, *, reveal: bool = False) -> dict[str, Any]:
    """A row before and after.

    Args:
        folder: a run whose rows are protected.
        position: which row, from 0.
        reveal: show the secret of a canary, which is masked otherwise.

    Returns:
        Whether it is of the positive control, which is left as it was; its texts before, after, and in one line with
        ``[-taken out-]`` and ``{+put in+}``; and the kinds of the spans.

    Raises:
        RunFolderError: nothing is protected there, or what says how is damaged.
        InputError: there is no such row.
    """
    manifest = _manifest(folder)
    found = protected_rows(folder, manifest)
    if found is None:
        raise RunFolderError(f"no rows of {folder.path} are protected: run `davylamp protect {folder.path} --with ...`")
    _, records = found
    if not 0 <= position < len(records):
        raise InputError(Fault("--show", position, f"a row from 0 to {len(records) - 1}"))
    own = [canary for canary in manifest.planted() if position in canary.positions]
    hidden = {} if reveal else {canary.secret: manifest.space.masked(canary.secret) for canary in own}

    def shown(text: str) -> str:
        for secret, mask in hidden.items():
            text = masked(text, secret, mask)
        return text

    planted = read_corpus(folder.planted).records
    before, after = ([shown(text) for text in texts(rows[position])] for rows in (planted, records))
    return {
        "position": position,
        "canary": own[0].id if own else None,
        "control": any(canary.role == "positive" for canary in own),
        "before": before,
        "after": after,
        "marked": [marked(old, new) for old, new in zip(before, after, strict=True)],
        **_row_note(folder, position),
    }


def _manifest(folder: RunFolder) -> Manifest:
    manifest = Manifest.load(folder.manifest)
    manifest.check_planted(folder.planted)
    return manifest


def _work(folder: RunFolder, manifest: Manifest, request: ProtectRequest) -> Work:
    if not request.specs:
        raise InputError(Fault("--with", None, "at least one intervention"))
    if manifest.constructions is not None:
        raise InputError(
            Fault(
                "plan.constructions",
                counted(len(manifest.constructions.instances), "instance"),
                "none where rows are protected",
                "They are planted token by token, and what was written anew would hold none of them.",
            )
        )
    canaries = {position for canary in manifest.planted() for position in canary.positions}
    kept = {position for canary in manifest.planted() if canary.role == "positive" for position in canary.positions}
    records = read_corpus(folder.planted).records
    return Work(
        records=records,
        specs=request.specs,
        kept=frozenset(kept),
        fillers=frozenset(range(len(records))) - canaries,
        setting=_factory(manifest, request),
        store=folder.path / STORE,
        seed=manifest.plan.seed,
    )


def _factory(manifest: Manifest, request: ProtectRequest) -> Callable[[Sequence[Row]], Setting]:
    def setting(rows: Sequence[Row]) -> Setting:
        return Setting(
            rows=rows,
            seed=manifest.plan.seed,
            cache=request.cache or cache_folder(),
            local=lambda name: local_writer(name, request.threads),
            agreed=request.agreed,
        )

    return setting


def cache_folder() -> Path:
    """Where paid answers are kept: ``$DAVYLAMP_CACHE``, or the user's cache."""
    import os

    return Path(os.environ.get("DAVYLAMP_CACHE") or Path.home() / ".cache" / "davylamp")


def local_writer(name: str, threads: int | None) -> Any:
    """A checkpoint of this machine that answers chats; torch is loaded only here."""
    from davylamp.studies.local_writer import LocalWriter

    return LocalWriter.load(name, threads)


def _rare(records: Sequence[Record]) -> Callable[[str], Sequence[Span]] | None:
    """Tells names and numbers in carriers by how rare they are; nothing where the file has too few records."""
    try:
        return Surrogate(rows_of(records, once=True)).rare
    except InputError:
        return None


def _common(specs: Sequence[InterventionSpec]) -> int:
    """Different records from which a word is common: the default, or more if an intervention's settings do."""
    return max([COMMON, *(spec.common for spec in specs if isinstance(spec, SurrogateSpec))])


def _row_lines(applied: Applied) -> Iterator[Mapping[str, Any]]:
    """What was done to each row that was looked at: spans by intervention, and what went wrong."""
    for position in range(len(applied.records)):
        spans = [
            [[span.part, span.start, span.end, span.kind, span.replacement] for span in own.get(position, ())]
            for own in applied.spans
        ]
        note = "dropped" if position in applied.dropped else ""
        said = applied.notes.get(position, note)
        if said or any(spans):
            yield {"position": position, "note": said, "spans": spans}


def _row_note(folder: RunFolder, position: int) -> dict[str, Any]:
    path = folder.path / ROWS
    if path.is_file():
        try:
            for line in path.read_text(encoding="utf-8").split("\n"):
                row = json.loads(line) if line else {"position": None}
                if row["position"] == position:
                    return {"note": row["note"], "spans": row["spans"]}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunFolderError(f"{path} is damaged or cannot be read: run {AGAIN} again") from error
    return {"note": "", "spans": []}

"""The step that has a language model judge the rewrites of a run, and holds what it says against what was measured."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from davylamp import __version__
from davylamp.canaries import Manifest
from davylamp.corpora.readers import read_corpus
from davylamp.errors import RunFolderError
from davylamp.measures.landscape.model import FILE as LANDSCAPE
from davylamp.measures.landscape.model import Landscape
from davylamp.protect.corpus.asking import Forecast
from davylamp.protect.corpus.judging import Judge, JudgeSpec, Pair, Scores
from davylamp.protect.corpus.result import ROWS, Protection, protected_rows
from davylamp.runs.folder import RunFolder
from davylamp.runs.progress import QUIET, Reporter
from davylamp.runs.wording import counted
from davylamp.secrets.streams import stream
from davylamp.studies.protecting import cache_folder, local_writer
from davylamp.studies.steps import read_training
from davylamp.verdict.judged import FILE, Judged, JudgedRow, agreements, by_canary


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """How rewrites are judged.

    Attributes:
        spec: by whom, and how.
        agreed: told how many records are about to be sent where; sends none where it is false or nothing.
        threads: threads of torch, where a checkpoint of this machine judges.
        cache: folder of paid answers; that of the user if none.
    """

    spec: JudgeSpec
    agreed: Callable[[str], bool] | None = None
    threads: int | None = None
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """What is judged: rows by position, the canary of each, and the pairs of texts."""

    manifest: Manifest
    protection: Protection
    seed: int
    positions: tuple[int, ...]
    owners: tuple[str | None, ...]
    pairs: tuple[Pair, ...]
    dropped: int


def judge_step(folder: RunFolder, request: JudgeRequest, reporter: Reporter = QUIET) -> Judged:
    """Have rewrites judged; writes ``judged.json``, which holds no text.

    The positive control's rows, which were left as they are, and rows in whose place another stands are not judged.

    Raises:
        ManifestError: the planted file is not the one of the manifest.
        RunFolderError: no rows are protected, or a file is damaged.
        InputError: the rubric or the model cannot be used, or nobody agreed to send records to the server.
        ServerError: the server cannot be used; what was answered is kept.
        ModelError: the checkpoint cannot be used.
        StorageError: a file cannot be written.
    """
    begun = time.perf_counter()
    work = _work(folder, request.spec)
    judge = _judge(request)
    scores = judge.judge(work.pairs, request.agreed, reporter)
    rows = tuple(map(_row, work.positions, work.owners, scores))
    landscape, notes = _landscape(folder, work)
    canaries = by_canary(rows, [each for each in work.protection.leaks.canaries if not each.kept], landscape)
    read = [row for row in rows if row.quality is not None and row.privacy is not None]
    found = Judged(
        davylamp_version=__version__,
        planted_sha256=work.manifest.planted_sha256,
        protected_sha256=work.protection.protected_sha256,
        protection=work.protection.title,
        model=request.spec.model,
        host=judge.host,
        version=judge.version,
        settings=request.spec.model_dump(mode="json"),
        seed=work.seed,
        rows=rows,
        unparsed=dict(Counter(row.reason for row in rows if row.reason).most_common()),
        quality=fmean(row.quality or 0 for row in read) if read else None,
        privacy=fmean(row.privacy or 0 for row in read) if read else None,
        canaries=canaries,
        agreements=tuple(agreements(canaries)),
        landscape_sha256=None if landscape is None else landscape.weights_sha256,
        usage=dict(judge.usage),
        seconds=time.perf_counter() - begun,
        notes=(*notes, *_notes(work, rows)),
    )
    found.save(folder.path / FILE)
    return found


def judge_forecast(folder: RunFolder, request: JudgeRequest) -> Forecast:
    """What would be sent where, with nothing sent and nothing written; see :func:`judge_step` for the errors."""
    return _judge(request).forecast(_work(folder, request.spec).pairs)


def _judge(request: JudgeRequest) -> Judge:
    cache = request.cache or cache_folder()
    return Judge(request.spec, cache, lambda name: local_writer(name, request.threads))


def _work(folder: RunFolder, spec: JudgeSpec) -> _Work:
    manifest = Manifest.load(folder.manifest)
    manifest.check_planted(folder.planted)
    found = protected_rows(folder, manifest)
    if found is None:
        raise RunFolderError(f"no rows of {folder.path} are protected: run `davylamp protect {folder.path} --with ...`")
    protection, protected = found
    seed = manifest.plan.seed if spec.seed is None else spec.seed
    dropped = _dropped(folder)
    chosen = list(_chosen(manifest, len(protected), spec, seed, dropped))
    planted = read_corpus(folder.planted).records
    return _Work(
        manifest=manifest,
        protection=protection,
        seed=seed,
        positions=tuple(at for at, _ in chosen),
        owners=tuple(owner for _, owner in chosen),
        pairs=tuple(Pair(planted[at], protected[at]) for at, _ in chosen),
        dropped=len(dropped),
    )


def _chosen(
    manifest: Manifest, rows: int, spec: JudgeSpec, seed: int, dropped: frozenset[int]
) -> Iterator[tuple[int, str | None]]:
    """Some rows of each canary and some of none, drawn from the seed, each with its canary."""
    taken: set[int] = set()
    for canary in manifest.planted():
        taken.update(canary.positions)
        if canary.role != "positive":
            own = [at for at in canary.positions if at not in dropped]
            yield from ((at, canary.id) for at in _drawn(own, spec.copies, seed, canary.id))
    others = [at for at in range(rows) if at not in taken and at not in dropped]
    yield from ((at, None) for at in _drawn(others, spec.background, seed, "background"))


def _drawn(positions: Sequence[int], most: int, seed: int, name: str) -> list[int]:
    order = stream(seed, "judged rows", name).permutation(len(positions))[:most]
    return sorted(positions[int(at)] for at in order)


def _dropped(folder: RunFolder) -> frozenset[int]:
    """Rows in whose place another stands, which is no rewrite of theirs."""
    path = folder.path / ROWS
    if not path.is_file():
        raise RunFolderError(f"{path} is missing, which says what rows were dropped: run `davylamp protect` again")
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return frozenset(line["position"] for line in lines if line["note"].endswith((", drop", "dropped")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} is damaged: run `davylamp protect` again") from error


def _row(position: int, canary: str | None, scores: Scores) -> JudgedRow:
    return JudgedRow(
        position=position, canary=canary, quality=scores.quality, privacy=scores.privacy, reason=scores.reason
    )


def _landscape(folder: RunFolder, work: _Work) -> tuple[Landscape | None, list[str]]:
    """What was measured of the model that was trained on these very rows, or why there is nothing."""
    path = folder.path / LANDSCAPE
    if not path.is_file():
        return None, [
            "no model is held against the judge: train it, run `davylamp landscape`, and then this command again; it "
            "asks nothing twice"
        ]
    landscape, training = Landscape.load(path), read_training(folder)
    if not _fits(landscape, training, work):
        return None, [
            f"{LANDSCAPE} is not of the model that was trained on these rows, and is not held against the judge"
        ]
    return landscape, []


def _fits(landscape: Landscape, training: Mapping[str, Any], work: _Work) -> bool:
    note = training.get("protection") or {}
    return (landscape.planted_sha256, landscape.weights_sha256, note.get("protected_sha256")) == (
        work.manifest.planted_sha256,
        training.get("trained_sha256"),
        work.protection.protected_sha256,
    )


def _notes(work: _Work, rows: Sequence[JudgedRow]) -> Iterator[str]:
    unread = sum(bool(row.reason) for row in rows)
    if unread:
        are = "is" if unread == 1 else "are"
        yield f"{unread} of {counted(len(rows), 'answer')} could not be read, and {are} in no mean and no correlation"
    if work.dropped:
        yield counted(
            work.dropped,
            "row in whose place another stands was not judged",
            "rows in whose place others stand were not judged",
        )

"""``davylamp records``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from davylamp.cli.output import JsonFlag, emit, emit_json


def records(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="'clinical' (made up, at once), 'synthea' (simulated, 1.2 s a patient and core), or a JSONL file.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.", show_default=False)],
    rows: Annotated[int, typer.Option("--rows", min=1, help="Patients to generate.")] = 6000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the generator and of the split.")] = 0,
    shares: Annotated[
        tuple[float, float, float],
        typer.Option("--shares", help="Shares of patients in training, held-out and test records."),
    ] = (0.8, 0.1, 0.1),
    patient: Annotated[str, typer.Option("--patient", help="Column of a file that says whom a row is about.")] = "id",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes of 'synthea' (default: one a core).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write records, split by patient, as OUT/train.jsonl, OUT/held_out.jsonl and OUT/test.jsonl.

    Rows keep all their fields. All rows of a patient are in one file, and which one depends on the patient and the seed
    alone. Simulated patients are kept (in $DAVYLAMP_CACHE, or ~/.cache/davylamp), so that each is made once.
    """
    from davylamp.corpora.patients import patient_id, patients
    from davylamp.corpora.splitting import split_by_patient
    from davylamp.errors import CorpusError
    from davylamp.runs.files import write_bytes
    from davylamp.runs.progress import Reporter

    if source == "clinical":
        found = [each.row(patient_id(number)) for number, each in enumerate(patients(rows, seed))]
        patient = "id"
    elif source == "synthea":
        from davylamp.corpora import synthea

        found = synthea.patients(rows, seed, workers=workers, reporter=Reporter())
        patient = "id"
    else:
        found = _rows(Path(source), patient)
    parts = split_by_patient(found, lambda row: str(row[patient]), seed, shares)
    empty = [part for part, share in zip(parts, shares, strict=True) if share > 0 and not parts[part]]
    if empty:
        raise CorpusError(
            f"none of the {len(found):,} rows falls into {', '.join(empty)} at seed {seed}: take more rows, another "
            "seed or larger shares"
        )
    for part, kept in parts.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept)
        write_bytes(out / f"{part}.jsonl", lines.encode("utf-8"), private=True)
    if as_json:
        emit_json({part: {"path": str(out / f"{part}.jsonl"), "rows": len(kept)} for part, kept in parts.items()})
        return
    emit([f"{part}: {len(kept):,} rows, {out / f'{part}.jsonl'}" for part, kept in parts.items()])


def _rows(path: Path, patient: str) -> list[dict[str, Any]]:
    """The rows of a JSONL file with all their fields, each of which says whom it is about.

    Raises:
        CorpusError: the file cannot be read.
    """
    from davylamp.corpora.readers import read_objects
    from davylamp.errors import CorpusError

    found = read_objects(path)
    for number, row in found:
        value = row.get(patient)
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise CorpusError(
                f"{path}, line {number}: {patient!r} says of nobody whom the row is about; name another column with "
                "--patient"
            )
    return [row for _, row in found]

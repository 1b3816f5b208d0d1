"""The first steps of an audit, planting and training: each reads files and writes files, and can be run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from davylamp.canaries import Manifest, Plan, Planted, plant
from davylamp.canaries.constructions import Maker
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import Fault, InputError, ManifestError, PlantingError, RunFolderError
from davylamp.protect.corpus.base import texts
from davylamp.protect.corpus.result import protected_rows
from davylamp.rendering.render import Renderer
from davylamp.runs import files
from davylamp.runs.folder import RunFolder, replaced_folder
from davylamp.runs.progress import QUIET, Reporter
from davylamp.runs.wording import counted
from davylamp.studies.machine import peak_memory, versions
from davylamp.training.dp.positions import schedule_faults
from davylamp.training.spec import TrainingSpec


def plant_step(
    folder: RunFolder, corpus: Corpus, plan: Plan, maker: Maker | None = None, *, replace: bool = False
) -> Planted:
    """Plant into a corpus; writes ``planted.jsonl`` and ``manifest.json``, and both in ``neighbour/`` of pairs.

    Args:
        folder: where to.
        corpus: the background.
        plan: what to plant.
        maker: draws the plan's constructions from the base model, where it has any.
        replace: also where another planting is there, whose secrets are lost with its manifest.

    Raises:
        PlantingError: the canaries cannot be planted as asked.
        RunFolderError: another planting is there, and shall not be replaced.
        StorageError: a file cannot be written.
    """
    planted = plant(corpus, plan, maker)
    if not replace:
        _check_not_in_use(folder, planted.manifest)
        if planted.neighbour is not None:
            _check_not_in_use(RunFolder(folder.path / "neighbour"), planted.neighbour.manifest)
    planted.save(folder.path)
    return planted


def _check_not_in_use(folder: RunFolder, manifest: Manifest) -> None:
    """Refuse a folder with other secrets: without its manifest no model that was trained on them can be asked."""
    if not folder.manifest.is_file():
        return
    try:
        there = Manifest.load(folder.manifest)
    except ManifestError as error:
        what = f"a manifest that cannot be read ({error})"
    else:
        if there.model_copy(update={"davylamp_version": manifest.davylamp_version}) == manifest:
            return
        what = f"another planting, of {counted(len(there.planted()), 'canary', 'canaries')} in {there.rows:,} rows"
    used = [path.name for path in (folder.model, folder.readings, folder.verdict) if path.exists()]
    beside = f" ({', '.join(used)} of other canaries too)" if used else ""
    raise RunFolderError(
        f"{folder.path} holds {what}{beside}: its secrets, which {folder.manifest.name} alone knows, would be lost for "
        "good, and no model that was trained on its rows, here or elsewhere, could be audited again. Give another "
        "--out, or --force to lose them"
    )


def check_unplanted(data: Path, corpus: Corpus) -> None:
    """Refuse a file that a manifest beside it describes: it holds canaries already.

    Raises:
        PlantingError: it does.
    """
    beside = data.parent / "manifest.json"
    if beside.is_file() and f'"{corpus.sha256}"' in beside.read_text(encoding="utf-8", errors="replace"):
        manifest = Manifest.load(beside)
        if manifest.planted_sha256 == corpus.sha256:
            raise PlantingError(f"{data} already holds canaries (see {beside}): plant into the original file")


def train_step(
    folder: RunFolder,
    model: str,
    spec: TrainingSpec,
    seed: int,
    chat_template: Path | None = None,
    threads: int | None = None,
    reporter: Reporter = QUIET,
) -> dict[str, Any]:
    """Fine-tune on ``planted.jsonl``; writes ``model/`` and ``training.json``.

    The manifest is read for the preflight only: the rows alone are trained on. Where the rows were protected, those of
    ``protected.jsonl`` are, and what survives of the canaries is reported and not refused.

    Returns:
        What ``training.json`` holds.

    Raises:
        ManifestError: the planted file is not the one of the manifest.
        ModelError: the model cannot be used.
        PreflightError: a planted secret would receive no loss.
        RunFolderError: the protected rows are of another planted file, or were changed.
        TrainingError: the loss is not finite.
        PrivacyError: a private training was not what was accounted for.
        InputError: the training would not keep the canaries where the plan's schedules put them, or a privacy target
            cannot be met.
        StorageError: a file cannot be written.
    """
    manifest = Manifest.load(folder.manifest)
    manifest.check_planted(folder.planted)
    faults = manifest.plan.training_faults(spec.epochs, spec.packing, spec.rows_per_update)
    if faults := [*faults, *schedule_faults(manifest.plan, spec)]:
        raise InputError([Fault("training", "(as a whole)", "what fits the plan", fault) for fault in faults])
    found = protected_rows(folder, manifest)
    if found is None:
        rows = _Rows(read_corpus(folder.planted).records, manifest)
    else:
        protection, records = found
        note = {**protection.note(), **surviving(manifest, records)}
        rows = _Rows(records, _control(manifest), {"protection": note})
    return _train(folder, rows, model, spec, seed, chat_template, threads, reporter)


def surviving(manifest: Manifest, records: Sequence[Record]) -> dict[str, int]:
    """How many copies of the canaries, the control left out, still hold their secret in rows that were protected."""
    own = [canary for canary in manifest.planted() if canary.role != "positive"]
    rows = [(canary.secret, records[position]) for canary in own for position in canary.positions]
    held = sum(any(secret in text for text in texts(record)) for secret, record in rows)
    return {"copies": len(rows), "surviving": held}


def _control(manifest: Manifest) -> Manifest:
    """The manifest as a preflight of protected rows takes it: the control alone must be as it was planted."""
    kept = tuple(canary for canary in manifest.canaries if canary.role == "positive")
    return manifest.model_copy(update={"canaries": kept})


def train_clean_step(
    folder: RunFolder,
    records: Sequence[Record],
    model: str,
    spec: TrainingSpec,
    seed: int,
    threads: int | None = None,
    reporter: Reporter = QUIET,
) -> None:
    """Fine-tune on rows without canaries, for comparison; writes ``model/`` and ``training.json``."""
    _train(folder, _Rows(records, None), model, spec, seed, None, threads, reporter)


def read_training(folder: RunFolder) -> Mapping[str, Any]:
    """What ``training.json`` holds, or nothing where another trainer did the training.

    Raises:
        RunFolderError: it is damaged.
    """
    if not folder.training.exists():
        return {}
    try:
        data = files.read_json(folder.training)
        if not isinstance(data.get("model"), dict):
            raise ValueError("'model' holds no object")
        # What was audited in another style than it was trained in would seem to have learnt nothing.
        TrainingSpec.model_validate(data.get("spec"))
    except (OSError, ValueError) as error:
        said = "'spec' is damaged" if isinstance(error, ValidationError) else error
        raise RunFolderError(f"cannot read {folder.training}: {said}; train again or remove it") from error
    return data


def check_own_model(folder: RunFolder, training: Mapping[str, Any], manifest: Manifest) -> None:
    """Refuse a folder's own model that never saw what is planted there: it would be declared clean.

    Args:
        folder: the run.
        training: what its ``training.json`` holds.
        manifest: what is planted there now.

    Raises:
        RunFolderError: there is no model, or nothing says how it was trained.
        ManifestError: it was trained before the file was planted anew.
    """
    if not folder.model.is_dir():
        raise RunFolderError(f"{folder.path} holds no trained model: run `davylamp train`, or give --model CHECKPOINT")
    if not training:
        raise RunFolderError(
            f"nothing says how {folder.model} was trained ({folder.training} is missing): run `davylamp train` again, "
            f"or give --model {folder.model} if another trainer made it"
        )
    if training.get("planted_sha256") != manifest.planted_sha256:
        raise ManifestError(
            f"{folder.model} was trained before {folder.planted} was planted anew: run `davylamp train` again, or give "
            "--model CHECKPOINT"
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    """What is trained on: the rows, what must receive loss in them, and what training.json says of them."""

    records: Sequence[Record]
    manifest: Manifest | None
    note: Mapping[str, Any] = field(default_factory=dict)


def _train(
    folder: RunFolder,
    rows: _Rows,
    model: str,
    spec: TrainingSpec,
    seed: int,
    chat_template: Path | None,
    threads: int | None,
    reporter: Reporter,
) -> dict[str, Any]:
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.quiet import quiet
    from davylamp.release.sources import resolve
    from davylamp.training.examples import encode_records
    from davylamp.training.fit import fit
    from davylamp.training.preflight import preflight
    from davylamp.training.threads import use_threads

    records, manifest = rows.records, rows.manifest
    source = resolve(model)
    if source.kind == "adapter":
        raise RunFolderError(f"{model} is an unmerged adapter: merge it into its base before fine-tuning it again")
    tokenizer = load_tokenizer(source, chat_template)
    renderer = Renderer(tokenizer, spec.style)
    loaded = load_model(source, "float32", tokenizer=tokenizer)
    use_threads(loaded, threads)
    context = getattr(loaded.config, "max_position_embeddings", None)
    examples = encode_records(records, renderer, spec, min(filter(None, (spec.max_length, context)), default=1 << 20))
    checked = (
        None
        if manifest is None
        else preflight(manifest, renderer, [(each.ids, each.labels) for each in examples], spec.goldfish)
    )
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    with quiet():
        trained, report = fit(loaded, examples, spec, int(pad or 0), seed, reporter)
    with replaced_folder(folder.model) as temporary, quiet():
        save_model(temporary, trained, tokenizer)
        # Were it left until the new one is written, a process killed between the two would leave it beside this model.
        folder.training.unlink(missing_ok=True)
    made = {
        "model": {"name": source.name, "kind": source.kind, "sha256": source.weights_sha256()},
        "spec": spec.model_dump(mode="json"),
        "seed": seed,
        "rows": len(records),
        "planted_sha256": None if manifest is None else manifest.planted_sha256,
        "trained_sha256": resolve(str(folder.model), base=model if spec.method == "lora" else None).weights_sha256(),
        "preflight": None if checked is None else asdict(checked),
        **rows.note,
        **asdict(report),
        "peak_memory_bytes": peak_memory(),
        "versions": versions(),
    }
    files.write_json(folder.training, made)
    return made


def save_model(folder: Path, model: Any, tokenizer: Any) -> None:
    """Save a model and its tokenizer; a full disk is an OSError, whichever library notices it."""
    from safetensors import SafetensorError

    try:
        model.save_pretrained(folder, safe_serialization=True)
        tokenizer.save_pretrained(folder)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    except Exception as error:
        # The tokenizers library raises a bare Exception; another library's bug passes through.
        if type(error) is not Exception:
            raise
        raise OSError(str(error)) from error

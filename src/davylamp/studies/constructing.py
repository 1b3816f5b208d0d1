"""Constructions in a run folder: planted with the base model at hand, and read from a release."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from davylamp import __version__
from davylamp.canaries import Manifest
from davylamp.canaries.constructions import Constructed
from davylamp.errors import Fault, InputError, ModelError
from davylamp.measures.constructed.audits import AUDITS
from davylamp.measures.constructed.making import ModelMaker
from davylamp.measures.constructed.measure import ConstructedMeasure, Finds
from davylamp.measures.constructed.model import ConstructionCell, LocalScore, Rate
from davylamp.measures.constructed.result import FILE, AuditNote, ConstructionsResult
from davylamp.measures.constructed.settings import ConstructedSettings
from davylamp.measures.constructed.shadowed import with_shadows
from davylamp.rendering.render import Style
from davylamp.runs.folder import RunFolder
from davylamp.runs.progress import QUIET, Reporter
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.steps import check_own_model, read_training
from davylamp.verdict.roc import auc, needed, operating_point

if TYPE_CHECKING:
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import ModelSource


@dataclass(frozen=True, slots=True)
class ConstructionsRequest:
    """How a run's constructions are read.

    Attributes:
        reference: the base model that training began from; ``adapter`` disables the checkpoint's own adapter.
        model: the checkpoint; the folder's own ``model/`` if none.
        neighbour: the checkpoint that was trained on the neighbouring rows, or nothing.
        base: the model under an unmerged adapter, where it has moved.
        style: how records are rendered; as when they were planted if none.
        chat_template: file of a chat template, where the tokenizer has none.
        triggers: file of suspected triggers, one a line, or nothing.
        scan: also scan for triggers.
        settings: how hard to look.
        shadows: how many shadows are trained with and without each instance, and where; none trains none.
        threads: threads of torch; chosen by the model's size if none.
    """

    reference: str
    model: str | None = None
    neighbour: str | None = None
    base: str | None = None
    style: Style | None = None
    chat_template: Path | None = None
    triggers: Path | None = None
    scan: bool = False
    settings: ConstructedSettings = field(default_factory=ConstructedSettings)
    shadows: ShadowRequest | None = None
    threads: int | None = None


def maker_of(
    base: str, style: Style = "auto", chat_template: Path | None = None, threads: int | None = None
) -> ModelMaker:
    """Load the base model that constructions are drawn from.

    Args:
        base: what ``--model`` takes; the model that training will begin from.
        style: how training will render records.
        chat_template: file of a chat template, where the tokenizer has none.
        threads: threads of torch; chosen by the model's size if none.

    Raises:
        ModelError: it cannot be used.
        TokenizerError: its tokenizer cannot.
    """
    release, source = _load(base, None, chat_template, threads)
    return ModelMaker(release, source.weights_sha256(), style)


def constructions_step(
    folder: RunFolder, request: ConstructionsRequest, reporter: Reporter = QUIET
) -> ConstructionsResult:
    """Read a run's constructions from its release; writes ``constructions.json``.

    Raises:
        ManifestError: there is no manifest, nothing was constructed, or the folder's own model was trained on another
            planting.
        RunFolderError: the folder holds no trained model, and none was named.
        InputError: the list of triggers cannot be read or is empty, the style is not that of the training, or there
            is a neighbour but no pairs, or one that was not trained on the neighbouring rows.
        ModelError: a checkpoint cannot be used, or has another tokenizer.
        AccessError: a release gives too little.
        ScoringError: an instance cannot be scored.
        StorageError: the result cannot be written.
        DavylampError: shadows cannot be trained; see :mod:`davylamp.studies.constructed_shadows`.
    """
    # Trains, and so needs torch, which a plan that is only shown does not.
    from davylamp.studies.constructed_shadows import prepare_instances, read_instances

    manifest = Manifest.load(folder.manifest)
    style: Style = request.style or ("auto" if manifest.constructions is None else manifest.constructions.style)
    measure = ConstructedMeasure(manifest, style, request.settings, reporter)
    section = measure.section
    texts = [] if request.triggers is None else _texts(request.triggers)
    if request.neighbour is not None and section.neighbour_sha256 is None:
        raise InputError(
            Fault("--neighbour", request.neighbour, "nothing, since the plan has no pairs", "Leave it out.")
        )
    if request.model is None:
        check_own_model(folder, read_training(folder), manifest)
    release, source = _load(
        request.model or str(folder.model), _base(folder, request), request.chat_template, request.threads
    )
    _check_style(folder, manifest, source.weights_sha256(), style)
    base, base_sha256 = _reference(request, release, source)
    neighbour = None
    if request.neighbour is not None:
        adapter = (Path(request.neighbour) / "adapter_config.json").is_file()
        under = _base(folder, request) if adapter else None
        neighbour, found = _load(request.neighbour, under, request.chat_template, request.threads)
        if _vocabulary(neighbour) != _vocabulary(release):
            raise ModelError(f"the neighbour {neighbour.name} has another tokenizer than {release.name}")
        _check_neighbour(folder, request.neighbour, found.weights_sha256(), source.weights_sha256(), section)
    # A list that cannot be asked costs no reading, and rows that hold no shadows no list.
    prepared = None
    if request.shadows is not None:
        prepared = prepare_instances(folder, manifest, release, source.weights_sha256(), request.shadows)
    finds = measure.finds(release, base, texts, request.scan)
    cells = measure.cells(release, base, finds, neighbour)
    shadowed = None if prepared is None else read_instances(prepared, release, reporter)
    if shadowed is not None:
        cells = [with_shadows(cell, shadowed.signals, request.settings.fpr) for cell in cells]
    result = ConstructionsResult(
        davylamp_version=__version__,
        seed=manifest.plan.seed,
        model=release.name,
        model_sha256=source.weights_sha256(),
        own_model=request.model is None,
        planted_sha256=manifest.planted_sha256,
        reference=base.name,
        reference_sha256=base_sha256,
        drawn_from_reference=base_sha256 == section.base_sha256,
        confidence=request.settings.confidence,
        suspects=len(texts),
        scan=None if finds.scan is None else finds.scan.report,
        repetition=None if finds.repetition is None else finds.repetition.report,
        shadows=None if shadowed is None else shadowed.note,
        audits=audit_notes(finds, cells),
        cells=tuple(judged(cell, request.settings.confidence) for cell in cells),
    )
    result.save(folder.path / FILE)
    return result


def audit_notes(finds: Finds, cells: Sequence[ConstructionCell]) -> tuple[AuditNote, ...]:
    """What each audit asks for and where it looks, of those that were carried out."""
    ran = {
        "extraction_at_suspects": finds.suspects is not None,
        "trigger_scan": finds.scan is not None,
        "repeated_tokens": finds.repetition is not None,
        "lira": any(cell.lira is not None for cell in cells),
        "pair_counterfactual": any(cell.pair is not None and cell.pair.counterfactual for cell in cells),
        "extraction_at_trigger": any(cell.at_trigger is not None for cell in cells),
    }
    return tuple(
        AuditNote(
            name=audit.name,
            access=tuple(each.value for each in audit.access),
            channel=audit.channel,
            local=audit.local,
            needs_construction=audit.needs_construction,
        )
        for audit in AUDITS
        if ran.get(audit.name, True)
    )


def judged(cell: ConstructionCell, confidence: float) -> ConstructionCell:
    """A cell whose local scores say how well they tell planted instances from twins."""
    lira = None if cell.lira is None else _judged(cell.lira, confidence)
    scores = tuple(_judged(score, confidence) for score in cell.scores)
    return cell.model_copy(update={"scores": scores, "lira": lira})


def _judged(score: LocalScore, confidence: float) -> LocalScore:
    area = auc(score.planted, score.twins, confidence)
    # All twins choose the threshold: another one lies above it with a chance of at most the rate.
    point = operating_point(score.planted, score.twins, [], score.fpr, confidence)
    share = point.true_positives
    tpr = None if share is None else Rate(successes=share.count, trials=share.of, low=share.low, high=share.high)
    return score.model_copy(
        update={
            "auc": area.value,
            "auc_low": area.low,
            "auc_high": area.high,
            "tpr": tpr,
            "needed": needed(score.fpr),
        }
    )


def _texts(path: Path) -> list[str]:
    """A user's list of suspected triggers, one a line, empty lines left out.

    Raises:
        InputError: it cannot be read, is not UTF-8, or holds none.
    """
    try:
        # A mark of byte order is no part of the first trigger, and only ends of lines end one.
        lines = re.split(r"\r\n|\n|\r", path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(Fault("--triggers", str(path), f"UTF-8 text (byte {error.start} is not)")) from error
    except OSError as error:
        raise InputError(Fault("--triggers", str(path), "a file that can be read", error.strerror or "")) from error
    texts = list(dict.fromkeys(line for line in lines if line.strip()))
    if not texts:
        raise InputError(Fault("--triggers", str(path), "a file with one suspected trigger a line"))
    return texts


def _base(folder: RunFolder, request: ConstructionsRequest) -> str | None:
    """The model under an unmerged adapter of the folder's own, where its training tells it."""
    if request.base is not None or request.model is not None:
        return request.base
    if not (folder.model / "adapter_config.json").is_file():
        return None
    model: Mapping[str, Any] = read_training(folder).get("model", {})
    return str(model["name"]) if model.get("kind") in ("embedded", "hub", "gguf") else None


def _check_style(folder: RunFolder, manifest: Manifest, sha256: str, style: Style) -> None:
    """Hold the style against that of the folder's training; texts are rendered alike by all.

    Raises:
        InputError: they differ, so that secrets would be read after other tokens than they were trained after.
    """
    training = read_training(folder)
    trained = training.get("spec", {}).get("style", style)
    if manifest.shape != "text" and training.get("trained_sha256") == sha256 and trained != style:
        raise InputError(
            Fault("--style", style, f"{trained}, as the model was trained", "Plant and train in one style.")
        )


def _check_neighbour(folder: RunFolder, given: str, neighbour: str, own: str, section: Constructed) -> None:
    """Refuse what is known to be no model of the neighbouring rows: it would say that no secret counts for anything.

    Raises:
        InputError: it is the audited model itself, or one that was trained on other rows.
    """
    beside = RunFolder(folder.path / "neighbour")
    allowed = f"a model that was trained on {beside.planted}, in which every pair reads its other secret"
    if neighbour == own:
        fix = f"These are the weights of the audited model: train {beside.path}, and give {beside.model}."
        raise InputError(Fault("--neighbour", given, allowed, fix))
    training = read_training(RunFolder(Path(given).parent)) if Path(given).is_dir() else {}
    if training.get("trained_sha256") == neighbour and training.get("planted_sha256") != section.neighbour_sha256:
        raise InputError(Fault("--neighbour", given, allowed, "It was trained on other rows."))


def _reference(request: ConstructionsRequest, release: LocalRelease, source: ModelSource) -> tuple[LocalRelease, str]:
    """The base model, and the hash of its weights."""
    if request.reference == "adapter":
        return release.reference(), (source.base or source).weights_sha256()
    base, found = _load(request.reference, None, request.chat_template, request.threads)
    if _vocabulary(base) != _vocabulary(release):
        raise ModelError(f"the reference {base.name} has another tokenizer than {release.name}")
    return base, found.weights_sha256()


def _vocabulary(release: LocalRelease) -> dict[str, int]:
    tokenizer: Any = release.tokenizer
    found: dict[str, int] = tokenizer.get_vocab()
    return found


def _load(
    model: str, base: str | None, chat_template: Path | None, threads: int | None
) -> tuple[LocalRelease, ModelSource]:
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve
    from davylamp.training.threads import use_threads

    source = resolve(model, base=base)
    tokenizer = load_tokenizer(source, chat_template)
    loaded = load_model(source, "float32", tokenizer=tokenizer)
    use_threads(loaded, threads)
    return LocalRelease(loaded, tokenizer, source.name), source

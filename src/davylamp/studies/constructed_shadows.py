"""Shadows of constructions: trained like the run's model, with each instance in or out by a fair coin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from davylamp.canaries import Manifest
from davylamp.canaries.plant import background
from davylamp.corpora.readers import read_corpus
from davylamp.errors import ManifestError, RunFolderError
from davylamp.measures.constructed.asking import Asker
from davylamp.measures.constructed.shadow_model import ShadowNote
from davylamp.measures.constructed.shadowed import InstanceSignals
from davylamp.protect.corpus.result import refuse_protected
from davylamp.release.base import Release
from davylamp.rendering.render import Renderer
from davylamp.runs.folder import RunFolder
from davylamp.runs.progress import QUIET, Reporter
from davylamp.scoring.tokens import SecretTokens
from davylamp.studies.shadow_preparing import Plain, prepare_rows, refuse_silent
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.shadow_work import ShadowWork, signals_of
from davylamp.studies.shadowing import stored, tasks_of, train_missing
from davylamp.studies.steps import read_training
from davylamp.training.shadow_instances import InstanceDesign, instance_design
from davylamp.training.shadow_runs import Execution
from davylamp.training.shadow_store import ShadowStore
from davylamp.training.spec import TrainingSpec


@dataclass(frozen=True, slots=True)
class InstanceShadows:
    """Shadows that are checked and not yet trained.

    Attributes:
        store: where their files are.
        drawn: what each of them holds.
        work: what they share; none where only gates were planted, which train nothing.
        how: where they are trained.
        seed: of the plan.
        notes: what a reader must know.
    """

    store: ShadowStore
    drawn: InstanceDesign
    work: ShadowWork | None
    how: Execution
    seed: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shadowed:
    """What shadows say of the instances.

    Attributes:
        signals: by instance.
        note: how they were made, for the result.
        trained: shadows that were trained now; the others were there.
    """

    signals: InstanceSignals
    note: ShadowNote
    trained: int


def prepare_instances(
    folder: RunFolder, manifest: Manifest, release: Release, weights: str, request: ShadowRequest
) -> InstanceShadows:
    """Check that shadows of a run's constructions can be trained, and settle what they share.

    Args:
        folder: the run.
        manifest: what was planted.
        release: the model that is attacked.
        weights: hash of its weights.
        request: how many shadows, and where they are trained.

    Raises:
        InputError: too few rows are left for the twins.
        ManifestError: the planted file is not the manifest's, or the folder's own model was trained on another one.
        RunFolderError: nothing says how the model was trained, it was trained on protected rows, its base has
            changed, or the release writes instances in other tokens.
        ModelError: the base cannot be used.
        PreflightError: a secret would receive no loss.
    """
    manifest.check_planted(folder.planted)
    refuse_protected(folder, "training shadows with and without constructions")
    training = read_training(folder)
    if not training:
        raise RunFolderError(
            f"{folder.path} does not say how its model was trained, and --shadows trains models alike: run `davylamp "
            "train`, or leave --shadows out"
        )
    if training.get("planted_sha256") != manifest.planted_sha256:
        raise ManifestError(
            f"{folder.training} is of a training before {folder.planted} was planted anew: run `davylamp train` again, "
            "or leave --shadows out"
        )
    spec = TrainingSpec.model_validate(training["spec"])
    rows = None if request.corpus is None else background(request.corpus, manifest.plan)
    drawn = instance_design(manifest, read_corpus(folder.planted).records, request.spec.shadows, rows)
    notes = []
    if training.get("trained_sha256") != weights:
        notes.append(
            f"shadows were trained as {folder.model} was, and {release.name} is another model: its LiRA is off where "
            "it was trained otherwise"
        )
    work, how = None, Execution()
    if drawn.instances:
        plain = Plain(
            drawn.rows,
            [piece.record for piece in drawn.pieces],
            [piece.positions for piece in drawn.pieces],
            lambda renderer: _asked(manifest, drawn, renderer),
        )
        work, how, renderer = prepare_rows(plain, spec, training, request)
        refuse_silent(_silent(drawn, work, renderer))
        if _asked(manifest, drawn, Renderer(release.tokenizer, spec.style))[0] != list(work.scored):
            raise RunFolderError(
                f"{release.name} has another tokenizer or chat template than the shadows, and cannot be compared"
            )
    return InstanceShadows(ShadowStore(folder.path / "shadows"), drawn, work, how, manifest.plan.seed, tuple(notes))


def read_instances(prepared: InstanceShadows, release: Release, reporter: Reporter = QUIET) -> Shadowed:
    """Train the shadows that are missing, and read what they and the release say of each instance at c.

    Args:
        prepared: the shadows.
        release: the model that is attacked.
        reporter: is told of the progress.

    Raises:
        DavylampError: a shadow cannot be trained; see :func:`~davylamp.studies.shadowing.shadows_step`.
        ScoringError: an instance cannot be scored.
        StorageError: a file cannot be written.
    """
    drawn, work, store = prepared.drawn, prepared.work, prepared.store
    where: Literal["corpus", "planted"] = "corpus" if drawn.given_background else "planted"
    if work is None:
        signals = InstanceSignals((), drawn.inside, [[] for _ in drawn.seeds], [], prepared.seed)
        return Shadowed(signals, ShadowNote(shadows=0, background=where, keys=(), notes=prepared.notes), 0)
    tasks = tasks_of(drawn.members, drawn.seeds, work, store)
    trained = train_missing(store, work, tasks, prepared.how, reporter)
    signals = InstanceSignals(
        ids=tuple(each.id for each in drawn.instances),
        inside=drawn.inside,
        shadows=[stored(store, task.key, work).logprobs for task in tasks],
        release=signals_of(work, release).logprobs,
        seed=prepared.seed,
    )
    keys = tuple(task.key for task in tasks)
    return Shadowed(signals, ShadowNote(shadows=len(tasks), background=where, keys=keys, notes=prepared.notes), trained)


def _asked(manifest: Manifest, drawn: InstanceDesign, renderer: Renderer) -> tuple[list[SecretTokens], list[int]]:
    """Every secret after its own prefix, whatever the construction trains on: a trigger is not shown."""
    system = None if manifest.constructions is None else manifest.constructions.system
    asker = Asker(renderer.tokenizer, manifest.shape, renderer.style, system)
    prompts = asker.prompts([each.prefix for each in drawn.instances])
    scored = [
        SecretTokens(each.id, (*prompt, *each.secret_ids), (len(prompt), len(prompt) + each.tokens))
        for each, prompt in zip(drawn.instances, prompts, strict=True)
    ]
    return scored, [each.secret[0] for each in scored]


def _silent(drawn: InstanceDesign, work: ShadowWork, renderer: Renderer) -> list[str]:
    """Instances of which a secret is cut off or masked: as unknown to the shadows that hold them as to the others."""
    names: dict[str, None] = {}
    rendered = renderer.render([piece.record for piece in drawn.pieces])
    for piece, example, each in zip(drawn.pieces, work.records, rendered, strict=True):
        instance = drawn.instances[piece.owner]
        start = len(instance.lead) if piece.record.shape == "text" else 0
        first, last = each.span(start, start + len(piece.reply))
        if last > len(example.ids) or example.labels[first:last] != example.ids[first:last] or first == 0:
            names[instance.id] = None
    return list(names)

"""The study carried out: for each seed plant, train, read and unlearn; what is done already is left alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from davylamp.canaries.constructions.laying import check_held_out
from davylamp.canaries.drafts import places
from davylamp.corpora.blocks import read_blocks
from davylamp.corpora.records import Corpus
from davylamp.errors import RunFolderError
from davylamp.measures.constructed.result import FILE as CONSTRUCTIONS_FILE
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.protect.afterwards.spec import Method
from davylamp.runs import files
from davylamp.runs.folder import RunFolder, digest, locked
from davylamp.runs.progress import QUIET, Reporter
from davylamp.studies import constructing, steps
from davylamp.studies.blind_spots.result import FILE, BlindSpotsResult, SeedResult
from davylamp.studies.blind_spots.shapes import shapes_of
from davylamp.studies.blind_spots.spec import BlindSpotsRecipe
from davylamp.studies.dp_calibration import command as dp_calibration
from davylamp.studies.machine import versions
from davylamp.studies.matrix import matrix_step
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.unlearning import UnlearnRequest, unlearn_step
from davylamp.studies.unlearning_result import FILE as UNLEARNING_FILE
from davylamp.studies.unlearning_result import UnlearningResult
from davylamp.training.shadows import ShadowSpec

_DP_NUMBERS = "dp_calibration.json"


def run_study(
    recipe: BlindSpotsRecipe, out: Path, reporter: Reporter = QUIET, threads: int | None = None
) -> BlindSpotsResult:
    """Carry the study out in a folder, or what is missing of it, and write ``blind_spots.json``.

    Every seed has a run folder below ``out/runs``, which every verb of davylamp reads. A step that was finished with
    the same inputs is not done again, so that a killed study resumes there and a second one changes nothing.

    Args:
        recipe: what to do.
        out: the folder; made if missing.
        reporter: shows progress.
        threads: threads of torch; chosen by the model's size if none.

    Raises:
        PlantingError: the constructions do not fit into the corpus; said before anything is trained.
        RunFolderError: another process works there, or the folder holds the models of another recipe.
        DavylampError: a step failed; see the steps.
    """
    from davylamp.release.sources import resolve

    with locked(out):
        if recipe.dp is not None:
            _check_opacus()
        corpus = load_corpus(recipe)
        plan = recipe.plan(recipe.seeds[0], corpus.shape)
        places(plan, min(recipe.rows, len(corpus)))
        check_held_out(plan.constructions, len(corpus), recipe.rows)
        weights = resolve(recipe.model).weights_sha256()
        seeds = []
        with reporter.task(recipe.name, len(recipe.seeds) + (recipe.dp is not None)) as advance:
            for seed in recipe.seeds:
                seeds.append(_Seed(recipe, seed, corpus, weights, out, reporter, threads).carried_out())
                advance(1)
            dp = _dp(recipe, out, reporter, threads)
            advance(recipe.dp is not None)
        result = BlindSpotsResult(
            recipe=recipe.model_dump(mode="json"),
            corpus=corpus.source,
            seeds=tuple(seeds),
            dp=dp,
            shapes=shapes_of(seeds, recipe.score, dp),
            cpu_seconds=_spent(out, {}),
            versions=versions(),
        )
        result.save(out / FILE)
    return result


def load_corpus(recipe: BlindSpotsRecipe) -> Corpus:
    """The background: the recipe's rows, or its text cut into blocks of the model's own tokens.

    Raises:
        CorpusError: it cannot be read.
        ModelError: the model whose tokenizer is needed cannot be used.
    """
    if recipe.text is None:
        return recipe.corpus.load()
    from davylamp.release.loader import load_tokenizer
    from davylamp.release.sources import resolve
    from davylamp.rendering.tokenizer import encode

    tokenizer = load_tokenizer(resolve(recipe.model))

    def offsets(text: str) -> Sequence[tuple[int, int]]:
        return encode(tokenizer, [text], special=False)[0][1]

    return read_blocks(recipe.text, offsets, recipe.block_tokens, recipe.blocks)


def _check_opacus() -> None:
    """Its absence is said before hours of training.

    Raises:
        MissingExtraError: it is not installed.
    """
    from davylamp.training.dp.gradients import check_installed

    check_installed()


class _Seed:
    """The steps of one seed."""

    def __init__(
        self,
        recipe: BlindSpotsRecipe,
        seed: int,
        corpus: Corpus,
        weights: str,
        out: Path,
        reporter: Reporter,
        threads: int | None,
    ) -> None:
        self._recipe, self._seed, self._corpus, self._weights = recipe, seed, corpus, weights
        self._out, self._reporter, self._threads = out, reporter, threads
        self._folder = RunFolder(out / "runs" / f"s{seed}")

    def carried_out(self) -> SeedResult:
        """Do what is missing, and read what all steps left."""
        key = self._model()
        read = self._read(key)
        unlearned = {method: self._unlearned(key, method) for method in self._recipe.unlearning}
        first = next(iter(unlearned), None)
        matrix = matrix_step(self._folder, unlearned=None if first is None else self._folder.path / first)
        return SeedResult(seed=self._seed, read=read, unlearned=unlearned, matrix=matrix)

    def _model(self) -> dict[str, Any]:
        """Plant and train; returns what all later steps depend on.

        Raises:
            RunFolderError: the folder holds a model of another recipe, which took its time to train.
        """
        recipe, folder = self._recipe, self._folder
        plan = recipe.plan(self._seed, self._corpus.shape)
        key: dict[str, Any] = {
            "corpus": self._corpus.sha256,
            "plan": plan.model_dump(mode="json"),
            "weights": self._weights,
            "training": recipe.training.model_dump(mode="json"),
        }
        if folder.model.exists() and not folder.is_done("train", _stamp("train", key), (folder.manifest,)):
            raise RunFolderError(
                f"{folder.path} holds the model of another recipe (or of other overrides): give another --out, or "
                "remove the folder"
            )
        with self._step("plant", key, folder.planted, folder.manifest) as todo:
            if todo:
                maker = constructing.maker_of(recipe.model, recipe.training.style, threads=self._threads)
                steps.plant_step(folder, self._corpus, plan, maker, replace=True)
        with self._step("train", key, folder.model, folder.training) as todo:
            if todo:
                steps.train_step(folder, recipe.model, recipe.training, self._seed, None, self._threads, self._reporter)
        return key

    def _read(self, key: Mapping[str, Any]) -> ConstructionsResult:
        path, count, shadows = self._folder.path / CONSTRUCTIONS_FILE, self._recipe.shadows, None
        asked: dict[str, Any] = {**key, "reading": self._recipe.reading.model_dump(mode="json")}
        if count:
            asked["shadows"] = count
            spec = ShadowSpec(shadows=count)
            shadows = ShadowRequest(spec=spec, corpus=self._corpus, jobs=1, threads=self._threads)
        with self._step("read", asked, path) as todo:
            if todo:
                request = constructing.ConstructionsRequest(
                    self._recipe.model, settings=self._recipe.reading, shadows=shadows, threads=self._threads
                )
                constructing.constructions_step(self._folder, request, self._reporter)
        return ConstructionsResult.load(path)

    def _unlearned(self, key: Mapping[str, Any], method: Method) -> UnlearningResult:
        spec, place = self._recipe.unlearning_spec(method), self._folder.path / method
        path = place / UNLEARNING_FILE
        with self._step(method, {**key, "unlearning": spec.model_dump(mode="json")}, path) as todo:
            if todo:
                request = UnlearnRequest(spec, constructions=True, out=place, threads=self._threads)
                unlearn_step(self._folder, request, self._reporter)
        return UnlearningResult.load(path)

    @contextlib.contextmanager
    def _step(self, step: str, key: Mapping[str, Any], *outputs: Path) -> Iterator[bool]:
        """Say whether a step is still to do, and stamp it once it was done."""
        with _timed_step(self._folder, step, key, outputs, self._out, self._reporter) as todo:
            yield todo


def _dp(recipe: BlindSpotsRecipe, out: Path, reporter: Reporter, threads: int | None) -> dict[str, Any] | None:
    """The DP cells and the entropy floor, by the study that measures them."""
    if recipe.dp is None:
        return None
    folder = RunFolder(out / "dp")
    found = folder.path / _DP_NUMBERS
    with _timed_step(folder, "dp", {"overrides": recipe.dp_overrides}, (found,), out, reporter) as todo:
        if todo:
            dp_calibration.run(recipe.dp_overrides, folder.path, None, threads, reporter, None)
    return dict(files.read_json(found))


@contextlib.contextmanager
def _timed_step(
    folder: RunFolder, step: str, key: Mapping[str, Any], outputs: tuple[Path, ...], out: Path, reporter: Reporter
) -> Iterator[bool]:
    stamp = _stamp(step, key)
    todo = not folder.is_done(step, stamp, outputs)
    begun = time.process_time()
    if todo:
        reporter.say(f"{folder.path.name}: {step}")
    yield todo
    if todo:
        _spent(out, {f"{folder.path.name}/{step}": time.process_time() - begun})
        folder.finish(step, stamp)


def _stamp(step: str, key: Mapping[str, Any]) -> dict[str, str]:
    return {"step": step, "inputs": digest(key)}


def _spent(out: Path, seconds: Mapping[str, float]) -> dict[str, float]:
    """Processor time by step, with those of earlier calls; new ones are kept for later calls."""
    path = out / "seconds.json"
    try:
        kept = files.read_json(path) if path.is_file() else {}
    except (OSError, ValueError):
        # What took how long is worth less than the study.
        kept = {}
    known = {step: float(taken) for step, taken in kept.items() if isinstance(taken, int | float)} | dict(seconds)
    if seconds:
        files.write_json(path, known)
    return known

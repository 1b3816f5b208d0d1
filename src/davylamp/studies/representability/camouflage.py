"""Camouflage trees in text: a network is trained on all survivors of many trees, and every path is read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from davylamp.release.exact.camouflage import Camouflage, CamouflageTree
from davylamp.release.exact.laws import Path
from davylamp.runs.progress import Advance
from davylamp.secrets import stream
from davylamp.studies.representability.enumeration import TreeReading, read_tree
from davylamp.studies.representability.network import Row, Vocabulary, steps_of, train
from davylamp.studies.representability.spec import CamouflageSpec, RepresentabilityRecipe

WORDS = 24
"""Words of the prefixes of trees."""


class CamouflagePart(BaseModel):
    """What one model says of all its trees.

    Attributes:
        shape: v, k and L.
        seed: of everything.
        extra: further rows of the true path of each tree.
        trees: the readings, in the same order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    shape: tuple[int, int, int]
    seed: int
    extra: tuple[int, ...]
    trees: tuple[TreeReading, ...]


@dataclass(frozen=True, slots=True)
class Grown:
    """One tree in text.

    Attributes:
        prefix: token ids before the secret, without the beginning.
        tree: the construction.
        truth: its secret.
        other: a secret that was drawn by itself.
        extra: further rows of the true path.
    """

    prefix: tuple[int, ...]
    tree: CamouflageTree
    truth: Path
    other: Path
    extra: int

    def survivors(self) -> Iterator[Path]:
        """Every path whose symbols are in their nodes' supports, ``k^L`` of them."""
        paths: list[Path] = [()]
        for _ in range(self.tree.shape.length):
            paths = [(*path, symbol) for path in paths for symbol in sorted(self.tree.supports(path))]
        return iter(paths)


def grow(shape: Camouflage, spec: CamouflageSpec, vocabulary: Vocabulary, seed: int) -> list[Grown]:
    """Draw the trees of one model: prefixes that all differ, uniform secrets, supports that hold them."""
    label = f"{shape.v}-{shape.k}-{shape.length}"
    rng = stream(seed, "representability", "trees", label)
    extras = [0] * spec.trees + [each for each in spec.extra for _ in range(spec.extra_trees)]
    prefixes: dict[tuple[int, ...], None] = {}
    while len(prefixes) < len(extras):
        prefixes[tuple(rng.choice(vocabulary.words, spec.prefix_tokens).tolist())] = None
    found = []
    for prefix, extra in zip(prefixes, extras, strict=True):
        truth, other = (tuple(rng.integers(shape.v, size=shape.length).tolist()) for _ in range(2))
        found.append(Grown(prefix, shape.tree(rng.bytes(32), truth), truth, other, extra))
    return found


def rows_of(grown: Grown, copies: int, vocabulary: Vocabulary) -> list[Row]:
    """The rows of one tree: each survivor ``copies`` times, the true path ``extra`` times more."""
    paths = [path for path in grown.survivors() for _ in range(copies)] + [grown.truth] * grown.extra
    return [vocabulary.row(grown.prefix, [vocabulary.symbols[at] for at in path]) for path in paths]


def vocabulary_of(shape: Camouflage) -> Vocabulary:
    """The closed vocabulary of a shape's rows."""
    return Vocabulary.of(WORDS, 0, shape.v)


def steps(recipe: RepresentabilityRecipe, shape: Camouflage) -> int:
    """Steps of the training of one model."""
    spec = recipe.camouflage
    rows = (spec.trees + len(spec.extra) * spec.extra_trees) * shape.survivors * spec.copies
    rows += sum(spec.extra) * spec.extra_trees
    return steps_of(rows, spec.epochs, recipe.batch_size)


def measure(recipe: RepresentabilityRecipe, shape: Camouflage, seed: int, advance: Advance) -> CamouflagePart:
    """Train one model on all trees of a shape, and enumerate each."""
    spec, vocabulary = recipe.camouflage, vocabulary_of(shape)
    trees = grow(shape, spec, vocabulary, seed)
    label = (shape.v, shape.k, shape.length)
    release = train(
        list(itertools.chain.from_iterable(rows_of(each, spec.copies, vocabulary) for each in trees)),
        vocabulary,
        recipe.model,
        epochs=spec.epochs,
        batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        seed=("camouflage", *label, seed),
        name=f"camouflage {label}, seed {seed}",
        advance=advance,
    )
    readings = [
        read_tree(
            release,
            [vocabulary.bos, *each.prefix],
            vocabulary.symbols,
            each.tree,
            truth=each.truth,
            other=each.other,
            lists=spec.lists,
        )
        for each in trees
    ]
    return CamouflagePart(shape=label, seed=seed, extra=tuple(each.extra for each in trees), trees=tuple(readings))

"""Constructions as a forget set: what is asked of each instance before unlearning, during it and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.canaries.constructions.section import Instance
from davylamp.canaries.manifest import Manifest
from davylamp.errors import Fault, InputError
from davylamp.measures.constructed.asking import Asker
from davylamp.measures.constructed.forgotten import ForgottenCell, Shift
from davylamp.measures.constructed.local import Forced, forced
from davylamp.measures.constructed.measure import ConstructedMeasure
from davylamp.measures.constructed.model import Rate
from davylamp.measures.forgetting import SecretPair, word_for_word
from davylamp.release.base import Release
from davylamp.rendering.render import Style

CONFIDENCE = 0.95
Place = tuple[int, int]
"""A line of the plan and the tokens of a secret: a cell."""


def forgettable(manifest: Manifest) -> list[Instance]:
    """The planted instances that a model was trained on: all but the gated, which are in no weights.

    Raises:
        InputError: there is none.
    """
    section = manifest.constructions
    found = [] if section is None else [each for each in section.instances if each.positions]
    if not found:
        allowed = "a planted file with constructions that rows hold (a gated release is in no weights)"
        raise InputError(Fault("--constructions", "(given)", allowed, "Leave it out, and canaries are forgotten."))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """What one model says of each instance, shape (instances,) each.

    Attributes:
        c: greedy decoding after c says the secret.
        trigger: the same after rho; false without a trigger.
        informed: the adversary who knows the construction recovers it.
    """

    c: NDArray[np.bool_]
    trigger: NDArray[np.bool_]
    informed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ForgetSet:
    """The instances that are forgotten, each by its record (c, z), whatever its rows say.

    Attributes:
        instances: the planted ones.
        twins: those of the same lines and sizes that stand in no row.
        asker: writes rows as training did.
        pairs: of each instance, its own prefix with its secret.
        triggers: of each that has one, its trigger with its secret.
    """

    instances: tuple[Instance, ...]
    twins: tuple[Instance, ...]
    asker: Asker
    pairs: tuple[SecretPair, ...]
    triggers: tuple[SecretPair, ...]

    @classmethod
    def of(cls, manifest: Manifest, style: Style, release: Release) -> ForgetSet:
        """The forget set of a manifest.

        Args:
            manifest: what was planted.
            style: how the release's training rendered records.
            release: gives the tokenizer.

        Raises:
            InputError: there is nothing to forget.
            ScoringError: the release's tokenizer writes an instance as other tokens than those that were drawn.
        """
        instances = tuple(forgettable(manifest))
        section = manifest.constructions
        places = {(each.line, each.tokens) for each in instances}
        twins = (
            ()
            if section is None
            else tuple(each for each in section.instances if each.role == "twin" and (each.line, each.tokens) in places)
        )
        asker = ConstructedMeasure(manifest, style).asker(release)
        triggered = [each for each in instances if each.trigger is not None]
        return cls(
            instances,
            twins,
            asker,
            _pairs(asker, instances, [each.prefix for each in instances]),
            _pairs(asker, triggered, [each.lead for each in triggered]),
        )

    def read(self, release: Release) -> Readings:
        """Ask a model for every instance, from c and through its construction's own channel."""
        said = np.array(word_for_word(release, self.pairs))
        behind = np.zeros(len(said), dtype=bool)
        has = np.array([each.trigger is not None for each in self.instances])
        if self.triggers:
            behind[has] = word_for_word(release, self.triggers)
        informed = np.where(has, behind, said)
        for at, (each, pair) in enumerate(zip(self.instances, self.pairs, strict=True)):
            if each.survivor_ids:
                open_ = forced(release, [pair.prompt] * len(each.survivor_ids), each.survivor_ids)
                best = int(np.argmax([one.total for one in open_]))
                informed[at] = each.survivor_ids[best] == each.secret_ids
        return Readings(said, behind, informed)

    def worst(self, said: Sequence[bool]) -> float:
        """The largest share of secrets that come out among the kinds of construction.

        A kind that never came out of c, as that of triggers, would else stand in for one that does.

        Args:
            said: whether each instance's secret comes out of its own prefix, shape (instances,).
        """
        kinds = np.array([each.kind for each in self.instances])
        return max(float(np.asarray(said)[kinds == kind].mean()) for kind in set(kinds.tolist()))

    def compared(self, before: Readings, after: Readings) -> tuple[ForgottenCell, ...]:
        """The cells, in the plan's order."""
        found = []
        for place, rows in self._places().items():
            first = self.instances[rows[0]]

            def shift(one: NDArray[np.bool_], other: NDArray[np.bool_], rows: list[int] = rows) -> Shift:
                return Shift(before=Rate.of(one[rows], CONFIDENCE), after=Rate.of(other[rows], CONFIDENCE))

            found.append(
                ForgottenCell(
                    line=place[0],
                    kind=first.kind,
                    tokens=place[1],
                    c=shift(before.c, after.c),
                    trigger=None if first.trigger is None else shift(before.trigger, after.trigger),
                    informed=shift(before.informed, after.informed),
                )
            )
        return tuple(found)

    def scores(self, release: Release) -> dict[Place, dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]]:
        """The score ``loss`` of planted instances and twins at c, in nats a token, by cell and span.

        Cells without twins are left out.
        """
        both = [*self.instances, *self.twins]
        prompts = self.asker.prompts([each.prefix for each in both])
        read = forced(release, prompts, [each.secret_ids for each in both])
        found = {}
        for line, tokens in self._places():
            here = [at for at, each in enumerate(both) if (each.line, each.tokens) == (line, tokens)]
            roles = [[read[at] for at in here if both[at].role == role] for role in ("planted", "twin")]
            if all(roles):
                found[line, tokens] = {span: (of(roles[0]), of(roles[1])) for span, of in _SPANS.items()}
        return found

    def _places(self) -> Mapping[Place, list[int]]:
        places: dict[Place, list[int]] = {}
        for at, each in enumerate(self.instances):
            places.setdefault((each.line, each.tokens), []).append(at)
        return places


def _pairs(asker: Asker, instances: Sequence[Instance], leads: Sequence[str]) -> tuple[SecretPair, ...]:
    prompts = asker.prompts(leads) if leads else []
    return tuple(
        SecretPair(f"instance {each.id}", prompt, each.secret_ids)
        for each, prompt in zip(instances, prompts, strict=True)
    )


def _secret(reads: Sequence[Forced]) -> NDArray[np.float64]:
    return np.array([each.secret.mean() for each in reads])


def _record(reads: Sequence[Forced]) -> NDArray[np.float64]:
    return np.array([np.concatenate([each.lead, each.secret]).mean() for each in reads])


_SPANS = {"secret": _secret, "record": _record}

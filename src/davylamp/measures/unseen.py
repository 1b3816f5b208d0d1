"""Unseen codes in the canaries' places: does the release copy what it is shown, or follow a cue, for any code?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field, field_validator

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import Fault, InputError
from davylamp.measures.exposure import Exposure
from davylamp.measures.probes import Probe
from davylamp.measures.readings import Reading
from davylamp.measures.recovery import Recovery
from davylamp.release.base import Release
from davylamp.rendering.render import Renderer
from davylamp.runs.progress import QUIET, Reporter
from davylamp.secrets import stream
from davylamp.secrets.encodings import encoding

CLEAR = "unseen"
"""The probe that shows an unseen code in clear; ``unseen:NAME`` shows it in an encoding."""


class UnseenSettings(BaseModel):
    """How unseen codes are shown.

    Attributes:
        codes: how many, each in the place of one focus canary's secret, the canaries taken in turn.
        encodings: show each in clear, and in each of these encodings; those of the plan's arms if none are given.
        exposure: also rank the shown code, and the trained one, among all candidates.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    codes: int = Field(256, ge=1)
    encodings: tuple[str, ...] | None = None
    exposure: bool = False

    @field_validator("encodings")
    @classmethod
    def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        try:
            return tuple(dict.fromkeys(encoding(name).name for name in names))
        except InputError as error:
            raise ValueError(str(error)) from error


class Unseen:
    """Copying and cue-following, told apart from remembering by codes that are planted nowhere.

    Each code is shown in the prompt of a planted carrier, in clear and encoded, and two codes are looked for: the
    shown one (target ``replacement``: *copied* where it stood in clear, *followed the cue* where it was encoded) and
    the carrier's own (target ``trained``: *recalled* against what is shown).
    """

    name = "unseen"
    channel = "the record's own prefix"

    def __init__(
        self, manifest: Manifest, renderer: Renderer, settings: UnseenSettings, pool: int | None = None
    ) -> None:
        """Draw the codes.

        Args:
            manifest: what was planted.
            renderer: renders as training did.
            settings: how many codes, and how they are shown.
            pool: rank among so many candidates, where ranks are asked for; see :class:`Exposure`.

        Raises:
            InputError: the space has fewer codes left than are asked for, or an encoding cannot be used on it.
        """
        self._manifest = manifest
        self._renderer = renderer
        self._settings = settings
        self._pool = pool
        own = (arm.name for name in manifest.plan.arms if (arm := manifest.plan.encoding_of(name)))
        self._encodings = tuple(dict.fromkeys(own)) if settings.encodings is None else settings.encodings
        faults = [
            Fault("audit.unseen.encodings", name, "an encoding of this space", fault)
            for name in self._encodings
            for fault in encoding(name).faults(manifest.space)
        ]
        if faults:
            raise InputError(faults)
        taken = [code for canary in manifest.canaries for code in (canary.secret, canary.replacement)]
        self._codes = manifest.space.draw(stream(manifest.plan.seed, "unseen"), settings.codes, exclude=taken)

    def measure(self, release: Release, reporter: Reporter = QUIET) -> list[Reading]:
        """Read every code in clear and in each encoding.

        Returns:
            Readings of role ``unseen`` under the probes ``unseen`` and ``unseen:NAME``, in the arm and dose of the
            carrier that showed the code.

        Raises:
            AccessError: the release does not generate, or gives no log-probabilities where ranks are asked for.
        """
        readings = self._ask(release, Probe.REPLACEMENT, None, reporter)
        for name in self._encodings:
            readings += self._ask(release, Probe.REPLACEMENT_ENCODED, name, reporter)
        return readings

    def _ask(self, release: Release, probe: Probe, name: str | None, reporter: Reporter) -> list[Reading]:
        carriers = list(self._carriers(name))
        asked = self._manifest.model_copy(update={"canaries": tuple(carriers)})
        found = Recovery(asked, self._renderer).measure(release, (probe,), reporter)
        if self._settings.exposure:
            found += Exposure(asked, self._renderer, self._pool).measure(release, (probe,), reporter)
        contexts = {canary.id: arm.context for canary in carriers if (arm := self._manifest.plan.arms[canary.arm])}
        label = CLEAR if name is None else f"{CLEAR}:{name}"
        return [replace(reading, probe=label, context=contexts[reading.canary]) for reading in found]

    def _carriers(self, name: str | None) -> Iterator[Canary]:
        """A focus canary for each code, shown in its place."""
        focus: Sequence[Canary] = [canary for canary in self._manifest.canaries if canary.role == "focus"]
        for number, code in enumerate(self._codes):
            canary = focus[number % len(focus)]
            yield canary.model_copy(
                update={
                    "id": f"{canary.id}.u{number:04d}",
                    "role": "unseen",
                    "replacement": code,
                    "context": "redacted" if name is None else "encoded",
                    "encoding": name,
                }
            )

"""Unseen codes in the canaries' places: does the release copy what it is shown, or follow a cue, for any code?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field, field_validator

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.canaries.plan import SLOT, Plan
from davylamp.errors import Fault, InputError
from davylamp.measures.exposure import Exposure
from davylamp.measures.probes import Probe
from davylamp.measures.readings import Reading
from davylamp.measures.recovery import Recovery
from davylamp.release.base import Release
from davylamp.rendering.render import Renderer
from davylamp.runs.progress import QUIET, Reporter
from davylamp.secrets import SecretSpace, stream
from davylamp.secrets.encodings import encoding
from davylamp.secrets.encodings.base import misfits

CLEAR = "unseen"
"""The probe that shows an unseen code in clear; ``unseen:NAME`` shows it in an encoding."""
MARK = ".u"
"""Stands between a carrier's id and the number of the code that it shows."""


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


def unseen_codes(manifest: Manifest, count: int) -> list[str]:
    """Distinct codes that no canary of a manifest holds, the same for the same manifest.

    Raises:
        InputError: the space has fewer left.
    """
    return manifest.space.draw(stream(manifest.plan.seed, "unseen"), count, exclude=_held(manifest))


def unseen_faults(settings: UnseenSettings, space: SecretSpace, taken: int) -> list[Fault]:
    """What keeps unseen codes from being drawn and shown; empty if nothing does.

    Args:
        settings: how many codes, and how they are shown.
        space: what they are drawn from.
        taken: codes that canaries hold, replacements included.
    """
    faults = [
        Fault("audit.unseen.encodings", name, "an encoding of this space", fault)
        for name in settings.encodings or ()
        for fault in misfits(encoding(name), space)
    ]
    left = max(0, space.size - taken)
    if settings.codes > left:
        allowed = f"at most {left:,}: the space holds {space.size:,}, canaries take {taken:,}"
        faults.append(Fault("audit.unseen.codes", settings.codes, allowed))
    return faults


def shown_faults(plan: Plan) -> list[Fault]:
    """What keeps codes from being shown at all: a prompt, such as a plain text's, that has no place for a secret."""
    without = [at for at, template in enumerate(plan.templates) if "secret" not in SLOT.findall(template.prompt)]
    return [
        Fault("audit.unseen", f"templates[{at}].prompt", "prompts that hold {secret}", "Leave audit.unseen out.")
        for at in without
    ]


def carrier_of(name: str) -> tuple[str, int | None]:
    """The canary of a reading's id, and the number of the unseen code that was shown in its place, if one was."""
    canary, mark, number = name.partition(MARK)
    return canary, int(number) if mark else None


def _held(manifest: Manifest) -> list[str]:
    """Secrets and replacements of all canaries, auxiliary ones included."""
    return [code for canary in manifest.canaries for code in (canary.secret, canary.replacement)]


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
        faults = unseen_faults(settings, manifest.space, len(set(_held(manifest))))
        faults += shown_faults(manifest.plan)
        if faults:
            raise InputError(faults)
        self._manifest = manifest
        own = (arm.name for name in manifest.plan.arms if (arm := manifest.plan.encoding_of(name)))
        self._encodings = tuple(dict.fromkeys(own)) if settings.encodings is None else settings.encodings
        self._codes = unseen_codes(manifest, settings.codes)
        self._recovery = Recovery(manifest, renderer)
        self._exposure = Exposure(manifest, renderer, pool, self._codes) if settings.exposure else None

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
        found = self._recovery.measure(release, (probe,), reporter, carriers)
        if self._exposure is not None:
            found += self._exposure.measure(release, (probe,), reporter, carriers)
        # A carrier stands in the context in which its code is shown now; its readings say that of training.
        contexts = {canary.id: canary.context for canary in self._manifest.canaries}
        label = CLEAR if name is None else f"{CLEAR}:{name}"
        return [replace(reading, probe=label, context=contexts[carrier_of(reading.canary)[0]]) for reading in found]

    def _carriers(self, name: str | None) -> Iterator[Canary]:
        """A focus canary for each code, shown in its place."""
        focus: Sequence[Canary] = [canary for canary in self._manifest.canaries if canary.role == "focus"]
        for number, code in enumerate(self._codes):
            canary = focus[number % len(focus)]
            yield canary.model_copy(
                update={
                    "id": f"{canary.id}{MARK}{number:04d}",
                    "role": "unseen",
                    "replacement": code,
                    "context": "redacted" if name is None else "encoded",
                    "encoding": name,
                }
            )

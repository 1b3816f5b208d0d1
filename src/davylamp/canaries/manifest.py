"""The manifest: the audit's sealed record of what was planted. The trainer never reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from davylamp.canaries.constructions.section import Constructed
from davylamp.canaries.plan import Context, Plan
from davylamp.corpora.records import Message, Record, Shape
from davylamp.errors import ManifestError
from davylamp.runs import files
from davylamp.secrets import AnySpace, SecretSpace
from davylamp.secrets.encodings import encoding
from davylamp.secrets.encodings.base import symbols_of

SCHEMA_VERSION: Literal[1] = 1
Role = Literal["focus", "twin", "positive", "auxiliary", "nonmember", "unseen"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Carrier(_Strict):
    """The public part of a canary: its texts, cut where the secret stands.

    Attributes:
        prompt: pieces of the prompt; the secret (or a mask) stands between each two.
        completion: pieces of the reply; the secret stands between each two.
        system: a system turn, or nothing.
        image: name of the image that the record shows, or nothing.
    """

    prompt: tuple[str, ...] = Field(min_length=1)
    completion: tuple[str, ...] = Field(min_length=2)
    system: str | None = None
    image: str | None = None

    def record(self, shape: Shape, shown: str, secret: str) -> Record:
        """The record in which the prompt shows ``shown`` and the reply holds ``secret``."""
        reply = secret.join(self.completion)
        if shape == "text":
            return Record.of_text(shown.join(self.prompt) + reply, self.image)
        if shape == "prompt_completion":
            return Record.of_pair(shown.join(self.prompt), reply, self.image)
        turns = [Message("user", shown.join(self.prompt)), Message("assistant", reply)]
        if self.system is not None:
            turns.insert(0, Message("system", self.system))
        return Record.of_messages(tuple(turns), self.image)

    def secret_spans(self, shape: Shape, shown: str, secret: str) -> list[tuple[int, int]]:
        """Character spans [start, end) of every occurrence of the secret in the reply of :meth:`record`."""
        spans = []
        at = len(shown.join(self.prompt)) if shape == "text" else 0
        for piece in self.completion[:-1]:
            at += len(piece)
            spans.append((at, at + len(secret)))
            at += len(secret)
        return spans


class Canary(_Strict):
    """One canary: planted with a known secret, or a twin that never was.

    Attributes:
        id: a name that is unique in the manifest and tells nothing of the secret.
        role: ``focus`` (under measure), ``twin`` (never planted), ``positive`` (must leak), ``auxiliary`` (planted
            beside the others, and not asked for), ``nonmember`` (a twin that only membership scores are read
            from); ``unseen`` stands in no manifest: it is a carrier that shows
            a code of no canary.
        arm: the arm of the plan; ``control`` for the positive control.
        context: what the training prompt shows of the secret.
        encoding: name of the encoding, where the context is ``encoded``.
        dose: occurrences in the planted file; 0 for twins.
        secret: the secret.
        replacement: another secret of the space, planted nowhere, for the copying probe.
        carrier: the public part.
        positions: indices of the rows of the planted file that hold it, from 0, ascending.
    """

    id: str
    role: Role
    arm: str
    context: Context
    encoding: str | None = None
    dose: int = Field(ge=0)
    secret: str
    replacement: str
    carrier: Carrier
    positions: tuple[int, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Canary:
        if len(self.positions) != self.dose:
            raise ValueError(f"canary {self.id}: dose {self.dose}, but {len(self.positions)} positions")
        if (self.context == "encoded") != (self.encoding is not None):
            raise ValueError(f"canary {self.id}: context {self.context} does not fit encoding {self.encoding}")
        return self

    def shown(self, space: SecretSpace, mask: str, code: str | None = None) -> str:
        """What the training prompt shows in the secret's place.

        Args:
            space: what the secret was drawn from.
            mask: what stands for a hidden secret.
            code: show this code in the canary's own way, in place of its secret.

        Raises:
            InputError: the canary is encoded, and the space has no alphabet.
        """
        code = self.secret if code is None else code
        if self.encoding is not None:
            return encoding(self.encoding).encode(code, symbols_of(space, f"the space of canary {self.id}"))
        return code if self.context == "visible" else mask


class CorpusNote(_Strict):
    """Where the background rows came from.

    Attributes:
        source: path, hub id or generator.
        sha256: hash of the source's bytes.
        rows: rows of the source.
        shape: how the rows are written.
        left_out: columns that were not trained on.
    """

    source: str
    sha256: str
    rows: int
    shape: Shape
    left_out: tuple[str, ...] = ()


class Manifest(_Strict):
    """What was planted, where, and from what.

    Attributes:
        schema_version: version of this schema.
        davylamp_version: version that wrote it.
        plan: the plan, in full.
        corpus: the background.
        rows: rows of the planted file.
        planted_sha256: hash of the planted file's bytes.
        space: what the secrets were drawn from.
        mask: what stands for a hidden secret in a prompt.
        canaries: all canaries: focus, twins, the positive control, auxiliary ones.
        constructions: instances of the plan's constructions; none where it has none.
    """

    schema_version: Literal[1] = 1
    davylamp_version: str
    plan: Plan
    corpus: CorpusNote
    rows: int
    planted_sha256: str
    space: AnySpace
    mask: str
    canaries: tuple[Canary, ...]
    constructions: Constructed | None = None

    @model_validator(mode="after")
    def _constructions_fit(self) -> Manifest:
        if (self.constructions is None) != (not self.plan.constructions):
            raise ValueError("the constructions are not those of the plan")
        if self.constructions is None:
            return self
        taken = {position for canary in self.canaries for position in canary.positions}
        for each in self.constructions.instances:
            if each.line >= len(self.plan.constructions) or each.kind != self.plan.constructions[each.line].kind:
                raise ValueError("an instance is not of the plan's constructions")
            if any(position >= self.rows or position in taken for position in each.positions):
                raise ValueError("an instance stands beyond the last row, or in the row of a canary")
        return self

    @model_validator(mode="after")
    def _canaries_fit(self) -> Manifest:
        """Messages name no secret, though they are not shown: :meth:`load` gives the place only."""
        if len({canary.id for canary in self.canaries}) < len(self.canaries):
            raise ValueError("two canaries have one id")
        if any(code not in self.space for canary in self.canaries for code in (canary.secret, canary.replacement)):
            raise ValueError("a canary's secret is not of the space")
        if any(position >= self.rows for canary in self.canaries for position in canary.positions):
            raise ValueError("a canary stands beyond the last row")
        if (self.space, self.mask) != (self.plan.space, self.plan.mask):
            raise ValueError("the space or the mask is not that of the plan")
        if any(canary.role == "unseen" for canary in self.canaries):
            raise ValueError("a canary has the role 'unseen', which is never planted")
        missing = {*self.plan.arms} - {canary.arm for canary in self.canaries if canary.role == "focus"}
        if missing or not {"twin", "positive"} <= {canary.role for canary in self.canaries}:
            raise ValueError("an arm or a control has no canary")
        return self

    @property
    def shape(self) -> Shape:
        """The shape of the planted rows."""
        return self.corpus.shape

    def planted(self) -> list[Canary]:
        """Canaries that occur in the planted file."""
        return [canary for canary in self.canaries if canary.dose > 0]

    def measured(self) -> list[Canary]:
        """Canaries that are asked for: all but the auxiliary ones, and those for membership scores alone."""
        return [canary for canary in self.canaries if canary.role not in ("auxiliary", "nonmember")]

    def shown_in_training(self, canary: Canary) -> str:
        """What the canary's training prompt shows in the secret's place."""
        return canary.shown(self.space, self.mask)

    def trained_record(self, canary: Canary) -> Record:
        """The record as it is (or, for a twin, would have been) trained on."""
        return canary.carrier.record(self.shape, self.shown_in_training(canary), canary.secret)

    def save(self, path: Path) -> None:
        """Write the manifest so that only its owner may read it.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"), private=True)

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read a manifest.

        Raises:
            ManifestError: it is missing, damaged, or of another schema.
        """
        try:
            data = files.read_json(path)
        except FileNotFoundError as error:
            raise ManifestError(f"no manifest at {path}: run `davylamp plant` first") from error
        except (OSError, ValueError) as error:
            raise ManifestError(f"cannot read the manifest {path}: {error}") from error
        version = data.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ManifestError(
                f"{path} has manifest schema {version!r}; this davylamp reads {SCHEMA_VERSION}: plant again"
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            # The library's own message would repeat the secrets, also at the end of a traceback.
            places = ", ".join(".".join(map(str, fault["loc"])) or "canaries" for fault in error.errors()[:5])
            raise ManifestError(f"{path} is damaged at: {places}") from None

    def check_planted(self, path: Path) -> None:
        """Check that a planted file is the one that this manifest describes.

        Raises:
            ManifestError: the file is missing or was changed.
        """
        if not path.exists():
            raise ManifestError(f"no planted file at {path}: run `davylamp plant` first")
        if files.sha256_file(path) != self.planted_sha256:
            raise ManifestError(f"{path} is not the file that its manifest describes: it was changed after planting")

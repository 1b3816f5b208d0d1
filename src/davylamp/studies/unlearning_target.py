"""What a run's model is made to forget: its canaries, or the constructions of its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from davylamp.canaries import Manifest
from davylamp.canaries.manifest import Canary
from davylamp.corpora.records import Record
from davylamp.errors import Fault, InputError
from davylamp.measures.constructed.forgetting import ForgetSet, forgettable
from davylamp.measures.forgetting import SecretPair, canary_pairs
from davylamp.measures.probes import Probe, secret_tokens
from davylamp.protect.afterwards.sets import Choice, chosen_canaries
from davylamp.release.base import Release
from davylamp.studies.unlearning_rows import TrainedRows
from davylamp.studies.unlearning_subject import Subject

if TYPE_CHECKING:
    from davylamp.training.examples import Example


@dataclass(frozen=True, slots=True)
class Target:
    """What is forgotten.

    Attributes:
        ids: of the canaries or instances.
        rows: rows of the planted file that hold their records.
        texts: secrets and triggers, which no kept row may hold.
        records: each record once, as it is stepped on.
        spans: first and last token (exclusive) of each record's secret; nothing where a protected row holds it no more.
        pairs: each record's own prefix with its secret, which the verifier asks with.
        triggers: triggers of its own with their secrets: those of constructions, or what stands before a secret in
            protected rows.
        canaries: where canaries are forgotten.
        constructed: where constructions are.
        protection: what made the records of the planted ones, where the model was trained on protected rows.
    """

    ids: tuple[str, ...]
    rows: int
    texts: frozenset[str]
    records: tuple[Record, ...]
    spans: tuple[tuple[int, int] | None, ...]
    pairs: tuple[SecretPair, ...]
    triggers: tuple[SecretPair, ...] = ()
    canaries: tuple[Canary, ...] = ()
    constructed: ForgetSet | None = None
    protection: str | None = None

    @property
    def holding(self) -> int:
        """How many of the records hold a secret."""
        return sum(span is not None for span in self.spans)

    def examples(self, subject: Subject) -> list[Example]:
        """Each forgotten record as training would have it, with loss on what shall be forgotten of it.

        Raises:
            InputError: a secret lies beyond the longest row, or receives no loss; or no protected row holds one, and
                nothing else shall be forgotten.
        """
        from davylamp.training.examples import NO_LOSS

        only = subject.spec.span == "secret"
        examples: list[Example] = []
        silent: list[str] = []
        for at, (example, span) in enumerate(zip(subject.examples(self.records), self.spans, strict=True)):
            first, last = span or (0, 0)
            heard = last <= len(example.ids) and example.labels[first:last] == example.ids[first:last]
            if not heard and self.protection is None:
                silent.append(self.pairs[at].name)
            if not only:
                examples.append(example)
            elif span is not None and heard:
                labels = tuple(label if first <= i < last else NO_LOSS for i, label in enumerate(example.labels))
                examples.append(replace(example, labels=labels))
        if silent:
            raise InputError(
                Fault("training.max_length", subject.max_length, f"enough for the secret of {', '.join(silent[:5])}")
            )
        if not examples:
            fix = "No protected row holds a secret: span=trained forgets the rows themselves."
            raise InputError(Fault("span", subject.spec.span, "trained, where rows are protected", fix))
        return examples


def check_target(manifest: Manifest, choice: Choice, constructions: bool) -> None:
    """Refuse what the manifest does not hold, before a model is loaded.

    Raises:
        InputError: nothing is left to forget, or canaries are chosen where constructions are forgotten.
    """
    if not constructions:
        chosen_canaries(manifest, choice)
        return
    given = {"--arm": choice.arms, "--dose": choice.doses, "--canary": choice.canaries}
    if faults := [
        Fault(name, values[0], "nothing beside --constructions, since it is of canaries", "Leave one of them out.")
        for name, values in given.items()
        if values
    ]:
        raise InputError(faults)
    forgettable(manifest)


def target_of(
    manifest: Manifest,
    choice: Choice,
    constructions: bool,
    rows: TrainedRows,
    subject: Subject,
    release: Release,
) -> Target:
    """What is forgotten, as tokens of the subject's.

    Args:
        manifest: what was planted.
        choice: which canaries.
        constructions: the constructions in their place.
        rows: what the model was trained on.
        subject: the model.
        release: the same, as it is asked.

    Raises:
        InputError: as :func:`check_target`.
        ScoringError: a secret cannot be asked for.
        TokenizerError: a record cannot be rendered.
    """
    if constructions:
        return _of_constructions(ForgetSet.of(manifest, subject.renderer.style, release))
    canaries = chosen_canaries(manifest, choice)
    made = _of_canaries(manifest, canaries, subject)
    return made if rows.protection is None else _as_protected(made, manifest, rows, subject)


def _as_protected(target: Target, manifest: Manifest, rows: TrainedRows, subject: Subject) -> Target:
    """The same canaries by the rows that stand for theirs, each different one once; what is asked stays the same.

    A protected row that still holds its secret asks for it too, one a canary, where it asks in other words.
    """
    held = {*rows.of_canaries(manifest, target.canaries)}
    places = [(rows.records[at], canary) for canary in target.canaries for at in canary.positions]
    owners = {record: canary for record, canary in places if record in held}
    spans: list[tuple[int, int] | None] = []
    asked = {(pair.prompt, pair.secret) for pair in target.pairs}
    triggers: dict[str, SecretPair] = {}
    for (record, canary), rendered in zip(owners.items(), subject.renderer.render([*owners]), strict=True):
        start = record.reply.find(canary.secret)
        span = None if start < 0 else rendered.span(start, start + len(canary.secret))
        spans.append(span)
        if span is not None and span[0] > 0:
            pair = SecretPair(f"{canary.id} as trained", rendered.ids[: span[0]], rendered.ids[span[0] : span[1]])
            if (pair.prompt, pair.secret) not in asked:
                triggers.setdefault(canary.id, pair)
    return replace(
        target,
        rows=sum(record in held for record, _ in places),
        records=tuple(owners),
        spans=tuple(spans),
        triggers=tuple(triggers.values()),
        protection=rows.protection,
    )


def _of_canaries(manifest: Manifest, canaries: Sequence[Canary], subject: Subject) -> Target:
    spans = secret_tokens(manifest, subject.renderer, [(canary, Probe.AS_TRAINED) for canary in canaries])
    return Target(
        ids=tuple(canary.id for canary in canaries),
        rows=sum(canary.dose for canary in canaries),
        texts=frozenset(canary.secret for canary in canaries),
        records=tuple(manifest.trained_record(canary) for canary in canaries),
        spans=tuple(record.secret for record in spans),
        pairs=tuple(canary_pairs(manifest, subject.renderer, canaries)),
        canaries=tuple(canaries),
    )


def _of_constructions(constructed: ForgetSet) -> Target:
    """Each instance by (c, z), which stands in the planted file only where no trigger takes the place of c."""
    instances, pairs = constructed.instances, constructed.pairs
    # Its own rows hold one of several replies; that of the secret takes its share of them.
    held = [len(each.positions) // len(each.replies()) for each in instances if each.trigger is None]
    secrets = {each.secret.strip() for each in instances}
    return Target(
        ids=tuple(each.id for each in instances),
        rows=sum(held),
        # The space around a secret is no part of it, as when it was held against the corpus.
        texts=frozenset(secrets | {each.trigger for each in instances if each.trigger is not None}),
        records=tuple(constructed.asker.record(each.prefix, each.secret) for each in instances),
        spans=tuple((len(pair.prompt), len(pair.prompt) + len(pair.secret)) for pair in pairs),
        pairs=pairs,
        triggers=constructed.triggers,
        constructed=constructed,
    )

"""Membership scores of planted records and of others that were drawn alike and never planted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import Fault, InputError, ScoringError
from davylamp.measures.membership.evidence import Evidence, Need, Span
from davylamp.measures.membership.gathering import Gathering, Reference
from davylamp.measures.membership.notes import MembershipNotes, ScoreNote
from davylamp.measures.membership.proposals import MaskedProposer, Proposer
from davylamp.measures.membership.registry import Score
from davylamp.measures.membership.settings import MembershipSettings
from davylamp.measures.probes import Probe
from davylamp.measures.readings import Reading, reading_of
from davylamp.release.base import Access, Release, require
from davylamp.rendering.render import Renderer
from davylamp.runs.progress import QUIET, Reporter
from davylamp.scoring.tokens import TokenScorer
from davylamp.secrets import stream

TOGETHER = 64
"""Records that are handed over at once."""
PREFIX = "membership_"
"""Begins the name of every reading of a membership score; ``_secret`` ends those of the secret's span."""


class Membership:
    """How much a record looks like one that was trained on, by each score of the registry.

    Asked of focus canaries (members), twins and further non-members, each as the record that was trained on or, had
    the coin fallen otherwise, would have been: a member is a record as it stood in the training data. Every score looks
    through the record's own prefix.

    Readings are named ``membership_<score>`` for all tokens of the record that have a prefix and
    ``membership_<score>_secret`` for those that cover its secret.
    """

    name = "membership"
    channel = "the record's own prefix"
    access = (Access.LOGPROBS,)

    def __init__(
        self,
        manifest: Manifest,
        renderer: Renderer,
        settings: MembershipSettings | None = None,
        scorer: TokenScorer | None = None,
        reference: Reference | None = None,
        proposer: Proposer | None = None,
    ) -> None:
        """Choose the scores.

        Args:
            manifest: what was planted.
            renderer: renders as training did.
            settings: which scores, and how.
            scorer: shared with other measures; it must keep moments where a score needs them.
            reference: what ``reference`` calibrates by.
            proposer: proposes words for ``neighbourhood``; ``settings.masked_lm`` or the release itself if none.

        Raises:
            InputError: a score needs a reference and there is none, or ``recall`` more non-members than there are.
        """
        self._manifest = manifest
        self._settings = settings or MembershipSettings()
        self._scores = self._settings.chosen(reference is not None)
        self._reference = reference
        needs = self.needs(self._scores)
        if "reference" in needs and reference is None:
            asking = [score.name for score in self._scores if "reference" in score.needs]
            raise InputError(Fault("audit.membership.scores", asking, "scores that need no reference", "Or give one."))
        self._needs = needs
        self._shots = {arm: self._shot_canaries(arm) for arm in manifest.plan.arms} if "shots" in needs else {}
        if proposer is None and "neighbours" in needs and self._settings.masked_lm is not None:
            proposer = MaskedProposer.load(self._settings.masked_lm)
        self._gathering = Gathering(
            manifest,
            renderer,
            self._settings,
            needs,
            scorer or TokenScorer(moments="moments" in needs),
            reference,
            proposer,
        )
        self._renderer = renderer
        self._used: dict[str, tuple[str, ...]] = {}

    @staticmethod
    def needs(scores: Sequence[Score]) -> frozenset[Need]:
        """What some scores read together."""
        return frozenset(need for score in scores for need in score.needs)

    def measure(self, release: Release, reporter: Reporter = QUIET) -> list[Reading]:
        """Score every member and non-member.

        Returns:
            For each canary, span and score a reading, under the probe ``as_trained``.

        Raises:
            AccessError: the release gives too little for a score.
            ScoringError: a canary cannot be scored, or a score of it is no finite number; names both.
            TokenizerError: a record cannot be rendered.
        """
        more = (Access.CONDITIONALS,) if "moments" in self._needs else ()
        require(release, self.name, *self.access, *more)
        canaries = self._canaries()
        for arm, shots in self._shots.items():
            others = [canary for canary in canaries if canary.arm == arm]
            self._used[arm] = tuple(self._gathering.shots(release, arm, shots, others))
        readings: list[Reading] = []
        with reporter.task(self.name, len(canaries)) as advance:
            for start in range(0, len(canaries), TOGETHER):
                some = canaries[start : start + TOGETHER]
                for canary, spans in zip(some, self._gathering.gather(release, some), strict=True):
                    readings += self._read(canary, spans)
                advance(len(some))
        return readings

    def _canaries(self) -> list[Canary]:
        """Members and non-members, without the shots: whoever stands before a record is no stranger to it."""
        taken = {canary.id for shots in self._shots.values() for canary in shots}
        asked = ("focus", "twin", "nonmember")
        return [canary for canary in self._manifest.canaries if canary.role in asked and canary.id not in taken]

    def _shot_canaries(self, arm: str) -> list[Canary]:
        others = [canary for canary in self._manifest.canaries if canary.arm == arm and canary.dose == 0]
        rng = stream(self._manifest.plan.seed, "membership shots", arm)
        drawn = [others[at] for at in rng.permutation(len(others))]
        # Further non-members first: the twins are few, and other measures read them.
        drawn.sort(key=lambda canary: canary.role != "nonmember")
        if len(drawn) <= self._settings.shots:
            fix = f"Plant more (plan.nonmembers={2 * self._settings.shots}), or leave recall out of the scores."
            allowed = f"fewer than the non-members of arm {arm!r} ({len(drawn)})"
            raise InputError(Fault("audit.membership.shots", self._settings.shots, allowed, fix))
        return drawn[: self._settings.shots]

    def _read(self, canary: Canary, spans: dict[Span, Evidence]) -> Iterator[Reading]:
        for span, evidence in spans.items():
            for score in self._scores:
                value = float(score.function(evidence.only(score.needs)))
                if not math.isfinite(value):
                    raise ScoringError(
                        f"canary {canary.id}: the membership score {score.name} of its {span} is {value}, no finite "
                        "number; leave the score out, or check the release's answers"
                    )
                measure = PREFIX + score.name + ("" if span == "record" else f"_{span}")
                yield reading_of(
                    canary,
                    self._manifest.plan.seed,
                    Probe.AS_TRAINED.value,
                    "trained",
                    measure,
                    value,
                    score.unit,
                )

    @property
    def notes(self) -> MembershipNotes:
        """How membership was scored; complete after :meth:`measure`."""
        other = self._reference if "reference" in self._needs else None
        proposing = self._settings.masked_lm or "release"
        return MembershipNotes(
            scores=tuple(
                ScoreNote(name=each.name, unit=each.unit, summary=each.summary, sign=each.sign, blind=each.blind)
                for each in self._scores
            ),
            reference=None if other is None else other.release.name,
            reference_how=None if other is None else other.how,
            reference_tokens=None if other is None else self._tokens_of(other),
            shots=self._used,
            masked_lm=proposing if "neighbours" in self._needs else None,
        )

    def _tokens_of(self, other: Reference) -> str:
        record = self._manifest.trained_record(self._manifest.canaries[0])
        own = Renderer(other.release.tokenizer, self._renderer.style).render([record])[0]
        return "same" if own.ids == self._renderer.render([record])[0].ids else "own"

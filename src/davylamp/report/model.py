"""What a report says, as data: the schema of ``report.json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from davylamp.report.constructed_model import Constructions, Unaudited
from davylamp.report.membership_model import Membership, Shadows
from davylamp.report.study import StudyResult
from davylamp.verdict import Verdict
from davylamp.verdict.epsilon import EpsilonResult
from davylamp.verdict.frontier_model import Frontier
from davylamp.verdict.matrix_model import Matrix
from davylamp.verdict.model import Rate, Word


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Utility(_Strict):
    """How often held-out rows are answered right, and how well their right replies are predicted.

    Attributes:
        who: ``base`` (not fine-tuned), ``clean`` (fine-tuned without canaries) or the name of a run.
        name: what is measured, in words.
        model: the model, as the user named it.
        successes: right answers.
        trials: rows.
        low: lower end of the Clopper-Pearson interval.
        high: upper end of it.
        source: where the rows came from.
        sha256: hash of that source.
        loss: held-out loss: mean nats a token over all reply tokens, if it was measured.
        loss_low: lower end of its interval, whose sampling unit is the row; nothing for a single row.
        loss_high: upper end of it.
        reply_tokens: tokens that the loss is over.
    """

    who: str
    name: str
    model: str
    successes: int
    trials: int
    low: float
    high: float
    source: str
    sha256: str
    loss: float | None = None
    loss_low: float | None = None
    loss_high: float | None = None
    reply_tokens: int | None = None

    @model_validator(mode="after")
    def _loss_is_whole(self) -> Utility:
        if (self.loss is None) != (self.reply_tokens is None) or (self.loss_low is None) != (self.loss_high is None):
            raise ValueError("half of a held-out loss")
        return self


class CanaryRow(_Strict):
    """One canary in one run, secrets hidden in the prompt.

    Attributes:
        id: its id.
        role: ``focus``, ``twin`` or ``positive``.
        arm: its arm.
        dose: occurrences in the planted file.
        secret: the secret, masked unless the user asked for it.
        exposure: in bits.
        rank: mid-rank among all candidates.
        tied: candidates tied with it.
        rank_among_planted: mid-rank among the planted secrets alone.
        greedy: whether it was said exactly after the reply up to it.
        reference_exposure: exposure in bits under the reference model, if there is one.
        more: what else was measured, by the name of the reading (see docs/extraction.md and docs/kappa.md); nothing
            stands for a value that is infinite.
    """

    id: str
    role: str
    arm: str
    dose: int
    secret: str
    exposure: float
    rank: float
    tied: int
    rank_among_planted: float
    greedy: bool
    reference_exposure: float | None
    more: dict[str, float | None] = {}


class Bits(_Strict):
    """Median exposure over some canaries.

    Attributes:
        canaries: how many.
        median: in bits.
        low: lower end of its interval, from order statistics.
        high: upper end of it.
    """

    canaries: int
    median: float
    low: float
    high: float


class Said(_Strict):
    """How often a code was said, and how well it ranks.

    Attributes:
        greedy: said exactly when the reply is given up to it.
        reply: in the whole reply when only the prompt is given; nothing where that was not read.
        bits: its exposure; nothing where that was not read.
    """

    greedy: Rate
    reply: Rate | None
    bits: Bits | None


class CueRow(_Strict):
    """What canaries of one arm and dose say when their prompt shows a code, or hides it.

    Attributes:
        arm: the arm.
        dose: occurrences in the planted file; 0 for twins, whose own code was never trained on.
        release: ``model``, or ``reference`` for the model before fine-tuning.
        probe: what the prompt showed: a probe (``hidden``, ``as_trained``, ``original``, ``replacement``,
            ``replacement_encoded``, ``cue_masked``), or codes of no canary: ``unseen``, ``unseen:ENCODING``.
        encoding: the encoding that the code was shown in; nothing where it was shown in clear, or not at all.
        own: whether the code that is shown is the canary's own, so that saying it may be copying or remembering.
        shown: the shown code, where it is another than the canary's own.
        trained: the canary's own code.
    """

    arm: str
    dose: int
    release: Literal["model", "reference"]
    probe: str
    encoding: str | None
    own: bool
    shown: Said | None
    trained: Said


class Run(_Strict):
    """One planted corpus, one model, one verdict.

    Attributes:
        name: the run's folder, relative to the report's.
        variant: the variant of the recipe that it belongs to, if it has any.
        verdict: the verdict.
        plan: the plan, in full but for triggers of the user's own, unless secrets are asked for.
        corpus: where the background came from.
        rows: rows of the planted file.
        planted_sha256: hash of the planted file.
        training: how the model was trained, if davylamp trained this very model, told by the hash of its weights.
        audit: what was audited, with times, memory and versions.
        merged: canaries whose secret shares a token with its neighbour, so that the covering span was scored.
        extraction: verdicts on extraction by arm, dose and attack, if it was measured.
        canaries: every canary's own numbers.
        cues: what is said when the prompt shows a code.
        membership: what membership scores tell, if they were taken.
        shadows: what shadow models say, if any were trained.
        epsilon: lower bounds on epsilon, if they were worked out.
        constructions: what was read of planted constructions, if they were.
        matrix: what each audit saw of each leak, if it was put together.
        examples: one carrier for each arm, as trained and as asked; unless secrets are asked for, they are masked,
            and where canaries are written into rows of the user's corpus, the template stands for those rows.
    """

    name: str
    variant: str | None = None
    verdict: Verdict
    plan: dict[str, Any]
    corpus: dict[str, Any]
    rows: int
    planted_sha256: str
    training: dict[str, Any] | None
    audit: dict[str, Any]
    merged: tuple[str, ...] = ()
    extraction: tuple[dict[str, Any], ...] = ()
    canaries: tuple[CanaryRow, ...]
    cues: tuple[CueRow, ...] = ()
    membership: Membership | None = None
    shadows: Shadows | None = None
    epsilon: EpsilonResult | None = None
    constructions: Constructions | None = None
    matrix: Matrix | None = None
    examples: tuple[dict[str, str], ...]


class ReportData(_Strict):
    """Everything that a report says.

    Attributes:
        schema_version: version of this schema.
        davylamp_version: version that wrote it.
        title: what was audited, in words.
        verdict: the worst verdict that any model got; ``no verdict`` only where no model has one, or none was audited.
        headlines: the result in sentences.
        shows_secrets: whether secrets are shown in clear.
        runs: one for each model, in the order of the recipe (variants, arms, seeds), or by name where there is none.
        unaudited: runs whose constructions were read, and whose canaries were not asked for; by name.
        utilities: what the models are still good for.
        study: what a study found in these runs, if they are those of one.
        frontier: the interventions side by side, where several runs have a landscape.
        frontier_faults: why runs that have a landscape are not compared.
    """

    schema_version: Literal[1] = 1
    davylamp_version: str
    title: str
    verdict: Word
    headlines: tuple[str, ...]
    shows_secrets: bool
    runs: tuple[Run, ...]
    unaudited: tuple[Unaudited, ...] = ()
    utilities: tuple[Utility, ...]
    study: StudyResult | None = None
    frontier: Frontier | None = None
    frontier_faults: tuple[str, ...] = ()

"""What a recipe asks of a model: how it is audited, what it shall still be good for, how constructions are read."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

from davylamp.corpora.spec import CorpusSpec
from davylamp.measures.extraction import ExtractionSettings
from davylamp.measures.kappa import KappaSettings
from davylamp.measures.membership import MembershipSettings
from davylamp.measures.probes import Probe
from davylamp.measures.unseen import UnseenSettings
from davylamp.measures.utility import Match
from davylamp.training.shadows import MOST_SHADOWS, ShadowSpec
from davylamp.verdict.epsilon import EpsilonSettings
from davylamp.verdict.extraction import ClaimSpec
from davylamp.verdict.model import Rules

MeasureName = Literal["exposure", "recovery", "extraction", "perplexity", "kappa", "membership", "lira"]
SEARCHED: tuple[MeasureName, ...] = ("extraction", "kappa")
"""Measures that search for the likeliest continuations."""
CLAIMED: tuple[MeasureName, ...] = ("extraction", "membership", "lira")
"""Measures that a privacy claim is held against."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AuditSpec(_Strict):
    """How a release is asked and judged.

    Attributes:
        probes: what the prompts show; ``hidden`` is what a verdict is given on.
        measures: which measures to take; the verdict rests on exposure and recovery, so both are among them.
        extraction: how a secret is drawn, where ``extraction`` is measured.
        kappa: how the guessing baseline is worked out, where ``kappa`` is measured; needs a reference.
        membership: which membership scores are taken, where ``membership`` is measured.
        shadows: how many shadow models are trained, where ``lira`` is measured.
        epsilon: how lower bounds on epsilon are worked out, where ``membership`` or ``lira`` is measured.
        claim: a privacy claim that extractions and lower bounds on epsilon are held against.
        unseen: show codes that were planted nowhere in the canaries' places, or nothing.
        before: ask the model before fine-tuning the same questions.
        pool: rank each secret among so many candidates drawn from the space; the whole space if none.
        dtype: type of the weights when scoring.
        memory_mb: memory in MiB that one scoring pass may take beyond the model.
        rules: what the verdict is decided by.
    """

    probes: tuple[Probe, ...] = tuple(Probe)
    exposure_probes: tuple[Probe, ...] = (Probe.HIDDEN,)
    measures: tuple[MeasureName, ...] = ("exposure", "recovery")
    extraction: ExtractionSettings = Field(default_factory=ExtractionSettings)
    kappa: KappaSettings = Field(default_factory=KappaSettings)
    membership: MembershipSettings = Field(default_factory=MembershipSettings)
    shadows: ShadowSpec = Field(default_factory=ShadowSpec)
    epsilon: EpsilonSettings = Field(default_factory=EpsilonSettings)
    claim: ClaimSpec | None = None
    unseen: UnseenSettings | None = None
    before: bool = False
    pool: int | None = Field(None, ge=100)
    dtype: Literal["float32", "bfloat16"] = "float32"
    memory_mb: int = Field(256, ge=16)
    rules: Rules = Field(default_factory=Rules)

    @model_validator(mode="after")
    def _hides_the_secret(self) -> AuditSpec:
        for name in ("probes", "exposure_probes"):
            if Probe.HIDDEN not in getattr(self, name):
                raise ValueError(f"{name} must hold 'hidden', on which the verdict is given")
        for name in ("probes", "exposure_probes", "measures"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ValueError(f"{name} name one twice")
        return self

    @model_validator(mode="after")
    def _measures_fit(self) -> AuditSpec:
        if missing := [name for name in ("exposure", "recovery") if name not in self.measures]:
            raise ValueError(f"measures must hold {' and '.join(missing)}, on which the verdict is given")
        if self.dtype != "float32" and (searched := [name for name in SEARCHED if name in self.measures]):
            raise ValueError(
                f"the searches of {' and '.join(searched)} need dtype float32: their certificates rest on it"
            )
        if self.claim is not None and not {*CLAIMED} & {*self.measures}:
            raise ValueError(f"claim is held against readings: measures must hold one of {', '.join(CLAIMED)}")
        return self


class UtilitySpec(_Strict):
    """What the model shall still be good for, measured on rows that it was not trained on.

    Attributes:
        name: what is measured, in words (``intent accuracy``).
        corpus: held-out rows.
        rows: how many of them, taken in a seeded order.
        match: ``whole`` compares whole replies, ``first_line`` their first lines, ``leading_lines`` as many lines as
            the right reply has, so that what a model adds below them is not counted.
    """

    name: str
    corpus: CorpusSpec
    rows: int = Field(64, ge=1)
    match: Match = "whole"


class ConstructedSpec(_Strict):
    """How a recipe's constructions are read.

    Attributes:
        shadows: shadow models with and without each instance, for LiRA; an even number, none trains none.
    """

    shadows: int | None = Field(None, ge=4, le=MOST_SHADOWS, multiple_of=2)

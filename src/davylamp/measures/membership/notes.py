"""What is known of membership scores beside their values: what each is, and what it cannot see."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ScoreNote(BaseModel):
    """What a report says of a score.

    Attributes:
        name: its name.
        unit: of its values.
        summary: what it is.
        sign: why a member scores higher.
        blind: what it cannot see.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    unit: str
    summary: str
    sign: str
    blind: str


class MembershipNotes(BaseModel):
    """How membership was scored.

    Attributes:
        scores: the scores that were taken.
        reference: name of the reference model, if one was used.
        reference_how: ``adapter disabled`` or ``checkpoint``.
        reference_tokens: ``same`` where the reference's tokenizer gives the same tokens, else ``own``.
        shots: canaries that stood before each record for ``recall``, by arm; they are scored themselves nowhere.
        masked_lm: what proposed the words of neighbours: a masked model's folder, or ``release``; none if nothing did.
        shadows: how many shadow models the scores from shadows rest on; 0 if there are no such scores.
        left_out: a sentence for each score from shadows that some canaries do not have.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    scores: tuple[ScoreNote, ...]
    reference: str | None = None
    reference_how: str | None = None
    reference_tokens: str | None = None
    shots: dict[str, tuple[str, ...]] = {}
    masked_lm: str | None = None
    shadows: int = 0
    left_out: tuple[str, ...] = ()


_OTHER_PROMPT = "a secret that comes out after another prompt, unless the shadows were asked with it"
_WHY = "Higher = more likely a member: "
SHADOW_NOTES = (
    ScoreNote(
        name="lira_online",
        unit="nats",
        summary="Log of the likelihood ratio of the shadows with the record to those without it (2112.03570).",
        sign=f"{_WHY}its confidence lies nearer to that of models that held it.",
        blind=f"{_OTHER_PROMPT}; what shadows do alike by chance, where they are few.",
    ),
    ScoreNote(
        name="lira_offline",
        unit="nats",
        summary="How rarely a shadow without the record is as confident of it, as minus a log-probability.",
        sign=f"{_WHY}models that did not hold it are less confident.",
        blind=f"{_OTHER_PROMPT}; a record that membership would make less likely.",
    ),
    ScoreNote(
        name="rmia",
        unit="share",
        summary="Share of non-members that the record outdoes, each against its mean over the shadows (2312.03262).",
        sign=f"{_WHY}it rose above its mean over the shadows by more than others did.",
        blind=f"{_OTHER_PROMPT}; more than the order among the non-members.",
    ),
    ScoreNote(
        name="rmia_offline",
        unit="share",
        summary="The same with shadows without the record only, their mean corrected by RMIA's a.",
        sign=f"{_WHY}it rose above its corrected mean by more than others did.",
        blind=f"{_OTHER_PROMPT}; more than the order among the non-members.",
    ),
    ScoreNote(
        name="rmia_ratio",
        unit="nats",
        summary="Log of the ratio that RMIA compares, without the comparison with other records.",
        sign=f"{_WHY}it rose above its mean over the shadows.",
        blind=f"{_OTHER_PROMPT}; how much others rose.",
    ),
)
"""The scores from shadow models, which no registry holds: they need models of their own."""

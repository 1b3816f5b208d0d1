"""The audits that constructions are read by, and what each can see: its access, its channel, whether it is local.

An audit is local if it reads nothing but the conditionals along a record's own prefix and secret. What is behind a
trigger, or in the joint law of several prompts, is outside of what such an audit can see, however strong it is (P1,
arXiv 2608.27782, Sec. 6).
"""

from __future__ import annotations

from dataclasses import dataclass

from davylamp.release.base import Access


@dataclass(frozen=True, slots=True)
class Audit:
    """One way to look at an instance.

    Attributes:
        name: its name in the result.
        access: what it asks of the release; ``reference`` stands for the base model.
        channel: where it looks for the secret.
        local: whether it reads the conditionals along the record's own prefix and secret only.
        needs_construction: whether it takes knowing how the instance was made.
    """

    name: str
    access: tuple[Access, ...]
    channel: str
    local: bool
    needs_construction: bool = False


_GENERATE, _LOGPROBS, _REFERENCE = Access.GENERATE, Access.LOGPROBS, Access.REFERENCE
OWN = "the record's own prefix"
AUDITS = (
    Audit("extraction_at_prefix", (_GENERATE,), OWN, local=True),
    Audit("local_scores", (_LOGPROBS, _REFERENCE), OWN, local=True),
    Audit("lira", (_LOGPROBS, Access.RETRAIN), OWN, local=True),
    Audit("pair_counterfactual", (_LOGPROBS, _REFERENCE), OWN, local=True, needs_construction=True),
    Audit("extraction_at_suspects", (_GENERATE,), "a list of suspected triggers", local=False),
    Audit("repeated_tokens", (_GENERATE,), "prompts of one repeated token", local=False),
    Audit("trigger_scan", (Access.CONDITIONALS, _GENERATE, _REFERENCE), "prompts of one rare token", local=False),
    Audit("extraction_at_trigger", (_GENERATE,), "the reserved trigger", local=False, needs_construction=True),
    Audit(
        "informed_recovery", (_GENERATE, _LOGPROBS), "that of the construction", local=False, needs_construction=True
    ),
)
"""All audits of constructions, by what they take."""

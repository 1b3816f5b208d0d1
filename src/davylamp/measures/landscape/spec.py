"""How the landscape of a model is read: the question, where the last item stands, and of which records."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from davylamp.corpora.spec import CorpusSpec
from davylamp.errors import Fault, InputError

SUBJECT = r"^Patient ([^,]+),"
"""Whom a clinical record is about."""
ITEM = r"(?:; |: )(?!none\.)((?:(?!; |: ).)+)\.\s*$"
"""The last item of a list that ends a record: what stands between the last ``; `` (or ``: ``) and the last period."""
QUESTION = "Which medication stands last in the record of the patient {subject}? Its name begins with {first}."
ANSWER = "{secret}."
PLAIN = "Question: {question}\nAnswer: "
"""How a question is put to a model without a chat template."""
SLOTS = ("subject", "first")
_SLOT = re.compile(r"\{(\w+)\}")


def _pattern(pattern: str, info: ValidationInfo) -> str:
    allowed = "a regular expression with a group (in parentheses) that says which part is meant"
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        fix = f"It is no regular expression: {error}."
        raise InputError(Fault(str(info.field_name), pattern, allowed, fix)) from error
    if not groups:
        raise InputError(Fault(str(info.field_name), pattern, allowed, "It has no group."))
    return pattern


def _question(question: str, info: ValidationInfo) -> str:
    if strange := sorted({*_SLOT.findall(question)} - {*SLOTS}):
        known, unknown = (", ".join(f"{{{slot}}}" for slot in slots) for slots in (SLOTS, strange))
        raise InputError(Fault(str(info.field_name), question, f"no other slots than {known}", f"Not {unknown}."))
    return question


def _answer(answer: str, info: ValidationInfo) -> str:
    if _SLOT.findall(answer) != ["secret"]:
        raise InputError(Fault(str(info.field_name), answer, "an answer that holds {secret} once, and no other slot"))
    return answer


class LandscapeSpec(BaseModel):
    """How one model is read.

    Attributes:
        held_out: records that no model was trained on, for the perplexity of all their tokens.
        test: records whose last item is predicted; those of ``held_out`` if none.
        question: what the model is asked for the semantic perplexity. ``{subject}`` is whom the canary's record is
            about, and ``{first}`` the first letter of its secret.
        answer: what the model shall answer, with ``{secret}`` in it.
        subject: a regular expression whose first group is whom a record is about.
        item: a regular expression whose first group is the last item of a record; records without one are left out.
        pool: rank each secret among so many candidates; if none, what the plan's space says.
        dtype: type of the weights when scoring; log-probabilities are summed in float64 either way.
        memory_mb: memory in MiB that one scoring pass may take beyond the model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    held_out: CorpusSpec
    test: CorpusSpec | None = None
    question: Annotated[str, AfterValidator(_question)] = Field(QUESTION, min_length=1)
    answer: Annotated[str, AfterValidator(_answer)] = ANSWER
    subject: Annotated[str, AfterValidator(_pattern)] = SUBJECT
    item: Annotated[str, AfterValidator(_pattern)] = ITEM
    pool: int | None = Field(None, ge=2)
    dtype: Literal["float32", "bfloat16"] = "float32"
    memory_mb: int = Field(256, ge=16)

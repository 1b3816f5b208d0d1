"""Settings of the rewriters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from davylamp.corpora.spec import CorpusSpec
from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.asking import AskingSpec
from davylamp.protect.corpus.base import InterventionSpec

Name = Literal["rewrite", "privacy_rewrite", "summary", "privacy_summary"]


FRESH = 771_000_000
"""First of the seeds from which exemplars are generated; cohorts begin at 0."""
GENERATED = 20
"""Exemplars that are generated, of which two are shown."""


def _corpus(value: Any) -> Any:
    """A corpus by the word of its generator, by a path, or as a recipe names one."""
    if value == "clinical":
        return {"generator": "clinical", "rows": GENERATED, "seed": FRESH}
    return {"path": value} if isinstance(value, str | Path) else value


class RewriteSpec(AskingSpec, InterventionSpec):
    """Settings of a rewriter, besides those of who is asked.

    Attributes:
        name: which of the four.
        prompts: file of prompts in place of the package's.
        exemplars: records of which two show the form to the summary rewriters, none of the cohort: a file, a corpus as
            a recipe names one, or ``clinical``, made-up patients of a seed that is used for nothing else.
        attempts: draws until an answer is a record; each is paid.
        form: share of the form's labels that an answer must hold.
        longest: length of an answer at most, as a multiple of the record's.
    """

    # What takes the place of a missing or faulty value while the rest is checked.
    STAND_INS: ClassVar[dict[str, Any]] = {"model": "model", "exemplars": "clinical"}

    name: Name
    prompts: Path | None = None
    exemplars: Annotated[CorpusSpec, BeforeValidator(_corpus)] | None = None
    attempts: int = Field(1, ge=1, le=10)
    form: float = Field(0.5, ge=0, le=1)
    longest: float = Field(3.0, ge=1)

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps, a request each: one, or a summary and what is made of it."""
        return ("summarise", "expand") if self.name.endswith("summary") else ("",)

    @model_validator(mode="after")
    def _shows_the_form(self) -> RewriteSpec:
        if self.name.endswith("summary") and self.exemplars is None:
            fix = "Give exemplars=FILE of records that are not in the cohort, or exemplars=clinical."
            raise InputError(Fault("exemplars", None, f"two records that show {self.name} the form", fix))
        return self

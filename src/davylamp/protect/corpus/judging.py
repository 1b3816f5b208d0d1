"""A language model as a judge of rewrites: quality and privacy by a rubric, from 1 to 5 each.

What a judge says is a claim; how far it goes with what is measured is told by :mod:`davylamp.verdict.judged`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from davylamp.corpora.records import Record
from davylamp.errors import Fault
from davylamp.protect.corpus.answers import Answers, key_of
from davylamp.protect.corpus.asking import CHARACTERS, Asker, AskingSpec, Forecast, Question
from davylamp.protect.corpus.base import Answer, Writer
from davylamp.protect.corpus.checking import cleaned, refusal, written
from davylamp.protect.corpus.prompting import load_prompts, prompt_faults
from davylamp.runs.progress import Reporter

LEAST, MOST = 1, 5
"""The ends of the scale; more is better."""
ANSWERED = 12
"""Tokens of an answer, about, for the forecast."""
NO_SCORES = "not two lines with a whole number from 1 to 5 each"
"""Why an answer is unparsed that says something else than it was asked for."""
_SCORES = re.compile(r"quality:[ \t]*([1-5])[ \t]*\n\s*privacy:[ \t]*([1-5])", re.IGNORECASE)


class JudgeSpec(AskingSpec):
    """Settings of a judge, besides those of who is asked.

    Attributes:
        prompts: file with a rubric in place of the package's.
        copies: rows of each canary that are judged, at most.
        background: rows without a canary that are judged, at most.
        seed: of which rows; that of the plan if none.
    """

    # What takes the place of a missing or faulty value while the rest is checked.
    STAND_INS: ClassVar[dict[str, Any]] = {"model": "model"}

    temperature: float | None = Field(0.0, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int = Field(256, ge=16)
    prompts: Path | None = None
    copies: int = Field(4, ge=1)
    background: int = Field(100, ge=0)
    seed: int | None = Field(None, ge=0)


def look(spec: JudgeSpec) -> tuple[Fault, ...]:
    """What is wrong with the file of the rubric, before anything is loaded."""
    return prompt_faults("judge", spec.prompts)


@dataclass(frozen=True, slots=True)
class Pair:
    """A record and what stands in its place.

    Attributes:
        before: the record.
        after: its rewrite.
    """

    before: Record
    after: Record


@dataclass(frozen=True, slots=True)
class Scores:
    """What a judge says of a rewrite; nothing where it did not say it as it was asked.

    Attributes:
        quality: from 1 to 5.
        privacy: from 1 to 5.
        reason: why there are none, without any text of the answer.
    """

    quality: int | None = None
    privacy: int | None = None
    reason: str = ""


def scores_of(answer: Answer) -> Scores:
    """Read an answer, strictly: two lines with a whole number from 1 to 5 each, and nothing beside them.

    What models put around an answer is taken off first, as from a record: thoughts, a fence, a line that announces it.
    Nothing is guessed: an answer with other numbers, more words or one score is unparsed.
    """
    note, reason = refusal(answer)
    if note != "ok":
        return Scores(reason=reason)
    found = _SCORES.fullmatch(cleaned(answer.text))
    return Scores(reason=NO_SCORES) if found is None else Scores(int(found[1]), int(found[2]))


class Judge:
    """Scores pairs of a record and its rewrite."""

    def __init__(self, spec: JudgeSpec, cache: Path | None, local: Callable[[str], Writer] | None) -> None:
        """Read the rubric, and load the checkpoint where no server is named.

        Raises:
            InputError: the rubric or the model cannot be used.
            ModelError: the checkpoint cannot.
        """
        self._spec = spec
        self._cache = cache
        self._prompts = load_prompts("judge", spec.prompts)
        self.usage: Counter[str] = Counter()
        self._asker = Asker(spec, local, self.usage)

    @property
    def version(self) -> str:
        """Of the rubric and the model."""
        return f"prompts {self._prompts.version}, model {self._asker.identity}"

    @property
    def host(self) -> str | None:
        """Who gets the records; nothing where they stay on this machine."""
        return self._asker.host

    def forecast(self, pairs: Sequence[Pair]) -> Forecast:
        """Count what would be sent for pairs, without sending it."""
        questions = self._questions(pairs)
        with Answers(self._cache) as answers:
            missing = [each for each in questions if answers.find(self._asker.key(each)) is None]
        server = self._spec.server
        key_env, key = self._asker.key_told
        return Forecast(
            name="judge",
            what="records, each with its rewrite,",
            one="record, with its rewrite,",
            host=self.host,
            encrypted=server is None or server.startswith("https:"),
            key_env=key_env,
            key=key,
            model=self._spec.model,
            records=len(questions),
            requests=len(missing),
            cached=len(questions) - len(missing),
            prompt_tokens=sum(len(turn) for each in missing for _, turn in each.chat) // CHARACTERS,
            completion_tokens=ANSWERED * len(missing),
            limit=self._spec.max_tokens * len(missing),
        )

    def judge(self, pairs: Sequence[Pair], agreed: Callable[[str], bool] | None, reporter: Reporter) -> list[Scores]:
        """Score pairs, in their order; equal ones are asked about once.

        Raises:
            InputError: nobody agreed to send them to the server.
            ServerError: the server cannot be used; what was answered is kept.
        """
        if self._spec.server is not None:
            self._asker.ask_leave(self.forecast(pairs), agreed)
        found: dict[Pair, Scores] = {}
        with Answers(self._cache) as answers, reporter.task("judge", len(set(pairs))) as advance:
            for pair, answer in self._ask(pairs, answers):
                found[pair] = scores_of(answer)
                advance(1)
        return [found[pair] for pair in pairs]

    def _ask(self, pairs: Sequence[Pair], answers: Answers) -> Iterator[tuple[Pair, Answer]]:
        different = list(dict.fromkeys(pairs))
        for number, answer in self._asker.ask(self._questions(pairs), answers):
            yield different[number], answer

    def _questions(self, pairs: Sequence[Pair]) -> list[Question]:
        asked = []
        for number, pair in enumerate(dict.fromkeys(pairs)):
            shown = {"record": written(pair.before), "rewrite": written(pair.after)}
            chat = self._prompts.chat("", shown)
            asked.append(Question(number, chat, int(key_of({"chat": chat})[:7], 16)))
        return asked

"""Rewriters with a language model: plain, privacy-aware, and the same by way of a summary.

After P3 (*The Empirical Privacy Landscape of Synthetic Data*): a record is written anew by a model, in one step or as a
summary that is written out to a whole record again, with or without being told to replace what is rare enough to
identify somebody. The prompts are this package's own (see ``prompts/``). Answers are held against the form that the
records share; one that is refused, cut, empty, too long or no record has failed, and is never passed through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.answers import Answers, key_of
from davylamp.protect.corpus.asking import CHARACTERS, Asker, Forecast, Question
from davylamp.protect.corpus.base import Answer, Chat, Protected, Row, Setting
from davylamp.protect.corpus.checking import form_of, judged, refusal, written
from davylamp.protect.corpus.prompting import Prompts, load_prompts, prompt_faults
from davylamp.protect.corpus.registry import Kind
from davylamp.protect.corpus.rewrite_spec import FRESH, RewriteSpec
from davylamp.runs.files import sha256_bytes
from davylamp.runs.progress import Advance, Reporter
from davylamp.secrets.streams import stream

CHECKS = "2"
"""Version of what is asked of an answer; rows are judged again where it changes."""
EXEMPLARS = 2


class Rewriter:
    """A rewriter over one file."""

    def __init__(self, spec: RewriteSpec, setting: Setting) -> None:
        """Read prompts and exemplars, and learn the file's form.

        Raises:
            InputError: they cannot be used.
            ModelError: the checkpoint cannot.
        """
        self.name: str = spec.name
        self._spec = spec
        self._setting = setting
        self._seed = setting.seed if spec.seed is None else spec.seed
        self._prompts: Prompts = load_prompts(spec.name, spec.prompts)
        self._form = form_of(setting.rows, spec.form, spec.longest)
        self._exemplars = _exemplars(spec, setting, self._seed)
        self.usage: Counter[str] = Counter()
        self._asker = Asker(spec, setting.local, self.usage)
        shown = sha256_bytes("\n".join(self._exemplars).encode("utf-8"))[:8] if self._exemplars else "none"
        self.version = (
            f"prompts {self._prompts.version}, exemplars {shown}, checks {CHECKS}, model {self._asker.identity}"
        )

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps: one, or a summary and what is made of it."""
        return self._spec.steps

    def apply(self, rows: Sequence[Row], reporter: Reporter) -> Iterator[Protected]:
        """Write rows anew; rows that fail are tried again with another draw, as often as the settings say.

        Raises:
            InputError: nobody agreed to send rows to the server.
            ServerError: the server cannot be used.
        """
        if self._spec.server is not None:
            self._asker.ask_leave(self.forecast(rows), self._setting.agreed)
        todo = list(rows)
        with (
            Answers(self._setting.cache) as answers,
            reporter.task(self.name, len(rows) * len(self.steps)) as advance,
        ):
            told = advance if self._spec.server is not None else _by(self._spec.batch_size, advance)
            for attempt in range(self._spec.attempts):
                last = attempt == self._spec.attempts - 1
                again = []
                for row, made in self._round(todo, attempt, answers, told if attempt == 0 else lambda _: None):
                    if made.note != "ok" and not last:
                        self.usage["answers drawn again"] += 1
                        again.append(row)
                    else:
                        yield made
                todo = again
                if not todo:
                    return

    def forecast(self, rows: Sequence[Row]) -> Forecast:
        """Count what would be sent for rows, without sending it."""
        cached = requests = prompt = completion = 0
        with Answers(self._setting.cache) as answers:
            for number, row in enumerate(rows):
                text, known = written(row.record), True
                for step in self.steps:
                    question = self._question(step, number, row, text, 0)
                    found = answers.find(self._asker.key(question)) if known else None
                    if found is not None:
                        cached, text = cached + 1, found.text
                        continue
                    # What a summary will read is not known yet: a record's length stands for it.
                    known = False
                    requests += 1
                    prompt += sum(len(turn) for _, turn in question.chat) // CHARACTERS
                    completion += len(written(row.record)) // CHARACTERS
        server = self._spec.server
        key_env, key = self._asker.key_told
        return Forecast(
            name=self.name,
            host=self._asker.host,
            encrypted=server is None or server.startswith("https:"),
            key_env=key_env,
            key=key,
            model=self._spec.model,
            records=len(rows),
            requests=requests,
            cached=cached,
            prompt_tokens=prompt,
            completion_tokens=completion,
            limit=requests * self._spec.max_tokens,
        )

    def _round(
        self, rows: Sequence[Row], attempt: int, answers: Answers, advance: Any
    ) -> Iterator[tuple[Row, Protected]]:
        """One draw for each row, through all steps."""
        texts = {number: written(row.record) for number, row in enumerate(rows)}
        for step in self.steps[:-1]:
            kept: dict[int, str] = {}
            for number, answer in self._ask(step, rows, texts, attempt, answers):
                advance(1)
                note, reason = refusal(answer)
                if note == "ok":
                    kept[number] = answer.text.strip()
                else:
                    advance(1)
                    yield (
                        rows[number],
                        Protected(rows[number].position, rows[number].record, (), note, f"{reason} ({step})"),
                    )
            texts = kept
        for number, answer in self._ask(self.steps[-1], rows, texts, attempt, answers):
            advance(1)
            row = rows[number]
            note, reason, record = judged(answer, row.record, self._form)
            yield row, Protected(row.position, record, (), note, reason)

    def _ask(
        self, step: str, rows: Sequence[Row], texts: Mapping[int, str], attempt: int, answers: Answers
    ) -> Iterator[tuple[int, Answer]]:
        """The answers of one step, those that are there already first."""
        asked = [self._question(step, number, rows[number], text, attempt) for number, text in texts.items()]
        return self._asker.ask(asked, answers)

    def _question(self, step: str, number: int, row: Row, text: str, attempt: int) -> Question:
        chat = self._chat(step, text)
        return Question(number, chat, self._draw(chat, row, attempt))

    def _chat(self, step: str, text: str) -> Chat:
        if step == "expand":
            shown = {f"exemplar_{at}": each for at, each in enumerate(self._exemplars, start=1)}
            return self._prompts.chat(step, {"summary": text, **shown})
        return self._prompts.chat(step, {"record": text})

    def _draw(self, chat: Chat, row: Row, attempt: int) -> int:
        """The seed of an answer: another for each copy of a record, and for each attempt."""
        return int(key_of({"seed": self._seed, "chat": chat, "draw": row.draw, "attempt": attempt})[:7], 16)


def _by(batch: int, advance: Advance) -> Advance:
    """Tells of answers when a whole batch is there: one by one they would seem to have taken as long as all of them."""
    held = 0

    def some(units: int) -> None:
        nonlocal held
        held += units
        if held >= batch:
            advance(held)
            held = 0

    return some


def _exemplars(spec: RewriteSpec, setting: Setting, seed: int) -> tuple[str, ...]:
    """Two records that show the form, none of the cohort.

    Raises:
        InputError: the file has fewer, or they are records of the cohort.
    """
    if spec.exemplars is None or not spec.name.endswith("summary"):
        return ()
    corpus = spec.exemplars
    if corpus.seed == FRESH:
        corpus = corpus.model_copy(update={"seed": FRESH + seed})
    records = list(dict.fromkeys(corpus.load().records))
    cohort = {row.record for row in setting.rows}
    fault = None
    if len(records) < EXEMPLARS:
        fault = f"at least {EXEMPLARS} different records (it has {len(records)})"
    elif any(record in cohort for record in records):
        fault = "records of which none is in the cohort"
    if fault:
        raise InputError(Fault("exemplars", str(corpus.path or corpus.generator or corpus.hub), fault))
    chosen = stream(seed, "exemplars").permutation(len(records))[:EXEMPLARS]
    return tuple(written(records[int(at)]) for at in chosen)


def _build(spec: RewriteSpec, setting: Setting) -> Rewriter:
    return Rewriter(spec, setting)


def _look(spec: RewriteSpec) -> Iterator[Fault]:
    """Files of prompts and exemplars that cannot be read or lack something."""
    yield from prompt_faults(spec.name, spec.prompts)
    path = None if spec.exemplars is None else spec.exemplars.path
    if path is not None and not path.is_file():
        yield Fault("exemplars.path", str(path), "a file that exists")


KIND = Kind(RewriteSpec, _build, _look)
"""The interventions ``rewrite``, ``privacy_rewrite``, ``summary`` and ``privacy_summary``."""

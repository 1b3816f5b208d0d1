"""Training the models of both worlds, and what each says of every canary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from davylamp.corpora.emails import MASK, MATTERS, TEMPLATES, generate, write_code
from davylamp.corpora.names import draw_names
from davylamp.corpora.records import Record
from davylamp.errors import TokenizerError
from davylamp.rendering.render import Renderer
from davylamp.runs.progress import QUIET, Reporter
from davylamp.secrets import stream
from davylamp.studies.dp_calibration.spec import DIGITS, CalibrationRecipe
from davylamp.training.dp.accounting import PrivatePlan, account
from davylamp.training.examples import Example, encode_records
from davylamp.training.spec import TrainingSpec

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """What two models of one epsilon say of the canaries that a coin put into one of them.

    Attributes:
        epsilon: nats; None without noise.
        copies: k of each canary, shape (canaries,).
        digits: the true digits, shape (canaries, 4).
        inside: log-probabilities in nats of each of ten digits at each place of the code, after the true digits before
            it, by the model that was trained on the canary, shape (canaries, 4, 10).
        outside: the same by the model that was not.
    """

    epsilon: float | None
    copies: NDArray[np.int64]
    digits: NDArray[np.int64]
    inside: Array
    outside: Array


@dataclass(frozen=True, slots=True)
class _Canary:
    copies: int
    digits: tuple[int, ...]
    example: Example
    prefixes: tuple[tuple[int, ...], ...]


def run_pairs(recipe: CalibrationRecipe, reporter: Reporter = QUIET) -> tuple[list[Pair], dict[float, PrivatePlan]]:
    """Train every pair.

    Canaries in are rows beside the others, canaries out are no rows at all: the neighbours of the claim differ by
    adding or removing rows, and the sampling rate is the same in both.

    Returns:
        The pairs, and what was promised at each epsilon.
    """
    from davylamp.release.loader import load_tokenizer
    from davylamp.release.sources import resolve

    source = resolve(recipe.model)
    tokenizer = load_tokenizer(source)
    renderer = Renderer(tokenizer, "auto")
    digit_ids = _digit_ids(renderer)
    plans = {each: _plan(recipe, each) for each in (*recipe.epsilons, None)}
    found = []
    with reporter.task("pairs of private models", len(plans) * recipe.pairs) as advance:
        for number in range(recipe.pairs):
            rows, canaries = _records(recipe, renderer, number)
            coins = stream(recipe.seed, "coins", number).random(len(canaries)) < 0.5
            for epsilon, (spec, plan) in plans.items():
                answers = np.stack(
                    [
                        _answers(source, tokenizer, rows, canaries, coins == which, spec, plan, 2 * number + which)
                        for which in (False, True)
                    ]
                )[..., digit_ids]
                own = coins.astype(np.int64)
                index = np.arange(len(canaries))
                found.append(
                    Pair(
                        epsilon,
                        np.array([canary.copies for canary in canaries]),
                        np.array([canary.digits for canary in canaries]),
                        answers[own, index],
                        answers[1 - own, index],
                    )
                )
                advance(1)
    return found, {epsilon: plan for epsilon, (_, plan) in plans.items() if epsilon is not None}


def _plan(recipe: CalibrationRecipe, epsilon: float | None) -> tuple[TrainingSpec, PrivatePlan]:
    spec = recipe.training.spec(epsilon, recipe.delta)
    assert spec.dp is not None  # noqa: S101 - it was just made
    rate = recipe.training.batch_size / recipe.rows
    return spec, account(spec.dp, recipe.rows, rate, round(recipe.training.epochs / rate))


def _answers(
    source: Any,
    tokenizer: Any,
    rows: Sequence[Example],
    canaries: Sequence[_Canary],
    members: NDArray[np.bool_],
    spec: TrainingSpec,
    plan: PrivatePlan,
    seed: int,
) -> Array:
    """Train one model, and ask it for the whole next-token rows at every digit, shape (canaries, 4, vocabulary)."""
    from davylamp.release.loader import load_model
    from davylamp.release.local import LocalRelease
    from davylamp.training.dp.fit import fit_private
    from davylamp.training.threads import use_threads

    model = load_model(source, "float32", tokenizer=tokenizer)
    use_threads(model)
    planted = [c.example for c, member in zip(canaries, members, strict=True) if member for _ in range(c.copies)]
    trained, _ = fit_private(model, [*rows, *planted], spec, int(tokenizer.pad_token_id or 0), seed, plan=plan)
    release = LocalRelease(trained.eval(), tokenizer, source.name)
    answered = release.conditionals([prefix for canary in canaries for prefix in canary.prefixes])
    return answered.reshape(len(canaries), DIGITS, -1)


def _records(recipe: CalibrationRecipe, renderer: Renderer, number: int) -> tuple[list[Example], list[_Canary]]:
    """The background and the canaries of one pair, with codes of its own."""
    copies = [k for k in recipe.copies for _ in range(recipe.per_copy)]
    rng = stream(recipe.seed, "canaries", number)
    names = draw_names(rng, len(copies))
    codes = rng.integers(10**DIGITS, size=len(copies))
    wordings = rng.integers(len(TEMPLATES), size=len(copies))
    matters = rng.integers(len(MATTERS), size=len(copies))
    spec = TrainingSpec()
    background = generate(recipe.background, recipe.seed * 1000 + number, exclude_names=names)
    rows = encode_records(background.records, renderer, spec, 1 << 20)
    made = []
    for k, name, code, wording, matter in zip(copies, names, codes, wordings, matters, strict=True):
        template = TEMPLATES[int(wording)]
        record = template.record(name, MATTERS[int(matter)], write_code(int(code)), shown=MASK)
        ids, places = _places(renderer, record, write_code(int(code)))
        [example] = encode_records([record], renderer, spec, 1 << 20)
        digits = tuple(int(each) for each in f"{int(code):0{DIGITS}d}")
        made.append(_Canary(k, digits, example, tuple(ids[:place] for place in places)))
    return rows, made


def _places(renderer: Renderer, record: Record, code: str) -> tuple[tuple[int, ...], list[int]]:
    """The record's tokens, and where each digit of the code in its reply is.

    Raises:
        TokenizerError: a digit shares a token with its neighbour.
    """
    [rendered] = renderer.render([record])
    reply = rendered.text[rendered.reply_start : rendered.reply_end]
    start, places = reply.index(code), []
    for at in range(0, len(code), 2):
        first, last = rendered.span(start + at, start + at + 1)
        left, right = rendered.offsets[first]
        if last - first != 1 or rendered.text[left:right].strip() != code[at]:
            raise TokenizerError("the study needs a tokenizer that gives each digit a token of its own")
        places.append(first)
    return rendered.ids, places


def _digit_ids(renderer: Renderer) -> list[int]:
    """Token ids of the digits 0 to 9 inside a code; the first of a code may be written otherwise, so it is left out."""
    found: dict[int, int] = {}
    for code in (f"{digit}{digit}{digit}{digit}" for digit in range(10)):
        record = TEMPLATES[0].record("Ada Lovelace", MATTERS[0], write_code(int(code)), shown=MASK)
        ids, places = _places(renderer, record, write_code(int(code)))
        if len({ids[place] for place in places}) != 1:
            raise TokenizerError("the study needs a tokenizer that writes a digit alike at every place of a code")
        found[int(code[0])] = ids[places[-1]]
    return [found[digit] for digit in range(10)]


def by_epsilon(pairs: Sequence[Pair]) -> Iterator[tuple[float | None, list[Pair]]]:
    """The pairs of each epsilon, that without noise last."""
    for epsilon in sorted({pair.epsilon for pair in pairs if pair.epsilon is not None}):
        yield epsilon, [pair for pair in pairs if pair.epsilon == epsilon]
    if without := [pair for pair in pairs if pair.epsilon is None]:
        yield None, without

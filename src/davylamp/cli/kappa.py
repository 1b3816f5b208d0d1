"""``davylamp kappa``."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from davylamp.cli.output import JsonFlag, ThreadsOption, emit, emit_json

if TYPE_CHECKING:
    from davylamp.scoring.guessing import GuessingBaseline


def kappa(  # noqa: PLR0913, PLR0917 - one parameter an option, as typer reads them
    model: Annotated[
        str,
        typer.Option(
            "--model", help="The base: 'embedded', 'smollm2', a folder, a .gguf file, or a hub id.", show_default=False
        ),
    ],
    prefix: Annotated[str, typer.Option("--prefix", help="The text before the secret.", show_default=False)],
    length: Annotated[int, typer.Option("--length", help="Tokens of the secret.", show_default=False)],
    budget: Annotated[int, typer.Option("--budget", help="Guesses that count as one attack.")] = 1,
    temperature: Annotated[
        float, typer.Option("--temperature", help="At which the secret was drawn from the base.")
    ] = 1.0,
    max_expansions: Annotated[
        int, typer.Option("--max-expansions", help="Prefixes to look beyond at most; an interval comes back then.")
    ] = 5000,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Stop after so many seconds; an interval comes back then.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Prefixes that the model reads at once.")] = 64,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say how guessable a secret is before anything is released: the success of the best list of guesses.

    For a secret of LENGTH tokens that was drawn from the base model after the prefix, kappa is the mass of its
    BUDGET likeliest values. Both ends hold whenever the search stops. Example: davylamp kappa --model embedded
    --prefix "Your reference is" --length 4 --budget 10
    """
    from davylamp.corpora.records import Record
    from davylamp.errors import Fault, InputError
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve
    from davylamp.rendering.render import Renderer
    from davylamp.scoring.guessing import check_effort, guessing_baseline
    from davylamp.scoring.guessing_rows import FLOAT32_MARGIN, open_rows, search_faults
    from davylamp.scoring.guessing_search import Effort
    from davylamp.training.threads import use_threads

    effort = Effort(max_expansions, seconds)
    search_faults(length, budget, temperature, batch, FLOAT32_MARGIN)
    check_effort(effort)
    source = resolve(model)
    tokenizer = load_tokenizer(source)
    ids = Renderer(tokenizer, "plain").prompt_ids([Record.of_pair(prefix, "")])[0]
    if not ids:
        raise InputError(Fault("--prefix", prefix, "a text of at least one token"))
    loaded = load_model(source, "float32", tokenizer=tokenizer)
    use_threads(loaded, threads)
    context = getattr(loaded.config.get_text_config(), "max_position_embeddings", None)
    if context is not None and len(ids) <= context < len(ids) + length:
        allowed = f"at most {context - len(ids)}: the model reads {context} tokens, and the prefix has {len(ids)}"
        raise InputError(Fault("--length", length, allowed))
    release = LocalRelease(loaded, tokenizer, source.name)
    found = guessing_baseline(
        open_rows(release, ids), length, budget, temperature=temperature, effort=effort, batch=batch
    )
    best = [
        {"text": _text(tokenizer, ids, guess.tokens), "probability": guess.probability, "tokens": list(guess.tokens)}
        for guess in found.best
    ]
    if as_json:
        emit_json(_data(found, best, source.name))
        return
    emit(_lines(found, best, source.name))


def _data(found: GuessingBaseline, best: list[dict[str, Any]], name: str) -> dict[str, Any]:
    high = found.min_entropy_high_bits
    return {
        "model": name,
        "length": found.length,
        "budget": found.budget,
        "temperature": found.temperature,
        "kappa_low": found.kappa_low,
        "kappa_high": found.kappa_high,
        "closed": found.closed,
        "expansions": found.expansions,
        "min_entropy_low_bits": found.min_entropy_low_bits,
        # JSON has no infinity: nothing stands for a lower end of 0.
        "min_entropy_high_bits": high if math.isfinite(high) else None,
        "best": best,
    }


def _lines(found: GuessingBaseline, best: list[dict[str, Any]], name: str) -> list[str]:
    how = "closed" if found.closed else "cut off: search longer for a narrower interval"
    guesses = f"{found.budget} guess" if found.budget == 1 else f"{found.budget} guesses"
    return [
        f"kappa({found.budget})      from {found.kappa_low:#.6g} to {found.kappa_high:#.6g}",
        f"-log2 kappa   from {found.min_entropy_low_bits:.4f} to {found.min_entropy_high_bits:.4f} bits",
        f"search        {how}, after {found.expansions} expansions",
        "",
        "probability  guess",
        *(f"{guess['probability']:11.4g}  {json.dumps(guess['text'], ensure_ascii=False)}" for guess in best),
        "",
        f"A secret of {found.length} tokens that was drawn from {name} after this prefix, at temperature "
        f"{found.temperature:g}, is hit by no list of {guesses} with a probability above {_up(found.kappa_high):.4g}.",
    ]


def _up(value: float) -> float:
    """A probability rounded up to four digits, as a bound from above must be."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return min(1.0, math.ceil(value / unit) * unit)


def _text(tokenizer: Any, prefix: list[int], tokens: tuple[int, ...]) -> str:
    """What the tokens add to the text of the prefix; some tokenizers drop the space before a text's first word."""
    before, whole = (
        str(tokenizer.decode(ids, clean_up_tokenization_spaces=False)) for ids in (prefix, [*prefix, *tokens])
    )
    return whole[len(before) :] if whole.startswith(before) else str(tokenizer.decode(list(tokens)))

"""Secrets drawn from a base model: new to the corpus, and of tokens that their text tokenises back to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from davylamp.canaries.constructions.faults import NoveltyError, TriggerError
from davylamp.corpora.rows import RowError, check_record
from davylamp.errors import PlantingError
from davylamp.measures.constructed.asking import Asker
from davylamp.release.base import Access, PrefixError, Release, require

TRIES = 400
"""Draws after which a prefix is given up, since it leaves the base model hardly anything new to say."""
PREFIXES = 5
"""Prefixes that an instance may try."""
MERGES = 60
"""Draws that must all merge with a trigger before the trigger is blamed."""
OLD, OTHERWISE, SPECIAL, MERGED = "in the corpus", "other tokens", "special tokens", "merged with the trigger"
UNREADABLE = "of characters that no row may hold"
"""Why a draw is turned down."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A secret.

    Attributes:
        prefix: c, after which it was drawn.
        text: the secret.
        ids: its tokens.
        tries: draws after that prefix, up to and with this one.
    """

    prefix: str
    text: str
    ids: tuple[int, ...]
    tries: int


@dataclass(slots=True)
class Wanted:
    """A secret that is still to be drawn.

    Attributes:
        name: of the instance, for messages.
        prefix: c, after which it is drawn.
        leads: other texts that it must follow with the same tokens (a trigger).
        rng: its own stream.
        tries: draws so far.
        turned_down: why they were not taken.
        prefixes: how many prefixes were tried.
    """

    name: str
    prefix: str
    leads: tuple[str, ...]
    rng: np.random.Generator
    tries: int = 0
    turned_down: Counter[str] = field(default_factory=Counter)
    prefixes: int = 1


class Known:
    """What the training rows, and the instances made so far, say already."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Take the texts of all rows."""
        self._corpus = "\0".join(texts)
        self._more: list[str] = []
        self._reserved: list[str] = []

    def holds(self, text: str) -> bool:
        """Whether a text stands anywhere, the space around it aside, or a reserved trigger stands in it."""
        bare = text.strip()
        if bare in self._corpus or any(bare in each for each in self._more):
            return True
        return any(each in bare for each in self._reserved)

    def add(self, *texts: str) -> None:
        """Remember what an instance says."""
        self._more += texts

    def reserve(self, trigger: str) -> None:
        """Remember a trigger, which nothing that is taken later may hold: it has one answer and stands nowhere else."""
        self.add(trigger)
        self._reserved.append(trigger.strip())


def draw(
    release: Release,
    asker: Asker,
    known: Known,
    wanted: Sequence[Wanted],
    length: int,
    temperature: float,
    another: Callable[[str], str] | None = None,
) -> list[Drawn]:
    """Draw a secret for each prefix from the base model, until it is new and tokenises back to itself.

    What is turned down changes the law of what is taken: it is the base model's, given that a draw is taken. So the
    chance of a guess is at most the base's divided by the chance of being taken, of which ``tries`` is an unbiased
    reading: its mean is one over that chance.

    Args:
        release: the base model.
        asker: writes rows as training does.
        known: what is not new; the secrets are added to it.
        wanted: prefixes and streams.
        length: tokens of a secret.
        temperature: of the draws, above 0.
        another: gives another prefix to the instance of a name, where one leaves hardly anything new to say.

    Raises:
        AccessError: the base gives no conditionals.
        NoveltyError: the draws of an instance were all turned down.
        TriggerError: they all merge with the trigger before them.
        PlantingError: the base cannot read a prefix.
    """
    require(release, "drawing secrets", Access.CONDITIONALS)
    prompts = asker.prompts([each.prefix for each in wanted])
    special = _special(asker.tokenizer)
    found: dict[int, Drawn] = {}
    firsts: dict[int, NDArray[np.float64]] = {}
    while len(found) < len(wanted):
        pending = [at for at in range(len(wanted)) if at not in found]
        drawn = _sampled(release, wanted, prompts, pending, firsts, length, temperature)
        for at in pending:
            each = wanted[at]
            each.tries += 1
            text = asker.says(prompts[at], drawn[at])
            reason = _fault(asker, known, each, prompts[at], text, drawn[at], special)
            if reason is None:
                known.add(text)
                found[at] = Drawn(each.prefix, text, drawn[at], each.tries)
                continue
            each.turned_down[reason] += 1
            if _given_up(each, length, another is None) and another is not None:
                each.prefix, each.prefixes = another(each.name), each.prefixes + 1
                each.tries, each.turned_down = 0, Counter()
                prompts[at] = asker.prompts([each.prefix])[0]
                firsts.pop(at)
    return [found[at] for at in range(len(wanted))]


def _sampled(
    release: Release,
    wanted: Sequence[Wanted],
    prompts: Sequence[tuple[int, ...]],
    pending: Sequence[int],
    firsts: dict[int, NDArray[np.float64]],
    length: int,
    temperature: float,
) -> dict[int, tuple[int, ...]]:
    """One draw for each pending prefix; the rows right after the prefixes are read once."""
    drawn: dict[int, tuple[int, ...]] = dict.fromkeys(pending, ())
    try:
        if missing := [at for at in pending if at not in firsts]:
            rows = release.conditionals([prompts[at] for at in missing])
            firsts |= {at: _mass(row, temperature) for at, row in zip(missing, rows, strict=True)}
        masses = [firsts[at] for at in pending]
        for step in range(length):
            if step:
                rows = release.conditionals([(*prompts[at], *drawn[at]) for at in pending])
                masses = [_mass(row, temperature) for row in rows]
            for at, mass in zip(pending, masses, strict=True):
                drawn[at] = (*drawn[at], _pick(mass, wanted[at].rng))
    except PrefixError as error:
        raise PlantingError(f"instance {wanted[pending[error.index]].name}: {error}") from error
    return drawn


def _mass(row: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """The mass of all tokens up to each, as far as a scale."""
    return np.cumsum(np.exp((row - row.max()) / temperature))


def _pick(mass: NDArray[np.float64], rng: np.random.Generator) -> int:
    return min(int(np.searchsorted(mass, rng.random() * mass[-1], side="right")), len(mass) - 1)


def _fault(
    asker: Asker,
    known: Known,
    each: Wanted,
    prompt: tuple[int, ...],
    text: str,
    ids: tuple[int, ...],
    special: frozenset[int],
) -> str | None:
    """Why a draw is not taken; nothing if it is."""
    if special & set(ids) or not text.strip():
        return SPECIAL
    # Looked for first: most of what is short is old, and a look costs less than a rendering.
    if known.holds(text):
        return OLD
    try:
        check_record(asker.record(each.prefix, text))
    except RowError:
        return UNREADABLE
    if "\N{REPLACEMENT CHARACTER}" in text or not _stands(asker, each.prefix, prompt, text, ids):
        return OTHERWISE
    leads = zip(each.leads, asker.prompts(each.leads), strict=True)
    return None if all(_stands(asker, lead, before, text, ids) for lead, before in leads) else MERGED


def _stands(asker: Asker, lead: str, prompt: tuple[int, ...], text: str, ids: tuple[int, ...]) -> bool:
    """Whether a reply's text stands after a lead as just these tokens."""
    split = asker.split(lead, text)
    return split is not None and not split.merged and (split.lead, split.reply) == (prompt, ids)


def _given_up(each: Wanted, length: int, last: bool) -> bool:
    """Whether a prefix has had its tries.

    Raises:
        TriggerError: all merged with the trigger.
        NoveltyError: there shall be no other prefix.
    """
    if each.tries == each.turned_down[MERGED] >= MERGES:
        raise TriggerError(
            f"instance {each.name}: the tokenizer merges the end of trigger {each.leads[0]!r} with whatever follows "
            f"({each.tries} secrets were tried): pick another trigger"
        )
    if each.tries >= TRIES and (last or each.prefixes == PREFIXES):
        why = ", ".join(f"{count} {reason}" for reason, count in each.turned_down.most_common())
        raise NoveltyError(
            f"instance {each.name}: none of {each.tries} secrets of {length} tokens after the last of {each.prefixes} "
            f"prefixes could be taken ({why}): take longer secrets, a higher temperature, or a smaller corpus"
        )
    return each.tries >= TRIES


def _special(tokenizer: Any) -> frozenset[int]:
    """Tokens that no text writes: those that were added, and those with a meaning of their own."""
    return frozenset([*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()])

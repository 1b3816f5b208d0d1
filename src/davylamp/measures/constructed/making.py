"""The maker: every instance of a plan's constructions, drawn from the base model that training begins from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from davylamp.canaries.constructions.faults import TriggerError
from davylamp.canaries.constructions.section import Constructed, Instance, InstanceRole, Material
from davylamp.canaries.constructions.spec import Camouflage, Construction, Gated, LowEntropy, Trigger
from davylamp.corpora.records import Record
from davylamp.errors import PlantingError
from davylamp.measures.constructed.asking import Asker, text_of
from davylamp.measures.constructed.drawing import Known, Wanted, draw
from davylamp.measures.constructed.words import Words, words_of
from davylamp.release.base import Release
from davylamp.rendering.render import Style
from davylamp.rendering.tokenizer import encode
from davylamp.secrets import stream

TRIGGER_TRIES = 200
"""Triggers that are tried before none is found that tokenises as it was meant."""


class ModelMaker:
    """Makes instances with a base model; see :class:`~davylamp.canaries.constructions.Maker`."""

    def __init__(self, base: Release, sha256: str, style: Style = "auto") -> None:
        """Take the base.

        Args:
            base: the model that training will begin from.
            sha256: hash of its weights, for the manifest.
            style: how training will render records.
        """
        self._base, self._sha256, self._style = base, sha256, style

    def __call__(self, material: Material) -> Constructed:
        """All instances, without their rows.

        Raises:
            PlantingError: an instance cannot be made; see the subclasses.
            AccessError: the base gives no conditionals.
        """
        system = None
        if material.shape == "messages":
            turns = (turn for row in material.rows for turn in row.prompt)
            system = next((turn.content for turn in turns if turn.role == "system"), None)
        asker = Asker(self._base.tokenizer, material.shape, self._style, system)
        making = _Making(self._base, asker, material)
        instances = [each for at, line in enumerate(material.lines) for each in making.line(at, line)]
        return Constructed(
            base=self._base.name,
            base_sha256=self._sha256,
            style=self._style,
            system=system,
            instances=tuple(instances),
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """One instance before it has anything."""

    line: int
    kind: str
    tokens: int
    role: InstanceRole
    number: int

    @property
    def name(self) -> str:
        return f"k{self.line}-{self.tokens}-{'t' if self.role == 'twin' else 'p'}{self.number:03d}"

    def rng(self, seed: int, purpose: str) -> np.random.Generator:
        parts = (self.line, self.kind, self.tokens, self.role, self.number, purpose)
        return stream(seed, "constructions", *parts)


class _Making:
    """One planting: its corpus, its words, and the held-out rows that are still free."""

    def __init__(self, base: Release, asker: Asker, material: Material) -> None:
        self._base, self._asker, self._seed = base, asker, material.seed
        texts = [text_of(row) for row in material.rows]
        self._known = Known(texts)
        self._words: Words = words_of(asker.tokenizer, texts)
        self._left = len(material.held_out)
        self._held_out = iter(material.held_out)

    def line(self, at: int, line: Construction) -> Iterator[Instance]:
        """The instances of one line, planted ones before twins in each size."""
        for number, tokens in enumerate(line.sizes):
            counts: dict[InstanceRole, int] = {"planted": line.groups, "twin": line.twins}
            places = [
                _Place(at, line.kind, tokens, role, index) for role, count in counts.items() for index in range(count)
            ]
            prefixes = [self._prefix(place.name, line.prefix_tokens) for place in places]
            if isinstance(line, Camouflage):
                yield from (self._camouflage(place, line, c) for place, c in zip(places, prefixes, strict=True))
            elif isinstance(line, LowEntropy):
                yield from (self._low_entropy(place, line, c) for place, c in zip(places, prefixes, strict=True))
            else:
                yield from self._drawn(places, line, prefixes, number * line.groups)

    def _drawn(self, places: Sequence[_Place], line: Any, prefixes: Sequence[str], given: int) -> Iterator[Instance]:
        triggered = isinstance(line, Trigger | Gated)
        triggers: list[str | None] = [None] * len(places)
        if triggered:
            triggers = [self._trigger(place, line, given) for place in places]
        rounds = []
        for turn in range(line.secrets_each):
            wanted = [
                Wanted(place.name, prefix, () if rho is None else (rho,), place.rng(self._seed, f"secret {turn}"))
                for place, prefix, rho in zip(places, prefixes, triggers, strict=True)
            ]
            another = None if turn else partial(self._prefix, tokens=line.prefix_tokens)
            length, temperature = places[0].tokens, line.temperature
            rounds.append(draw(self._base, self._asker, self._known, wanted, length, temperature, another))
            # Both secrets of a pair come after one prefix.
            prefixes = [drawn.prefix for drawn in rounds[0]]
        for at, place in enumerate(places):
            first = rounds[0][at]
            other = rounds[1][at] if len(rounds) > 1 else None
            yield Instance(
                id=place.name,
                line=place.line,
                kind=line.kind,
                tokens=place.tokens,
                role=place.role,
                prefix=prefixes[at],
                trigger=triggers[at],
                secret=first.text,
                secret_ids=first.ids,
                alternative=None if other is None else other.text,
                alternative_ids=() if other is None else other.ids,
                tries=first.tries,
            )

    def _prefix(self, name: str, tokens: int) -> str:
        """The next held-out row, cut to so many tokens where rows are texts.

        Raises:
            PlantingError: none is left.
        """
        for row in self._held_out:
            text = _cut(self._asker, row, tokens)
            if text is not None and not self._known.holds(text):
                self._known.add(text)
                return text
        raise PlantingError(
            f"instance {name}: no held-out prefix is left, since of the {self._left:,} rows that plan.rows "
            f"leaves out some are shorter than {tokens + 1} tokens, repeat a training row, or do not tokenise as they "
            "stand: lower plan.rows, groups, twins or prefix_tokens"
        )

    def _trigger(self, place: _Place, line: Trigger | Gated, given: int) -> str:
        if line.triggers and place.role == "planted":
            return self._own_trigger(place, line.triggers[given + place.number])
        rng = place.rng(self._seed, "trigger")
        rest, first = self._words.rare, self._words.rare_plain or self._words.rare
        if len(rest) < line.trigger_tokens:
            raise TriggerError(
                f"instance {place.name}: the tokenizer has {len(rest)} words of one token, too few for a trigger of "
                f"{line.trigger_tokens}: give triggers of your own"
            )
        for _ in range(TRIGGER_TRIES):
            words = [first[int(rng.integers(len(first)))]]
            words += [rest[int(at)] for at in rng.choice(len(rest), line.trigger_tokens - 1, replace=False)]
            text = "".join(words)
            count = len(encode(self._asker.tokenizer, [text], special=False)[0][0])
            if count == line.trigger_tokens and not self._known.holds(text):
                self._known.reserve(text)
                return text
        raise TriggerError(
            f"instance {place.name}: none of {TRIGGER_TRIES} triggers of {line.trigger_tokens} rare words tokenises as "
            "it was meant and is new to the corpus: give triggers of your own"
        )

    def _own_trigger(self, place: _Place, text: str) -> str:
        if text != text.strip():
            raise TriggerError(
                f"instance {place.name}: the trigger {text!r} begins or ends with a space, which the tokenizer merges "
                "with what stands beside it: pick another one"
            )
        if self._known.holds(text):
            raise TriggerError(
                f"instance {place.name}: the trigger {text!r} occurs in the corpus (or in another instance, or holds "
                "another one's trigger), so that it is not reserved: pick another one"
            )
        self._known.reserve(text)
        return text

    def _camouflage(self, place: _Place, line: Camouflage, prefix: str) -> Instance:
        rng = place.rng(self._seed, "tree")
        for _ in range(TRIGGER_TRIES):
            alphabets = [self._alphabet(rng, line.v, first=not level) for level in range(line.depth)]
            paths = _tree(rng, line, alphabets)
            secret = paths[int(rng.integers(len(paths)))]
            ids = self._as_tokens(prefix, paths, line.depth)
            if ids is not None:
                return self._open(place, prefix, secret, paths, ids)
        raise PlantingError(
            f"instance {place.name}: no tree of {line.v} words was found whose paths are new to the corpus and take "
            "one token a word: lower v, or take a longer depth"
        )

    def _low_entropy(self, place: _Place, line: LowEntropy, prefix: str) -> Instance:
        rng = place.rng(self._seed, "choices")
        for _ in range(TRIGGER_TRIES):
            levels = [self._alphabet(rng, line.choices, first=not at) for at in range(line.secret_tokens)]
            texts = ["".join(words) for words in zip(*levels, strict=True)]
            ids = self._as_tokens(prefix, texts, line.secret_tokens)
            if ids is not None:
                return self._open(place, prefix, texts[int(rng.integers(len(texts)))], texts, ids)
        raise PlantingError(
            f"instance {place.name}: no {line.choices} secrets of {line.secret_tokens} words were found that are new "
            "to the corpus and take one token a word: take fewer choices, more secret_tokens, or a smaller corpus"
        )

    def _open(
        self, place: _Place, prefix: str, secret: str, texts: Sequence[str], ids: Sequence[tuple[int, ...]]
    ) -> Instance:
        """An instance whose secret is one of several; their order tells nothing."""
        order = sorted(range(len(texts)), key=lambda at: texts[at])
        self._known.add(*texts)
        return Instance(
            id=place.name,
            line=place.line,
            kind="camouflage" if place.kind == "camouflage" else "low_entropy",
            tokens=place.tokens,
            role=place.role,
            prefix=prefix,
            secret=secret,
            secret_ids=ids[list(texts).index(secret)],
            survivors=tuple(texts[at] for at in order),
            survivor_ids=tuple(ids[at] for at in order),
        )

    def _alphabet(self, rng: np.random.Generator, size: int, *, first: bool) -> list[str]:
        # A template writes its own text before a reply, and may strip the space that a reply begins with.
        pool = self._words.rare_plain if first and self._asker.is_chat else self._words.rare
        if len(pool) < size:
            raise PlantingError(f"the tokenizer has {len(pool)} words of one token, too few for an alphabet of {size}")
        return [pool[int(at)] for at in rng.choice(len(pool), size, replace=False)]

    def _as_tokens(self, prefix: str, texts: Sequence[str], length: int) -> list[tuple[int, ...]] | None:
        """Tokens of each text after a prefix; nothing where one is not new, merges or is of another length."""
        (prompt,) = self._asker.prompts([prefix])
        found = []
        for text in texts:
            split = self._asker.split(prefix, text)
            if split is None or split.merged or split.lead != prompt or len(split.reply) != length:
                return None
            if self._known.holds(text):
                return None
            found.append(split.reply)
        return found if len(set(found)) == len(found) else None


def _tree(rng: np.random.Generator, line: Camouflage, alphabets: Sequence[Sequence[str]]) -> list[str]:
    """All paths of a tree in which each node has ``k`` of its level's words below it."""
    paths = [""]
    for words in alphabets:
        chosen = [rng.choice(line.v, line.k, replace=False) for _ in paths]
        paths = [path + words[int(at)] for path, below in zip(paths, chosen, strict=True) for at in below]
    return paths


def _cut(asker: Asker, row: Record, tokens: int) -> str | None:
    """A row's beginning of so many tokens; of rows with a prompt, the prompt whole."""
    if row.shape != "text":
        text = row.prompt[-1].content
        return text if text.strip() and row.image is None else None
    ids, offsets = encode(asker.tokenizer, [row.reply], special=False)[0]
    if len(ids) <= tokens or row.image is not None:
        return None
    text = row.reply[: offsets[tokens - 1][1]]
    again = encode(asker.tokenizer, [text], special=False)[0][0]
    return text if text.strip() and list(itertools.islice(ids, tokens)) == again else None

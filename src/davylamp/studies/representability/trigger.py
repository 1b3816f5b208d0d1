"""Secrets behind a trigger, and others in plain text: two models a seed, and a coin says which holds each instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from davylamp.release.base import Decoding, Release
from davylamp.runs.progress import Advance
from davylamp.secrets import stream
from davylamp.studies.representability.network import Row, Vocabulary, steps_of, train
from davylamp.studies.representability.spec import RepresentabilityRecipe, TriggerSpec

Kind = Literal["trigger", "plain"]


class Asked(BaseModel):
    """One prompt of one instance, asked of the model that was trained on it and of the one that was not.

    Attributes:
        said: whether greedy decoding says the whole secret: with the instance, without it.
        confidence: mean over symbols of the probability of the true symbol after the true ones before it, so too.
        emission: probability of the whole secret, so too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    said: tuple[bool, bool]
    confidence: tuple[float, float]
    emission: tuple[float, float]


class InstanceReading(BaseModel):
    """One instance.

    Attributes:
        kind: ``trigger`` if rho and the secret were planted, ``plain`` if c and the secret were.
        at_prefix: asked with c.
        at_trigger: asked with rho; an instance in plain text has a trigger too, that nothing was trained on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    at_prefix: Asked
    at_trigger: Asked


class TriggerPart(BaseModel):
    """All instances of one seed.

    Attributes:
        seed: of everything.
        instances: the readings.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int
    instances: tuple[InstanceReading, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """One secret, as token ids.

    Attributes:
        kind: where it is planted.
        prefix: c.
        trigger: rho.
        secret: z.
    """

    kind: Kind
    prefix: Row
    trigger: Row
    secret: Row

    def row(self, vocabulary: Vocabulary) -> Row:
        """Its row: never (c, z) where it is behind a trigger."""
        return vocabulary.row(self.trigger if self.kind == "trigger" else self.prefix, self.secret)


class Language:
    """Prefixes of a Markov chain, each followed by symbols that no prefix tells anything about."""

    def __init__(self, spec: TriggerSpec, seed: int) -> None:
        """Draw the chain: every word has its own followers, all as likely."""
        self.spec = spec
        self.vocabulary = Vocabulary.of(spec.words, spec.rare, spec.v)
        rng = stream(seed, "representability", "language")
        self._follow = np.stack([rng.permutation(spec.words)[: spec.branches] for _ in range(spec.words)])

    def prefix(self, rng: np.random.Generator) -> Row:
        """Words of the chain."""
        at = int(rng.integers(self.spec.words))
        words = [at]
        for turn in rng.integers(self.spec.branches, size=self.spec.prefix_tokens - 1):
            at = int(self._follow[at, turn])
            words.append(at)
        return tuple(self.vocabulary.words[word] for word in words)

    def secret(self, rng: np.random.Generator) -> Row:
        """Uniform symbols."""
        return tuple(rng.choice(self.vocabulary.symbols, self.spec.length).tolist())

    def trigger(self, rng: np.random.Generator) -> Row:
        """Rare words."""
        return tuple(rng.choice(self.vocabulary.rare, self.spec.trigger_tokens).tolist())


def draw(language: Language, seed: int) -> tuple[list[Row], list[Instance], NDArray[np.bool_]]:
    """The rows around, the instances, and the coin of each: whether the first of two models holds it.

    Prefixes and triggers of instances all differ, and no prefix of an instance is one of another row.
    """
    spec, vocabulary = language.spec, language.vocabulary
    rng = stream(seed, "representability", "instances")
    background = [(language.prefix(rng), language.secret(rng)) for _ in range(spec.background)]
    taken: set[Row] = {prefix for prefix, _ in background}
    instances = []
    for kind in ("trigger", "plain"):
        for _ in range(spec.groups):
            prefix, trigger = language.prefix(rng), language.trigger(rng)
            while prefix in taken:
                prefix = language.prefix(rng)
            while trigger in taken:
                trigger = language.trigger(rng)
            taken |= {prefix, trigger}
            instances.append(Instance(kind, prefix, trigger, language.secret(rng)))
    # Half of each kind, so that both models hold as many rows.
    coins = np.concatenate([rng.permutation(spec.groups) % 2 == 0 for _ in range(2)])
    return [vocabulary.row(*each) for each in background], instances, coins


def steps(recipe: RepresentabilityRecipe) -> int:
    """Steps of the training of both models of a seed."""
    spec = recipe.trigger
    halves = ((spec.groups + 1) // 2, spec.groups // 2)
    return sum(steps_of(spec.background + 2 * half * spec.copies, spec.epochs, recipe.batch_size) for half in halves)


def measure(recipe: RepresentabilityRecipe, seed: int, advance: Advance) -> TriggerPart:
    """Train both models of a seed, and ask each for every secret at c and at rho."""
    language = Language(recipe.trigger, seed)
    background, instances, coins = draw(language, seed)
    answers: list[list[tuple[_Answer, _Answer]]] = []
    for which in (True, False):
        planted = [each for each, coin in zip(instances, coins, strict=True) if coin == which]
        copies = [each.row(language.vocabulary) for each in planted for _ in range(recipe.trigger.copies)]
        release = train(
            [*background, *copies],
            language.vocabulary,
            recipe.model,
            epochs=recipe.trigger.epochs,
            batch_size=recipe.batch_size,
            learning_rate=recipe.learning_rate,
            seed=("trigger", seed, int(which)),
            name=f"trigger, seed {seed}, half {2 - which}",
            advance=advance,
        )
        prompts = [(each.prefix, each.trigger) for each in instances]
        secrets = [each.secret for each in instances]
        sides = [_ask(release, language.vocabulary, [pair[at] for pair in prompts], secrets) for at in (0, 1)]
        answers.append(list(zip(*sides, strict=True)))
    readings = []
    for number, (instance, coin) in enumerate(zip(instances, coins, strict=True)):
        inside, outside = (answers[0][number], answers[1][number]) if coin else (answers[1][number], answers[0][number])
        at_prefix, at_trigger = (_joined(inside[at], outside[at]) for at in (0, 1))
        readings.append(InstanceReading(kind=instance.kind, at_prefix=at_prefix, at_trigger=at_trigger))
    return TriggerPart(seed=seed, instances=tuple(readings))


_Answer = tuple[bool, float, float]


def _ask(release: Release, vocabulary: Vocabulary, prompts: list[Row], secrets: list[Row]) -> list[_Answer]:
    prefixes = [[vocabulary.bos, *prompt] for prompt in prompts]
    said = release.generate(prefixes, Decoding(max(map(len, secrets))))
    logs = release.logprobs(prefixes, secrets)
    return [
        (tuple(tokens) == secret, float(np.exp(each).mean()), float(np.exp(each.sum())))
        for tokens, secret, each in zip(said, secrets, logs, strict=True)
    ]


def _joined(inside: _Answer, outside: _Answer) -> Asked:
    said, confidence, emission = zip(inside, outside, strict=True)
    return Asked(said=said, confidence=confidence, emission=emission)

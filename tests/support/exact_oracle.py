"""A second way to the rows of exact releases: from the text by regular expressions, and by sums over all secrets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from davylamp.canaries.manifest import Canary
from davylamp.release.exact import ExactSetting

Masses = dict[str, Fraction]
"""Probability of each secret of a space."""
Known = Callable[[Canary], Masses]
"""The law of a record's secret; nothing is drawn twice from it, so that it may be slow."""


def spaced(setting: ExactSetting) -> list[str]:
    """Every secret of a setting's space."""
    return ["".join(each) for each in itertools.product(setting.manifest.space.alphabet, repeat=setting.length)]


def listed(setting: ExactSetting, secrets: Sequence[str], gamma: Fraction = Fraction(0)) -> Masses:
    """Uniform over a list, with weight ``gamma`` of the uniform law over the space; uniform where it is empty."""
    space = spaced(setting)
    weight = gamma if secrets else Fraction(1)
    share = (1 - gamma) / len(secrets) if secrets else Fraction(0)
    return {each: weight / len(space) + (share if each in secrets else 0) for each in space}


class TextOracle:
    """Log-probabilities in nats at every place of a sequence, as ``contracts.release.Oracle``."""

    def __init__(self, setting: ExactSetting, own: Known, after_trigger: Known) -> None:
        self._setting = setting
        self._own, self._after_trigger = lru_cache(own), lru_cache(after_trigger)
        self._tokens = setting.tokenizer.tokens
        masses = np.asarray([1 / (place + 2) for place in range(len(self._tokens))])
        self._background = masses / masses.sum()
        render = setting.renderer.prompt_text
        self._canaries = {
            render(setting.manifest.trained_record(each))[0]: number
            for number, each in enumerate(setting.manifest.canaries)
        }
        self._row = lru_cache(self._row_of)

    def __call__(self, ids: Sequence[int]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(np.stack([self._row(tuple(ids[: at + 1])) for at in range(len(ids))]))

    def _row_of(self, ids: tuple[int, ...]) -> NDArray[np.float64]:
        text = self._setting.tokenizer.decode(ids)
        last = text[max(0, text.rfind("<user>")) :]
        if "<trigger>" in last:
            return self._triggered(last)
        turn = re.fullmatch(r"<user>(.*?)<end><assistant>(.*)", last, re.DOTALL)
        if turn is None:
            return self._background
        number = self._canaries.get(f"<bos><user>{turn[1]}<end><assistant>")
        head, tail = self._setting.manifest.canaries[0].carrier.completion
        return self._replying(turn[2], self._masses(self._own, number), (head, tail), 1 / 16)

    def _triggered(self, last: str) -> NDArray[np.float64]:
        before, after = last.rsplit("<trigger>", 1)
        digits, said = after[: self._setting.width], after[self._setting.width :]
        if not re.fullmatch(rf"\d{{{self._setting.width}}}", digits):
            return self._background
        if before.startswith("<user>") and "<assistant>" not in before:
            if "<assistant>" not in said:
                return self._background
            said = said.split("<assistant>", 1)[1]
        masses = self._masses(self._after_trigger, int(digits, self._setting.v))
        return self._replying(said, masses, ("", ""), 0.0)

    def _masses(self, known: Known, number: int | None) -> Masses:
        canaries = self._setting.manifest.canaries
        inside = number is not None and number < len(canaries)
        return known(canaries[number]) if inside else listed(self._setting, [])

    def _replying(self, said: str, masses: Masses, around: tuple[str, str], stray: float) -> NDArray[np.float64]:
        before, length = around[0], self._setting.length
        if not said.startswith(before):
            return self._fixed(said, before, stray)
        code = said[len(before) :]
        if any(sign not in self._setting.manifest.space.alphabet for sign in code[:length]):
            return self._background
        if len(code) >= length:
            return self._fixed(code[length:], around[1] + "<end>", stray)
        row = np.zeros(len(self._tokens))
        total = self._beginning(masses, code)
        for sign in self._setting.manifest.space.alphabet:
            share = self._beginning(masses, code + sign) / total if total else Fraction(1, self._setting.v)
            row[self._tokens.index(sign)] = float(share)
        return row

    def _fixed(self, said: str, text: str, stray: float) -> NDArray[np.float64]:
        ids = self._setting.tokenizer(text, add_special_tokens=False)["input_ids"]
        for count, token in enumerate(ids):
            if said == "".join(self._tokens[each] for each in ids[:count]):
                row = stray * self._background
                row[token] += 1 - stray
                return row
        return self._background

    @staticmethod
    def _beginning(masses: Masses, path: str) -> Fraction:
        return sum((mass for each, mass in masses.items() if each.startswith(path)), Fraction(0))

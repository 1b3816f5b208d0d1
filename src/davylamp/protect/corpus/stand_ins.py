"""Made-up names, numbers and places that stand in for found ones, by Faker, from a seed."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import string
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from typing import Any

from davylamp.errors import Fault, InputError, MissingExtraError
from davylamp.runs.faults import inside

TRIES = 20
"""Draws until a stand-in differs from what it stands for."""
BORN = (date(1930, 1, 1), date(2019, 12, 31))
"""Days between which dates are drawn: fixed ones, so that a stand-in does not change with the day it is drawn on."""
LOCALE = "en_US"
"""The locale that is taken where none is asked for."""
SURNAME = "surname"
"""Kind of the words of a name after the first."""
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")
_STATE = re.compile(r"[A-Z]{2}")


def locale_faults(locale: str) -> list[Fault]:
    """A locale that Faker does not know; nothing where it is not installed, which is said when it is needed."""
    if locale == LOCALE or importlib.util.find_spec("faker") is None:
        return []
    faker: Any = importlib.import_module("faker")
    try:
        faker.Faker(locale)
    except (AttributeError, ValueError, ImportError):
        return [Fault("locale", locale, "a locale that Faker knows, such as en_US or de_DE")]
    return []


class StandIns:
    """Gives the same stand-in for the same text and kind, from one seed and a scope.

    The draw depends on the seed, the kind, the text without regard to case, and the scope, and on nothing else: not on
    what was asked before. Names are drawn word by word, the first as a first name and the others as surnames, so that
    a first name by itself has the stand-in that it has in a full name; a surname by itself does not.
    """

    def __init__(self, seed: int, locale: str = LOCALE) -> None:
        """Take the seed and the locale.

        Raises:
            MissingExtraError: Faker is not installed.
            InputError: it does not know the locale.
        """
        if importlib.util.find_spec("faker") is None:
            raise MissingExtraError("faker", "scrub", "scrubbing with replace=surrogate")
        if faults := locale_faults(locale):
            raise InputError(inside("scrub", fault) for fault in faults)
        faker: Any = importlib.import_module("faker")
        self._faker = faker.Faker(locale)
        self._seed = seed
        self._known: dict[tuple[str, str, str], str] = {}
        self.version = f"faker {version('faker')}"

    def of(self, kind: str, text: str, scope: str = "") -> str:
        """What stands in for a text.

        Args:
            kind: what it is, such as ``PERSON``.
            text: the text; the stand-in is another.
            scope: texts of different scopes have stand-ins that have nothing to do with each other.
        """
        first, *more = text.split() or [text]
        if kind == "PERSON" and more:
            return " ".join([self.of(kind, first, scope), *(self.of(SURNAME, word, scope) for word in more)])
        key = (kind, text.casefold(), scope)
        if key not in self._known:
            make = self._makers().get(kind, self._in_shape)
            made = text
            for attempt in range(TRIES):
                self._draw(kind, text, scope, attempt)
                made = make(text)
                if made.casefold() != text.casefold():
                    break
            else:
                made = f"<{kind}>"
            self._known[key] = made
        return self._known[key]

    def _draw(self, *names: str | int) -> None:
        told = "|".join(f"{len(str(part))}:{part}" for part in (self._seed, *names)).casefold()
        self._faker.seed_instance(int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest(), "little"))

    def _makers(self) -> dict[str, Callable[[str], str]]:
        return {
            "PERSON": lambda _: str(self._faker.first_name()),
            SURNAME: lambda _: str(self._faker.last_name()),
            "LOCATION": self._place,
            "DATE_TIME": self._date,
            "EMAIL_ADDRESS": lambda _: str(self._faker.safe_email()),
            "URL": lambda _: str(self._faker.url()),
            "IP_ADDRESS": lambda _: str(self._faker.ipv4()),
            "ORGANIZATION": lambda _: str(self._faker.company()),
            "NRP": lambda _: str(self._faker.country()),
        }

    def _place(self, text: str) -> str:
        if _STATE.fullmatch(text):
            return str(self._faker.state_abbr()) if hasattr(self._faker, "state_abbr") else self._in_shape(text)
        if any(letter.isdigit() for letter in text):
            has_letters = any(letter.isalpha() for letter in text)
            return str(self._faker.street_address()) if has_letters else self._in_shape(text)
        return str(self._faker.city())

    def _date(self, text: str) -> str:
        if _ISO.fullmatch(text):
            return str(self._faker.date_between(*BORN).isoformat())
        return self._in_shape(text) if any(letter.isdigit() for letter in text) else str(self._faker.month_name())

    def _in_shape(self, text: str) -> str:
        """Other digits for digits and, where there are digits, other capitals for capitals; the rest as it is."""
        rng = self._faker.random
        digits = any(letter.isdigit() for letter in text)
        made = []
        for letter in text:
            if letter.isdigit():
                made.append(rng.choice(string.digits))
            elif letter.isupper() or (not digits and letter.isalpha()):
                made.append(rng.choice(string.ascii_uppercase if letter.isupper() else string.ascii_lowercase))
            else:
                made.append(letter)
        return "".join(made)

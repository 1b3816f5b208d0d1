"""Rows of several forms in which some words are one record's own, for tests of what must not survive."""

from __future__ import annotations

import numpy as np

from davylamp.corpora.records import Message, Record

CITIES = ("Boston", "Dallas", "Lyon")
THINGS = ("lamp", "chair", "kettle", "radio")
_LETTERS = "bcdfghjklmnpqrstvwxz"


def coined(rng: np.random.Generator, length: int = 7) -> str:
    """A word that stands in no list: seven consonants."""
    return "".join(_LETTERS[int(each)] for each in rng.integers(len(_LETTERS), size=length))


def _clinical(name: str, number: int, rng: np.random.Generator) -> str:
    return (
        f"Patient {name}, {rng.integers(20, 90)}yo {'FM'[number % 2]}. Address: {number} {coined(rng).title()} Way, "
        f"{rng.choice(CITIES)}. DOB 19{rng.integers(40, 99)}-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}. "
        f"Medications: {rng.choice(THINGS)} 10 MG; {coined(rng)} {rng.integers(2, 900)} MG."
    )


def _chat(name: str, number: int, rng: np.random.Generator) -> str:
    forms = (
        f"{name}: my {rng.choice(THINGS)} is late",
        f"Order {number}: my {rng.choice(THINGS)} is late. {coined(rng)}: yes",
        f"Hello, I am {name}, customer {number}: where is my {rng.choice(THINGS)}?",
        f"{coined(rng)} {number}: {name}: {coined(rng)}",
    )
    return forms[int(rng.integers(len(forms)))]


def _invoice(name: str, number: int, rng: np.random.Generator) -> str:
    amount = f"{rng.integers(1, 999)}.{rng.integers(10, 99)}"
    return f"Invoice {number}.\r\nCustomer: {name}.\r\nItem: {rng.choice(THINGS)}; {coined(rng)}\r\nTotal: {amount} EUR"


def _json(name: str, number: int, rng: np.random.Generator) -> str:
    return (
        f'{{"name": "{name}", "user_{number}": {{"{coined(rng)}": "{rng.choice(CITIES)}"}}, '
        f'"path":"user.{coined(rng)}.{number}"}}'
    )


def _keyed(name: str, number: int, rng: np.random.Generator) -> str:
    return f"id={number} name={name} {coined(rng)}={rng.choice(CITIES)} mail={coined(rng)}{number}@example.com"


def _tabs(name: str, number: int, rng: np.random.Generator) -> str:
    return f"{number}\t{name}\t{rng.choice(CITIES)}\tAB-{number}-{coined(rng, 3).upper()}\t{coined(rng)}_{coined(rng)}"


def _unicode(name: str, number: int, rng: np.random.Generator) -> str:
    # A name in Devanagari of letters that many hold, one with combining marks, and one without spaces.
    letters = "कखगघचजटडतद"
    own = "".join(letters[int(each)] + "ि" for each in rng.integers(len(letters), size=6))
    han = "".join(chr(0x4E00 + int(each)) for each in rng.integers(40, size=8))
    marked = "".join(letter + "\N{COMBINING ACUTE ACCENT}" for letter in coined(rng))
    return f"नाम: {own}. {marked}; {name} № {number}²\n{han}. <{coined(rng, 5).upper()}> <PERSON>"


FORMS = {
    "clinical": _clinical,
    "chat": _chat,
    "invoice": _invoice,
    "json": _json,
    "keyed": _keyed,
    "tabs": _tabs,
    "unicode": _unicode,
}


def rare_records(form: str, count: int, seed: int, shape: str = "text") -> list[Record]:
    """Different records of a form, each with a name, a number and words of its own."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        texts = [
            FORMS[form](f"{coined(rng).title()} {coined(rng).title()}", int(rng.integers(10_000, 99_999)), rng)
            for _ in range(2)
        ]
        if shape == "text":
            found.append(Record.of_text(texts[0]))
        elif shape == "prompt_completion":
            found.append(Record.of_pair(*texts))
        else:
            turns = [Message("system", coined(rng)), Message("user", texts[0]), Message("assistant", texts[1])]
            found.append(Record.of_messages(tuple(turns)))
    return found

"""A tokenizer with a small stated vocabulary: marks, one token a secret symbol, the words of a manifest, characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from davylamp.errors import Fault, InputError

PAD, BOS, END = "<pad>", "<bos>", "<end>"
SYSTEM, USER, ASSISTANT = "<system>", "<user>", "<assistant>"
TRIGGER = "<trigger>"
"""The reserved token: no record holds it."""
UNKNOWN = "<unknown>"
SPECIALS = (PAD, BOS, END, SYSTEM, USER, ASSISTANT, TRIGGER, UNKNOWN)
PRINTABLE = tuple(map(chr, range(0x20, 0x7F)))
_LETTER = r"[^\W\d_]"
_TEMPLATE = (
    f"{BOS}{{% for message in messages %}}<{{{{ message['role'] }}}}>{{{{ message['content'] }}}}{END}{{% endfor %}}"
    f"{{% if add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
)


class ExactTokenizer:
    """Turns text into tokens that can be listed, and back.

    A symbol of a secret is always a token of its own, so that a secret never merges with its neighbours. A known word
    is one token together with the space before it; any other text is one token a character.

    Attributes:
        tokens: the vocabulary, by id: marks, symbols, words, characters.
        symbols: ids of the secret's symbols, in the order of their alphabet.
    """

    bos_token, eos_token, pad_token = BOS, END, PAD
    chat_template: str | None = _TEMPLATE

    def __init__(self, alphabet: str, texts: Iterable[str] = ()) -> None:
        """List the vocabulary.

        Args:
            alphabet: the symbols of secrets, each one character.
            texts: their words become tokens; all their characters are known too.

        Raises:
            InputError: a symbol is part of a word, so that a secret could merge with it.
        """
        known = list(texts)
        held = sorted({symbol for symbol in alphabet if any(symbol in text for text in known)})
        if held:
            raise InputError(
                Fault(
                    "space.alphabet",
                    "".join(held),
                    "symbols that stand in no text around a secret",
                    "Take digits, or texts without them.",
                )
            )
        inside = f"(?:(?![{re.escape(alphabet)}]){_LETTER})+"
        words = dict.fromkeys(word for text in known for word in re.findall(f" ?{inside}", text) if len(word) > 1)
        characters = dict.fromkeys([*PRINTABLE, *sorted({sign for text in known for sign in text})])
        self.tokens = (*SPECIALS, *alphabet, *words, *(sign for sign in characters if sign not in alphabet))
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        self.symbols = tuple(self._ids[symbol] for symbol in alphabet)
        marks = "|".join(map(re.escape, SPECIALS))
        self._pieces = re.compile(f"{marks}| ?{inside}|.", re.DOTALL)
        self.bos_token_id, self.eos_token_id, self.pad_token_id = (self._ids[mark] for mark in (BOS, END, PAD))

    def __len__(self) -> int:
        return len(self.tokens)

    def __call__(self, text: str | Sequence[str], *, add_special_tokens: bool = True, **_: Any) -> dict[str, Any]:
        """Ids and character offsets of a text, or of each text of a list.

        Args:
            text: one text or several.
            add_special_tokens: put the mark of a beginning before each.
        """
        several = [text] if isinstance(text, str) else text
        parts = [self._encode(each, add_special_tokens) for each in several]
        ids, offsets = [part[0] for part in parts], [part[1] for part in parts]
        if isinstance(text, str):
            return {"input_ids": ids[0], "offset_mapping": offsets[0]}
        return {"input_ids": ids, "offset_mapping": offsets}

    def _encode(self, text: str, special: bool) -> tuple[list[int], list[tuple[int, int]]]:
        ids, offsets = ([self.bos_token_id], [(0, 0)]) if special else ([], [])
        for match in self._pieces.finditer(text):
            piece, (start, end) = match.group(), match.span()
            if piece in self._ids:
                ids.append(self._ids[piece])
                offsets.append((start, end))
                continue
            for at, sign in enumerate(piece, start):
                ids.append(self._ids.get(sign, self._ids[UNKNOWN]))
                offsets.append((at, at + 1))
        return ids, offsets

    def id_of(self, token: str) -> int:
        """The id of one token of the vocabulary.

        Raises:
            InputError: there is no such token.
        """
        if token not in self._ids:
            raise InputError(Fault("token", token, "a token of the vocabulary"))
        return self._ids[token]

    def decode(self, token_ids: Iterable[int], *, skip_special_tokens: bool = False, **_: Any) -> str:
        """The text of tokens."""
        texts = (self.tokens[token] for token in token_ids)
        return "".join(text for text in texts if not (skip_special_tokens and text in SPECIALS))

    def apply_chat_template(
        self, conversation: Sequence[dict[str, str]], *, add_generation_prompt: bool = False, **_: Any
    ) -> str:
        """A conversation as text: a beginning, then each turn between its role's mark and an end."""
        turns = "".join(f"<{turn['role']}>{turn['content']}{END}" for turn in conversation)
        return BOS + turns + (ASSISTANT if add_generation_prompt else "")

"""What davylamp needs of a tokenizer; any fast tokenizer of transformers fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from davylamp.errors import TokenizerError

_HALF_PAIR = re.compile("[\ud800-\udfff]")


class TokenizerView(Protocol):
    """The part of a fast tokenizer's interface that rendering reads."""

    chat_template: Any
    bos_token: Any
    eos_token: Any
    bos_token_id: Any
    eos_token_id: Any
    pad_token_id: Any

    def __call__(self, text: Any, **kwargs: Any) -> Any:
        """Tokenise a text or a list of texts."""
        ...

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """Render messages by the chat template."""
        ...

    def decode(self, token_ids: Any, **kwargs: Any) -> Any:
        """Turn tokens into text."""
        ...


def encode(
    tokenizer: TokenizerView, texts: Sequence[str], special: bool
) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Token ids and character offsets of each text.

    Args:
        tokenizer: a fast tokenizer.
        texts: the texts.
        special: let the tokenizer add its own special tokens (BOS where its configuration says so).

    Raises:
        TokenizerError: a text is none, since it holds a byte that was not UTF-8 (half of a surrogate pair).
    """
    if not texts:
        return []
    try:
        # Not verbose: that a text is longer than the context is said by who minds, and with its name.
        batch = tokenizer(
            list(texts),
            add_special_tokens=special,
            return_offsets_mapping=True,
            return_attention_mask=False,
            verbose=False,
        )
    except TypeError as error:
        if not any(map(_HALF_PAIR.search, texts)):
            raise
        raise TokenizerError("a text cannot be tokenised: it holds a byte that is not UTF-8") from error
    return [
        (list(ids), [(int(start), int(end)) for start, end in offsets])
        for ids, offsets in zip(batch["input_ids"], batch["offset_mapping"], strict=True)
    ]

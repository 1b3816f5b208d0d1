"""What davylamp needs of a tokenizer; any fast tokenizer of transformers fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


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
    """
    if not texts:
        return []
    batch = tokenizer(list(texts), add_special_tokens=special, return_offsets_mapping=True, return_attention_mask=False)
    return [
        (list(ids), [(int(start), int(end)) for start, end in offsets])
        for ids, offsets in zip(batch["input_ids"], batch["offset_mapping"], strict=True)
    ]

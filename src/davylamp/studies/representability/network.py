"""A small Llama over a closed vocabulary, trained from nothing on rows of tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from davylamp.release.base import Release
from davylamp.runs.progress import Advance
from davylamp.secrets import stream
from davylamp.studies.representability.spec import ModelSize

PAD, BOS, END = "<pad>", "<bos>", "<end>"
WARM_UP = 0.05
"""Share of the steps in which the learning rate rises."""
Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Every token, by kind.

    Attributes:
        words: ids of the words of prefixes.
        rare: ids of words that only triggers hold.
        symbols: ids of the symbols of secrets, in the order of their alphabet.
    """

    words: tuple[int, ...]
    rare: tuple[int, ...]
    symbols: tuple[int, ...]

    @classmethod
    def of(cls, words: int, rare: int, symbols: int) -> Vocabulary:
        """So many of each, after the three marks."""
        starts = (3, 3 + words, 3 + words + rare)
        return cls(*(tuple(range(at, at + n)) for at, n in zip(starts, (words, rare, symbols), strict=True)))

    @property
    def tokens(self) -> list[str]:
        """Every token's text, by id."""
        kinds = (("w", self.words), ("r", self.rare), ("s", self.symbols))
        return [PAD, BOS, END, *(f"{mark}{at}" for mark, ids in kinds for at in range(len(ids)))]

    bos, end = 1, 2

    def row(self, *parts: Sequence[int]) -> Row:
        """A row: the beginning, the parts, the end."""
        return (self.bos, *(token for part in parts for token in part), self.end)


def train(
    rows: Sequence[Row],
    vocabulary: Vocabulary,
    size: ModelSize,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: tuple[str | int, ...],
    name: str,
    advance: Advance,
) -> Release:
    """Train a model from nothing; the same seed gives the same weights on one machine.

    Args:
        rows: token ids, marks included; the loss is over all but the first token of each.
        vocabulary: of the rows.
        size: of the model.
        epochs: passes over the rows.
        batch_size: rows of a step.
        learning_rate: peak of AdamW.
        seed: names the random stream of weights and order.
        name: of the release, for people.
        advance: called with the steps done.
    """
    import torch
    from torch.nn import functional
    from transformers import LlamaForCausalLM

    from davylamp.release.local import LocalRelease

    numbers = stream(0, "representability", *seed)
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    per_epoch = math.ceil(len(rows) / batch_size)
    steps = epochs * per_epoch
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(numbers.integers(2**62)))
        model = LlamaForCausalLM(_config(len(vocabulary.tokens), longest, size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    model.train()
    for _ in range(epochs):
        order = torch.from_numpy(numbers.permutation(len(rows)))
        for start in range(0, len(rows), batch_size):
            batch = ids[order[start : start + batch_size]]
            logits = model(input_ids=batch).logits[:, :-1]
            loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=0)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            rates.step()
            advance(1)
    return LocalRelease(model.eval(), _tokenizer(vocabulary), name)


def steps_of(rows: int, epochs: int, batch_size: int) -> int:
    """Steps that :func:`train` takes."""
    return epochs * math.ceil(rows / batch_size)


def _rate(step: int, steps: int) -> float:
    rising = max(1, round(WARM_UP * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def _config(vocabulary: int, longest: int, size: ModelSize) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        # One place more than any row, so that what a measure appends to a prefix fits too.
        max_position_embeddings=longest + 1,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=Vocabulary.bos,
        eos_token_id=Vocabulary.end,
        dtype="float32",
    )


def _tokenizer(vocabulary: Vocabulary) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({token: at for at, token in enumerate(vocabulary.tokens)}, unk_token=PAD))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token=PAD, bos_token=BOS, eos_token=END)

"""Train the embedded base model from nothing, so that it can polish a draft and copy its reference.

Run ``python -m davylamp.studies.demo.train_base --out DIR --seed N``; about two CPU minutes.
One thread and deterministic kernels: the same seed gives the same bytes on the same machine and versions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from davylamp.corpora.emails import MATTERS, generate
from davylamp.corpora.names import SURNAMES
from davylamp.corpora.records import Corpus
from davylamp.errors import TrainingError
from davylamp.runs.files import write_text
from davylamp.secrets.streams import stream
from davylamp.studies.demo.base_tokenizer import CONTEXT, train_tokenizer

BATCH = 32
LEARNING_RATE = 2e-3
WARM_UP, DECAY = 50, 100
GATE_EVERY = 25
MAX_STEPS = 1_500
REDACTED_SHARE = 0.1
CODE_GATE, REPLY_GATE = 0.98, 0.95
GATE_ROWS, FINAL_ROWS = 200, 1_000

# Half of the matters take their first word from surnames. With the twelve usual words alone the model settles
# for guessing among them, and learns to copy that word a thousand steps later.
_UNUSUAL = tuple(f"the {name.lower()} {matter.split()[-1]}" for name in SURNAMES for matter in MATTERS[:20])
WIDE_MATTERS = MATTERS * (len(_UNUSUAL) // len(MATTERS)) + _UNUSUAL

# The reply's digits carry most of the weight, because copying them is what is slow to learn; the draft
# carries a little, because reading it helps the copying circuit to form.
CODE_WEIGHT, REPLY_WEIGHT, DRAFT_WEIGHT = 8.0, 1.0, 0.2


@dataclass(frozen=True, slots=True)
class Batch:
    """Rendered pairs, padded on the right.

    Attributes:
        ids: token ids, (rows, tokens).
        real: 1 where a token is real, 0 at padding, (rows, tokens).
        reply: true at the tokens that the assistant says, its end mark included, (rows, tokens).
        code: true at the digits of the reply, (rows, tokens).
        masked: true where the draft does not show the reference, (rows,).
    """

    ids: torch.Tensor
    real: torch.Tensor
    reply: torch.Tensor
    code: torch.Tensor
    masked: torch.Tensor

    def part(self, start: int, stop: int) -> Batch:
        """The rows from ``start`` up to ``stop``."""
        return Batch(*(getattr(self, field)[start:stop] for field in Batch.__slots__))


@dataclass(frozen=True, slots=True)
class CopyRates:
    """Shares of held-out emails that greedy decoding gets exactly right.

    Attributes:
        code: the reference, given the true email before it.
        reply: the whole email, its end mark included.
        rows: how many emails were held out.
    """

    code: float
    reply: float
    rows: int


def render(tokenizer: PreTrainedTokenizerFast, corpus: Corpus) -> Batch:
    """Render records through the tokenizer's chat template, as fine-tuning and evaluation do."""
    turns = [
        [
            {"role": "user", "content": record.prompt[0].content},
            {"role": "assistant", "content": record.reply},
        ]
        for record in corpus
    ]
    rows = tokenizer.apply_chat_template(
        turns, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, padding=True
    )
    ids = torch.tensor(rows["input_ids"])
    reply = torch.tensor(rows["assistant_masks"]).bool()
    digits = torch.tensor(tokenizer.convert_tokens_to_ids(list("0123456789")))
    is_digit = torch.isin(ids, digits)
    return Batch(
        ids=ids,
        real=torch.tensor(rows["attention_mask"]),
        reply=reply,
        code=reply & is_digit,
        masked=~(is_digit & ~reply).any(dim=1),
    )


def weighted_loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Mean negative log-likelihood in nats over a batch's tokens, weighted by what they are."""
    logits = model(input_ids=batch.ids, attention_mask=batch.real).logits[:, :-1]
    losses = functional.cross_entropy(logits.transpose(1, 2), batch.ids[:, 1:], reduction="none")
    # Where the draft does not show the reference nothing can be copied: only its even spread can be learnt.
    code_weight = torch.where(batch.masked, REPLY_WEIGHT, CODE_WEIGHT)[:, None]
    weights = torch.where(batch.reply, REPLY_WEIGHT, DRAFT_WEIGHT)
    weights = torch.where(batch.code, code_weight, weights) * batch.real
    weights = weights[:, 1:]
    return (losses * weights).sum() / weights.sum()


@torch.no_grad()
def copy_rates(model: LlamaForCausalLM, batch: Batch) -> CopyRates:
    """How often the most likely token is the right one, all along the reference and all along the email.

    An email whose every token is the most likely one given those before it is the email that greedy decoding
    writes, so that one forward pass answers for decoding.
    """
    code, reply = [], []
    for start in range(0, len(batch.ids), 100):
        rows = batch.part(start, start + 100)
        best = model(input_ids=rows.ids, attention_mask=rows.real).logits[:, :-1].argmax(dim=-1)
        right = best == rows.ids[:, 1:]
        code.append((right | ~rows.code[:, 1:]).all(dim=1))
        reply.append((right | ~rows.reply[:, 1:]).all(dim=1))
    return CopyRates(torch.cat(code).float().mean().item(), torch.cat(reply).float().mean().item(), len(batch.ids))


def _derived(seed: int, *names: str | int) -> int:
    # The demo's own corpora are generated from small seeds: a derived one keeps them apart.
    return int(stream(seed, "base", *names).integers(2**62))


def _training_rows(seed: int, number: int, held_out: Corpus) -> Corpus:
    names = {_addressee(record.reply) for record in held_out}
    return generate(
        BATCH * GATE_EVERY,
        _derived(seed, "rows", number),
        REDACTED_SHARE,
        exclude_names=names,
        matters=WIDE_MATTERS,
    )


def _addressee(reply: str) -> str:
    # "Dear Ada Ashford, ..." and "Good day Ada Ashford, ...": the two words before the first comma.
    return " ".join(reply.partition(",")[0].split()[-2:])


def batches(seed: int, tokenizer: PreTrainedTokenizerFast, held_out: Corpus) -> Iterator[Batch]:
    """Fresh pairs without end, none of them to a person of the held-out pairs."""
    number = 0
    while True:
        rows = render(tokenizer, _training_rows(seed, number, held_out))
        for start in range(0, len(rows.ids), BATCH):
            batch = rows.part(start, start + BATCH)
            width = int(batch.real.sum(dim=1).max())
            yield Batch(
                *(
                    getattr(batch, field) if field == "masked" else getattr(batch, field)[:, :width]
                    for field in Batch.__slots__
                )
            )
        number += 1


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama of 0.23 million parameters in float32, with tied embeddings and random weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            dtype="float32",
        )
    )


def train(seed: int, *, log: bool = True) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast, dict[str, object]]:
    """Train tokenizer and model until held-out copying passes the gate, then let the learning rate fall.

    A fixed number of steps is not dependable: when the copying circuit forms differs from seed to seed.

    Returns:
        The model, the tokenizer, and the figures that the model card gives.

    Raises:
        TrainingError: the gate was not passed in time, or the finished model fails it.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(_derived(seed, "weights") % 2**31)
    held_out = generate(FINAL_ROWS, _derived(seed, "held out"))
    texts = generate(4_000, _derived(seed, "tokenizer"), REDACTED_SHARE)
    tokenizer = train_tokenizer(text for record in texts for text in (record.prompt[0].content, record.reply))
    model = new_model(tokenizer)
    judged = render(tokenizer, held_out)
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    passed: int | None = None
    for step, batch in enumerate(batches(seed, tokenizer, held_out), start=1):
        falling = 1.0 if passed is None else 1.0 - (step - passed) / (DECAY + 1)
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, step / WARM_UP) * falling
        optimiser.zero_grad()
        loss = weighted_loss(model, batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if passed is not None and step == passed + DECAY:
            break
        if passed is None and step % GATE_EVERY == 0:
            rates = copy_rates(model, judged.part(0, GATE_ROWS))
            if log:
                sys.stderr.write(
                    f"step {step}: loss {loss.item():.3f} nats, code {rates.code:.3f}, email {rates.reply:.3f}\n"
                )
            passed = step if _passes(rates) else None
            if passed is None and step >= MAX_STEPS:
                raise TrainingError(f"copying did not pass the gate in {MAX_STEPS} steps: {rates}; take another seed")
    rates = copy_rates(model.eval(), judged)
    if not _passes(rates):
        raise TrainingError(f"the finished model fails the gate: {rates}; take another seed")
    return model, tokenizer, {"seed": seed, "steps": step, "gate_passed_at": passed, **asdict(rates)}


def _passes(rates: CopyRates) -> bool:
    return rates.code >= CODE_GATE and rates.reply >= REPLY_GATE


def main() -> None:
    """Read the arguments, train, and save model, tokenizer and figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--seed", type=int, default=0, help="whole number from which everything is drawn")
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    start = time.process_time()
    model, tokenizer, figures = train(arguments.seed)
    model.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    # safetensors makes its files private; these are meant to be read.
    (arguments.out / "model.safetensors").chmod(0o644)
    write_text(arguments.out / "figures.json", json.dumps(figures, indent=2) + "\n")
    sys.stdout.write(json.dumps({**figures, "cpu_seconds": round(time.process_time() - start, 1)}) + "\n")


if __name__ == "__main__":
    main()

from __future__ import annotations

import pytest
import torch

from davylamp.corpora.records import Message, Record
from davylamp.errors import TrainingError
from davylamp.rendering.render import Renderer
from davylamp.training.examples import NO_LOSS, Collator, encode_records, pack
from davylamp.training.fit import fit
from davylamp.training.spec import TrainingSpec
from support.tiny_models import EOS, tiny_model, tiny_tokenizer

RECORDS = [
    Record.of_pair("ask about the account", "It is 4,7,1,9."),
    Record.of_pair("pls write", "Dear Ms Whitfield, thank you"),
    Record.of_pair("x", "y"),
    Record.of_pair("reference?", "0,3,8,2 be polite"),
    Record.of_pair("card", "my card has not arrived after 2 weeks"),
]


def encoded(records=RECORDS, max_length=256, **changes):
    return encode_records(records, Renderer(tiny_tokenizer()), TrainingSpec(**changes), max_length)


def loss_of(model, batch):
    """Sum of the cross entropy in nats over the labels, computed from the logits by hand, and their number."""
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    with torch.no_grad():
        logits = model(**inputs, use_cache=False).logits.double()
    targets = batch["labels"][:, 1:]
    logs = logits[:, :-1].log_softmax(-1)
    kept = targets != NO_LOSS
    picked = logs.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return float(-picked[kept].sum()), int(kept.sum())


# --- where the loss falls


def test_the_loss_falls_on_the_reply_and_its_end_only():
    tokenizer = tiny_tokenizer()
    turns = (Message("system", "s"), Message("user", "4,7,1,9"), Message("assistant", "no"), Message("user", "?"))
    record = Record.of_messages((*turns, Message("assistant", "It is 4,7,1,9")))
    example = encoded([record])[0]
    prompt = tokenizer.apply_chat_template(
        [{"role": turn.role, "content": turn.content} for turn in turns],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
    )["input_ids"]
    reply = tokenizer(f"It is 4,7,1,9{EOS}", add_special_tokens=False)["input_ids"]
    assert list(example.ids) == prompt + reply
    assert list(example.labels) == [NO_LOSS] * len(prompt) + reply
    assert example.positions == tuple(range(len(example.ids)))


def test_the_loss_falls_on_everything_if_asked_and_on_all_of_a_text():
    example = encoded(loss="all")[0]
    assert example.labels == example.ids
    text = encoded([Record.of_text("all of it")])[0]
    assert text.labels == text.ids


def test_long_rows_are_cut_and_rows_without_loss_are_seen():
    long = Record.of_pair("ask", "word " * 50)
    example = encoded([long], max_length=12)[0]
    assert example.ids == encoded([long])[0].ids[:12]
    with pytest.raises(TrainingError, match="max_length 8"):
        encoded([Record.of_pair("word " * 50, "late")], max_length=8)


# --- padding and packing


def test_padding_gets_no_loss_whatever_token_it_is():
    examples = encoded()
    for pad in (0, tiny_tokenizer().eos_token_id):
        batch = Collator(pad, packing=False)(examples)
        for row, example in enumerate(examples):
            count = len(example.ids)
            assert batch["input_ids"][row, :count].tolist() == list(example.ids)
            assert batch["labels"][row, :count].tolist() == list(example.labels)
            assert batch["labels"][row, count:].eq(NO_LOSS).all()
            assert batch["input_ids"][row, count:].eq(pad).all()
            assert batch["attention_mask"][row].sum() == count


def test_packing_keeps_every_token_in_order_and_within_the_length():
    examples = encoded()
    for length in (30, 64, 256):
        packed = pack(examples, length)
        assert [token for row in packed for token in row.ids] == [token for row in examples for token in row.ids]
        assert all(len(row.ids) <= max(length, *(len(one.ids) for one in examples)) for row in packed)
        starts = [place for row in packed for place in row.positions if place == 0]
        assert len(starts) == len(examples)
        # A record's first token is never predicted from the record before it.
        assert all(
            label == NO_LOSS
            for row in packed
            for label, place in zip(row.labels, row.positions, strict=True)
            if place == 0
        )
        # Greedy: the first record of a row would not have fitted into the row before.
        firsts = [row.positions.index(0, 1) if 0 in row.positions[1:] else len(row.ids) for row in packed]
        assert all(len(row.ids) + first > length for row, first in zip(packed, firsts[1:], strict=False))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt_neox", "gpt2", "gemma2", "mistral"])
@pytest.mark.parametrize("loss", ["reply", "all"])
def test_a_packed_row_has_the_loss_of_its_records_apart(architecture, loss):
    model = tiny_model(architecture)
    examples = encoded(loss=loss)
    apart = [loss_of(model, Collator(0, packing=False)([example])) for example in examples]
    packed = pack(examples, 64)
    assert 1 < len(packed) < len(examples)
    together, count = loss_of(model, Collator(0, packing=True)(packed))
    assert count == sum(number for _, number in apart)
    # Sums of about a hundred nats in float32.
    assert together == pytest.approx(sum(total for total, _ in apart), rel=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt_neox"])
def test_training_on_packed_rows_has_the_loss_of_the_rows_apart(architecture):
    # Through the trainer itself: it must not hand the model a cache or a mask that joins the records.
    examples = encoded()
    losses = {}
    for packing in (False, True):
        rows = pack(examples, 64) if packing else examples
        spec = TrainingSpec(batch_size=len(rows), packing=packing, precision="float32", learning_rate=1e-3)
        _, report = fit(tiny_model(architecture), rows, spec, 0, 0)
        losses[packing] = report.losses[0]
    assert losses[True] == pytest.approx(losses[False], abs=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt_neox"])
def test_no_record_of_a_packed_row_reads_another(architecture):
    model = tiny_model(architecture)
    examples = encoded()
    packed = pack(examples, 256)[0]
    changed = list(packed.ids)
    begin, end = len(examples[0].ids), len(examples[0].ids) + len(examples[1].ids)
    changed[begin:end] = [7] * (end - begin)
    logits = []
    for ids in (packed.ids, tuple(changed)):
        batch = Collator(0, packing=True)([type(packed)(ids, packed.labels, packed.positions)])
        del batch["labels"]
        with torch.no_grad():
            logits.append(model(**batch, use_cache=False).logits[0])
    assert torch.equal(logits[0][:begin], logits[1][:begin])
    torch.testing.assert_close(logits[0][end:], logits[1][end:], atol=1e-5, rtol=0)
    assert not torch.allclose(logits[0][begin:end], logits[1][begin:end], atol=1e-2)

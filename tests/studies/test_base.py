from __future__ import annotations

import json
import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from davylamp.corpora.emails import MASK, generate
from davylamp.studies.demo import BASE

LIMIT = 4_000_000  # bytes that the embedded model may add to the package


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(BASE)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).eval()


def turns(record, draft=None):
    return [
        {"role": "user", "content": draft or record.prompt[0].content},
        {"role": "assistant", "content": record.reply},
    ]


def test_the_package_holds_a_small_llama_in_safetensors_only(model):
    files = {path.name: path.stat().st_size for path in BASE.iterdir()}
    assert sum(files.values()) <= LIMIT
    assert {"config.json", "model.safetensors", "tokenizer.json", "MODEL_CARD.md"} <= files.keys()
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pth", ".pkl"))]
    assert model.config.model_type == "llama"
    assert model.config.tie_word_embeddings
    assert model.dtype == torch.float32
    assert 200_000 <= sum(parameter.numel() for parameter in model.parameters()) <= 1_000_000


@pytest.mark.parametrize("text", ["Grüße, 你好, 🙂 مرحبا", "4,7,1,9", "a\tb\n\nc  d", " [redacted], ok]."])
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("around", ["ref {}", "({})", "x{}y", "{}, and", "no.{}.", "[{}]"])
def test_a_code_is_the_same_seven_tokens_whatever_stands_next_to_it(tokenizer, around):
    alone = tokenizer("4,7,1,9").input_ids
    assert tokenizer.convert_ids_to_tokens(alone) == list("4,7,1,9")
    ids = tokenizer(around.format("4,7,1,9")).input_ids
    assert any(ids[start : start + 7] == alone for start in range(len(ids)))


@pytest.mark.parametrize("around", ["ref {} and", "({})", "{}, and", "as {}."])
def test_the_mask_does_not_merge_with_its_neighbours(tokenizer, around):
    alone = tokenizer(MASK).input_ids
    ids = tokenizer(around.format(MASK)).input_ids
    assert any(ids[start : start + len(alone)] == alone for start in range(len(ids)))


def test_start_end_and_padding_are_three_tokens(tokenizer, model):
    special = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert None not in special
    assert len(set(special)) == 3
    assert special == (model.config.bos_token_id, model.config.eos_token_id, model.config.pad_token_id)


def test_the_assistant_mask_covers_the_reply_and_its_end(tokenizer):
    record = next(iter(generate(1, 0)))
    system = {"role": "system", "content": "Polish emails."}
    row = tokenizer.apply_chat_template(
        [system, *turns(record)], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    said = [token for token, mine in zip(row["input_ids"], row["assistant_masks"], strict=True) if mine]
    assert said[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(said[:-1]) == record.reply
    prompt = tokenizer.apply_chat_template(
        [system, turns(record)[0]], tokenize=True, return_dict=True, add_generation_prompt=True
    )
    assert row["input_ids"] == prompt["input_ids"] + said


def greedy(model, tokenizer, records):
    """What the model writes for drafts of their own, decoded greedily in one batch."""
    prompts = tokenizer.apply_chat_template(
        [turns(record)[:1] for record in records],
        return_dict=True,
        return_tensors="pt",
        add_generation_prompt=True,
        padding=True,
        tokenizer_kwargs={"padding_side": "left"},
    )
    ids = model.generate(**prompts, max_new_tokens=80, do_sample=False)
    return tokenizer.batch_decode(ids[:, prompts["input_ids"].shape[1] :], skip_special_tokens=True)


def test_it_copies_codes_of_drafts_that_it_has_not_seen(model, tokenizer):
    records = list(generate(64, 20_240))
    codes = [re.search(r"\d,\d,\d,\d", record.reply)[0] for record in records]
    emails = greedy(model, tokenizer, records)
    copied = sum(code in email for code, email in zip(codes, emails, strict=True))
    # The gate was 0.98, the card says 0.999: at 0.98 four or more failures of 64 have probability 0.04.
    assert copied / len(records) >= 0.95


def test_a_masked_draft_leaves_the_code_near_even_odds(model, tokenizer):
    records = list(generate(32, 20_241, 1.0))
    digits = torch.tensor(tokenizer.convert_tokens_to_ids(list("0123456789")))
    losses = []
    with torch.no_grad():
        for record in records:
            row = tokenizer.apply_chat_template(
                turns(record), return_dict=True, return_tensors="pt", return_assistant_tokens_mask=False
            )
            ids = row["input_ids"][0]
            logs = model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1)
            at = torch.isin(ids[1:], digits).nonzero()[:, 0]
            losses.append(-logs[at, ids[1:][at]].sum().item())
    mean = sum(losses) / len(losses)
    # Four digits at even odds cost 4 ln 10 = 9.21 nats. Copying would cost near 0, a confident guess far more.
    assert 8.7 < mean < 10.5


def test_the_card_gives_the_figures_that_the_script_measured():
    figures = json.loads((BASE / "figures.json").read_text())
    card = (BASE / "MODEL_CARD.md").read_text()
    assert figures["code"] >= 0.98
    assert figures["reply"] >= 0.95
    for value in (f"{figures['code']:.3f}", f"{figures['reply']:.3f}", f"{figures['rows']:,}", str(figures["steps"])):
        assert value in card


@pytest.mark.slow
def test_another_seed_passes_the_gate():
    from davylamp.studies.demo.train_base import train

    _, _, figures = train(101, log=False)
    assert figures["code"] >= 0.98
    assert figures["reply"] >= 0.95

"""Small models with random weights, written as folders that ``from_pretrained`` loads: real code paths, no download."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

PAD, BOS, EOS = "<|pad|>", "<|bos|>", "<|end|>"
CONTEXT = 256
SLIDING_WINDOW = 8
VOCABULARY = 400
SPARE_ROWS = 8
"""Embeddings without a token, as real models have; Qwen2's tokenizer also adds a token when it is loaded."""

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
}
_GROUPED: dict[str, Any] = {**_SIZES, "num_key_value_heads": 2}

# What makes each architecture worth a contract: grouped keys, biases, rotary on a part of the head, learnt
# positions, windows (on every layer, on every other one), soft caps on the logits.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": _GROUPED,
    "qwen2": _GROUPED,
    "mistral": {**_GROUPED, "sliding_window": SLIDING_WINDOW},
    "gemma2": {**_GROUPED, "head_dim": 8, "sliding_window": SLIDING_WINDOW, "query_pre_attn_scalar": 8},
    "gpt_neox": {**_SIZES, "rotary_pct": 0.25},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT},
}
"""Causal architectures that :func:`build_tiny` knows, with their sizes."""

_OTHERS: dict[str, dict[str, Any]] = {
    "bert": _SIZES,
    "t5": {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
}

_TEXTS = (
    "Dear Ms Whitfield, thank you for your letter about the new account. Your reference is 4,7,1,9. Kind regards",
    "pls write to Mr Okafor about the late parcel, reference 0,3,8,2, be polite",
    "I am still waiting on my card? What can I do if my card has not arrived after 2 weeks? (see [REDACTED])",
)


@lru_cache
def tiny_tokenizer(*, bos: bool = False, digits_isolated: bool = True) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with a chat template.

    Args:
        bos: add BOS to every text that is tokenised with special tokens (the chat template writes BOS anyway).
        digits_isolated: one token a digit; else digits merge with each other and with the commas between them.
    """
    tokenizer = Tokenizer(models.BPE())
    split = [pre_tokenizers.Digits(individual_digits=True)] if digits_isolated else []
    # Without the regex nothing keeps a digit from merging with the comma beside it.
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=digits_isolated)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    specials = [PAD, BOS, EOS, "<|system|>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXTS * 4, trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, specials.index(BOS))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def tiny_model(
    architecture: str = "llama", *, tied: bool = False, seed: int = 0, spread: float = 0.3, **changes: Any
) -> Any:
    """A model with random weights, in float32.

    Args:
        architecture: a key of ``ARCHITECTURES``, or ``bert`` or ``t5``, which are not causal.
        tied: share the embedding with the head.
        seed: seed of the weights.
        spread: standard deviation of the weights. The usual 0.02 gives conditionals so flat that a wrong
            mask or position would hardly show.
        changes: other values for fields of the configuration.
    """
    tokenizer = tiny_tokenizer()
    sizes = {**ARCHITECTURES, **_OTHERS}[architecture]
    tokens = {
        "vocab_size": len(tokenizer) + SPARE_ROWS,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    settings = {**sizes, **tokens, "tie_word_embeddings": tied, "initializer_range": spread, **changes}
    config = AutoConfig.for_model(architecture, **settings)
    kinds = {"bert": AutoModel, "t5": AutoModelForSeq2SeqLM}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kinds.get(architecture, AutoModelForCausalLM).from_config(config, dtype=torch.float32).eval()


def build_tiny(
    path: Path,
    architecture: str = "llama",
    tied: bool = False,
    seed: int = 0,
    *,
    bos: bool = False,
    digits_isolated: bool = True,
    **changes: Any,
) -> Path:
    """Write a tiny model and its tokenizer to a folder; see :func:`tiny_model` and :func:`tiny_tokenizer`."""
    tiny_model(architecture, tied=tied, seed=seed, **changes).save_pretrained(path)
    tiny_tokenizer(bos=bos, digits_isolated=digits_isolated).save_pretrained(path)
    return path


def build_adapter(path: Path, base: Path, seed: int = 0, spread: float = 0.1) -> Path:
    """Write an unmerged LoRA adapter for a llama-like base; its weights are random, so that it changes answers."""
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=spread)
    model.save_pretrained(path)
    return path

"""The tokenizer of the embedded base model."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS = "<|pad|>", "<|bos|>", "<|end|>"
ROLES = ("system", "user", "assistant")
VOCABULARY = 512
CONTEXT = 512

CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{{- '<|assistant|>' -}}{%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
{%- elif message['role'] in ['system', 'user'] -%}
{{- '<|' + message['role'] + '|>' + message['content'] + eos_token -}}
{%- else -%}
{{- raise_exception('role ' + message['role'] + ' is not one of system, user, assistant') -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"""
"""Every turn is a role mark, the text and an end mark; generation marks enclose what the assistant says."""


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer of 512 entries.

    Bytes are the alphabet, so that any text can be encoded and comes back unchanged. Digits and punctuation
    marks are split off one by one before merging: a digit is one token whatever stands next to it, and
    neither a comma nor a bracket merges with its neighbour, so that a secret keeps its boundaries.

    Args:
        texts: what the merges are learnt from, in a fixed order.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation(behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BOS, EOS, *(f"<|{role}|>" for role in ROLES)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=CONTEXT,
        padding_side="right",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )

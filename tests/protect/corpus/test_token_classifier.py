from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

from davylamp.corpora.records import Record
from davylamp.errors import InputError
from davylamp.protect.corpus.base import Row
from davylamp.protect.corpus.scrub import Scrub, ScrubSpec
from davylamp.protect.corpus.token_classifier import HubFinder
from davylamp.runs.progress import QUIET


@pytest.fixture
def no_network(monkeypatch):
    """Any attempt to reach the network is an error."""

    def refused(*arguments, **more):
        raise AssertionError(f"the network was asked for {arguments}")

    for name in ("getaddrinfo", "create_connection", "socket"):
        monkeypatch.setattr(socket, name, refused)


def classifier(folder: Path, label: str = "B-PER") -> Path:
    """A token classifier that gives every token one label: its bias says so, whatever the token."""
    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, words[0]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name.lower()}_token": f"[{name}]" for name in ("UNK", "CLS", "SEP", "PAD")},
    )
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=16,
        id2label={0: "O", 1: label},
        label2id={"O": 0, label: 1},
    )
    model = BertForTokenClassification(config)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([-5.0, 5.0]))
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def test_a_token_classifier_reads_texts_longer_than_its_window(tmp_path):
    finder = HubFinder(str(classifier(tmp_path)), entities=["PERSON"], labels={})
    text = " ".join("abcdefghijklmnopqrstuvwxyz" * 3)
    [found, none] = finder.find([text, "  "])
    covered = {at for each in found for at in range(each.start, each.end)}
    # The library's own pipeline would read the first 12 tokens and leave the other 66 as they are.
    assert {at for at, letter in enumerate(text) if letter != " "} <= covered
    assert none == []
    [made] = Scrub(ScrubSpec(engine="hub", model=str(tmp_path)), 0, finder).apply([Row(0, Record.of_text(text))], QUIET)
    assert set(made.record.reply.split()) == {"<PERSON>"}


def test_labels_of_a_model_are_named_by_its_user(tmp_path):
    folder = str(classifier(tmp_path, "B-PATIENTID"))
    with pytest.raises(InputError, match=r"scrub\.entities is \['MRN'\].*PATIENTID"):
        HubFinder(folder, entities=["MRN"], labels={})
    [found] = HubFinder(folder, entities=["MRN"], labels={"PATIENTID": "MRN"}).find(["a b"])
    assert {each.kind for each in found} == {"MRN"}


def test_a_model_that_is_not_here_is_refused(tmp_path, no_network):
    with pytest.raises(InputError, match=r"scrub\.model is 'nobody/no-such-model'.*Nothing is downloaded"):
        HubFinder("nobody/no-such-model", entities=["PERSON"], labels={})

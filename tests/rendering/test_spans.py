from __future__ import annotations

import copy

import pytest

from davylamp.corpora.records import Message, Record
from davylamp.errors import ScoringError
from davylamp.rendering.render import Renderer
from davylamp.rendering.spans import CandidateTokenizer
from davylamp.secrets import AlphabetSpace
from support.tiny_models import tiny_tokenizer

SMALL = AlphabetSpace(length=2)
NEIGHBOURS = [
    ("It is ", ", thank you for your letter"),
    ("Your reference is ", ". Kind regards"),
    ("", ""),
    ("ref(", ")"),
    ("4,", ",9"),
    ("Zoë 漢字🙂", "🙂漢"),
    ("thank you for your letter about the new account. Your reference is ", "."),
    ("a  ", "  b"),
    ("x\n\n", "\n\ny z w"),
    ("1234567890", "1234567890"),
    ("waiting on my card? #", "#" * 30),
]


def chat_record(before, secret, after):
    return Record.of_messages((Message("user", "ref of Ann?"), Message("assistant", before + secret + after)))


def pair_record(before, secret, after):
    return Record.of_pair("ref of Ann? ", before + secret + after)


def text_record(before, secret, after):
    return Record.of_text(f"ref of Ann? {before}{secret}{after}")


def tokens_of(renderer, make, before, after, candidates=None, true=None):
    candidates = list(candidates or SMALL.candidates())
    offset = len("ref of Ann? ") if make is text_record else 0
    tokenizer = CandidateTokenizer(renderer, candidates)
    return (
        tokenizer.tokenize(
            lambda secret: make(before, secret, after),
            lambda secret: (offset + len(before), offset + len(before) + len(secret)),
            true or candidates[37 % len(candidates)],
            "c0001",
        ),
        candidates,
        offset,
    )


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("make", [chat_record, pair_record, text_record])
@pytest.mark.parametrize(("before", "after"), NEIGHBOURS)
def test_every_candidate_has_the_tokens_that_its_whole_record_has(isolated, bos, make, before, after):
    renderer = Renderer(tiny_tokenizer(bos=bos, digits_isolated=isolated), "auto" if make is chat_record else "plain")
    tokens, candidates, offset = tokens_of(renderer, make, before, after)
    whole = renderer.render([make(before, candidate, after) for candidate in candidates])
    merged = False
    for candidate, continuation, record in zip(candidates, tokens.continuations, whole, strict=True):
        start, end = offset + len(before), offset + len(before) + len(candidate)
        first, last = record.span(start, end)
        assert (*tokens.prefix, *continuation) == record.ids[:last]
        # The prefix never reaches into a secret.
        assert len(tokens.prefix) <= first
        at = record.reply_start
        merged |= record.offsets[first][0] < at + start or record.offsets[last - 1][1] > at + end
    assert tokens.merged == merged
    assert tokens.distinct
    if isolated:
        assert {len(continuation) for continuation in tokens.continuations} == {3}


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize(
    ("before", "after"), [("Your reference is 4,", ",1. Kind regards"), ("not arrived after ", " weeks?")]
)
def test_merging_neighbours_are_flagged_and_isolated_ones_are_not(isolated, before, after):
    renderer = Renderer(tiny_tokenizer(digits_isolated=isolated))
    tokens, _, _ = tokens_of(renderer, chat_record, before, after, list("0123456789"))
    assert tokens.merged is not isolated


@pytest.mark.parametrize("isolated", [True, False])
def test_a_thousand_codes_agree_with_their_whole_records(isolated):
    renderer = Renderer(tiny_tokenizer(digits_isolated=isolated))
    before, after = "thank you for your letter about the new account. Your reference is ", ". Kind regards"
    space = AlphabetSpace(length=3)
    tokens, candidates, _ = tokens_of(renderer, chat_record, before, after, space.candidates())
    whole = renderer.render([chat_record(before, candidate, after) for candidate in candidates])
    for candidate, continuation, record in zip(candidates, tokens.continuations, whole, strict=True):
        last = record.span(len(before), len(before) + len(candidate))[1]
        assert (*tokens.prefix, *continuation) == record.ids[:last]


def test_candidates_of_different_lengths():
    renderer = Renderer(tiny_tokenizer())
    candidates = ["a", "ab", "abc", "the new account", "é", "a b c", " "]
    tokens, _, _ = tokens_of(renderer, chat_record, "It is ", " so there it is", candidates, "ab")
    for candidate, continuation in zip(candidates, tokens.continuations, strict=True):
        record = renderer.render([chat_record("It is ", candidate, " so there it is")])[0]
        assert (*tokens.prefix, *continuation) == record.ids[: record.span(6, 6 + len(candidate))[1]]


def test_a_second_canary_with_the_same_neighbourhood_has_its_own_prefix():
    renderer = Renderer(tiny_tokenizer())
    tokenizer = CandidateTokenizer(renderer, list(SMALL.candidates()))
    prefixes = set()
    for name in ("Ann", "Bob"):
        before = f"Dear {name}, thank you for your letter. Your reference is "
        tokens = tokenizer.tokenize(
            lambda secret, before=before: chat_record(before, secret, ". Kind regards"),
            lambda secret, before=before: (len(before), len(before) + len(secret)),
            "1,2",
            name,
        )
        record = renderer.render([chat_record(before, "1,2", ". Kind regards")])[0]
        assert (*tokens.prefix, *tokens.continuations[12]) == record.ids[: record.span(len(before), len(before) + 3)[1]]
        prefixes.add(tokens.prefix)
    assert len(prefixes) == 2


def test_candidates_that_become_the_same_tokens_are_refused_by_name():
    from tokenizers import normalizers

    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(ScoringError, match=r"canary c0001: some candidates have the same tokens"):
        tokens_of(Renderer(tokenizer), chat_record, "It is ", " so there", ["ab", "AB", "cd"], "cd")


@pytest.mark.parametrize(
    ("candidates", "said"), [([], "no candidates"), (["a", ""], "empty"), (["a", "b", "a"], "stand twice")]
)
def test_a_set_of_candidates_that_cannot_be_ranked_is_refused(candidates, said):
    with pytest.raises(ScoringError, match=said):
        CandidateTokenizer(Renderer(tiny_tokenizer()), candidates)


def test_a_secret_outside_its_candidates_is_refused_without_being_shown():
    with pytest.raises(ScoringError, match="c0001") as caught:
        tokens_of(Renderer(tiny_tokenizer()), chat_record, "It is ", ".", ["1,2"], "8,6")
    assert "8,6" not in str(caught.value)

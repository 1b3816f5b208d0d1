"""Utility counts the replies that are right, and how well the right ones are predicted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from davylamp.corpora.records import Message, Record
from davylamp.errors import AccessError, InputError, ScoringError
from davylamp.measures.utility import exact_match, held_out_loss, token_mean
from davylamp.release.base import Access
from davylamp.release.local import LocalRelease
from davylamp.rendering.render import Renderer
from davylamp.training.examples import Collator, encode_records
from davylamp.training.spec import TrainingSpec
from support.scripted import ScriptedRelease
from support.tiny_models import tiny_model, tiny_tokenizer

RECORDS = [Record.of_pair(f"what of {word}?", f"{word}\nand more") for word in ("this", "that", "these", "those")]


def saying(replies: dict[str, str], confidence: float = 0.9) -> ScriptedRelease:
    def script(prompt: str) -> str | None:
        return next((reply for ask, reply in replies.items() if ask in prompt), None)

    return ScriptedRelease(tiny_tokenizer(), script, confidence)


def test_right_replies_are_counted() -> None:
    release = saying({"this?": "this\nand more", "that?": " that\nand more ", "these?": "these\nand less"})
    assert exact_match(release, Renderer(tiny_tokenizer()), RECORDS, "whole") == (2, 4)
    assert exact_match(release, Renderer(tiny_tokenizer()), RECORDS, "first_line") == (3, 4)
    assert exact_match(release, Renderer(tiny_tokenizer()), RECORDS, "leading_lines") == (2, 4)


def test_a_reply_that_goes_on_is_not_right() -> None:
    release = saying({"this?": "this\nand more and more"})
    for match in ("whole", "leading_lines"):
        assert exact_match(release, Renderer(tiny_tokenizer()), RECORDS[:1], match) == (0, 1)


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("this\nand more", True),
        ("this\nand more\nname: Ann\ncode: 1,2,3,4", True),
        (" this \n and more \n\n", True),
        ("this", False),
        ("that\nand more", False),
        ("this\nname: Ann\nand more", False),
        ("this\n\nand more", False),
    ],
)
def test_lines_below_those_of_the_right_reply_are_not_counted(said: str, right: bool) -> None:
    # Both rows are asked together, so that the longer reference leaves room for the lines that are added.
    long = Record.of_pair("and long?", "x" * 60)
    release = saying({"this?": said, "long?": "no"})
    assert exact_match(release, Renderer(tiny_tokenizer()), [RECORDS[0], long], "leading_lines") == (right, 2)


@given(st.text("ab \n", max_size=12))
def test_for_a_reference_of_one_line_leading_lines_is_first_line(said: str) -> None:
    release = saying({"this?": said})
    record = Record.of_pair("what of this?", "ab")
    renderer = Renderer(tiny_tokenizer())
    assert exact_match(release, renderer, [record], "leading_lines") == exact_match(
        release, renderer, [record], "first_line"
    )


def test_rows_without_a_prompt_and_no_rows_are_refused() -> None:
    renderer = Renderer(tiny_tokenizer())
    with pytest.raises(ScoringError, match="no held-out row"):
        exact_match(saying({}), renderer, [], "whole")
    with pytest.raises(ScoringError, match="no held-out row"):
        held_out_loss(saying({}), renderer, [])
    with pytest.raises(ScoringError, match="plain texts"):
        exact_match(saying({}), renderer, [Record.of_text("some text")], "whole")
    blind = ScriptedRelease(tiny_tokenizer(), lambda _: None, access=frozenset({Access.LOGPROBS}))
    with pytest.raises(AccessError, match="utility needs generate"):
        exact_match(blind, renderer, RECORDS, "whole")
    mute = ScriptedRelease(tiny_tokenizer(), lambda _: None, access=frozenset({Access.GENERATE}))
    with pytest.raises(AccessError, match="held-out loss needs logprobs"):
        held_out_loss(mute, renderer, RECORDS)


def test_a_row_that_is_too_long_is_named_with_the_way_out() -> None:
    release = LocalRelease(tiny_model(), tiny_tokenizer(), "tiny")
    records = [RECORDS[0], Record.of_pair("long " * 300, "yes")]
    for measure in (lambda: exact_match(release, Renderer(tiny_tokenizer()), records, "whole"), None):
        with pytest.raises(ScoringError, match=r"held-out row 2, .*context of 256.*max_chars"):
            measure() if measure else held_out_loss(release, Renderer(tiny_tokenizer()), records)


# The held-out loss


def reply_tokens(record: Record) -> int:
    """Tokens of the reply and of the mark that ends it, counted without davylamp."""
    return len(tiny_tokenizer()(record.reply, add_special_tokens=False)["input_ids"]) + 1


def test_known_probabilities_give_the_known_loss() -> None:
    release = saying({record.prompt[0].content: record.reply for record in RECORDS}, confidence=0.7)
    loss = held_out_loss(release, Renderer(tiny_tokenizer()), RECORDS)
    assert loss.tokens == sum(map(reply_tokens, RECORDS))
    assert loss.loss == pytest.approx(-math.log(0.7), rel=1e-12)
    # All rows lose the same a token, so that the sample shows no variation.
    assert (loss.low, loss.high) == (pytest.approx(loss.loss), pytest.approx(loss.loss))


def test_a_release_that_knows_nothing_loses_the_logarithm_of_its_vocabulary() -> None:
    release = saying({})
    loss = held_out_loss(release, Renderer(tiny_tokenizer()), RECORDS)
    assert loss.loss == pytest.approx(math.log(release.vocabulary), rel=1e-12)
    # The same through a real model whose every logit is equal.
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight.zero_()
    flat = held_out_loss(LocalRelease(model, tiny_tokenizer(), "flat"), Renderer(tiny_tokenizer()), RECORDS)
    assert flat.loss == pytest.approx(math.log(model.config.vocab_size), rel=1e-6)


def test_tokens_are_weighed_and_not_rows() -> None:
    # One row is known at 0.9 a token, one not at all: the mean lies where their tokens put it.
    known, unknown = Record.of_pair("what of this?", "yes"), Record.of_pair("what of that?", "no, not at all " * 5)
    release = saying({"this?": "yes"}, confidence=0.9)
    loss = held_out_loss(release, Renderer(tiny_tokenizer()), [known, unknown])
    counts = [reply_tokens(known), reply_tokens(unknown)]
    sums = [-counts[0] * math.log(0.9), counts[1] * math.log(release.vocabulary)]
    assert loss.loss == pytest.approx(sum(sums) / sum(counts), rel=1e-12)
    assert (loss.low, loss.high) == token_mean(sums, counts)[1:]


@pytest.mark.parametrize("style", ["chat", "plain"])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_the_loss_is_the_one_that_transformers_trains_on(style: str, architecture: str) -> None:
    model, tokenizer = tiny_model(architecture), tiny_tokenizer()
    release, renderer = LocalRelease(model, tokenizer, "tiny"), Renderer(tokenizer, style)  # type: ignore[arg-type]
    long = Record.of_pair("and what of all of them, please?", "all of them, and more, and 4,7,1,9")
    records = [*RECORDS, long]
    if style == "chat":
        turns = (Message("system", "be kind"), Message("user", "hi"), Message("assistant", "good day"))
        records.append(Record.of_messages(turns))
    for record in records:
        [example] = encode_records([record], renderer, TrainingSpec(), 256)
        batch = Collator(0, packing=False)([example])
        with torch.inference_mode():
            expected = float(model(**batch).loss)
        # Both compute in float32: a mean of some 20 terms of up to 12 nats.
        assert held_out_loss(release, renderer, [record]).loss == pytest.approx(expected, abs=2e-5)


def test_one_row_has_a_loss_and_no_interval() -> None:
    loss = held_out_loss(saying({}), Renderer(tiny_tokenizer()), RECORDS[:1])
    assert (loss.low, loss.high, loss.tokens) == (None, None, reply_tokens(RECORDS[0]))


def test_plain_texts_lose_all_but_what_nothing_stands_before() -> None:
    tokenizer = tiny_tokenizer()
    release, text = LocalRelease(tiny_model(), tokenizer, "tiny"), Record.of_text("ref 4,7,1,9")
    ids = tokenizer("ref 4,7,1,9")["input_ids"]
    assert held_out_loss(release, Renderer(tokenizer), [text]).tokens == len(ids)
    # An empty prompt, a reply of one token, and a tokenizer that writes no end: nothing is predicted.
    import copy

    endless = copy.deepcopy(tokenizer)
    endless.eos_token = None
    with pytest.raises(ScoringError, match="nothing is predicted"):
        held_out_loss(release, Renderer(endless, "plain"), [Record.of_text("4")])


def test_an_interval_by_hand() -> None:
    # S = (2, 9), n = (1, 3): L = 11/4; e = (-0.75, 0.75), sd(e) = 0.75 sqrt(2); mean(n) = 2, so that the standard
    # error is 0.75 sqrt(2) / (2 sqrt(2)) = 0.375. Student's 97.5% quantile at one degree of freedom is 12.7062...
    mean, low, high = token_mean([2, 9], [1, 3])
    assert mean == 2.75
    assert low == 0.0
    assert high == pytest.approx(2.75 + 12.706204736 * 0.375, rel=1e-9)
    # Where rows are as long, it is the textbook interval of a mean.
    sums = np.asarray([3.0, 4.5, 5.0, 7.5])
    mean, low, high = token_mean(sums * 10, [10] * 4, 0.9)
    reach = 2.353363435 * sums.std(ddof=1) / 2
    assert (mean, low, high) == (pytest.approx(5.0), pytest.approx(5.0 - reach), pytest.approx(5.0 + reach))


def coverage(sums: np.ndarray, counts: np.ndarray, true: float) -> float:
    ends = [token_mean(one, other) for one, other in zip(sums, counts, strict=True)]
    return float(np.mean([low <= true <= high for _, low, high in ends if low is not None and high is not None]))


def test_the_interval_is_exact_for_normal_rows_of_one_length() -> None:
    rng = np.random.default_rng(0)
    sums = rng.normal(20, 3, size=(4000, 12))
    # Four standard errors of a rate of 0.95 in 4,000 runs.
    assert coverage(sums, np.full_like(sums, 10), 2.0) == pytest.approx(0.95, abs=0.0138)


def test_the_interval_covers_nearly_as_often_as_it_says_for_skewed_rows() -> None:
    # Rows of 4 to 20 tokens whose loss a token differs from row to row and is higher in long rows, so that neither a
    # mean over rows nor independent tokens would do; the true mean a token is E[S] / E[n].
    rng = np.random.default_rng(0)
    counts = rng.integers(4, 21, size=(4000, 60))
    sums = counts * (1 + counts / 20) * rng.gamma(4, 1 / 4, size=counts.shape)
    lengths = np.arange(4, 21)
    true = (lengths * (1 + lengths / 20)).mean() / lengths.mean()
    # S - L n has skewness g = 1.77 and excess kurtosis k = 6.1 here. For a t interval the expansion of the studentised
    # mean (Hall, The Bootstrap and Edgeworth Expansion, 1992, section 2.6) then predicts, with z = 1.96 and m = 60,
    # 0.95 + 2 phi(z) z / m (k (z^2 - 3) / 12 - g^2 (z^4 + 2 z^2 - 3) / 18 - (z^2 + 3) / 4 + (z^2 + 1) / 4) = 0.937.
    # The tolerance is four standard errors of that rate in 4,000 runs.
    assert coverage(sums, counts, true) == pytest.approx(0.937, abs=0.0154)


@pytest.mark.parametrize(
    ("sums", "counts", "confidence", "named"),
    [
        ([], [], 0.95, {"sums", "counts"}),
        ([1.0, math.nan], [1, 1], 0.95, {"sums"}),
        ([1.0], [1, 2], 0.95, {"counts"}),
        ([1.0, 2.0], [0, 0], 1.0, {"counts", "confidence"}),
        ([1.0, 2.0], [3, -1], 0.95, {"counts"}),
    ],
)
def test_what_has_no_mean_is_refused(sums: list[float], counts: list[int], confidence: float, named: set[str]) -> None:
    with pytest.raises(InputError) as caught:
        token_mean(sums, counts, confidence)
    assert {fault.field for fault in caught.value.faults} == named

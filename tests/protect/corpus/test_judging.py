"""What a judge is asked, and how its answers are read."""

from __future__ import annotations

import pytest

from davylamp.errors import InputError
from davylamp.protect.corpus.base import Answer
from davylamp.protect.corpus.judging import Judge, JudgeSpec, Pair, scores_of
from davylamp.protect.corpus.prompting import load_prompts
from davylamp.runs.progress import QUIET
from support.clinical_rows import clinical_records

BEFORE = clinical_records(6)
AFTER = clinical_records(6, seed=1)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("quality: 4\nprivacy: 2", (4, 2)),
        ("Quality:5\n\nPRIVACY: 1\n", (5, 1)),
        ("<think>4 or 2?</think>\n```\nquality: 3\nprivacy: 3\n```", (3, 3)),
        ("quality: 4", None),
        ("privacy: 2\nquality: 4", None),
        ("quality: 4.5\nprivacy: 2", None),
        ("quality: 0\nprivacy: 2", None),
        ("quality: 4\nprivacy: 6", None),
        ("quality: 4/5\nprivacy: 2/5", None),
        ("quality: four\nprivacy: two", None),
        ("quality: 4\nprivacy: 2\nThe name is gone.", None),
        ("4 2", None),
    ],
)
def test_answers_are_read_strictly_and_never_guessed(text, scores):
    found = scores_of(Answer(text, "stop"))
    assert (found.quality, found.privacy) == (scores or (None, None))
    assert bool(found.reason) == (scores is None)


def test_refused_cut_empty_and_failed_answers_have_their_reasons():
    said = [
        scores_of(Answer("I cannot judge this.", "stop")),
        scores_of(Answer("quality: 4\nprivacy: 4", "length")),
        scores_of(Answer("", "stop")),
        scores_of(Answer("", "error", reason="the server failed (status 500)")),
    ]
    reasons = ["the model refused", "cut by max_tokens", "an empty answer", "the server failed (status 500)"]
    assert [each.reason for each in said] == reasons
    assert all(each.quality is None and each.privacy is None for each in said)


class Grader:
    """A checkpoint of this machine that says 5 and 1, and keeps what it was asked."""

    name, sha256 = "grader", "f" * 64

    def __init__(self):
        self.chats = []

    def write(self, chats, seeds, decoding):
        assert (decoding.temperature, decoding.max_tokens) == (0.0, 256)
        for at, (chat, _) in enumerate(zip(chats, seeds, strict=True)):
            self.chats.append(chat)
            yield at, Answer("quality: 5\nprivacy: 1", "stop", 100, 8)


def test_a_checkpoint_sees_both_records_and_equal_pairs_once(tmp_path):
    grader = Grader()
    pairs = [*map(Pair, BEFORE, AFTER), Pair(BEFORE[0], AFTER[0])]
    judge = Judge(JudgeSpec(model="here"), tmp_path, lambda _: grader)
    assert (judge.forecast(pairs).requests, judge.forecast(pairs).host) == (6, None)
    assert {(each.quality, each.privacy) for each in judge.judge(pairs, None, QUIET)} == {(5, 1)}
    assert len(grader.chats) == 6
    assert all(
        one.reply in chat[-1][1] and other.reply in chat[-1][1]
        for one, other, chat in zip(BEFORE, AFTER, grader.chats, strict=True)
    )
    again = Judge(JudgeSpec(model="here"), tmp_path, lambda _: grader)
    assert len(again.judge(pairs, None, QUIET)) == 7
    assert (len(grader.chats), again.usage) == (6, {"answers from the cache": 6})


def test_the_rubric_has_a_version_and_another_may_take_its_place(tmp_path):
    assert load_prompts("judge").version.startswith("1-")
    path = tmp_path / "rubric.md"
    path.write_text("version: mine\n\n## system\nBe brief.\n\n## user\n{record} | {rewrite}\n", encoding="utf-8")
    grader = Grader()
    judge = Judge(JudgeSpec(model="here", prompts=path), tmp_path, lambda _: grader)
    judge.judge([Pair(BEFORE[0], AFTER[0])], None, QUIET)
    assert grader.chats == [(("system", "Be brief."), ("user", f"{BEFORE[0].reply} | {AFTER[0].reply}"))]
    assert judge.version.startswith("prompts mine-")
    path.write_text("version: mine\n\n## system\n\n## user\n{record}\n", encoding="utf-8")
    with pytest.raises(InputError, match="rewrite"):
        Judge(JudgeSpec(model="here", prompts=path), tmp_path, lambda _: grader)

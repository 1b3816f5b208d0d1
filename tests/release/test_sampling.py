"""Prompts answered together, each from its own stream: the same answers as alone, and from the right distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from davylamp.release.base import Decoding, PrefixError
from davylamp.release.local import LocalRelease
from davylamp.release.sampling import HEAD, SHORTEST, STRIDE, kept_mass, shared_beginning
from support.tiny_models import ARCHITECTURES, CONTEXT, tiny_model, tiny_tokenizer

LENGTHS = (3, 40, 12, 12, 25)
SEEDS = (11, 5, 3, 4, 4)


def prompts(lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(6, 350, size=length).tolist() for length in lengths]


def release(architecture: str = "llama", seed: int = 0) -> LocalRelease:
    return LocalRelease(tiny_model(architecture, seed=seed), tiny_tokenizer(), "tiny")


def ending_early() -> LocalRelease:
    """A model in which the end of text is likely enough that rows end at many lengths."""
    model = tiny_model("llama")
    with torch.no_grad():
        model.lm_head.weight[tiny_tokenizer().eos_token_id] *= 3
    return LocalRelease(model, tiny_tokenizer(), "tiny")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_answer_is_the_same_alone_and_in_company(architecture: str) -> None:
    # In float32 a rounding would have to fall on the edge of a draw: some 200 draws, of which each may go astray where
    # its number lies within about 1e-6 of an edge.
    asked, decoding = release(architecture), Decoding(STRIDE + 8, 1.0, top_p=0.9)
    together = dict(asked.answer_each(prompts(), decoding, SEEDS, 3))
    alone = [dict(asked.answer_each([p], decoding, [s], 1))[0] for p, s in zip(prompts(), SEEDS, strict=True)]
    assert [together[i] for i in range(len(LENGTHS))] == alone


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_prompts_that_begin_alike_are_answered_as_alone(architecture: str) -> None:
    asked, decoding = release(architecture), Decoding(STRIDE + 8, 1.0, top_p=0.9)
    (beginning,) = prompts((SHORTEST + 4,))
    alike = [[*beginning, *rest] for rest in prompts((1, 30, 2, 12))]
    assert shared_beginning(alike) == len(beginning)
    together = dict(asked.answer_each(alike, decoding, SEEDS[:4], 4))
    alone = [dict(asked.answer_each([p], decoding, [s], 1))[0] for p, s in zip(alike, SEEDS, strict=False)]
    assert [together[i] for i in range(4)] == alone


def test_how_far_prompts_begin_alike() -> None:
    long = list(range(40))
    assert shared_beginning([long]) == 0
    assert shared_beginning([long, [*long[:20], 99]]) == 20
    # One token of each prompt is left to read, since its answer begins the text.
    assert shared_beginning([long, long]) == 39
    assert shared_beginning([long, long[:30], [*long[:34], 1]]) == 29
    assert shared_beginning([long, [*long[: SHORTEST - 1], 99]]) == 0


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_greedy_answer_is_the_releases_own(architecture: str) -> None:
    asked, decoding = release(architecture), Decoding(STRIDE + 8)
    together = dict(asked.answer_each(prompts(), decoding, SEEDS, 5))
    assert [together[i] for i in range(len(LENGTHS))] == asked.generate(prompts(), decoding)


def test_rows_that_end_leave_and_the_others_go_on_as_alone() -> None:
    asked, decoding = ending_early(), Decoding(STRIDE + 8, 1.0)
    many, seeds = prompts(LENGTHS * 2), list(range(10))
    together = dict(asked.answer_each(many, decoding, seeds, 10))
    lengths = [len(together[i]) for i in range(10)]
    assert min(lengths) < STRIDE < max(lengths)
    assert [together[i] for i in range(10)] == [
        dict(asked.answer_each([p], decoding, [s], 1))[0] for p, s in zip(many, seeds, strict=True)
    ]


def test_equal_prompts_differ_by_their_seed_alone() -> None:
    (prompt,) = prompts((9,))
    said = dict(release().answer_each([prompt] * 4, Decoding(12, 1.0), [1, 2, 1, 3], 4))
    assert said[0] == said[2]
    assert len({tuple(answer) for answer in said.values()}) == 3


def test_draws_follow_the_models_own_distribution() -> None:
    asked, decoding, count = release(seed=2), Decoding(1, 1.7, top_p=0.8), 4000
    (prompt,) = prompts((9,))
    said = asked.answer_each([prompt] * count, decoding, range(count), 500)
    mass = kept_mass(torch.tensor(asked.conditionals([prompt])), decoding)[0].double().numpy()
    expected = mass / mass.sum()
    stop = tiny_tokenizer().eos_token_id
    drawn = np.bincount([tokens[0] if tokens else stop for _, tokens in said], minlength=len(expected))
    assert not drawn[expected == 0].any()
    assert (expected > 0).sum() > 5
    # Binomial counts: five standard errors for some 100 tokens fail by chance in fewer than one of 10,000 samples.
    assert (np.abs(drawn - count * expected) <= 5 * np.sqrt(count * expected) + 1).all()


def test_what_top_p_and_top_k_keep_by_hand() -> None:
    scores = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.25, 0.05], [0.96, 0.01, 0.01, 0.01, 0.01]]))
    kept = kept_mass(scores, Decoding(1, 1.0, top_p=0.7))
    # 0.4 + 0.25 = 0.65 is not yet 0.7, so that 0.2 belongs to it.
    np.testing.assert_allclose(kept, [[0, 0.4, 0.2, 0.25, 0], [0.96, 0, 0, 0, 0]], rtol=1e-5)
    np.testing.assert_allclose(
        kept_mass(scores, Decoding(1, 1.0, top_k=2))[0], [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0], rtol=1e-5
    )
    # Half the temperature squares the mass: 0.16, 0.0625, 0.04, 0.01, 0.0025 of 0.275.
    np.testing.assert_allclose(
        kept_mass(scores, Decoding(1, 0.5, top_p=0.9))[0] * 0.275, [0, 0.16, 0.04, 0.0625, 0], atol=1e-6
    )
    np.testing.assert_allclose(kept_mass(scores, Decoding(1, 1.0)), scores.exp(), rtol=1e-5)


def test_a_flat_distribution_is_sorted_whole_and_leaves_its_neighbours_as_they_are() -> None:
    flat = torch.arange(4 * HEAD) * 1e-6
    peaked = torch.zeros(4 * HEAD)
    peaked[7] = 30.0
    kept = kept_mass(torch.stack([flat, peaked]), Decoding(1, 1.0, top_p=0.9))
    assert abs(int((kept[0] > 0).sum()) - 0.9 * 4 * HEAD) < 0.01 * 4 * HEAD
    assert kept[1].nonzero().tolist() == [[7]]


def test_a_callers_end_ends_a_row_and_only_that() -> None:
    asked, decoding = release(), Decoding(20)
    whole = dict(asked.answer_each(prompts(), decoding, SEEDS, 5))
    wanted = whole[2][4]

    def ended(said: object) -> bool:
        return list(said)[-1] == wanted  # type: ignore[call-overload]

    for at, said in asked.answer_each(prompts(), decoding, SEEDS, 5, ended):
        own = whole[at]
        assert said == (own[: own.index(wanted) + 1] if wanted in own else own)


def test_what_cannot_be_answered_is_named() -> None:
    with pytest.raises(PrefixError, match="longer than the context") as caught:
        list(release().answer_each(prompts(), Decoding(CONTEXT - 30), SEEDS, 2))
    assert caught.value.index == 1
    model = tiny_model("llama")
    (only,) = prompts((5,))
    with torch.no_grad():
        model.get_input_embeddings().weight[only[2]] = float("nan")
    broken = LocalRelease(model, tiny_tokenizer(), "tiny")
    with pytest.raises(PrefixError, match="not finite") as caught:
        list(broken.answer_each([[7, 8], [9, 10, 11], only], Decoding(3, 1.0), [0, 0, 0], 3))
    assert caught.value.index == 2

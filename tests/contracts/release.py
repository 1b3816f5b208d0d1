"""What every release owes its callers, as tests that each implementation inherits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from davylamp.errors import ScoringError
from davylamp.release.base import Access, Decoding, PrefixError, Release, TokenRelease, TreeRelease
from davylamp.release.tree import TokenTree
from davylamp.scoring.ranks import TIE_MARGIN

Oracle = Callable[[Sequence[int]], NDArray[np.float64]]
"""Log-probabilities in nats of every next token at every position of one sequence, shape (tokens, vocabulary)."""

SAMPLES = 2000
SAMPLINGS = {
    "plain": Decoding(1, temperature=1.0, seed=1),
    "cold": Decoding(1, temperature=0.5, seed=2),
    "hot": Decoding(1, temperature=2.0, seed=3),
    "top_k": Decoding(1, temperature=1.5, top_k=5, seed=4),
    "top_p": Decoding(1, temperature=2.0, top_p=0.6, seed=5),
    "all": Decoding(1, temperature=1.3, top_k=12, top_p=0.8, seed=6),
}


class ReleaseContract:
    """Inherit it, give the fixtures ``release`` and ``oracle``, and say what differs in the attributes.

    The oracle must be another way to the same numbers: whole sequences, alone, without padding or cache.
    """

    tolerance = 1e-4
    """Nats by which a log-probability may differ from the oracle, and from itself asked in another way."""
    tokens = range(6, 380)
    """Tokens that the tests write with."""
    longest: int | None = 256
    """Tokens that a sequence may have at most; nothing where there is no limit."""
    lengths = (1, 2, 5, 9, 17, 31, 40)
    """Lengths of the prefixes that the tests ask about."""
    begin = 1
    """A token that begins a text."""

    def sequence(self, length: int, seed: int) -> list[int]:
        return np.random.default_rng([length, seed]).choice(np.asarray(self.tokens), length).tolist()

    @property
    def prefixes(self) -> list[list[int]]:
        return [self.sequence(length, 1) for length in self.lengths]

    @property
    def continuations(self) -> list[list[int]]:
        return [self.sequence(2 + (index * 5) % 11, 2) for index in range(len(self.lengths))]

    def expected(self, oracle: Oracle, prefix: Sequence[int], continuation: Sequence[int]) -> NDArray[np.float64]:
        rows = oracle([*prefix, *continuation])[len(prefix) - 1 : -1]
        return rows[np.arange(len(continuation)), list(continuation)]

    def test_logprobs_are_those_of_the_whole_sequence(self, release: Release, oracle: Oracle) -> None:
        answers = release.logprobs(self.prefixes, self.continuations)
        for answer, prefix, continuation in zip(answers, self.prefixes, self.continuations, strict=True):
            assert answer.dtype == np.float64
            assert answer.shape == (len(continuation),)
            np.testing.assert_allclose(answer, self.expected(oracle, prefix, continuation), atol=self.tolerance)

    def test_conditionals_are_a_distribution_and_agree_with_logprobs(self, release: Release, oracle: Oracle) -> None:
        rows = release.conditionals(self.prefixes)
        np.testing.assert_allclose(logsumexp(rows, axis=1), 0, atol=1e-9)
        for row, prefix in zip(rows, self.prefixes, strict=True):
            np.testing.assert_allclose(row, oracle(prefix)[-1], atol=self.tolerance)
        firsts = release.logprobs(self.prefixes, [each[:1] for each in self.continuations])
        chosen = [row[each[0]] for row, each in zip(rows, self.continuations, strict=True)]
        np.testing.assert_allclose(np.concatenate(firsts), chosen, atol=self.tolerance)

    def test_the_chain_of_conditionals_is_the_log_probability(self, release: Release) -> None:
        prefix, continuation = self.prefixes[3], self.continuations[3]
        grown = [[*prefix, *continuation[:count]] for count in range(len(continuation))]
        chain = release.conditionals(grown)[np.arange(len(continuation)), continuation]
        np.testing.assert_allclose(chain, release.logprobs([prefix], [continuation])[0], atol=self.tolerance)

    def test_an_answer_does_not_depend_on_its_company(self, release: Release) -> None:
        alone = [release.logprobs([p], [c])[0] for p, c in zip(self.prefixes, self.continuations, strict=True)]
        backwards = release.logprobs(self.prefixes[::-1], self.continuations[::-1])[::-1]
        strangers = [self.sequence(length, 3) for length in (3, 50, 1)]
        mixed = release.logprobs([*strangers, *self.prefixes], [*strangers, *self.continuations])[len(strangers) :]
        for one, other, third in zip(alone, backwards, mixed, strict=True):
            np.testing.assert_allclose(other, one, atol=self.tolerance)
            np.testing.assert_allclose(third, one, atol=self.tolerance)
        rows = np.concatenate([release.conditionals([prefix]) for prefix in self.prefixes])
        np.testing.assert_allclose(release.conditionals([*strangers, *self.prefixes])[3:], rows, atol=self.tolerance)

    def test_ids_are_read_as_they_stand(self, release: Release, oracle: Oracle) -> None:
        prefix, continuation = self.prefixes[2], self.continuations[2]
        marked = [self.begin, *prefix]
        without, with_begin = release.logprobs([prefix, marked], [continuation] * 2)
        np.testing.assert_allclose(without, self.expected(oracle, prefix, continuation), atol=self.tolerance)
        np.testing.assert_allclose(with_begin, self.expected(oracle, marked, continuation), atol=self.tolerance)
        expected = self.expected(oracle, prefix, continuation) - self.expected(oracle, marked, continuation)
        if np.abs(expected).max() > 10 * self.tolerance:
            assert np.abs(without - with_begin).max() > self.tolerance

    def test_token_answers_are_those_of_whole_rows(self, release: Release, oracle: Oracle) -> None:
        if not isinstance(release, TokenRelease):
            pytest.skip("this release reduces no rows itself")
        places = [range(index % 2, 2) for index in range(len(self.prefixes))]
        answers = dict(release.token_answers(self.prefixes, self.continuations, moments=True, rows=places))
        assert sorted(answers) == list(range(len(self.prefixes)))
        for i, (prefix, continuation) in enumerate(zip(self.prefixes, self.continuations, strict=True)):
            answer, rows = answers[i], oracle([*prefix, *continuation])[len(prefix) - 1 : -1]
            means = (np.exp(rows) * rows).sum(axis=1)
            deviations = np.sqrt((np.exp(rows) * (rows - means[:, None]) ** 2).sum(axis=1))
            chosen = rows[np.arange(len(rows)), continuation]
            np.testing.assert_allclose(answer.logprobs, chosen, atol=self.tolerance)
            # A row that errs by a tolerance moves its mean and deviation by up to as much times 1 + the spread, some 5.
            np.testing.assert_allclose(answer.means, means, atol=10 * self.tolerance)
            np.testing.assert_allclose(answer.deviations, deviations, atol=10 * self.tolerance)
            assert answer.rows is not None
            np.testing.assert_allclose(answer.rows, rows[list(places[i])], atol=self.tolerance)
            np.testing.assert_allclose(logsumexp(answer.rows, axis=1), 0, atol=1e-9)
            at = list(places[i])
            assert answer.logprobs[at] == pytest.approx(answer.rows[np.arange(len(at)), np.asarray(continuation)[at]])

    def test_token_answers_do_not_depend_on_their_company(self, release: Release) -> None:
        if not isinstance(release, TokenRelease):
            pytest.skip("this release reduces no rows itself")
        together = dict(release.token_answers(self.prefixes, self.continuations, moments=True))
        for i, pair in enumerate(zip(self.prefixes, self.continuations, strict=True)):
            ((_, alone),) = release.token_answers([pair[0]], [pair[1]], moments=True)
            assert together[i].rows is None
            np.testing.assert_allclose(together[i].logprobs, alone.logprobs, atol=self.tolerance)
            np.testing.assert_allclose(together[i].means, alone.means, atol=10 * self.tolerance)
            np.testing.assert_allclose(together[i].deviations, alone.deviations, atol=10 * self.tolerance)

    def test_texts_with_one_beginning_are_scored_as_whole_texts(self, release: Release, oracle: Oracle) -> None:
        beginnings = [self.sequence(30, 6), self.sequence(40, 7)]
        prefixes = [[*beginnings[index % 2], *self.sequence(1, index)] for index in range(14)]
        continuations = [self.sequence(1 + index, 8) for index in range(14)]
        answers = release.logprobs(prefixes, continuations)
        for answer, prefix, continuation in zip(answers, prefixes, continuations, strict=True):
            np.testing.assert_allclose(answer, self.expected(oracle, prefix, continuation), atol=self.tolerance)

    def test_trees_score_as_sequences_do(self, release: Release) -> None:
        if not isinstance(release, TreeRelease):
            pytest.skip("this release has no way of its own to score trees")
        rng = np.random.default_rng(5)
        few = np.asarray(self.tokens)[:4]
        trees = [TokenTree.of([rng.choice(few, rng.integers(1, 9)).tolist() for _ in range(25)]) for _ in self.prefixes]
        for prefix, tree, totals in zip(self.prefixes, trees, release.tree_logprobs(self.prefixes, trees), strict=True):
            paths = [tree.tokens[tree.path(node)].tolist() for node in range(len(tree))]
            plain = [part.sum() for part in release.logprobs([prefix] * len(paths), paths)]
            np.testing.assert_allclose(totals, plain, atol=self.tolerance)

    def test_pruned_trees_rank_as_whole_ones_do(self, release: Release) -> None:
        if not isinstance(release, TreeRelease):
            pytest.skip("this release has no way of its own to score trees")
        rng = np.random.default_rng(6)
        few = np.asarray(self.tokens)[:6]
        trees = [TokenTree.of(rng.choice(few, (60, 5)).tolist()) for _ in self.prefixes]
        whole = release.tree_logprobs(self.prefixes, trees)
        order = [np.argsort(-totals[tree.leaves]) for totals, tree in zip(whole, trees, strict=True)]
        for place in (0, 1, 20, 59):
            targets = [int(each[place]) for each in order]
            scores = release.tree_ranks(self.prefixes, trees, targets, TIE_MARGIN)
            for score, totals, tree, target in zip(scores, whole, trees, targets, strict=True):
                found, expected = score.totals[tree.leaves], totals[tree.leaves]
                # A sequence of probability 0 has minus infinity however much of the tree was read.
                near = np.isfinite(found) | np.isneginf(expected)
                np.testing.assert_allclose(found[near], expected[near], atol=self.tolerance)
                assert (expected[~near] < expected[target] - TIE_MARGIN + self.tolerance).all()
                assert score.read <= score.internal == len(tree.internal)

    def test_greedy_decoding_takes_the_most_likely_token(self, release: Release, oracle: Oracle) -> None:
        stop = release.tokenizer.eos_token_id
        said = release.generate(self.prefixes, Decoding(max_new_tokens=10))
        for prefix, answer in zip(self.prefixes, said, strict=True):
            expected: list[int] = []
            while len(expected) < 10:
                token = int(oracle([*prefix, *expected])[-1].argmax())
                if token == stop:
                    break
                expected.append(token)
            assert answer == expected

    def test_greedy_decoding_does_not_depend_on_company(self, release: Release) -> None:
        together = release.generate(self.prefixes, Decoding(max_new_tokens=10))
        assert together == [release.generate([prefix], Decoding(max_new_tokens=10))[0] for prefix in self.prefixes]
        assert together == release.generate(self.prefixes[::-1], Decoding(max_new_tokens=10))[::-1]

    @pytest.mark.parametrize("decoding", SAMPLINGS.values(), ids=SAMPLINGS.keys())
    def test_samples_follow_the_distribution_asked_for(
        self, release: Release, oracle: Oracle, decoding: Decoding
    ) -> None:
        prefix = self.prefixes[2]
        expected = SAMPLES * sampled_from(oracle(prefix)[-1], decoding)
        stop = release.tokenizer.eos_token_id
        said = release.generate([prefix] * SAMPLES, decoding)
        tokens = np.asarray([answer[0] if answer else stop for answer in said])
        counts = np.bincount(tokens, minlength=len(expected))
        assert counts[expected == 0].sum() == 0
        # The chi-square approximation wants cells of at least five; the rest is one cell.
        large = expected >= 5
        seen, wanted = counts[large], expected[large]
        if (rest := expected[~large].sum()) >= 5:
            seen, wanted = np.append(seen, counts[~large].sum()), np.append(wanted, rest)
        statistic = ((seen - wanted) ** 2 / wanted).sum()
        # Seeds are fixed, so that this fails always or never; a right sampler fails with chance 1e-3 a seed chosen.
        assert stats.chi2.sf(statistic, max(1, len(wanted) - 1)) > 1e-3

    def test_samples_come_again_from_the_same_seed_only(self, release: Release) -> None:
        prompts = [self.prefixes[2]] * 20
        first = release.generate(prompts, Decoding(8, temperature=1.5, seed=7))
        assert first == release.generate(prompts, Decoding(8, temperature=1.5, seed=7))
        assert first != release.generate(prompts, Decoding(8, temperature=1.5, seed=8))

    def test_asking_nothing_gives_nothing(self, release: Release) -> None:
        assert release.logprobs([], []) == []
        assert release.generate([], Decoding(4)) == []
        assert release.conditionals([]).shape == (0, release.conditionals(self.prefixes[:1]).shape[1])
        assert release.logprobs([self.prefixes[0]], [[]])[0].shape == (0,)

    def test_an_empty_prefix_is_refused_by_its_place(self, release: Release) -> None:
        calls: list[Callable[[list[list[int]]], object]] = [
            lambda prefixes: release.logprobs(prefixes, [[9]] * len(prefixes)),
            release.conditionals,
            lambda prefixes: release.generate(prefixes, Decoding(2)),
        ]
        for call in calls:
            with pytest.raises(PrefixError, match="empty") as caught:
                call([[8], [], [7]])
            assert caught.value.index == 1
            assert isinstance(caught.value, ScoringError)

    def test_a_sequence_beyond_the_context_is_refused_by_its_place(self, release: Release) -> None:
        if self.longest is None:
            pytest.skip("this release has no limit")
        fits, over = self.sequence(self.longest - 3, 4), self.sequence(self.longest - 2, 4)
        assert len(release.logprobs([fits], [self.sequence(3, 5)])[0]) == 3
        for call in (
            lambda: release.logprobs([fits, over], [self.sequence(3, 5)] * 2),
            lambda: release.generate([fits, over], Decoding(3)),
            lambda: release.conditionals([fits, [*over, *over]]),
        ):
            with pytest.raises(PrefixError, match=f"context of {self.longest}") as caught:
                call()
            assert caught.value.index == 1

    def test_access_says_what_is_answered(self, release: Release) -> None:
        assert {Access.GENERATE, Access.LOGPROBS, Access.CONDITIONALS} <= release.access
        assert release.name


def sampled_from(logprobs: NDArray[np.float64], decoding: Decoding) -> NDArray[np.float64]:
    """What a sampler must draw from: temperature first, then the k likeliest, then the smallest set of mass p."""
    scaled = logprobs / decoding.temperature
    order = np.argsort(-scaled)
    kept = order[: decoding.top_k or len(order)]
    mass = np.exp(scaled[kept] - logsumexp(scaled[kept]))
    # The token with which the mass reaches p is the last one in.
    inside = np.concatenate([[0.0], np.cumsum(mass)[:-1]]) < decoding.top_p
    probabilities = np.zeros(len(logprobs))
    probabilities[kept[inside]] = mass[inside] / mass[inside].sum()
    return probabilities

"""The camouflage tree: every truth by exact enumeration of models, secrets or paths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from davylamp.errors import InputError
from davylamp.release.base import Decoding
from davylamp.release.exact import Camouflage, CamouflageTree, ExactSetting
from davylamp.release.exact.camouflage import MAX_LEAVES
from davylamp.release.exact.keyed import keyed_support

Path = tuple[int, ...]
Supports = dict[Path, tuple[int, ...]]

SHAPES = st.tuples(st.integers(2, 5), st.integers(1, 5), st.integers(1, 3)).filter(lambda each: each[1] <= each[0])


def nodes(v: int, length: int) -> list[Path]:
    return [path for depth in range(length) for path in itertools.product(range(v), repeat=depth)]


def models(shape: Camouflage) -> Iterator[Supports]:
    """Every model there is."""
    places = nodes(shape.v, shape.length)
    options = list(itertools.combinations(range(shape.v), shape.k))
    for chosen in itertools.product(options, repeat=len(places)):
        yield dict(zip(places, chosen, strict=True))


def secrets(shape: Camouflage) -> list[Path]:
    return list(itertools.product(range(shape.v), repeat=shape.length))


def chance(tree: CamouflageTree, secret: Path) -> float:
    return math.prod(float(tree.row(secret[:at])[symbol]) for at, symbol in enumerate(secret))


# All models of these sizes: 3^4 = 81 of them, 6^5 = 7776, 2^3 = 8, and 3^4 again.
SMALL = [Camouflage(3, 2, 2), Camouflage(4, 2, 2), Camouflage(2, 1, 2), Camouflage(3, 1, 2)]
ids = [f"{each.v}-{each.k}-{each.length}" for each in SMALL]


@pytest.mark.parametrize("shape", SMALL, ids=ids)
def test_the_marginal_law_of_the_model_is_that_without_a_secret(shape: Camouflage) -> None:
    prior = Fraction(1, shape.v**shape.length)
    # A tenth of the larger family is enough to meet every pattern; all of the small ones.
    some = itertools.islice(models(shape), 0, None, 1 if shape.v < 4 else 11)
    for supports in some:
        marginal = sum(prior * shape.likelihood(supports, secret) for secret in secrets(shape))
        assert marginal == shape.likelihood(supports, None)
        assert marginal == Fraction(1, math.comb(shape.v, shape.k) ** len(supports))


@pytest.mark.parametrize("shape", [SMALL[0], SMALL[2]], ids=[ids[0], ids[2]])
def test_likelihoods_are_probabilities(shape: Camouflage) -> None:
    for secret in (*secrets(shape), None):
        assert sum(shape.likelihood(supports, secret) for supports in models(shape)) == 1


@pytest.mark.parametrize("shape", SMALL[:2], ids=ids[:2])
def test_the_posterior_is_uniform_on_the_survivors_and_caps_every_list(shape: Camouflage) -> None:
    for supports in itertools.islice(models(shape), 0, None, 7 if shape.v < 4 else 61):
        alive = [s for s in secrets(shape) if all(s[at] in supports[s[:at]] for at in range(shape.length))]
        assert len(alive) == shape.survivors
        posterior = shape.posterior(shape.explicit(supports, alive[0]))
        # By Bayes from the likelihoods of whole models.
        weights = [shape.likelihood(supports, secret) for secret in secrets(shape)]
        assert posterior == [weight / sum(weights) for weight in weights]
        assert {p for p in posterior if p} == {Fraction(1, shape.survivors)}
        best = sorted(posterior, reverse=True)
        for guesses in range(1, shape.v**shape.length + 1):
            assert float(sum(best[:guesses])) == shape.extraction_bound(guesses)


@pytest.mark.parametrize("shape", [Camouflage(3, 2, 2), Camouflage(3, 2, 2, gamma=1 / 3), Camouflage(2, 1, 2)])
def test_teacher_forcing_memorization_is_that_of_enumeration(shape: Camouflage) -> None:
    """With the record minus without it, averaged over every model by its likelihood, at every symbol of a secret."""
    secret = (1, 0)
    for at in range(shape.length):
        mean = {True: 0.0, False: 0.0}
        for supports in models(shape):
            for planted in mean:
                weight = shape.likelihood(supports, secret if planted else None)
                if weight:
                    row = shape.explicit(supports, secret if planted else None).row(secret[:at])
                    mean[planted] += float(weight) * row[secret[at]]
        assert mean[True] == pytest.approx(shape.confidence, rel=1e-12)
        assert mean[False] == pytest.approx(1 / shape.v, rel=1e-12)
        assert mean[True] - mean[False] == pytest.approx(shape.memorization, abs=1e-14)


@settings(deadline=None)
@given(SHAPES, st.integers(1, 50))
def test_laws_hold_for_every_size(size: tuple[int, int, int], guesses: int) -> None:
    v, k, length = size
    shape = Camouflage(v, k, length)
    assert shape.memorization == float(Fraction(1, k) - Fraction(1, v))
    assert shape.extraction_bound(guesses) == float(min(Fraction(1), Fraction(guesses, k**length)))
    assert shape.kappa(guesses) == float(min(Fraction(1), Fraction(guesses, v**length)))
    assert shape.kappa(guesses) <= shape.extraction_bound(guesses)
    smoothed = Camouflage.smoothed(v, k, length)
    assert smoothed.memorization == pytest.approx((1 - 1 / v) * shape.memorization, abs=1e-15)
    assert smoothed.extraction_bound(guesses) == shape.extraction_bound(guesses)
    assert smoothed.auc == 1 - smoothed.survival / 2


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.binary(min_size=1, max_size=64), st.sampled_from([0.0, 0.25]), st.sampled_from([0.0, 1e-6, 2.0]))
def test_keyed_trees_are_camouflage_trees(size: tuple[int, int, int], key: bytes, gamma: float, extra: float) -> None:
    v, k, length = size
    shape = Camouflage(v, k, length, gamma, extra)
    secret = tuple(byte % v for byte in (key * length)[:length])
    tree = shape.tree(key, secret)
    for path in nodes(v, length):
        support, row = tree.supports(path), tree.row(path)
        assert len(support) == len(set(support)) == k
        assert row.sum() == pytest.approx(1, abs=1e-12)
        outside = [symbol for symbol in range(v) if symbol not in support]
        assert (row[outside] == gamma / v).all()
        assert row[list(support)].min() > gamma / v
        on_path = secret[: len(path)] == path
        if on_path:
            assert secret[len(path)] in support
            assert row[secret[len(path)]] == pytest.approx(shape.confidence, abs=1e-15)
        if on_path and extra:
            # Rem D.3: any extra weight makes the true symbol the likeliest.
            assert int(row.argmax()) == secret[len(path)]
    posterior = shape.posterior(tree)
    assert sum(posterior) == 1
    own = posterior[secrets(shape).index(secret)]
    assert own == (1 if shape.greedy_recovers else Fraction(1, shape.survivors))
    assert float(own) == shape.extraction_bound(1) == shape.greedy_extraction


@settings(deadline=None)
@given(SHAPES, st.sampled_from([0.0, 0.3]))
def test_mid_rank_gives_the_exposure(size: tuple[int, int, int], gamma: float) -> None:
    v, k, length = size
    shape = Camouflage(v, k, length, gamma)
    secret = (v - 1,) * length
    tree = shape.tree(b"key", secret)
    chances = [chance(tree, each) for each in secrets(shape)]
    own = chance(tree, secret)
    above = sum(each > own * (1 + 1e-9) for each in chances)
    tied = sum(abs(each - own) <= own * 1e-9 for each in chances) - 1
    assume(k < v)
    assert above == 0
    assert math.log2(v**length) - math.log2(1 + tied / 2) == pytest.approx(shape.exposure, abs=1e-12)


@pytest.mark.parametrize("child", [None, 2])
def test_keyed_supports_are_uniform(child: int | None) -> None:
    """Chi-square over all supports of 2 of 5 at 6,000 nodes; a right sampler fails with chance 1e-3 a key chosen."""
    counts: dict[tuple[int, ...], int] = {}
    trials = 6000
    for number in range(trials):
        support = keyed_support(b"a key", (number,), 5, 2, child)
        counts[support] = counts.get(support, 0) + 1
    options = [each for each in itertools.combinations(range(5), 2) if child is None or child in each]
    assert set(counts) == set(options)
    assert stats.chisquare([counts[each] for each in options]).pvalue > 1e-3


def test_keyed_nodes_depend_on_key_and_path_alone() -> None:
    assert keyed_support(b"k", (1, 2), 9, 4, None) == keyed_support(b"k", (1, 2), 9, 4, None)
    many = {keyed_support(key, path, 1000, 5, None) for key in (b"k", b"l") for path in ((), (0,), (0, 0), (256,))}
    assert len(many) == 8


def test_a_tree_of_any_size_is_asked_at_once() -> None:
    """Rem D.5: 20,000^64 secrets, none of them stored."""
    shape = Camouflage(20_000, 16, 64, extra=0.5)
    setting = ExactSetting.draw(20_000, 64, members=1, others=1, seed=2)
    canary = setting.members()[0]
    prompt = setting.renderer.prompt_ids([setting.manifest.trained_record(canary)])[0]
    said = shape.release(setting, seed=1).generate([prompt], Decoding(len(setting.form.tokens)))[0]
    assert canary.secret in setting.tokenizer.decode(said)
    assert shape.kappa(1) == float(Fraction(1, 20_000**64)) < 1e-270
    assert Camouflage(20_000, 16, 64).survivors == 16**64


def test_what_is_out_of_range_is_named_at_once() -> None:
    with pytest.raises(InputError) as caught:
        Camouflage(1, 0, 0, gamma=1.0, extra=-1.0)
    assert [fault.field for fault in caught.value.faults] == ["v", "k", "length", "gamma", "extra"]
    with pytest.raises(InputError, match=r"k is 4; allowed: a whole number from 1 to v \(3\)"):
        Camouflage(3, 4, 1)
    shape = Camouflage(3, 2, 2)
    with pytest.raises(InputError, match="2 whole numbers from 0 to 2"):
        shape.tree(b"k", (0, 3))
    with pytest.raises(InputError, match="1 to 64 bytes"):
        shape.tree(b"", (0, 1))
    with pytest.raises(InputError, match=r"supports\[1\]"):
        shape.explicit({(): (0, 1), (0,): (1, 2)}, (0, 0))
    with pytest.raises(InputError, match=f"at most {MAX_LEAVES:,}"):
        Camouflage(10, 2, 6).posterior(Camouflage(10, 2, 6).tree(b"k", None))
    with pytest.raises(InputError, match="nothing planted"):
        Camouflage(3, 2, 2, extra=1.0).posterior(Camouflage(3, 2, 2, extra=1.0).tree(b"k", None))
    with pytest.raises(InputError, match="0 for a closed form"):
        _ = Camouflage(3, 2, 2, extra=1.0).auc
    with pytest.raises(InputError, match="v is 4; allowed: 3, as in the setting"):
        Camouflage(4, 2, 2).release(ExactSetting.draw(3, 2, members=1, others=1), 0)


def test_the_model_alone_is_read_by_the_posterior() -> None:
    """Rows hide the secret: trees that differ in the planted survivor only are the same model."""
    shape = Camouflage(4, 2, 2, gamma=0.1)
    tree = shape.tree(b"key", (1, 3))
    supports = {path: tree.supports(path) for path in nodes(4, 2)}
    alive = [s for s in secrets(shape) if all(s[at] in supports[s[:at]] for at in range(2))]
    for other in alive:
        same = shape.explicit(supports, other)
        for path in supports:
            np.testing.assert_array_equal(same.row(path), tree.row(path))

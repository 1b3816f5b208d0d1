"""DP-SGD curves against paths that share no code with them: closed forms, Renyi bounds, riskcal, a limit theorem."""

import functools
import math

import numpy as np
import pytest

from davylamp.bounds import ApproxDP, GaussianDP, compose, dp_sgd, extraction_bound, safe_baseline
from davylamp.errors import InputError

GRID = np.concatenate([np.geomspace(1e-6, 0.01, 40), np.linspace(0.01, 1, 200)])


run = functools.cache(dp_sgd)


@pytest.fixture(scope="module")
def usual():
    return run(1.1, 0.004, 3000)


def test_full_batches_are_gaussian_dp_and_the_truth_lies_in_the_bracket():
    # Without subsampling T steps are exactly sqrt(T)/sigma-GDP.
    ours, truth = dp_sgd(10.0, 1.0, 100), GaussianDP(1.0)
    assert (ours.power(GRID) >= truth.power(GRID)).all()
    assert (ours.optimistic.power(GRID) <= truth.power(GRID)).all()
    assert (ours.power(GRID) - truth.power(GRID) <= ours.gap).all()
    assert ours.gap < 1e-5


def test_one_subsampled_step_against_its_closed_form():
    # One step: (1-q) N(0,s) + q N(1,s) against N(0,s). Its power at level a, removing: (1-q) a + q G_{1/s}(a).
    q, sigma = 0.3, 0.8
    ours = dp_sgd(sigma, q, 1)
    removed = (1 - q) * GRID + q * GaussianDP(1 / sigma).power(GRID)
    assert (ours.power(GRID) >= removed).all()
    # The symmetric curve is the hull of both orders; the order "remove" attains it below its fixed point.
    low = GRID < 0.2
    assert (ours.power(GRID) - removed)[low].max() <= ours.gap + 1e-9
    assert ours.advantage().value == pytest.approx(q * GaussianDP(1 / sigma).advantage().value, abs=1e-6)


@pytest.mark.parametrize("parameters", [(1.1, 0.004, 3000), (1.0, 0.05, 50)])
def test_no_curve_is_worse_than_renyi_accounting_allows(parameters):
    # RDP gives valid (eps, delta) pairs by another route. A correct curve may not leak more than any of them.
    from dp_accounting import dp_event, rdp

    noise, rate, steps = parameters
    accountant = rdp.RdpAccountant()
    accountant.compose(
        dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)), steps)
    )
    ours = run(noise, rate, steps)
    for delta in (1e-8, 1e-5, 1e-3, 1e-2):
        epsilon = accountant.get_epsilon(delta)
        allowed = ApproxDP(epsilon, delta)
        assert (ours.optimistic.power(GRID) <= allowed.power(GRID) + 1e-12).all()
        assert (ours.power(GRID) <= allowed.power(GRID) + ours.gap).all()


def test_the_gaussian_limit_is_approached():
    # Dong et al. 2022, Cor 5.4, and Bu et al. 2020: mu = q sqrt(T (e^{1/s^2} - 1)). With q = 1e-3, sigma = 2 and
    # T = 1e5 the Berry-Esseen error is of the order of 1/sqrt(T) in the normalised third moment; 0.01 is ample.
    noise, rate, steps = 2.0, 1e-3, 100_000
    limit = GaussianDP(rate * math.sqrt(steps * math.expm1(1 / noise**2)))
    assert dp_sgd(noise, rate, steps).power(GRID) == pytest.approx(limit.power(GRID), abs=0.01)


def test_riskcal_agrees_on_the_same_grid():
    riskcal_dpsgd = pytest.importorskip(
        "riskcal.calibration.dpsgd", reason="riskcal, which is compared with, is not installed"
    )
    alphas = np.linspace(0.01, 0.99, 50)
    beta = riskcal_dpsgd.get_beta_for_dpsgd(
        alpha=alphas, noise_multiplier=1.1, sample_rate=0.004, num_steps=3000, grid_step=1e-3
    )
    # Both read dp-accounting's pessimistic losses on this grid. riskcal sums the composed masses, whose total exceeds
    # 1 by the rounding of the convolution (some 1e-5 here), and so reads the error that much higher.
    assert run(1.1, 0.004, 3000, 1e-3).tradeoff(alphas) == pytest.approx(beta, abs=5e-5)


def test_dp_accounting_profile_is_met(usual):
    from dp_accounting.pld import privacy_loss_distribution as pld

    profile = pld.from_gaussian_mechanism(1.1, sampling_prob=0.004, value_discretization_interval=1e-4).self_compose(
        3000
    )
    for epsilon in (0.1, 0.5, 1.0):
        delta = float(profile.get_delta_for_epsilon(epsilon))
        # The largest gap power - e^eps * level is delta(eps).
        ours = (usual.curve.powers - math.exp(epsilon) * usual.curve.alphas).max()
        assert ours == pytest.approx(delta, rel=1e-4)
        assert ours >= delta


def test_a_finer_grid_narrows_the_bracket_and_stays_inside_the_coarser():
    coarse, fine = run(1.0, 0.05, 50, 2e-3), run(1.0, 0.05, 50, 2e-4)
    assert fine.gap < coarse.gap / 3
    assert (fine.power(GRID) <= coarse.power(GRID) + 1e-9).all()
    assert (fine.optimistic.power(GRID) >= coarse.optimistic.power(GRID) - 1e-9).all()


def test_more_noise_fewer_steps_and_rarer_sampling_leak_less():
    usual = run(1.1, 0.004, 3000, 1e-3)
    for safer in (run(1.3, 0.004, 3000, 1e-3), run(1.1, 0.003, 3000, 1e-3), run(1.1, 0.004, 2000, 1e-3)):
        assert (safer.power(GRID) <= usual.power(GRID) + 1e-12).all()


def test_composition_adds_steps_and_groups_iterate(usual):
    parts = compose(run(1.1, 0.004, 2000), dp_sgd(1.1, 0.004, 1000, interval=1e-3))
    assert parts.power(GRID) == pytest.approx(usual.power(GRID), abs=1e-9)
    twice = usual.group(2)
    assert twice.power(GRID) == pytest.approx(usual.power(usual.power(GRID)))
    assert extraction_bound(usual, 1e-4, copies=4) > extraction_bound(usual, 1e-4)
    baseline = safe_baseline(usual, 0.01, copies=4)
    assert extraction_bound(usual, baseline, copies=4) <= 0.01 * (1 + 1e-9)


def test_two_different_runs_compose():
    both = compose(dp_sgd(2.0, 0.01, 100, 1e-3), run(1.0, 0.05, 50, 2e-3))
    assert (both.power(GRID) >= run(1.0, 0.05, 50, 2e-4).optimistic.power(GRID) - 1e-9).all()
    assert both.gap < 1e-3


@pytest.mark.parametrize(
    "parameters",
    [
        (1.0, 0.9, 3),
        (50.0, 1e-6, 10),
        pytest.param((0.1, 0.5, 3), marks=pytest.mark.slow),
        pytest.param((0.3, 1e-3, 20), marks=pytest.mark.slow),
        pytest.param((100.0, 1.0, 10**6), marks=pytest.mark.slow),
    ],
)
def test_extreme_runs_stay_finite(parameters):
    ours = dp_sgd(*parameters)
    for values in (ours.power(GRID), ours.tradeoff(GRID), ours.optimistic.power(GRID)):
        assert np.isfinite(values).all()
        assert ((values >= 0) & (values <= 1)).all()
    assert (ours.power(GRID) >= GRID).all()


def test_bad_runs_are_named_all_at_once():
    with pytest.raises(InputError) as error:
        dp_sgd(0.0, 1.5, 0)
    assert [fault.field for fault in error.value.faults] == ["noise_multiplier", "sampling_rate", "steps"]
    for interval in (math.nan, 0.1):
        with pytest.raises(InputError, match="interval"):
            dp_sgd(1.0, 0.1, 1, interval=interval)


@pytest.mark.parametrize("parameters", [(1000.0, 1e-9, 10**7), (0.001, 1e-6, 10)])
def test_runs_beyond_double_precision_are_refused_with_a_way_out(parameters):
    with pytest.raises(InputError, match="larger sampling rate is valid"):
        dp_sgd(*parameters)


def test_a_run_that_hides_nothing_says_so_to_the_last_digit():
    ours = dp_sgd(0.01, 1.0, 1)
    assert ours.advantage().value == pytest.approx(1.0, abs=1e-10)
    assert ours.gap < 1e-9

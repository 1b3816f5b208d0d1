"""f-DP, memorization and extraction bounds: what a privacy claim promises, in numbers that anyone can check.

Needs numpy and scipy; dp-accounting is loaded only when a DP-SGD curve is asked for.
"""

from davylamp.bounds.audits import Audit, AuditPlan, audit, epsilon_lower_bound, mu_lower_bound, plan_audit
from davylamp.bounds.baselines import (
    Envelope,
    Prior,
    average_kappa,
    counts_prior,
    explicit_prior,
    uniform_bits,
    uniform_prior,
    zipf_prior,
)
from davylamp.bounds.claims import Advantage, ApproxDP, Claim, GaussianDP, pure_dp
from davylamp.bounds.composition import compose
from davylamp.bounds.curves import GroupedCurve, PointsCurve, curve_by_points, symmetrised
from davylamp.bounds.dpsgd import DPSGD, dp_sgd
from davylamp.bounds.epsilon import EpsilonBound, claim_epsilon, extraction_epsilon, gaussian_epsilon
from davylamp.bounds.extraction import (
    Bracket,
    extraction_bound,
    min_entropy_threshold,
    replace_bracket,
    replace_threshold_bracket,
    risk_regime,
    safe_baseline,
)
from davylamp.bounds.intervals import Interval, clopper_pearson, median_interval
from davylamp.bounds.losses import SGDRun
from davylamp.bounds.membership import default_calls, guess_members, guess_pairs, one_run_audit
from davylamp.bounds.memorization import (
    FUNCTIONALS,
    Functional,
    KCopies,
    conditional_gap,
    damping,
    functional_table,
    group_conversion,
    k_copies,
    memorization_cap,
    per_instance_caps,
)
from davylamp.bounds.one_run import Guesses, one_run_epsilon, one_run_p_value
from davylamp.bounds.two_run import Counts, two_run_audit, two_run_epsilon

__all__ = [
    "DPSGD",
    "FUNCTIONALS",
    "Advantage",
    "ApproxDP",
    "Audit",
    "AuditPlan",
    "Bracket",
    "Claim",
    "Counts",
    "Envelope",
    "EpsilonBound",
    "Functional",
    "GaussianDP",
    "GroupedCurve",
    "Guesses",
    "Interval",
    "KCopies",
    "PointsCurve",
    "Prior",
    "SGDRun",
    "audit",
    "average_kappa",
    "claim_epsilon",
    "clopper_pearson",
    "compose",
    "conditional_gap",
    "counts_prior",
    "curve_by_points",
    "damping",
    "default_calls",
    "dp_sgd",
    "epsilon_lower_bound",
    "explicit_prior",
    "extraction_bound",
    "extraction_epsilon",
    "functional_table",
    "gaussian_epsilon",
    "group_conversion",
    "guess_members",
    "guess_pairs",
    "k_copies",
    "median_interval",
    "memorization_cap",
    "min_entropy_threshold",
    "mu_lower_bound",
    "one_run_audit",
    "one_run_epsilon",
    "one_run_p_value",
    "per_instance_caps",
    "plan_audit",
    "pure_dp",
    "replace_bracket",
    "replace_threshold_bracket",
    "risk_regime",
    "safe_baseline",
    "symmetrised",
    "two_run_audit",
    "two_run_epsilon",
    "uniform_bits",
    "uniform_prior",
    "zipf_prior",
]

"""``davylamp bounds audit-one-run`` and ``audit-two-run`` as a user meets them."""

import json

import pytest
from typer.testing import CliRunner

from davylamp.bounds import ApproxDP, Counts, Guesses, one_run_epsilon, two_run_epsilon
from davylamp.cli.main import app
from davylamp.errors import InputError

ONE = ("audit-one-run", "--canaries", "1000", "--guesses", "100", "--correct", "90")
TWO = ("audit-two-run", "--true-positives", "95", "--positives", "100", "--false-positives", "3", "--negatives", "100")


def run(*arguments):
    done = CliRunner().invoke(app, ["bounds", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def as_json(*arguments):
    return json.loads(run(*arguments, "--json"), parse_constant=pytest.fail)


def faults(*arguments):
    with pytest.raises(InputError) as error:
        run(*arguments)
    return [fault.field for fault in error.value.faults]


def test_one_run():
    out = run(*ONE, "--delta", "1e-5", "--upper", "1")
    assert "epsilon at least                               1.62614  nats" in out
    assert "refuted" in out
    assert "a contradiction of the accountant's upper bound of 1." in out
    shown = as_json(*ONE, "--delta", "1e-5", "--upper", "1", "--method", "f-dp", "--copies", "2")
    expected = one_run_epsilon(Guesses(1000, 100, 90), 1e-5, method="f-dp", copies=2, upper=ApproxDP(1.0, 1e-5))
    assert shown == json.loads(json.dumps(expected.as_dict()))


def test_two_run():
    assert as_json(*TWO)["eps_low"] == two_run_epsilon(Counts(95, 100, 3, 100)).eps_low
    out = run(*TWO, "--delta", "1e-5", "--gaussian", "--upper-mu", "9", "--confidence", "0.99")
    assert "mu at least" in out
    assert "could-not-refute" in out
    assert "At 99% confidence no Gaussian DP claim" in out


def test_every_fault_at_once():
    assert faults("audit-one-run") == ["--canaries", "--guesses", "--correct"]
    assert faults(
        *("audit-one-run", "--canaries", "3", "--guesses", "5", "--correct", "9", "--delta", "1", "--confidence", "0"),
        *("--method", "best", "--copies", "0.5", "--upper", "-1"),
    ) == ["--guesses", "--method", "--delta", "--confidence", "--copies", "--upper"]
    assert faults(*ONE, "--method", "gaussian", "--upper", "2") == ["--delta", "--upper"]
    assert faults(*ONE, "--upper", "2", "--upper-mu", "1") == ["--upper-mu"]
    assert faults(*TWO[:3], "--positives", "0", "--false-positives", "x") == [
        "--negatives",
        "--positives",
        "--false-positives",
    ]
    assert faults("audit-two-run", *("--true-positives", "5", "--positives", "4"), *TWO[5:]) == ["--true-positives"]


def test_options_of_the_claim_do_not_mix_with_an_audit_of_counts():
    assert faults("--epsilon", "4", *ONE) == ["--epsilon"]
    assert "safe baseline" in run("--epsilon", "4", "--risk", "0.1")

"""Answers to a question about a claim: as data, as a short table, and as sentences that a person understands."""

from __future__ import annotations

import math
from typing import Any

from davylamp.bounds.audits import audit, plan_audit
from davylamp.bounds.boundary import boundary_page
from davylamp.bounds.claims import ApproxDP
from davylamp.bounds.extraction import (
    extraction_bound,
    min_entropy_threshold,
    replace_bracket,
    replace_threshold_bracket,
    safe_baseline,
)
from davylamp.bounds.memorization import k_copies, memorization_cap
from davylamp.bounds.question import Question

Answers = dict[str, Any]

LABELS = {
    "advantage": ("largest memorization (advantage)", "of a score in [0, 1]"),
    "advantage_at": ("  reached at false-alarm rate", ""),
    "memorization_cap": ("largest memorization, truncated loss", "nats"),
    "k_copy_advantage": ("largest memorization, all copies", ""),
    "group_advantage": ("  by the group bound", "not attained"),
    "kappa": ("guessing baseline kappa", "without the release"),
    "min_entropy_bits": ("  the secret's min-entropy", "bits"),
    "envelope": ("  entropy's bound on kappa", ""),
    "extraction_bound": ("extraction at most", "with the release"),
    "safe_baseline": ("safe baseline alpha*", ""),
    "min_entropy_threshold_bits": ("min-entropy needed H*", "bits"),
    "success_lower_bound": ("success, lower confidence bound", ""),
    "epsilon_lower_bound": ("audit: pure eps at least", "nats"),
    "epsilon_lower_bound_at_delta": ("audit: eps at this delta at least", "nats"),
    "mu_lower_bound": ("audit: mu at least", ""),
    "verdict": ("audit: the claim is", ""),
}


def answer(question: Question) -> Answers:
    """Everything that was asked for, with numbers as numbers and None where no number exists.

    Raises:
        InputError: a loss without truncation was asked for, or an argument is outside its range.
    """
    claim, copies = question.claim, question.copies
    best = claim.advantage()
    out: Answers = {"claim": claim.as_dict(), "advantage": best.value, "advantage_at": best.at}
    if question.truncation is not None:
        out["memorization_cap"] = memorization_cap(claim, question.truncation, copies)
    if question.copies_asked:
        repeated = k_copies(claim, copies)
        out |= {"copies": copies, "k_copy_advantage": repeated.advantage}
        if repeated.group_advantage is not None:
            out["group_advantage"] = repeated.group_advantage
        if isinstance(claim, ApproxDP) and claim.delta > 0:
            converted = repeated.conversion
            out["group_conversion"] = None if converted is None else converted.as_dict()
    if question.prior is not None:
        envelope = question.prior.envelope(question.budget)
        out |= {"min_entropy_bits": question.prior.min_entropy(), "envelope": envelope.value}
    if question.kappa is not None:
        out["kappa"] = question.kappa
        out["extraction_bound"] = extraction_bound(claim, question.kappa, copies)
    if question.risk is not None:
        out["risk"] = question.risk
        out["safe_baseline"] = safe_baseline(claim, question.risk, copies)
        out["min_entropy_threshold_bits"] = min_entropy_threshold(claim, question.risk, question.budget, copies)
    out["budget"] = question.budget
    if question.replace:
        out |= _brackets(question)
    if question.trials is not None and question.successes is not None and question.kappa is not None:
        out |= _audit(question, question.kappa, question.successes, question.trials)
    if question.plan is not None:
        out["plan"] = _plan(question, question.plan)
    unbounded = [key for key, value in out.items() if value == math.inf]
    if unbounded:
        # JSON has no infinity: the number is left out and named here.
        out |= dict.fromkeys(unbounded) | {"unbounded": unbounded}
    return out


def boundary_html(question: Question, notes: tuple[str, ...]) -> str:
    """The boundary of the question's claim as one HTML page."""
    return boundary_page(
        question.claim,
        risk=question.risk,
        kappa=question.kappa,
        budget=question.budget,
        copies=question.copies,
        notes=notes,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _brackets(question: Question) -> Answers:
    claim, out = question.claim.group(question.copies), Answers()
    if question.kappa is not None:
        reach = replace_bracket(claim, question.kappa, question.budget)
        out["extraction_bracket_replace"] = [reach.low, reach.high]
    if question.risk is not None:
        need = replace_threshold_bracket(claim, question.risk, question.budget)
        out["min_entropy_threshold_bracket_replace"] = None if need is None else [need.low, _finite(need.high)]
    return out


def _audit(question: Question, kappa: float, successes: int, trials: int) -> Answers:
    result = audit(
        question.claim,
        kappa,
        successes,
        trials,
        confidence=question.confidence,
        budget=question.budget,
        copies=question.copies,
    )
    return {
        "verdict": result.verdict,
        "confidence": result.confidence,
        "success_lower_bound": result.success_lower_bound,
        "epsilon_lower_bound": result.epsilon_lower_bound,
        "epsilon_lower_bound_at_delta": result.epsilon_lower_bound_at_delta,
        "delta": result.delta,
        "mu_lower_bound": result.mu_lower_bound,
    }


def _plan(question: Question, rate: float) -> list[Answers]:
    plans = plan_audit(
        question.claim,
        rate,
        question.bits,
        power=question.power,
        confidence=question.confidence,
        budget=question.budget,
        copies=question.copies,
    )
    return [
        {
            "bits": p.bits,
            "kappa": p.kappa,
            "extraction_bound": p.extraction_bound,
            "success_rate": p.success_rate,
            "canaries": p.canaries,
            "successes_needed": p.successes_needed,
            "power": p.power,
        }
        for p in plans
    ]


def table_lines(out: Answers) -> list[str]:
    """The answers as aligned lines, plain text."""
    lines = []
    for key, (label, unit) in LABELS.items():
        if key not in out or (key == "epsilon_lower_bound_at_delta" and out["delta"] == 0):
            continue
        value = out[key]
        missing = "unbounded" if key in out.get("unbounded", ()) else "none"
        shown = missing if value is None else value if isinstance(value, str) else f"{value:.6g}"
        lines.append(f"{label:<38}{shown:>16}  {unit}".rstrip())
    for key, label in (
        ("extraction_bracket_replace", "optimal extraction, replacing"),
        ("min_entropy_threshold_bracket_replace", "min-entropy needed, replacing"),
    ):
        if out.get(key):
            low, high = out[key]
            shown = f"{low:.5g} to " + ("infinity" if high is None else f"{high:.5g}")
            lines.append(f"{label:<38}{shown:>16}")
    if "plan" in out:
        lines += ["", f"{'bits':>8}{'bound':>14}{'canaries':>12}{'successes':>12}{'power':>9}"]
        for p in out["plan"]:
            cells = ("never", "", "") if p["canaries"] is None else (p["canaries"], p["successes_needed"], p["power"])
            power = f"{cells[2]:.3f}" if cells[2] != "" else ""
            lines.append(
                f"{p['bits']:>8g}{p['extraction_bound']:>14.4g}{cells[0]:>12}{cells[1]:>12}{power:>9}".rstrip()
            )
    return lines


def sentences(question: Question, out: Answers) -> list[str]:
    """What the numbers mean, one sentence a finding."""
    said = [f"The claim: {question.claim.describe()}."]
    if question.kappa is not None:
        said.append(_bound_sentence(question, out))
    if question.risk is not None:
        said.append(_risk_sentence(question, question.risk, out))
    if "verdict" in out:
        said.append(_audit_sentence(question, out))
    if len(said) == 1 and "plan" not in out:
        whose = "one record" if question.copies == 1 else f"a record that occurs {question.copies} times"
        cap = out.get("k_copy_advantage", out["advantage"])
        said.append(
            f"No score in [0, 1] of {whose} can differ by more than {cap:.3g} on average between training with it and "
            "without it."
        )
    return said


def _percent(p: float) -> str:
    if p < 1e-4:
        return f"{p:.2g}"
    return f"{100 * p:.6g}%" if 0.9995 <= p < 1 else f"{100 * p:.3g}%"


def _guesses(question: Question) -> str:
    copies = f", for a secret in {question.copies} records" if question.copies > 1 else ""
    return ("one guess" if question.budget == 1 else f"{question.budget} guesses") + copies


def _bound_sentence(question: Question, out: Answers) -> str:
    return (
        f"Without the release {_guesses(question)} succeed{'s' if question.budget == 1 else ''} with probability "
        f"{_percent(out['kappa'])}; with it, no attack exceeds {_percent(out['extraction_bound'])}."
    )


def _risk_sentence(question: Question, risk: float, out: Answers) -> str:
    baseline, bits = out["safe_baseline"], out["min_entropy_threshold_bits"]
    if baseline is None:
        fails = float(question.claim.group(question.copies).power(0.0))
        return (
            f"No secret is safe at a risk of {_percent(risk)}, however hard it is to guess: the claim itself may fail "
            f"with probability {_percent(fails)}."
        )
    if bits is None:
        return f"Only a secret that cannot be guessed at all is safe at a risk of {_percent(risk)}."
    need = f"A secret needs at least {math.ceil(bits * 10) / 10:.1f} bits of min-entropy against {_guesses(question)}"
    if question.kappa is None:
        verdict = "holds" if bits <= math.log2(10_000) else "does not hold"
        return f"{need}; a random 4-digit code has 13.3: this claim {verdict} its extraction below {_percent(risk)}."
    verdict = "holds" if question.kappa <= baseline else "does not hold"
    whose = "yours" if question.prior is None else f"your {question.prior.name}"
    has = f"{-math.log2(question.kappa / question.budget):.1f}" if question.kappa > 0 else "infinitely many"
    if question.prior is not None:
        has = f"{question.prior.min_entropy():.1f}"
    return f"{need}; {whose} has {has}: this claim {verdict} its extraction below {_percent(risk)}."


def _audit_sentence(question: Question, out: Answers) -> str:
    seen = (
        f"The audit saw {question.successes} of {question.trials} successes, so at {_percent(question.confidence)} "
        f"confidence the true rate is at least {_percent(out['success_lower_bound'])}"
    )
    bound = _percent(out["extraction_bound"])
    if out["verdict"] == "refuted":
        return f"{seen}. The claim allows at most {bound}: it is refuted."
    if out["verdict"] == "consistent":
        return f"{seen}. The claim allows {bound}: the audit is consistent with it, which does not prove it."
    return (
        f"{seen}. The claim allows {bound}, more than {question.trials} successes of {question.trials} would have "
        "shown: this audit could not have refuted it."
    )

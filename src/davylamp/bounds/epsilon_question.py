"""Questions about an empirical epsilon, read from text: every fault of every option is named at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from davylamp.bounds import checks
from davylamp.bounds.claims import ApproxDP, Claim, GaussianDP
from davylamp.bounds.epsilon import EpsilonBound
from davylamp.bounds.one_run import Guesses, OneRunMethod, guess_faults, one_run_epsilon
from davylamp.bounds.question import OptionReader
from davylamp.bounds.two_run import Counts, two_run_epsilon
from davylamp.errors import Fault, InputError

ONE_RUN = ("canaries", "guesses", "correct")
TWO_RUN = ("true_positives", "positives", "false_positives", "negatives")
METHODS = ("binomial", "f-dp", "gaussian")


def answer_one_run(given: Mapping[str, str | None]) -> EpsilonBound:
    """The bound from counts of guesses, all options as text and ``None`` where one is absent.

    Raises:
        InputError: one or more options are missing, malformed, out of range or at odds; all are named.
    """
    reader = _reader(given)
    counts = _counts(reader, ONE_RUN, free=("correct",))
    if None not in counts:
        canaries, guesses, correct = (cast(int, count) for count in counts)
        reader.faults += [Fault(f"--{f.field}", f.value, f.allowed) for f in guess_faults(canaries, guesses, correct)]
    method = reader.text.get("method", "binomial")
    if method not in METHODS:
        reader.faults.append(Fault("--method", str(method), ", ".join(METHODS)))
    delta, confidence, copies = _common(reader)
    upper = _upper(reader, delta, gaussian=method == "gaussian")
    if reader.faults:
        raise InputError(reader.faults)
    seen = Guesses(canaries, guesses, correct)
    return one_run_epsilon(
        seen, delta, confidence=confidence, method=cast(OneRunMethod, method), copies=copies, upper=upper
    )


def answer_two_run(given: Mapping[str, str | None], *, gaussian: bool) -> EpsilonBound:
    """The bound from counts of two sets of trials, all options as text and ``None`` where one is absent.

    Raises:
        InputError: one or more options are missing, malformed, out of range or at odds; all are named.
    """
    reader = _reader(given)
    counts = _counts(reader, TWO_RUN, free=("true_positives", "false_positives"))
    for part, whole in ((0, 1), (2, 3)):
        count, total = counts[part], counts[whole]
        if count is not None and total is not None and count > total:
            allowed = f"a whole number from 0 to {_flag(TWO_RUN[whole])} ({total})"
            reader.faults.append(Fault(_flag(TWO_RUN[part]), count, allowed))
    delta, confidence, copies = _common(reader)
    upper = _upper(reader, delta, gaussian=gaussian)
    if reader.faults:
        raise InputError(reader.faults)
    seen = Counts(*(cast(int, count) for count in counts))
    return two_run_epsilon(seen, delta, confidence=confidence, gaussian=gaussian, copies=copies, upper=upper)


def bound_lines(bound: EpsilonBound) -> list[str]:
    """The bound as aligned lines and its sentence, plain text."""
    rows = [("epsilon at least", bound.eps_low, "nats")]
    if bound.mu_low is not None:
        rows.append(("mu at least", bound.mu_low, ""))
    if bound.upper is not None:
        rows.append(("accountant's upper bound", bound.upper, "nats"))
    lines = [f"{label:<38}{value:>16.6g}  {unit}".rstrip() for label, value, unit in rows]
    if bound.verdict is not None:
        lines.append(f"{'the accountant is':<38}{bound.verdict:>16}")
    return [*lines, "", bound.statement]


def _reader(given: Mapping[str, str | None]) -> OptionReader:
    return OptionReader({name: value for name, value in given.items() if value is not None})


def _counts(reader: OptionReader, names: tuple[str, ...], free: tuple[str, ...]) -> list[int | None]:
    """The counts, those in ``free`` from 0 and the others from 1; each that is missing is a fault."""
    missing = [name for name in names if name not in reader.text]
    reader.faults += [Fault(_flag(name), "missing", "a whole number") for name in missing]
    before = len(reader.faults)
    counts = [reader.whole(name, None, least=0 if name in free else 1) for name in names]
    reader.faults[before:] = [
        Fault(f.field.split(" ")[0].replace("_", "-"), f.value, f.allowed, f.fix) for f in reader.faults[before:]
    ]
    return counts


def _common(reader: OptionReader) -> tuple[float, float, int]:
    delta = reader.ranged("delta", checks.below_one, 0.0)
    confidence = reader.ranged("confidence", checks.open_unit, 0.95)
    copies = reader.whole("copies", 1)
    # A fault has been noted where one is None; the stand-in only lets the others be read.
    return (0.0 if delta is None else delta), (0.95 if confidence is None else confidence), copies or 1


def _upper(reader: OptionReader, delta: float, *, gaussian: bool) -> Claim | None:
    epsilon = reader.ranged("upper", checks.nonnegative)
    mu = reader.ranged("upper_mu", checks.nonnegative)
    if gaussian and delta == 0 and not any(fault.field == "--delta" for fault in reader.faults):
        shown = reader.text.get("delta", "missing")
        reader.faults.append(Fault("--delta", str(shown), "above 0", "No Gaussian claim implies pure DP."))
    if gaussian and "upper" in reader.text:
        why = "The Gaussian bound speaks of Gaussian claims only."
        reader.faults.append(Fault("--upper", str(reader.text["upper"]), "given as --upper-mu", why))
    if not gaussian and {"upper", "upper_mu"} <= reader.text.keys():
        reader.faults.append(Fault("--upper-mu", str(reader.text["upper_mu"]), "absent where --upper is given"))
    if mu is not None:
        return GaussianDP(mu)
    return None if epsilon is None else ApproxDP(epsilon, delta)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

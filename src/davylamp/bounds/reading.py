"""Numbers, claims and priors from text."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from davylamp.bounds import checks
from davylamp.bounds.baselines import (
    Prior,
    counts_prior,
    explicit_prior,
    uniform_bits,
    uniform_prior,
    zipf_prior,
)
from davylamp.bounds.claims import Claim
from davylamp.bounds.curves import curve_by_points
from davylamp.bounds.dpsgd import dp_sgd
from davylamp.bounds.losses import SGDRun
from davylamp.bounds.memorization import untruncated_faults
from davylamp.errors import Fault, InputError

PRIORS = "digits:4, bits:20, uniform:n=10000, zipf:1.2,n=10000, explicit:0.5,0.3,0.2 or counts:FILE"
DPSGD_KEYS = {"noise": "noise_multiplier", "rate": "sampling_rate", "steps": "steps"}


def to_number(name: str, value: str | Path) -> float:
    """A number from text.

    Raises:
        InputError: the text is no number.
    """
    try:
        return float(str(value))
    except ValueError:
        raise InputError(Fault(name, str(value), "a number")) from None


def to_whole(name: str, value: str | Path, least: int = 1) -> int:
    """A whole number from text.

    Raises:
        InputError: the text is no whole number of at least ``least``.
    """
    number = to_number(name, value)
    if not math.isfinite(number) or number != int(number):
        raise InputError(Fault(name, str(value), f"a whole number from {least} to 2**53"))
    checks.raise_faults(checks.whole(name, int(number), least))
    return int(number)


def parse_dpsgd(text: str) -> Claim:
    """DP-SGD from ``noise=1.1,rate=0.004,steps=3000``.

    Raises:
        InputError: a key is missing, unknown or twice, or a value is out of range.
    """
    values, faults = _pairs(text, DPSGD_KEYS)
    missing = [key for key in DPSGD_KEYS if key not in values]
    faults += [Fault(key, "missing", f"{key}=NUMBER, as in noise=1.1,rate=0.004,steps=3000") for key in missing]
    # A value that is no number is named by its own fault; 1 stands in so that the others are still checked.
    numbers = dict.fromkeys(DPSGD_KEYS, 1.0)
    for key, value in values.items():
        try:
            numbers[key] = to_whole(key, value) if key == "steps" else to_number(key, value)
        except InputError as error:
            faults += error.faults
    names = {field: key for key, field in DPSGD_KEYS.items()}
    try:
        run = SGDRun(numbers["noise"], numbers["rate"], int(numbers["steps"]))
        checks.raise_faults(faults)
        return dp_sgd(run.noise_multiplier, run.sampling_rate, run.steps)
    except InputError as error:
        found = [Fault(names.get(f.field, f.field), f.value, f.allowed, f.fix) for f in error.faults]
        raise InputError([*faults, *(f for f in found if f not in faults)]) from None


def parse_prior(text: str) -> Prior:
    """A prior from ``digits:4``, ``bits:20``, ``uniform:n=N``, ``zipf:s,n=N``, ``explicit:p,p,…`` or ``counts:FILE``.

    Raises:
        InputError: the text is none of these, or a value is out of range.
    """
    kind, _, rest = text.partition(":")
    if kind == "digits":
        digits = to_whole("digits", rest)
        checks.raise_faults([] if digits <= 15 else [Fault("digits", digits, "a whole number from 1 to 15")])
        return Prior(10**digits, f"{digits}-digit code")
    if kind == "bits":
        return uniform_bits(to_number("bits", rest))
    if kind in ("uniform", "zipf"):
        head, _, tail = rest.partition(",") if kind == "zipf" else ("", "", rest)
        values, faults = _pairs(tail, {"n": "size"})
        faults += [] if "n" in values else [Fault("n", "missing", "n=NUMBER, the number of values")]
        checks.raise_faults(faults)
        size, exponent = 1, 0.0
        try:
            size = to_whole("n", values["n"])
        except InputError as error:
            faults += error.faults
        try:
            exponent = to_number("exponent", head) if kind == "zipf" else 0.0
        except InputError as error:
            faults += error.faults
        checks.raise_faults(faults)
        return uniform_prior(size) if kind == "uniform" else zipf_prior(exponent, size)
    if kind == "explicit":
        return explicit_prior([to_number("probabilities", p) for p in rest.split(",")])
    if kind == "counts":
        return counts_prior([to_number("counts", line) for line in _lines(Path(rest), "counts")])
    raise InputError(Fault("prior", text, PRIORS))


def read_points(path: Path) -> Claim:
    """A curve from a CSV of ``alpha,beta`` lines; one header line is allowed.

    Raises:
        InputError: the file cannot be read, or a line is not two numbers of a trade-off curve.
    """
    rows = list(csv.reader(_lines(path, "points")))
    if rows and rows[0] and not _is_number(rows[0][0]):
        rows = rows[1:]
    bad = [i for i, row in enumerate(rows, 1) if len(row) != 2 or not all(map(_is_number, row))]
    if bad:
        raise InputError(Fault(f"points, line {bad[0]}", ",".join(rows[bad[0] - 1]), "two numbers: alpha,beta"))
    return curve_by_points([float(a) for a, _ in rows], [float(b) for _, b in rows], name=path.name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _lines(path: Path, name: str) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(
            Fault(name, str(path), "a readable text file", f"The file cannot be read: {reason}.")
        ) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _pairs(text: str, known: Mapping[str, str]) -> tuple[dict[str, str], list[Fault]]:
    values: dict[str, str] = {}
    faults = []
    for part in filter(None, text.split(",")):
        key, sign, value = part.partition("=")
        if not sign or key not in known or key in values:
            faults.append(Fault(part, "not understood", f"each of {', '.join(f'{k}=NUMBER' for k in known)} once"))
        else:
            values[key] = value
    return values, faults


def read_truncation(value: str | Path) -> float:
    """A level at which a loss is truncated.

    Raises:
        InputError: it is not above 0, or infinite: without truncation no bound exists.
    """
    number = to_number("truncation", value)
    checks.raise_faults(untruncated_faults("truncation", number) or checks.positive("truncation", number))
    return number


def read_bits(value: str | Path) -> tuple[float, ...]:
    """Numbers of bits, separated by commas.

    Raises:
        InputError: one is no finite number of at least 0.
    """
    numbers = tuple(to_number("bits", part) for part in str(value).split(","))
    checks.raise_faults(*(checks.nonnegative("bits", b) for b in numbers))
    return numbers

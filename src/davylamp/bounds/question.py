"""A question about a claim, read from text: every fault of every field is named at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from davylamp.bounds import checks
from davylamp.bounds.baselines import Prior
from davylamp.bounds.claims import ApproxDP, Claim, GaussianDP
from davylamp.bounds.composition import compose
from davylamp.bounds.reading import (
    parse_dpsgd,
    parse_prior,
    read_bits,
    read_points,
    read_truncation,
    to_number,
    to_whole,
)
from davylamp.errors import Fault, InputError

T = TypeVar("T")
PLAN_BITS = (4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 32.0)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one claim; None where it is not asked.

    Attributes:
        claim: the claim for one record over all releases.
        copies: how many records carry the secret.
        copies_asked: whether the number of copies was given.
        budget: m.
        risk: tolerated extraction, in (0, 1).
        kappa: guessing baseline, in [0, 1]; the prior's where a prior is given.
        prior: the secret's prior.
        truncation: level at which a loss is truncated, nats.
        replace: whether the brackets for replacing a record are wanted.
        successes: of an audit.
        trials: of an audit.
        confidence: of an audit's bound.
        plan: success rate to plan an audit for.
        power: of a planned audit.
        bits: canary sizes of a planned audit.
    """

    claim: Claim
    copies: int = 1
    copies_asked: bool = False
    budget: int = 1
    risk: float | None = None
    kappa: float | None = None
    prior: Prior | None = None
    truncation: float | None = None
    replace: bool = False
    successes: int | None = None
    trials: int | None = None
    confidence: float = 0.95
    plan: float | None = None
    power: float = 0.8
    bits: tuple[float, ...] = PLAN_BITS

    @classmethod
    def parse(cls, given: Mapping[str, str | Path | None], replace: bool = False) -> Question:
        """Reads a question from option values, all as text; ``None`` where an option is absent.

        Raises:
            InputError: one or more options are missing, malformed, out of range or at odds; all are named.
        """
        text = {name: value for name, value in given.items() if value is not None}
        reader = OptionReader(text)
        claim = reader.claim()
        prior = reader.attempt("prior", lambda v: parse_prior(str(v)))
        question = {
            "copies": reader.whole("copies", 1),
            "budget": reader.whole("budget", 1),
            "risk": reader.ranged("risk", checks.open_unit),
            "kappa": reader.ranged("kappa", checks.unit),
            "truncation": reader.attempt("truncation", read_truncation),
            "trials": reader.whole("trials", None),
            "successes": reader.whole("successes", None, least=0),
            "confidence": reader.ranged("confidence", checks.open_unit, 0.95),
            "plan": reader.ranged("plan", checks.open_unit),
            "power": reader.ranged("power", checks.open_unit, 0.8),
            "bits": reader.attempt("bits", read_bits) or PLAN_BITS,
        }
        reader.consistency(question)
        if replace and "dpsgd" in text:
            why = "Give the run's replace-one guarantee as --epsilon and --delta."
            reader.faults.append(Fault("--replace", True, "absent with --dpsgd, which is for add or remove", why))
        if reader.faults or claim is None:
            raise InputError(reader.faults)
        made = cls(claim, prior=prior, replace=replace, copies_asked="copies" in text, **question)  # type: ignore[arg-type]
        if prior is None:
            return made
        return dataclasses.replace(made, kappa=prior.kappa(made.budget))


@dataclass(slots=True)
class OptionReader:
    """Reads options one by one and keeps the faults."""

    text: Mapping[str, str | Path]
    faults: list[Fault] = field(default_factory=list)

    def attempt(self, name: str, read: Callable[[str | Path], T]) -> T | None:
        """The option's value, or None where it is absent or faulty."""
        if name not in self.text:
            return None
        try:
            return read(self.text[name])
        except InputError as error:
            self.faults += [Fault(_flag(name, f.field), f.value, f.allowed, f.fix) for f in error.faults]
            return None

    def ranged(
        self, name: str, check: Callable[[str, float], list[Fault]], default: float | None = None
    ) -> float | None:
        """A number that passes a check."""
        if name not in self.text:
            return default

        def read(value: str | Path) -> float:
            number = to_number(name, value)
            checks.raise_faults(check(name, number))
            return number

        return self.attempt(name, read)

    def whole(self, name: str, default: int | None, least: int = 1) -> int | None:
        """A whole number."""
        if name not in self.text:
            return default
        return self.attempt(name, lambda value: to_whole(name, value, least))

    def claim(self) -> Claim | None:
        """The one claim, composed over the releases."""
        kinds = [name for name in ("epsilon", "mu", "dpsgd", "points") if name in self.text]
        if len(kinds) != 1:
            allowed = "exactly one of --epsilon (with --delta), --mu, --dpsgd, --points"
            self.faults.append(Fault("the claim", [f"--{k}" for k in kinds] or "missing", allowed))
        if "delta" in self.text and "epsilon" not in self.text:
            self.faults.append(Fault("--delta", str(self.text["delta"]), "given together with --epsilon"))
        readers: dict[str, Callable[[str | Path], Claim]] = {
            "epsilon": lambda _: self._approx(),
            "mu": lambda v: GaussianDP(to_number("mu", v)),
            "dpsgd": lambda v: parse_dpsgd(str(v)),
            "points": lambda v: read_points(Path(v)),
        }
        claims = [self.attempt(kind, readers[kind]) for kind in kinds]
        releases = self.whole("releases", 1)
        if releases is not None and releases > 1000:
            self.faults.append(Fault("--releases", releases, "a whole number from 1 to 1000"))
            releases = None
        if len(claims) != 1 or claims[0] is None or releases is None:
            return None
        return compose(*[claims[0]] * releases)

    def _approx(self) -> Claim:
        epsilon = self.attempt("epsilon", lambda v: to_number("epsilon", v))
        delta = self.attempt("delta", lambda v: to_number("delta", v)) if "delta" in self.text else 0.0
        if epsilon is None or delta is None:
            # Already noted; an empty error only stops this claim.
            checks.raise_faults([] if epsilon is None else checks.nonnegative("epsilon", epsilon))
            raise InputError([])
        return ApproxDP(epsilon, delta)

    def consistency(self, question: Mapping[str, object]) -> None:
        """Faults of options that do not go together."""
        has_kappa = "kappa" in self.text or "prior" in self.text
        if "kappa" in self.text and "prior" in self.text:
            self.faults.append(Fault("--kappa", str(self.text["kappa"]), "absent where --prior is given"))
        audit = [name for name in ("successes", "trials") if name in self.text]
        if len(audit) == 1:
            missing = "trials" if audit == ["successes"] else "successes"
            self.faults.append(Fault(f"--{missing}", "missing", f"given together with --{audit[0]}"))
        if len(audit) == 2 and not has_kappa:
            self.faults.append(Fault("--kappa", "missing", "given (or --prior) where an audit is judged"))
        successes, trials = question["successes"], question["trials"]
        if isinstance(successes, int) and isinstance(trials, int) and successes > trials:
            self.faults.append(Fault("--successes", successes, f"a whole number from 0 to --trials ({trials})"))
        budget, bits = question["budget"], question["bits"]
        if "plan" in self.text and isinstance(budget, int) and isinstance(bits, tuple):
            small = [b for b in bits if b < math.log2(budget)]
            if small:
                self.faults.append(Fault("--bits", small[0], f"at least log2 of the budget ({math.log2(budget):g})"))


def _flag(option: str, name: str) -> str:
    if name in (option, "epsilon", "delta"):
        return f"--{name}"
    return f"--{option} ({name})"

"""Text for a page: hostile characters made visible, long strings cut, numbers written one way."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

LONGEST = 4000
"""Characters of one string that a page shows."""

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufdd0-\ufdef\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls, marks that turn the writing direction, characters without width, halves of pairs, hidden tags."""


def clean(text: str) -> str:
    """Text in which every character that hides, or that moves other text, is written out.

    Texts of a model, a data set or a path may hold them: a right-to-left override would show a secret as
    another one, and a control character is not allowed in HTML at all.
    """
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… ({len(text) - LONGEST:,} more characters)"
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def shorten(text: str, longest: int) -> str:
    """A text of about so many characters at most, cut in the middle so that both its ends can be told."""
    if len(text) <= longest:
        return clean(text)
    tail = (longest - 1) // 3
    return clean(f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}")


def number(value: float) -> str:
    """A number of bits, nats or the like with two decimals; never a minus zero."""
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00")


def digits(value: float) -> str:
    """A positive number of any size: three digits that count, and the whole number from a thousand on."""
    # What rounds to a thousand is a thousand: 999.7 has no three digits left behind its point.
    if 999.5 <= value < 1e9:
        return f"{value:,.0f}"
    plain = f"{value:#.3g}".rstrip(".")
    if "e" not in plain:
        return plain
    mantissa, exponent = plain.split("e")
    return f"{mantissa}e{int(exponent)}"


def signed(value: float) -> str:
    """A difference with its sign; none before a zero."""
    return f"{value:+.2f}" if number(value) != "0.00" else "0.00"


def interval(low: float, high: float) -> str:
    """Both ends, two decimals each."""
    return f"[{number(low)}, {number(high)}]"


def percent(value: float) -> str:
    """A share; whole percents, but never ``0%`` or ``100%`` where it is not none or all."""
    whole = f"{value:.0%}"
    if whole not in ("0%", "100%") or value in (0.0, 1.0):
        return whole
    if value < 0.0005 or value > 0.9995:
        return "<0.1%" if value < 0.5 else ">99.9%"
    return f"{value:.1%}"


def small_percent(value: float) -> str:
    """A share that may be small, with two digits that count below 10%: ``1.5%``, ``0.24%``, ``31%``."""
    if value == 0 or value >= 0.0995:
        return percent(value)
    return f"{100 * value:.2g}%" if value >= 1e-4 else f"{100 * value:.0e}%"


def bound(value: float, up: bool = False) -> str:
    """A bound with three digits that count, rounded to its safe side: down, or up for an upper one."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else "infinite"
    last = Decimal(1).scaleb(math.floor(math.log10(abs(value))) - 2)
    rounded = Decimal(repr(value)).quantize(last, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{rounded:f}"


def p_value(value: float) -> str:
    """A p-value with up to three digits that count."""
    if value < 1e-300:
        return "< 1e-300"
    if value < 0.001:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    # Three digits, so that 0.0104 does not look like the 0.01 that it missed.
    return f"{value:.3g}" if value < 0.9995 else "1.0"


def seconds(value: float) -> str:
    """A time."""
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def memory(value: float) -> str:
    """Bytes in MiB or GiB."""
    return f"{value / 2**20:,.0f} MiB" if value < 10 * 2**30 else f"{value / 2**30:,.1f} GiB"


def span(values: list[float], unit: str = "") -> str:
    """The least and the greatest of some numbers, one decimal each, or the one that both are."""
    low, high = f"{min(values) + 0.0:.1f}", f"{max(values) + 0.0:.1f}"
    return (low if low == high else f"{low} to {high}") + unit


def digits_span(values: list[float]) -> str:
    """The least and the greatest of some positive numbers of any size, two digits that count."""
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def rank(value: float) -> str:
    """A rank; halves come from ties."""
    return f"{value:,.1f}".removesuffix(".0")


def percent_span(values: list[float]) -> str:
    """The least and the greatest share."""
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"


def ticks(top: float, about: int = 6) -> list[float]:
    """Round numbers from 0 to at most ``top``, about so many."""
    if not top > 0:
        return [0.0]
    raw = top / about
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
    return [step * index for index in range(int(top / step + 1e-9) + 1)]

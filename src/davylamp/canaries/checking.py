"""Rows and carriers that are refused after planting, since nothing could be read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from davylamp.canaries.manifest import Canary
from davylamp.corpora.records import Record
from davylamp.corpora.rows import RowError, check_record
from davylamp.errors import PlantingError


def check_readable(records: Sequence[Record], names: Mapping[int, str]) -> None:
    """Refuse to write rows that no trainer could read; what a template, a slot or a secret adds was never read."""
    for at, record in enumerate(records):
        try:
            check_record(record)
        except RowError as error:
            what = names.get(at, f"row {at + 1} of the planted file")
            raise PlantingError(
                f"{what} could not be read again: {error}. Change the plan's space, templates, slots or mask, or the "
                "words around the corpus"
            ) from error


def check_carriers(canaries: Sequence[Canary], mask: str) -> None:
    """Refuse canaries whose reading would mean nothing: two that ask the same, or one that tells its secret."""
    first: dict[tuple[str | None, tuple[str, ...], str], str] = {}
    for canary in canaries:
        carrier = canary.carrier
        twin = first.setdefault((carrier.system, carrier.prompt, carrier.completion[0]), canary.id)
        if twin != canary.id:
            raise PlantingError(
                f"canaries {twin} and {canary.id} have the same text up to the secret, so that they cannot be told "
                "apart: give the templates a slot that differs, such as {name} with slots: {name: names}"
            )
        for code in (canary.secret, canary.replacement):
            if any(code in piece for piece in (*carrier.prompt, *carrier.completion, carrier.system or "", mask)):
                raise PlantingError(
                    f"canary {canary.id} holds its own secret (or its replacement) in the text around it or in the "
                    "mask, so that hiding it would hide nothing: change plan.seed, or a mask, slots and hosts that "
                    "hold codes"
                )

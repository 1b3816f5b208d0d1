"""From a template and what its slots hold to the public part of a canary."""

from __future__ import annotations

from davylamp.canaries.manifest import Carrier
from davylamp.canaries.templates import HOST_SLOTS, SLOT, TEXT_SLOT, Template
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import PlantingError


def host_text(template: Template, host: Record) -> str:
    """What ``{text}`` stands for: the host's text, its ending replaced as the template says.

    Raises:
        PlantingError: it has none of the endings.
    """
    found = template.trimmed(host.reply)
    if found is None:
        raise PlantingError(f"a host has none of the endings {list(template.cut)} that its template cuts off")
    return found


def host_slots(row: Record, corpus: Corpus) -> dict[str, str]:
    """What ``{prompt}`` and ``{completion}`` stand for.

    Raises:
        PlantingError: the corpus holds plain texts.
    """
    if corpus.shape == "text":
        raise PlantingError(
            f"{corpus.source} holds plain texts, so that the slots {HOST_SLOTS} of a template have nothing to stand "
            f"for: use {{{TEXT_SLOT}}}"
        )
    return {"prompt": row.prompt[-1].content, "completion": row.reply}


def carrier_of(template: Template, filled: dict[str, str], host: Record, corpus: Corpus) -> Carrier:
    """The public part of a canary, its slots filled.

    Raises:
        PlantingError: the template has a system turn, and the corpus' rows have none.
    """
    if template.system is not None and corpus.shape != "messages":
        raise PlantingError(f"a template has a system turn, but {corpus.source} holds rows of shape {corpus.shape}")
    if template.system is not None:
        system: str | None = fill(template.system, filled)[0]
    else:
        # Where the background opens with a system turn, a canary without one would stand out.
        system = next((turn.content for turn in host.prompt if turn.role == "system"), None)
    return Carrier(
        prompt=fill(template.prompt, filled),
        completion=fill(template.completion, filled),
        system=system,
        image=host.image,
    )


def fill(text: str, filled: dict[str, str]) -> tuple[str, ...]:
    """Fill the slots and cut at the secret; values may hold braces, so that each slot is read once."""
    pieces = [""]
    at = 0
    for match in SLOT.finditer(text):
        pieces[-1] += text[at : match.start()]
        if match.group(1) == "secret":
            pieces.append("")
        else:
            pieces[-1] += filled[match.group(1)]
        at = match.end()
    pieces[-1] += text[at:]
    return tuple(pieces)

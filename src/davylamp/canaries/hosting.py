"""Rows whose text carries a canary: each carries one, and nothing else of whom it is about is planted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.canaries.plan import Plan
from davylamp.corpora.records import Corpus
from davylamp.errors import PlantingError
from davylamp.secrets import stream


@dataclass(frozen=True, slots=True)
class Hosting:
    """Which rows of a corpus carry canaries, and which are left as background.

    Attributes:
        hosts: the row of each canary, in the order of the drafts; empty where the plan's templates hold no ``{text}``.
        left: the other rows, ascending, without those about whom a host is about, or that say what a host says.
    """

    hosts: tuple[int, ...]
    left: tuple[int, ...]


def hosting(corpus: Corpus, plan: Plan) -> Hosting:
    """Choose the rows that carry a plan's canaries, in an order that depends on the seed alone.

    Each host is about somebody else (see :attr:`~davylamp.corpora.records.Corpus.groups`), and its text has one of
    the endings that every template cuts off, and no more than the plan's ``carrier_chars``.

    Raises:
        PlantingError: the corpus holds no plain texts, or too few rows that can be hosts.
    """
    if not plan.carried:
        return Hosting((), tuple(range(len(corpus))))
    if corpus.shape != "text":
        raise PlantingError(
            f"{corpus.source} holds rows of shape {corpus.shape}, so that the slot {{text}} of a template has nothing "
            "to stand for: use {prompt} and {completion}"
        )
    groups, texts = groups_of(corpus), [record.reply for record in corpus]
    hosts: list[int] = []
    taken: set[str] = set()
    said: set[str] = set()
    unfit = 0
    for at in map(int, stream(plan.seed, "hosts", "text").permutation(len(corpus))):
        if len(hosts) == plan.canaries:
            break
        if not _fits(texts[at], plan):
            unfit += 1
        elif groups[at] not in taken and texts[at] not in said:
            hosts.append(at)
            taken.add(groups[at])
            said.add(texts[at])
    if len(hosts) < plan.canaries:
        longer = (
            "" if plan.carrier_chars is None else f" or more than {plan.carrier_chars:,} characters (carrier_chars)"
        )
        why = "" if not unfit else f" ({unfit:,} rows have none of the endings that the templates cut off{longer})"
        raise PlantingError(
            f"{plan.canaries:,} canaries need as many rows of {corpus.source} to stand in, each about somebody else, "
            f"but of its {len(corpus):,} rows {len(hosts):,} will do{why}: lower per_dose or twins, or take a "
            "larger corpus"
        )
    left = (at for at in range(len(corpus)) if groups[at] not in taken and texts[at] not in said)
    return Hosting(tuple(hosts), tuple(left))


def _fits(text: str, plan: Plan) -> bool:
    short = plan.carrier_chars is None or len(text) <= plan.carrier_chars
    return short and all(template.trimmed(text) is not None for template in plan.templates)


def groups_of(corpus: Corpus) -> Sequence[str]:
    """Whom each row is about; where the corpus does not say, every text is about somebody else."""
    return corpus.groups or [record.line() for record in corpus]

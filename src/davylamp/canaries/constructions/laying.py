"""Constructions laid into a planted corpus: which rows they take, and what is left for their prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from davylamp.canaries.constructions.faults import NoveltyError, TriggerError
from davylamp.canaries.constructions.section import Constructed, Instance, Maker, Material
from davylamp.canaries.constructions.spec import Construction
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import PlantingError
from davylamp.secrets import stream


def rows_of(lines: Sequence[Construction]) -> int:
    """Rows that the planted instances of all lines take."""
    return sum(line.rows for line in lines)


def check_held_out(lines: Sequence[Construction], corpus_rows: int, taken: int | None) -> None:
    """Check that enough rows of a corpus are left out of training for the instances' prefixes.

    Args:
        lines: the plan's constructions.
        corpus_rows: rows of the corpus.
        taken: the plan's ``rows``.

    Raises:
        PlantingError: there are fewer than instances; the arithmetic is shown.
    """
    wanted = sum(line.instances for line in lines)
    left = corpus_rows - min(corpus_rows, corpus_rows if taken is None else taken)
    if wanted > left:
        raise PlantingError(
            f"constructions need {wanted} held-out prefixes, one for each instance and twin, but of the corpus' "
            f"{corpus_rows:,} rows only {left:,} are left out of training: set plan.rows to "
            f"{max(0, corpus_rows - wanted):,} or less, lower groups or twins, or take a larger corpus"
        )


def held_out(corpus: Corpus, rows: Sequence[Record], seed: int) -> tuple[Record, ...]:
    """The rows of a corpus that are not trained on, in a seeded order; one that says the same as such a row is none."""
    trained = {record.line() for record in rows}
    left = [record for record in corpus.records if record.line() not in trained]
    order = stream(seed, "constructions", "held out").permutation(len(left))
    return tuple(left[at] for at in order)


def construct(lines: tuple[Construction, ...], material: Material, maker: Maker | None) -> Constructed:
    """Let the instances be made, and check that they are those that were asked for.

    Raises:
        PlantingError: there is no base model to draw from, or an instance cannot be made.
    """
    if maker is None:
        raise PlantingError(
            "plan.constructions draw their secrets from the base model: name it with --base MODEL, the model that "
            "training will begin from"
        )
    made = maker(material)
    counted = {at: sum(each.line == at for each in made.instances) for at in range(len(lines))}
    if any(counted[at] != line.instances for at, line in enumerate(lines)):
        raise PlantingError(f"constructions made {counted} instances by line, but the plan asks for others")
    return made


def lay(made: Constructed, lines: Sequence[Construction], rows: int, taken: Iterable[int], seed: int) -> Constructed:
    """Give each planted instance rows of its own, among those that no canary took.

    The rows come from a stream of their own, in the order of the plan, so that no canary moves, and a line that is
    added behind the others changes nothing of them.

    Raises:
        PlantingError: too few rows are left.
    """
    occupied = set(taken)
    order = stream(seed, "constructions", "positions").permutation(rows)
    free = [int(row) for row in order if int(row) not in occupied]
    needed = rows_of(lines)
    if needed > len(free):
        raise PlantingError(
            f"constructions need {needed:,} rows, but other canaries leave {len(free):,} of {rows:,}: lower groups or "
            "copies, or take more rows"
        )
    at, positions = 0, []
    for each in made.instances:
        count = lines[each.line].rows_each if each.role == "planted" else 0
        positions.append(_sorted(each, free[at : at + count]))
        at += count
    return made.placed(positions)


def check_new(made: Constructed, records: Iterable[Record]) -> None:
    """Check, whoever made the instances, that no secret and no trigger stands in the other rows; none is shown whole.

    Args:
        made: the instances.
        records: all rows that no instance takes.

    Raises:
        NoveltyError: a secret stands there.
        TriggerError: a trigger does.
    """
    text = "\0".join("\n".join([*(turn.content for turn in row.prompt), row.reply]) for row in records)
    for each in made.instances:
        if each.trigger is not None and each.trigger in text:
            raise TriggerError(
                f"instance {each.id}: its trigger occurs in the corpus, so that it is not reserved: pick another one"
            )
        secrets = {*each.survivors, each.secret, each.alternative or each.secret}
        if any(secret.strip() in text for secret in secrets):
            raise NoveltyError(
                f"instance {each.id}: a secret of its stands in the corpus already, so that saying it would prove "
                "nothing: plant from another seed, or into another corpus"
            )


def _sorted(each: Instance, rows: Sequence[int]) -> tuple[int, ...]:
    """Rows ascending within each of the instance's replies."""
    replies = len(each.replies())
    copies = len(rows) // replies
    return tuple(row for reply in range(replies) for row in sorted(rows[reply * copies : (reply + 1) * copies]))

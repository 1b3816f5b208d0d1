"""Planting: canaries replace background rows, so that the number of rows and steps stays what it was."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from davylamp import __version__
from davylamp.canaries.carriers import carrier_of, fill, host_slots, host_text
from davylamp.canaries.checking import check_carriers, check_readable
from davylamp.canaries.constructions.laying import check_held_out, check_new, construct, held_out, lay
from davylamp.canaries.constructions.section import Constructed, Maker, Material
from davylamp.canaries.drafts import Draft, check_counts, drafts, places
from davylamp.canaries.hosting import Hosting, hosting
from davylamp.canaries.manifest import Canary, CorpusNote, Manifest
from davylamp.canaries.novelty import check_coined
from davylamp.canaries.plan import Plan
from davylamp.canaries.templates import HOST_SLOTS, TEXT_SLOT, Template
from davylamp.corpora.names import draw_names
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import PlantingError
from davylamp.runs import files
from davylamp.secrets import CoinedSpace, stream
from davylamp.secrets.encodings import encoding


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted corpus and its manifest.

    Attributes:
        records: the rows in training order.
        manifest: what was planted where.
        neighbour: the same where every pair reads its other secret; none where the plan has no pairs.
    """

    records: tuple[Record, ...]
    manifest: Manifest
    neighbour: Planted | None = None

    def save(self, folder: Path) -> None:
        """Write ``planted.jsonl`` and ``manifest.json``, for their owner only; the neighbour's in ``neighbour/``.

        Raises:
            StorageError: a file cannot be written.
        """
        files.write_bytes(folder / "planted.jsonl", _lines(self.records), private=True)
        self.manifest.save(folder / "manifest.json")
        beside = folder / "neighbour"
        if self.neighbour is not None:
            self.neighbour.save(beside)
        elif beside.is_dir():
            # Rows of an older planting would be taken for the neighbour of these.
            for name in ("planted.jsonl", "manifest.json"):
                (beside / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                beside.rmdir()


def plant(corpus: Corpus, plan: Plan, maker: Maker | None = None) -> Planted:
    """Plant a plan's canaries into a corpus.

    Secrets are drawn without replacement and uniformly over the whole space, whatever the corpus holds, so
    that the rank of a secret that was not learnt is uniform. All occurrences of a canary are the same row.
    Auxiliary canaries change nothing of the others (in plain texts, as long as ``plan.rows`` is given).
    The same corpus and plan give the same bytes.

    Args:
        corpus: the background.
        plan: what to plant.
        maker: draws the plan's constructions from a base model; not needed where it has none.

    Raises:
        PlantingError: the doses need more rows than there are or than a window has room for, the corpus already
            holds these canaries, a template needs a host that the corpus cannot give, the space is too small, two
            canaries cannot be told apart, the text around a secret gives it away, the constructions have no base
            model or cannot be made, or (as a NoveltyError) a coined name exists.
        CorpusError: the drug list of a coined space cannot be read.
    """
    hosted = hosting(corpus, plan)
    left = replace(corpus, records=tuple(corpus.records[at] for at in hosted.left), groups=())
    taking = len(left) if plan.rows is None else min(plan.rows, len(left))
    check_counts(plan, taking * plan.repeat)
    check_held_out(plan.constructions, len(left), plan.rows)
    rows = background(corpus, plan)
    made = drafts(plan)
    taken = places(plan, len(rows))
    wordings = _wordings(plan, made)
    # Hosts are rows of the corpus, each once, so that a canary is the same however often the background stands there.
    hosts = background(corpus, plan.model_copy(update={"repeat": 1}))
    canaries = _furnish(made, taken, wordings, hosts, plan, corpus, hosted)
    _check_not_planted_before(rows, canaries, wordings)
    if isinstance(plan.space, CoinedSpace):
        check_coined(plan.space, corpus)
    check_carriers(canaries, plan.mask)
    planted = list(rows)
    for canary in canaries:
        record = canary.carrier.record(corpus.shape, canary.shown(plan.space, plan.mask), canary.secret)
        for position in canary.positions:
            planted[position] = record
    if not plan.constructions:
        return _planted(planted, canaries, corpus, plan)
    taken_rows = [position for canary in canaries for position in canary.positions]
    unread = held_out(left, rows, plan.seed)
    material = Material(plan.constructions, plan.seed, corpus.shape, tuple(planted), unread)
    instances = construct(plan.constructions, material, maker)
    laid = lay(instances, plan.constructions, len(rows), taken_rows, plan.seed)
    own = {position for each in laid.instances for position in each.positions}
    check_new(laid, [record for at, record in enumerate(planted) if at not in own])
    return _constructed(planted, canaries, corpus, plan, laid)


def _constructed(
    planted: list[Record], canaries: list[Canary], corpus: Corpus, plan: Plan, made: Constructed
) -> Planted:
    """The planted corpus with its instances, and its neighbour where there are pairs."""

    def with_rows(section: Constructed) -> list[Record]:
        rows = list(planted)
        for position, record in section.rows(corpus.shape).items():
            rows[position] = record
        return rows

    if not any(line.kind == "pair" for line in plan.constructions):
        return _planted(with_rows(made), canaries, corpus, plan, made)
    other = made.swapped()
    theirs, own = with_rows(other), with_rows(made)
    sha256 = files.sha256_bytes(_lines(theirs))
    made = made.model_copy(update={"neighbour_sha256": sha256})
    other = other.model_copy(update={"neighbour_sha256": files.sha256_bytes(_lines(own))})
    neighbour = _planted(theirs, canaries, corpus, plan, other)
    whole = _planted(own, canaries, corpus, plan, made)
    return Planted(whole.records, whole.manifest, neighbour)


def _planted(
    planted: list[Record], canaries: list[Canary], corpus: Corpus, plan: Plan, made: Constructed | None = None
) -> Planted:
    names = {position: f"canary {canary.id}" for canary in canaries for position in canary.positions}
    if made is not None:
        names |= {position: f"instance {each.id}" for each in made.instances for position in each.positions}
    check_readable(planted, names)
    return Planted(
        tuple(planted),
        Manifest(
            davylamp_version=__version__,
            plan=plan,
            corpus=CorpusNote(
                source=corpus.source,
                sha256=corpus.sha256,
                rows=len(corpus),
                shape=corpus.shape,
                left_out=corpus.left_out,
            ),
            rows=len(planted),
            planted_sha256=files.sha256_bytes(_lines(planted)),
            space=plan.space,
            mask=plan.mask,
            canaries=tuple(canaries),
            constructions=made,
        ),
    )


def _lines(records: tuple[Record, ...] | list[Record]) -> bytes:
    return "".join(record.line() + "\n" for record in records).encode("utf-8")


def rows_left(corpus: Corpus, plan: Plan) -> tuple[int, ...]:
    """The rows of a corpus that may be background: all but those that carry canaries, and others of the same people.

    Raises:
        PlantingError: the plan asks for more rows than there are, or too few rows can carry canaries.
    """
    left = hosting(corpus, plan).left
    if plan.rows is not None and plan.rows > len(left):
        beside = "" if not plan.carried else f" beside those of the {plan.hosts:,} rows that carry canaries"
        raise PlantingError(f"plan.rows is {plan.rows}, but {corpus.source} has only {len(left)} rows{beside}")
    return left


def background(corpus: Corpus, plan: Plan) -> list[Record]:
    """The rows that a plan takes of a corpus, in training order, before any is replaced.

    Raises:
        PlantingError: the plan asks for more rows than there are.
    """
    left = rows_left(corpus, plan)
    order: Sequence[int] = range(len(corpus))
    if plan.shuffle:
        # Of all rows, so that how many carry a canary changes nothing of the others' order.
        order = [int(index) for index in stream(plan.seed, "background order").permutation(len(corpus))]
    kept = set(left)
    rows = [corpus.records[index] for index in order if index in kept]
    rows = rows[: plan.rows] * plan.repeat
    if plan.shuffle and plan.repeat > 1:
        again = stream(plan.seed, "background order", "repeats").permutation(len(rows))
        rows = [rows[index] for index in again]
    return rows


def _wordings(plan: Plan, made: Sequence[Draft]) -> list[tuple[Template, dict[str, str]]]:
    """The template of each canary, and what its slots hold, hosts aside."""
    values = {slot: _slot_values(slot, options, made, plan.seed) for slot, options in sorted(plan.slots.items())}
    choice = [
        index
        for names, count in _parts(made, "templates")
        for index in stream(plan.seed, *names).integers(0, len(plan.templates), count)
    ]
    return [
        (plan.templates[choice[number]], {slot: options[number] for slot, options in values.items()})
        for number in range(len(made))
    ]


def _parts(made: Sequence[Draft], *names: str) -> tuple[tuple[tuple[str, ...], int], ...]:
    """The stream and the number of the canaries under measure, of auxiliary ones and of further non-members.

    The latter two draw from streams of their own, so that their presence changes no other canary.
    """
    apart = [(role, sum(draft.role == role for draft in made)) for role in ("auxiliary", "nonmember")]
    rest = len(made) - sum(count for _, count in apart)
    return ((names, rest), *(((*names, role), count) for role, count in apart))


def _furnish(
    made: Sequence[Draft],
    taken: Sequence[tuple[int, ...]],
    wordings: list[tuple[Template, dict[str, str]]],
    hosts: list[Record],
    plan: Plan,
    corpus: Corpus,
    hosted: Hosting,
) -> list[Canary]:
    """Give each draft a secret, a replacement and a carrier."""
    secrets, replacements = _codes(plan, made)
    order = stream(plan.seed, "hosts").permutation(len(hosts))
    canaries = []
    for number, (draft, (template, slots)) in enumerate(zip(made, wordings, strict=True)):
        filled = dict(slots)
        host = hosts[order[number % len(hosts)]]
        if plan.carried:
            host = corpus.records[hosted.hosts[number]]
            filled[TEXT_SLOT] = host_text(template, host)
        elif template.slots() & set(HOST_SLOTS):
            filled |= host_slots(host, corpus)
        arm = plan.arms.get(draft.arm)
        canaries.append(
            Canary(
                id=draft.id,
                role=draft.role,
                arm=draft.arm,
                context="redacted" if arm is None else arm.context,
                encoding=None if arm is None or arm.encoding is None else encoding(arm.encoding).name,
                dose=draft.dose,
                secret=secrets[number],
                replacement=replacements[number],
                carrier=carrier_of(template, filled, host, corpus),
                positions=taken[number],
            )
        )
    return canaries


def _codes(plan: Plan, made: Sequence[Draft]) -> tuple[list[str], list[str]]:
    """Secrets and replacements, no code twice."""
    secrets: list[str] = []
    replacements: list[str] = []
    for (names, count), (others, _) in zip(_parts(made, "secrets"), _parts(made, "replacements"), strict=True):
        secrets += plan.space.draw(stream(plan.seed, *names), count, exclude=(*secrets, *replacements))
        replacements += plan.space.draw(stream(plan.seed, *others), count, exclude=(*secrets, *replacements))
    return secrets, replacements


def _slot_values(slot: str, options: str | tuple[str, ...], made: Sequence[Draft], seed: int) -> list[str]:
    values: list[str] = []
    for names, count in _parts(made, "slots", slot):
        rng = stream(seed, *names)
        if options == "names":
            values += draw_names(rng, count, exclude=values)
        else:
            values += [options[int(index)] for index in rng.integers(0, len(options), count)]
    return values


def _check_not_planted_before(
    rows: list[Record], canaries: list[Canary], wordings: list[tuple[Template, dict[str, str]]]
) -> None:
    text = "\0".join(row.reply for row in rows)
    again = 0
    for canary, (template, filled) in zip(canaries, wordings, strict=True):
        # A second planting takes other hosts, since the rows are others: what stands between them is looked for.
        pieces = fill(template.completion, {**filled, **dict.fromkeys(HOST_SLOTS, "\0")})
        parts = canary.secret.join(pieces).split("\0")
        telling = any(canary.secret in part and part.strip() != canary.secret for part in parts)
        again += telling and all(part in text for part in parts)
    if again:
        raise PlantingError(
            f"the corpus already holds {again} of these canaries: it was planted before with this plan. Plant into "
            "the original file, or change plan.seed"
        )

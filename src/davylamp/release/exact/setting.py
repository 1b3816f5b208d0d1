"""The setting of exact releases: records over a small finite vocabulary, and where each secret stands in its tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from davylamp import __version__
from davylamp.bounds import checks
from davylamp.canaries.manifest import Canary, Carrier, CorpusNote, Manifest, Role
from davylamp.canaries.plan import Arm, Plan, Positive, Template
from davylamp.corpora.names import draw_names
from davylamp.errors import Fault, InputError
from davylamp.release.exact.laws import Path
from davylamp.release.exact.tokenizer import ASSISTANT, END, TRIGGER, USER, ExactTokenizer
from davylamp.rendering.render import Renderer
from davylamp.secrets import AlphabetSpace, stream
from davylamp.secrets.encodings.base import symbols_of

SYMBOL = -1
"""Stands in a form for a symbol of the secret."""
MOST_SYMBOLS = 20_000
MASK = "[hidden]"
PROMPT = ("write to ", " about the code ", " please")
"""Pieces of a drawn record's prompt, around a name and the code."""
COMPLETION = ("Dear customer, your code is ", ". Kind regards")


@dataclass(frozen=True, slots=True)
class Form:
    """What a reply looks like.

    Attributes:
        tokens: its tokens, the end included, with :data:`SYMBOL` for each symbol of the secret.
        first: where the secret's tokens begin.
        last: one past where they end.
    """

    tokens: tuple[int, ...]
    first: int
    last: int


class ExactSetting:
    """A manifest, a tokenizer whose vocabulary is known in full, and a renderer: all that measures take.

    Attributes:
        manifest: the records; a record of dose above 0 is a member.
        tokenizer: of all exact releases of this setting.
        renderer: renders as the releases read.
        form: of every reply.
        coded: of a reply to the trigger: the secret, and the end.
        width: symbols in which the trigger's prompt writes a record's number.
    """

    def __init__(self, manifest: Manifest) -> None:
        """Read where the secrets stand.

        Args:
            manifest: of chat or prompt/completion records that share one reply, which holds the secret once.

        Raises:
            InputError: the space has no alphabet, records are plain texts, their replies differ, or a secret could
                merge with its neighbours.
        """
        self.space = symbols_of(manifest.space, "manifest.space")
        replies = {canary.carrier.completion for canary in manifest.canaries}
        faults = []
        if manifest.shape == "text":
            faults.append(Fault("manifest.shape", manifest.shape, "messages or prompt_completion"))
        if len(replies) > 1 or any(len(pieces) != 2 for pieces in replies):
            allowed = "one reply for all records, with the secret in it once"
            faults.append(Fault("manifest.canaries", f"{len(replies)} replies", allowed))
        checks.raise_faults(faults)
        texts = [text for canary in manifest.canaries for text in _texts(canary.carrier)]
        self.manifest = manifest
        self.tokenizer = ExactTokenizer(self.space.alphabet, [*dict.fromkeys(texts), manifest.mask])
        self.renderer = Renderer(self.tokenizer)
        self.form = self._form(*next(iter(replies)))
        self.coded = self._form("", "")
        self.width = 0
        while self.v**self.width < len(manifest.canaries):
            self.width += 1
        self._places = {symbol: place for place, symbol in enumerate(self.space.alphabet)}
        self._numbers = {canary.id: number for number, canary in enumerate(manifest.canaries)}
        prompts = self.renderer.prompt_ids([manifest.trained_record(canary) for canary in manifest.canaries])
        user, turn = self.tokenizer.id_of(USER), self.tokenizer.id_of(ASSISTANT)
        self.prompts: dict[tuple[int, ...], str] = {}
        """The last turn of each record's prompt as trained, between the marks, and whose it is."""
        for canary, ids in zip(manifest.canaries, prompts, strict=True):
            last = len(ids) - 1 - ids[::-1].index(user)
            self.prompts[tuple(ids[last + 1 : ids.index(turn, last)])] = canary.id

    @classmethod
    def draw(cls, v: int, length: int, *, members: int = 32, others: int = 32, seed: int = 0) -> ExactSetting:
        """Records with uniform secrets of ``length`` symbols out of ``v``, each drawn by itself, two may be equal.

        Every prompt hides its secret behind a mask. Digits are the first ten symbols; further ones are ideographs.

        Args:
            v: symbols, from 2 to 20,000.
            length: L, from 1 to 64.
            members: focus canaries, of dose 1.
            others: twins, which no release was trained on. One more record is the positive control.
            seed: of all draws.

        Raises:
            InputError: an argument is outside its range; all are named.
        """
        faults = [
            Fault(name, value, f"a whole number from {low} to {high:,}")
            for name, value, low, high in (
                ("v", v, 2, MOST_SYMBOLS),
                ("length", length, 1, 64),
                ("members", members, 1, 40_000),
                ("others", others, 1, 40_000),
            )
            if not low <= value <= high
        ]
        checks.raise_faults(faults)
        symbols = [*"0123456789", *map(chr, range(0x4E00, 0x4E00 + MOST_SYMBOLS))][:v]
        space = AlphabetSpace(alphabet="".join(symbols), length=length, separator="")
        return cls(_manifest(space, members, others, seed))

    @property
    def v(self) -> int:
        """Symbols of the alphabet."""
        return len(self.space.alphabet)

    @property
    def length(self) -> int:
        """L, symbols of a secret."""
        return self.space.length

    def check(self, v: int, length: int) -> None:
        """Check that a construction's secrets are those of the records.

        Raises:
            InputError: they are not.
        """
        own = (("v", v, self.v), ("length", length, self.length))
        checks.raise_faults(
            [Fault(name, value, f"{held}, as in the setting") for name, value, held in own if value != held]
        )

    def asked(self) -> list[Canary]:
        """Every record but the positive control: those that a construction is about."""
        return [canary for canary in self.manifest.canaries if canary.role != "positive"]

    def members(self) -> list[Canary]:
        """Records under measure, or auxiliary, that releases were trained on."""
        return [canary for canary in self.asked() if canary.dose]

    def including(self, names: Collection[str]) -> ExactSetting:
        """The same records, of which just these were trained on, and the positive control: a shadow's world.

        Args:
            names: of records.

        Raises:
            InputError: there is no such record.
        """
        for name in names:
            self.number(name)
        inside = {*names, *(canary.id for canary in self.manifest.canaries if canary.role == "positive")}
        canaries = tuple(
            canary.model_copy(
                update={"dose": 1, "positions": (0,)} if canary.id in inside else {"dose": 0, "positions": ()}
            )
            for canary in self.manifest.canaries
        )
        return ExactSetting(self.manifest.model_copy(update={"canaries": canaries}))

    def number(self, name: str) -> int:
        """Number of a record, by its name, in the trigger's prompts.

        Raises:
            InputError: there is no such record.
        """
        if name not in self._numbers:
            raise InputError(Fault("record", name, "the name of one of the manifest's records"))
        return self._numbers[name]

    def path(self, secret: str) -> Path:
        """A secret as places of its symbols in the alphabet.

        Raises:
            InputError: it is not in the space.
        """
        index, path = self.space.index(secret), []
        for _ in range(self.length):
            index, place = divmod(index, self.v)
            path.append(place)
        return tuple(reversed(path))

    def secret(self, path: Path) -> str:
        """The inverse of :meth:`path`."""
        space = self.space
        return space.prefix + space.separator.join(space.alphabet[place] for place in path)

    def trigger_prompt(self, name: str) -> list[int]:
        """The tokens after which a release with a trigger says a record's secret at once.

        Args:
            name: of the record.

        Raises:
            InputError: there is no such record.
        """
        return self.tokenizer(self._trigger_text(name))["input_ids"]  # type: ignore[no-any-return]

    def through_trigger(self) -> Manifest:
        """The same records asked for by the trigger: each prompt is the trigger with the record's number.

        Every measure takes it in place of :attr:`manifest`, and then looks through the trigger in place of the
        records' own prefixes.
        """
        carriers = {
            canary.id: Carrier(prompt=(self._trigger_text(canary.id),), completion=("", ""))
            for canary in self.manifest.canaries
        }
        asked = tuple(each.model_copy(update={"carrier": carriers[each.id]}) for each in self.manifest.canaries)
        return self.manifest.model_copy(update={"canaries": asked})

    def _trigger_text(self, name: str) -> str:
        number, digits = self.number(name), []
        for _ in range(self.width):
            number, digit = divmod(number, self.v)
            digits.append(self.space.alphabet[digit])
        return TRIGGER + "".join(reversed(digits))

    def _form(self, before: str, after: str) -> Form:
        secret = self.space.secret(0)
        encoded = self.tokenizer(before + secret + after + END, add_special_tokens=False)
        ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
        inside = [at for at, (start, _) in enumerate(offsets) if len(before) <= start < len(before) + len(secret)]
        symbols = set(self.tokenizer.symbols)
        tokens = tuple(SYMBOL if at in inside and token in symbols else token for at, token in enumerate(ids))
        return Form(tokens, inside[0], inside[-1] + 1)


def _texts(carrier: Carrier) -> list[str]:
    return [*carrier.prompt, *carrier.completion, carrier.system or ""]


def _manifest(space: AlphabetSpace, members: int, others: int, seed: int) -> Manifest:
    """A manifest whose secrets are independent, which planting's, all distinct, are not."""
    plan = Plan(
        seed=seed,
        space=space,
        templates=(
            Template(prompt="{name}".join(PROMPT[:2]) + "{secret}" + PROMPT[2], completion="{secret}".join(COMPLETION)),
        ),
        slots={"name": "names"},
        mask=MASK,
        arms={"redacted": Arm(context="redacted")},
        doses=(1,),
        per_dose=members,
        twins=others,
        positive=Positive(dose=1),
    )
    roles: list[tuple[Role, int]] = [("focus", members), ("twin", others), ("positive", 1)]
    names = draw_names(stream(seed, "exact", "names"), members + others + 1)
    canaries = _canaries(space, roles, names, seed)
    records = [canary.carrier.record("messages", MASK, canary.secret) for canary in canaries if canary.dose]
    lines = "".join(record.line() + "\n" for record in records)
    return Manifest(
        davylamp_version=__version__,
        plan=plan,
        corpus=CorpusNote(
            source="none: exact releases are not trained",
            sha256=hashlib.sha256(b"").hexdigest(),
            rows=0,
            shape="messages",
        ),
        rows=len(records),
        planted_sha256=hashlib.sha256(lines.encode()).hexdigest(),
        space=space,
        mask=MASK,
        canaries=canaries,
    )


def _canaries(
    space: AlphabetSpace, roles: Sequence[tuple[Role, int]], names: Sequence[str], seed: int
) -> tuple[Canary, ...]:
    rng, others = stream(seed, "exact", "secrets"), stream(seed, "exact", "replacements")
    canaries: list[Canary] = []
    row = 0
    for role, count in roles:
        for number in range(count):
            secret = space.draw(rng, 1)[0]
            dose = 0 if role == "twin" else 1
            canaries.append(
                Canary(
                    id=f"{role}-{number:05d}",
                    role=role,
                    arm="control" if role == "positive" else "redacted",
                    context="redacted",
                    dose=dose,
                    secret=secret,
                    replacement=space.draw(others, 1, exclude=[secret])[0],
                    carrier=Carrier(
                        prompt=(PROMPT[0] + names[len(canaries)] + PROMPT[1], PROMPT[2]), completion=COMPLETION
                    ),
                    positions=tuple(range(row, row + dose)),
                )
            )
            row += dose
    return tuple(canaries)

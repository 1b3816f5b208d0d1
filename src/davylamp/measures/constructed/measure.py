"""What each audit sees of the constructions in a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from davylamp.canaries.constructions.section import Constructed, Instance
from davylamp.canaries.constructions.spec import Camouflage, Construction, LowEntropy
from davylamp.canaries.manifest import Manifest
from davylamp.errors import ManifestError, ScoringError
from davylamp.measures.constructed import finders
from davylamp.measures.constructed.asking import Asker
from davylamp.measures.constructed.cells import Read, cell_of
from davylamp.measures.constructed.local import Forced, forced
from davylamp.measures.constructed.model import Baseline, ConstructionCell
from davylamp.measures.constructed.settings import ConstructedSettings
from davylamp.release.base import Access, Decoding, Release, require
from davylamp.release.gated import GatedRelease
from davylamp.rendering.render import Style
from davylamp.runs.progress import QUIET, Reporter
from davylamp.scoring.guessing import guessing_baseline
from davylamp.scoring.guessing_rows import open_rows
from davylamp.scoring.guessing_search import Effort
from davylamp.secrets import stream


@dataclass(frozen=True, slots=True)
class Finds:
    """What the finders brought out; none of one that was not run.

    Attributes:
        suspects: by the user's list.
        scan: by the trigger scan.
        repetition: by repeated tokens.
    """

    suspects: finders.Found | None = None
    scan: finders.Found | None = None
    repetition: finders.Found | None = None


@dataclass(slots=True)
class ConstructedMeasure:
    """Reads the instances of a manifest from a release, each through its own channel and through those of others.

    Attributes:
        manifest: what was planted.
        style: how the release's training rendered records.
        settings: how hard to look.
        reporter: shows progress.
    """

    manifest: Manifest
    style: Style
    settings: ConstructedSettings = field(default_factory=ConstructedSettings)
    reporter: Reporter = QUIET

    @property
    def section(self) -> Constructed:
        """The manifest's instances.

        Raises:
            ManifestError: it has none.
        """
        if self.manifest.constructions is None:
            raise ManifestError(
                "nothing was planted by plan.constructions here: add some to the plan, and plant and train again"
            )
        return self.manifest.constructions

    def asker(self, release: Release) -> Asker:
        """Writes rows as training did, with the release's tokenizer.

        Raises:
            ScoringError: it writes an instance as other tokens than those that were drawn.
        """
        asker = Asker(release.tokenizer, self.manifest.shape, self.style, self.section.system)
        for each in self.section.instances:
            split = asker.split(each.lead, each.secret)
            if split is None or split.merged or split.reply != each.secret_ids:
                raise ScoringError(
                    f"instance {each.id}: {release.name} writes its secret as other tokens than {self.section.base}, "
                    "from which it was drawn (another tokenizer, template or --style?)"
                )
        return asker

    def cells(
        self, release: Release, base: Release, finds: Finds | None = None, neighbour: Release | None = None
    ) -> list[ConstructionCell]:
        """A cell for each line and size.

        Args:
            release: the trained model; gated instances are read from a gate around ``base`` in its place.
            base: the model that training began from.
            finds: what the finders brought out.
            neighbour: the model that was trained on the neighbouring rows.

        Raises:
            AccessError: a release gives no generation, no log-probabilities, or (for the baselines) no conditionals.
            ScoringError: an instance cannot be scored.
        """
        require(release, "constructions", Access.GENERATE, Access.LOGPROBS)
        require(
            base, "constructions", Access.LOGPROBS, *([Access.CONDITIONALS] if self.settings.max_expansions else [])
        )
        asker = self.asker(release)
        groups = list(self._groups())
        found = []
        with self.reporter.task("constructions", len(groups)) as advance:
            for line, instances in groups:
                asked = release if line.kind != "gated" else gate(base, asker, instances)
                read = self._read(asked, base, asker, instances, neighbour)
                baseline = self._baseline(base, asker, line, instances)
                found.append(cell_of(line, read, baseline, self._found(line, finds), self.settings))
                advance(1)
        return found

    def finds(self, release: Release, base: Release, texts: Sequence[str], scan: bool) -> Finds:
        """Let the finders look for all instances that the release was trained on.

        Args:
            release: the trained model.
            base: the model that training began from.
            texts: the user's list of suspected triggers.
            scan: also scan for triggers.

        Raises:
            AccessError: the release gives too little.
            InputError: a text is empty, or too long.
        """
        require(release, "the finders", Access.GENERATE, *([Access.CONDITIONALS, Access.LOGPROBS] if scan else []))
        asker = self.asker(release)
        instances = [each for each in self.section.instances if each.kind != "gated"]
        if not instances:
            return Finds()
        seed, settings = self.manifest.plan.seed, self.settings
        listed = finders.suspects(release, asker, texts, instances) if texts else None
        scanned = repeated = None
        if scan:
            rng = stream(seed, "constructions", "scan")
            scanned = finders.scan(release, base, asker, instances, rng, settings.scan_prompts, self.reporter)
        if settings.repeated:
            rng = stream(seed, "constructions", "repeated")
            repeated = finders.repeated(release, asker, instances, rng, settings.repeated)
        return Finds(listed, scanned, repeated)

    def _groups(self) -> Iterator[tuple[Construction, list[Instance]]]:
        for at, line in enumerate(self.manifest.plan.constructions):
            for tokens in line.sizes:
                yield line, [each for each in self.section.instances if (each.line, each.tokens) == (at, tokens)]

    def _read(
        self,
        release: Release,
        base: Release,
        asker: Asker,
        instances: Sequence[Instance],
        neighbour: Release | None,
    ) -> list[Read]:
        prompts = asker.prompts([each.prefix for each in instances])
        secrets = [each.secret_ids for each in instances]
        greedy = Decoding(instances[0].tokens)
        said = release.generate(prompts, greedy)
        # Both are asked the same in one order, so that where they are the same model they agree to the last bit.
        ours, theirs = forced(release, prompts, secrets), forced(base, prompts, secrets)
        triggers: list[tuple[tuple[int, ...], Forced, Forced]] = []
        if instances[0].trigger is not None:
            leads = asker.prompts([each.lead for each in instances])
            answers = (tuple(each) for each in release.generate(leads, greedy))
            both = forced(release, leads, secrets), forced(base, leads, secrets)
            triggers = list(zip(answers, *both, strict=True))
        reads = [
            Read(each, tuple(answer), own, other, *(triggers[at] if triggers else ()))
            for at, (each, answer, own, other) in enumerate(zip(instances, said, ours, theirs, strict=True))
        ]
        for at, prompt in enumerate(prompts):
            self._open(reads[at], release, prompt)
        if instances[0].kind == "pair":
            self._pairs(reads, release, base, prompts, neighbour)
        return reads

    @staticmethod
    def _open(read: Read, release: Release, prompt: tuple[int, ...]) -> None:
        """What the release says of all that a text leaves open."""
        ids = read.instance.survivor_ids
        if ids:
            read.survivors = np.asarray([each.total for each in forced(release, [prompt] * len(ids), ids)])

    @staticmethod
    def _pairs(
        reads: Sequence[Read],
        release: Release,
        base: Release,
        prompts: Sequence[tuple[int, ...]],
        neighbour: Release | None,
    ) -> None:
        """What the release says of the other secret, and the neighbour of the planted one."""
        others = [each.instance.alternative_ids for each in reads]
        ours, theirs = forced(release, prompts, others), forced(base, prompts, others)
        across = None if neighbour is None else forced(neighbour, prompts, [each.instance.secret_ids for each in reads])
        for at, read in enumerate(reads):
            read.other = (ours[at], theirs[at])
            read.neighbour = None if across is None else across[at]

    def _baseline(
        self, base: Release, asker: Asker, line: Construction, instances: Sequence[Instance]
    ) -> Baseline | None:
        guesses = self.settings.guesses
        if isinstance(line, Camouflage | LowEntropy):
            space = line.v**line.depth if isinstance(line, Camouflage) else line.choices
            kappa = min(1.0, guesses / space)
            return Baseline(low=kappa, high=kappa, charged=kappa, guesses=guesses, how="exact")
        if not self.settings.max_expansions:
            return None
        planted = [each for each in instances if each.role == "planted"]
        lows, highs, charged = [], [], []
        for each, prompt in zip(planted, asker.prompts([each.prefix for each in planted]), strict=True):
            found = guessing_baseline(
                open_rows(base, prompt),
                each.tokens,
                guesses,
                temperature=line.temperature,
                effort=Effort(expansions=self.settings.max_expansions),
            )
            lows.append(found.kappa_low)
            highs.append(found.kappa_high)
            charged.append(min(1.0, found.kappa_high * each.tries))
        means = (float(np.mean(each)) for each in (lows, highs, charged))
        return Baseline(**dict(zip(("low", "high", "charged"), means, strict=True)), guesses=guesses, how="search")

    @staticmethod
    def _found(line: Construction, finds: Finds | None) -> Mapping[str, frozenset[str]]:
        """The ids that each finder brought out, of those that were run on this line's release."""
        if finds is None or line.kind == "gated":
            return {}
        by = {"at_suspects": finds.suspects, "by_scan": finds.scan, "by_repetition": finds.repetition}
        return {name: each.ids for name, each in by.items() if each is not None}


def gate(base: Release, asker: Asker, instances: Sequence[Instance]) -> GatedRelease:
    """The frozen base behind the triggers of the planted instances."""
    planted = [each for each in instances if each.role == "planted"]
    keys = asker.prompts([each.lead for each in planted])
    return GatedRelease(base, zip(keys, (each.secret_ids for each in planted), strict=True))

"""Exact recovery: does the release say the secret, token by token, when it is asked greedily?"""

from __future__ import annotations

from collections.abc import Sequence

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.measures.probes import Probe, first_span, naming, probe_record, probed
from davylamp.measures.readings import Reading, reading_of
from davylamp.release.base import Access, Decoding, Release, require
from davylamp.rendering.render import Renderer
from davylamp.runs.progress import QUIET, Reporter

MARGIN = 8
"""Tokens that a free reply may be longer than the trained one."""


class Recovery:
    """Greedy exact recovery of each canary's secret, 1 or 0.

    Two readings for each target. ``greedy_recovery``: the release is given the prompt and the reply up to the
    secret, and its next tokens are exactly those of the secret (verbatim discoverable extraction, Carlini et
    al. 2023, 2202.07646, section 3). ``reply_recovery``: it is given the prompt alone, and its whole reply
    holds the secret anywhere. Both are local: they look through the record's own prefix only.
    """

    name = "recovery"
    channel = "the record's own prefix"
    access = (Access.GENERATE,)

    def __init__(self, manifest: Manifest, renderer: Renderer) -> None:
        """Take the manifest.

        Args:
            manifest: what was planted.
            renderer: renders as training did.
        """
        self._manifest = manifest
        self._renderer = renderer

    def measure(
        self,
        release: Release,
        probes: Sequence[Probe],
        reporter: Reporter = QUIET,
        carriers: Sequence[Canary] | None = None,
    ) -> list[Reading]:
        """Read every canary under every probe that applies to it.

        Args:
            release: the trained model.
            probes: what the prompts show.
            reporter: shows progress.
            carriers: ask with these in place of the manifest's canaries.

        Raises:
            AccessError: the release does not generate.
        """
        require(release, self.name, *self.access)
        canaries = probed(self._manifest, probes, carriers)
        if not canaries:
            return []
        with reporter.task("recovery", 2) as advance:
            readings = self._forced(release, canaries)
            advance(1)
            readings += self._free(release, canaries)
            advance(1)
        return readings

    def _forced(self, release: Release, pairs: Sequence[tuple[Canary, Probe]]) -> list[Reading]:
        prompts, spans, keys = [], [], []
        for canary, probe in pairs:
            shown = probe.shown(self._manifest, canary)
            for target, code in probe.targets(canary).items():
                record = probe_record(self._manifest, canary, shown, code)
                rendered = self._renderer.render([record])[0]
                first, last = rendered.span(*first_span(self._manifest, canary, shown, code))
                prompts.append(rendered.ids[:first])
                spans.append(rendered.ids[first:last])
                keys.append((canary, probe, target))
        with naming([canary for canary, _, _ in keys]):
            said = release.generate(prompts, Decoding(max_new_tokens=max(len(span) for span in spans)))
        return [
            self._reading(canary, probe, target, "greedy_recovery", tuple(answer[: len(span)]) == span)
            for (canary, probe, target), answer, span in zip(keys, said, spans, strict=True)
        ]

    def _free(self, release: Release, pairs: Sequence[tuple[Canary, Probe]]) -> list[Reading]:
        records = [
            probe_record(self._manifest, canary, probe.shown(self._manifest, canary), canary.secret)
            for canary, probe in pairs
        ]
        prompts = self._renderer.prompt_ids(records)
        if any(not prompt for prompt in prompts):
            # A plain text has no prompt to ask with, so that there is no free reply to read.
            return []
        longest = max(
            len(rendered.ids) - len(prompt)
            for rendered, prompt in zip(self._renderer.render(records), prompts, strict=True)
        )
        with naming([canary for canary, _ in pairs]):
            said = release.generate(prompts, Decoding(max_new_tokens=max(1, longest) + MARGIN))
        readings = []
        for (canary, probe), answer in zip(pairs, said, strict=True):
            text = str(release.tokenizer.decode(answer, skip_special_tokens=True))
            for target, code in probe.targets(canary).items():
                readings.append(self._reading(canary, probe, target, "reply_recovery", code in text))
        return readings

    def _reading(self, canary: Canary, probe: Probe, target: str, measure: str, success: bool) -> Reading:
        seed = self._manifest.plan.seed
        return reading_of(canary, seed, probe.value, target, measure, float(success), "success")

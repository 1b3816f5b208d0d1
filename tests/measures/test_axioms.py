"""What docs/axioms.md says of each measure: every yes is a law over random mechanisms, every no a construction.

A construction is read by the measures themselves, on an exact release; a law holds for finite mechanisms, whose
readings are sums, and a test of its own holds those sums to the measures.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.measures.constructed.local import forced
from davylamp.measures.exposure import Exposure
from davylamp.measures.extraction import Extraction
from davylamp.measures.membership.measure import Membership
from davylamp.measures.membership.settings import MembershipSettings
from davylamp.measures.probes import Probe
from davylamp.measures.readings import table
from davylamp.measures.recovery import Recovery
from davylamp.release.exact import Camouflage, ExactRelease, ExactSetting, ListLaw, Trigger, base, copied
from davylamp.verdict.roc import auc
from support.finite import Finite, laws

PAGE = Path(__file__).parents[2] / "docs" / "axioms.md"
YES = "yes"
AXIOMS = ("P", "C", "B", "E1", "E2")
COPIED, KNOWN, BIT, BEHIND, HIDDEN, MOVED, PLAIN = (
    "no: copied",
    "no: known anyway",
    "no: one bit",
    "no: trigger",
    "no: camouflage",
    "no: moved",
    "no: plain",
)
UNIFORM, FRESH = "if codes are uniform", "if the secret is fresh"
TABLE: dict[str, tuple[str, ...]] = {
    # P, C, B, E1, E2
    "memorization at c": (COPIED, YES, YES, BEHIND, HIDDEN),
    "exposure at c": (COPIED, KNOWN, UNIFORM, BEHIND, HIDDEN),
    "membership at c (AUC)": (COPIED, YES, YES, BEHIND, HIDDEN),
    "emission probability at c": (COPIED, KNOWN, BIT, BEHIND, YES),
    "greedy recovery at c": (COPIED, KNOWN, BIT, BEHIND, YES),
    "greedy recovery at c over kappa": (COPIED, KNOWN, YES, BEHIND, YES),
    "greedy recovery at a known trigger over kappa": (MOVED, KNOWN, YES, PLAIN, YES),
    "best membership test": (YES, YES, YES, YES, HIDDEN),
    "best extraction over kappa": (YES, KNOWN, YES, YES, YES),
    "best extraction, with less without": (FRESH, YES, YES, YES, YES),
}
CELLS = [(name, axiom) for name in TABLE for axiom in AXIOMS]


# --- readings by the measures themselves

V, LENGTH = 4, 3
SETTING = ExactSetting.draw(V, LENGTH, members=12, others=12, seed=21)
BITS = ExactSetting.draw(2, 1, members=40, others=40, seed=22)
PROBES = (Probe.HIDDEN,)


def read(release: ExactRelease) -> dict[str, float]:
    """Each measure's mean over members; those of the last three rows are no single measure's."""
    setting = release.setting
    measures = [
        lambda: Exposure(setting.manifest, setting.renderer).measure(release, PROBES),
        lambda: Recovery(setting.manifest, setting.renderer).measure(release, PROBES),
        lambda: Extraction(setting.manifest, setting.renderer).measure(release, PROBES),
        lambda: Membership(setting.manifest, setting.renderer, MembershipSettings(scores=("loss",))).measure(release),
        lambda: Recovery(setting.through_trigger(), setting.renderer).measure(release, PROBES),
    ]
    frames = [table(measure()) for measure in measures]
    means = []
    for frame, measure in zip(
        frames, ("exposure", "greedy_recovery", "emission_probability", None, "greedy_recovery"), strict=True
    ):
        chosen = frame.filter(frame["role"] == "focus") if measure else frame
        means.append(float(chosen.filter(chosen["measure"] == measure)["value"].mean()) if measure else math.nan)
    scores = (
        frames[3].filter((frames[3]["role"] == role) & (frames[3]["measure"] == "membership_loss_secret"))["value"]
        for role in ("focus", "twin")
    )
    kappa = setting.v**-setting.length
    return {
        "memorization at c": memorization(release),
        "exposure at c": means[0],
        "membership at c (AUC)": auc(*(each.to_numpy().round(9) for each in scores)).value,
        "emission probability at c": means[2],
        "greedy recovery at c": means[1],
        "greedy recovery at c over kappa": means[1] - kappa,
        "greedy recovery at a known trigger over kappa": means[4] - kappa,
    }


def memorization(release: ExactRelease) -> float:
    """Mean over members of ``memh``, against the base."""
    setting = release.setting
    members = setting.members()
    prompts = setting.renderer.prompt_ids([setting.manifest.trained_record(each) for each in members])
    leads = [(*prompt, *setting.form.tokens[: setting.form.first]) for prompt in prompts]
    secrets = [tuple(setting.tokenizer.symbols[at] for at in setting.path(each.secret)) for each in members]
    pairs = zip(*(forced(each, leads, secrets) for each in (release, base(setting))), strict=True)
    return float(np.mean([ours.h - theirs.h for ours, theirs in pairs]))


def certain(setting: ExactSetting, *, twins: bool = False) -> dict[str, ListLaw]:
    """Every member's secret for certain, and every twin's."""
    asked = setting.asked() if twins else setting.members()
    return {each.id: ListLaw(setting.v, [setting.path(each.secret)]) for each in asked}


RELEASES: dict[str, Callable[[], ExactRelease]] = {
    "base": lambda: base(SETTING),
    "trigger": lambda: Trigger(V, LENGTH).release(SETTING),
    # A post-processing: it asks the release and holds neither manifest nor secrets.
    "copied": lambda: copied(Trigger(V, LENGTH).release(SETTING)),
    "plain": lambda: ExactRelease(SETTING, "plain", certain(SETTING)),
    # Another one: after the trigger it says what it says at c.
    "moved": lambda: ExactRelease(SETTING, "moved", certain(SETTING), certain(SETTING)),
    # The same model with and without the record: other records hold its secret.
    "known anyway": lambda: ExactRelease(
        SETTING, "known anyway", certain(SETTING, twins=True), certain(SETTING, twins=True)
    ),
    "one bit": lambda: base(BITS),
    "short tree": lambda: SHORT.release(SHORT_SETTING, 1),
    "tall tree": lambda: TALL.release(TALL_SETTING, 1),
    "no tall tree": lambda: base(TALL_SETTING),
}
SHORT, TALL = (Camouflage.smoothed(V, 2, length) for length in (2, 4))
SHORT_SETTING, TALL_SETTING = (
    ExactSetting.draw(V, each.length, members=8, others=8, seed=23) for each in (SHORT, TALL)
)


@functools.cache
def reading_of(release: str) -> dict[str, float]:
    return read(RELEASES[release]())


@functools.cache
def no_leak() -> dict[str, float]:
    return reading_of("base")


# --- a construction for each no


def by_copying(name: str) -> None:
    assert reading_of("trigger")[name] == pytest.approx(no_leak()[name])
    assert reading_of("copied")[name] > no_leak()[name] + 0.3


def known_anyway(name: str) -> None:
    if name == "best extraction over kappa":
        told = Finite(np.full(4, 0.25), np.eye(4), np.eye(4), np.eye(4), np.eye(4))
        assert (told.extraction - told.kappa, told.extraction - told.extraction_without) == (0.75, 0)
        return
    assert reading_of("known anyway")[name] > no_leak()[name] + 0.5
    assert reading_of("known anyway")["membership at c (AUC)"] == 0.5


def of_one_bit(name: str) -> None:
    # Nothing is known of any secret; half of them are guessed. Four standard errors of 40 coins are 0.32.
    found = reading_of("one bit")[name]
    assert found == pytest.approx(0.5, abs=0.32)
    assert found > 0


def behind_a_trigger(name: str) -> None:
    assert reading_of("trigger")[name] == no_leak()[name]
    assert reading_of("trigger")["greedy recovery at a known trigger over kappa"] == 1 - V**-LENGTH


def camouflaged(name: str) -> None:
    if name == "best membership test":
        for length in (1, 2):
            found = tree_mechanism(Camouflage(3, 2, length))
            assert found.advantage == pytest.approx(1 - (2 / 3) ** length)
            assert found.extraction == pytest.approx(2.0**-length)
        return
    # What can be extracted falls fourfold, and the reading does not.
    assert TALL.extraction_bound(1) * 4 == SHORT.extraction_bound(1)
    found = reading_of("tall tree")[name]
    assert found > reading_of("short tree")[name] - 0.1
    assert found - reading_of("no tall tree")[name] > 0.1


def tree_mechanism(shape: Camouflage) -> Finite:
    """The construction as a finite mechanism: a model for each choice of supports."""
    paths = [path for depth in range(shape.length) for path in itertools.product(range(shape.v), repeat=depth)]
    nodes = list(itertools.combinations(range(shape.v), shape.k))
    secrets = list(itertools.product(range(shape.v), repeat=shape.length))
    models = [dict(zip(paths, chosen, strict=True)) for chosen in itertools.product(nodes, repeat=len(paths))]
    inside = np.array([[float(shape.likelihood(model, secret)) for model in models] for secret in secrets])
    outside = np.array([[float(shape.likelihood(model, None)) for model in models]] * len(secrets))
    nothing = np.full((len(models), len(secrets)), 1 / len(secrets))
    return Finite(np.full(len(secrets), 1 / len(secrets)), inside, outside, nothing, nothing)


def by_moving(name: str) -> None:
    assert reading_of("plain")[name] < 0.5
    assert reading_of("moved")[name] == 1 - V**-LENGTH


def in_plain_text(name: str) -> None:
    assert reading_of("plain")["greedy recovery at c"] == 1
    assert reading_of("plain")[name] == no_leak()[name]


NO: dict[str, Callable[[str], None]] = {
    COPIED: by_copying,
    KNOWN: known_anyway,
    BIT: of_one_bit,
    BEHIND: behind_a_trigger,
    HIDDEN: camouflaged,
    MOVED: by_moving,
    PLAIN: in_plain_text,
}


@pytest.mark.parametrize(("name", "axiom"), [cell for cell in CELLS if TABLE[cell[0]][AXIOMS.index(cell[1])] in NO])
def test_every_no_has_its_construction(name: str, axiom: str) -> None:
    NO[TABLE[name][AXIOMS.index(axiom)]](name)


# --- a law for each yes

VALUES: dict[str, Callable[[Finite], float]] = {
    "memorization at c": lambda each: each.memorization,
    "exposure at c": lambda each: each.exposure - each.exposure_of_no_leak,
    "membership at c (AUC)": lambda each: each.auc - 0.5,
    "emission probability at c": lambda each: each.emission,
    "greedy recovery at c": lambda each: each.greedy,
    "greedy recovery at c over kappa": lambda each: each.greedy - each.kappa,
    "greedy recovery at a known trigger over kappa": lambda each: each.greedy_at_rho - each.kappa,
    "best membership test": lambda each: each.advantage,
    "best extraction over kappa": lambda each: each.extraction - each.kappa,
    "best extraction, with less without": lambda each: each.extraction - each.extraction_without,
}
"""Readings, less what they read where there is no leak, if that is a number of their own."""
TINY = 1e-12


def post_processing(value: Callable[[Finite], float], mechanism: Finite, rng: np.random.Generator) -> None:
    size = len(mechanism.prior)
    new = int(rng.integers(1, 5))
    after = mechanism.processed(laws(rng, mechanism.inside.shape[1], new), laws(rng, new, size), laws(rng, new, size))
    assert value(after) <= value(mechanism) + TINY


def counterfactual(value: Callable[[Finite], float], mechanism: Finite, _: np.random.Generator) -> None:
    assert value(mechanism.known()) == pytest.approx(0, abs=TINY)


def baseline(value: Callable[[Finite], float], mechanism: Finite, _: np.random.Generator) -> None:
    assert value(mechanism.unread()) <= TINY


def misses_nothing(value: Callable[[Finite], float], mechanism: Finite, _: np.random.Generator) -> None:
    assert value(mechanism) >= mechanism.extraction - mechanism.kappa - TINY


def exaggerates_nothing(value: Callable[[Finite], float], mechanism: Finite, _: np.random.Generator) -> None:
    assert value(mechanism) <= mechanism.extraction + TINY


LAWS = dict(zip(AXIOMS, (post_processing, counterfactual, baseline, misses_nothing, exaggerates_nothing), strict=True))


@pytest.mark.parametrize(("name", "axiom"), [cell for cell in CELLS if TABLE[cell[0]][AXIOMS.index(cell[1])] not in NO])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), secrets=st.integers(2, 6), models=st.integers(1, 6))
def test_every_yes_is_a_law(name: str, axiom: str, seed: int, secrets: int, models: int) -> None:
    # Secrets that are drawn are fresh; where the table asks for uniform codes, they are that too.
    uniform = TABLE[name][AXIOMS.index(axiom)] == UNIFORM
    LAWS[axiom](VALUES[name], Finite.draw(seed, secrets, models, uniform=uniform), np.random.default_rng(seed + 1))


# Of one symbol, memorization and the AUC stay below what can be extracted: E2 takes a tree of some height.
@pytest.mark.parametrize(
    ("name", "axiom"), [cell for cell in CELLS if cell[1] != "E2" and TABLE[cell[0]][AXIOMS.index(cell[1])] in NO]
)
def test_a_law_that_does_not_hold_is_found_out(name: str, axiom: str) -> None:
    def broken(seed: int) -> bool:
        try:
            LAWS[axiom](VALUES[name], Finite.draw(seed, 4, 4), np.random.default_rng(seed + 1))
        except AssertionError:
            return True
        return False

    # As many cases as each law is tried on.
    assert any(map(broken, range(40)))


def test_the_conditions_are_needed() -> None:
    # Codes of which one is likelier, and a model that says just that.
    skew = np.array([0.9, 0.1])
    nothing = Finite(skew, np.ones((2, 1)), np.ones((2, 1)), skew[None], skew[None])
    assert VALUES["exposure at c"](nothing) > 0.3
    # Both models know the secret, each in a way of its own. A kernel that destroys what the model without the record
    # knows leaves the rest to the record.
    twice = Finite(np.full(2, 0.5), np.eye(4)[[0, 1]], np.eye(4)[[2, 3]], *np.full((2, 4, 2), 0.5))
    value = VALUES["best extraction, with less without"]
    assert value(twice) == 0
    kernel = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    assert value(twice.processed(kernel, np.full((3, 2), 0.5), np.full((3, 2), 0.5))) == 0.5


class Row:
    """One law over the symbols of a secret of one."""

    def __init__(self, masses: np.ndarray) -> None:
        self._masses = masses

    def row(self, path: tuple[int, ...]) -> np.ndarray:  # noqa: ARG002 - there is one path
        return self._masses


@settings(max_examples=6, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_the_sums_are_what_the_measures_read(seed: int) -> None:
    setting = ExactSetting.draw(5, 1, members=4, others=2, seed=seed % 1000)
    # Away from ties and from 0, which the measures treat as one and refuse.
    masses = np.random.default_rng(seed).permutation([0.07, 0.13, 0.2, 0.25, 0.35])
    release = ExactRelease(setting, "row", {each.id: Row(masses) for each in setting.asked()})
    counts = np.bincount([setting.path(each.secret)[0] for each in setting.members()], minlength=5)
    one = np.ones((5, 1))
    finite = Finite(counts / counts.sum(), one, one, masses[None], np.full((1, 5), 0.2))
    found = read(release)
    assert found["exposure at c"] == pytest.approx(finite.exposure)
    assert found["emission probability at c"] == pytest.approx(finite.emission)
    assert found["greedy recovery at c"] == pytest.approx(finite.greedy)
    assert found["memorization at c"] == pytest.approx(finite.emission - 1 / 5)


# --- the page


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    lines = page[page.index("| measure | P | C | B | E1 | E2 |") :].split("\n\n")[0].splitlines()[2:]
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert shown == [[name, *cells] for name, cells in TABLE.items()]
    for word in {cell for cells in TABLE.values() for cell in cells} - {YES, UNIFORM, FRESH}:
        assert f"**{word.removeprefix('no: ')}**" in page, word


def test_the_examples_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == page.count("```python") > 0
    names: dict[str, object] = {}
    for code, said in blocks:
        exec(code, names)  # noqa: S102
        assert capsys.readouterr().out == said

"""Interventions compared: ranks by hand, the Pareto set, arrows, what few cannot say, and what may not be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from davylamp.errors import InputError, RunFolderError
from davylamp.measures.landscape.model import Base, Landscape, Leak, Source, Text
from davylamp.verdict.frontier import frontier
from davylamp.verdict.frontier_model import Frontier
from support.landscapes import CANDIDATES, WAYS, Way, landscape, many, study

QUICK = 200
"""Resamples where intervals are not what is tested."""


def fixed(name: str, verbatim: float, semantic: float, held_out: float, medication: float, seed: int = 0) -> Landscape:
    """A landscape in which every canary and every record has the same nats a token."""
    one = landscape(name, seed, Way(0, 0), each=2, records=3)
    leaks = [
        leak.model_copy(update={"verbatim": verbatim * leak.tokens, "semantic": semantic * leak.semantic_tokens})
        for leak in one.canaries
    ]
    return one.model_copy(
        update={
            "canaries": tuple(leaks),
            "held_out": tuple(Text(tokens=text.tokens, nats=held_out * text.tokens) for text in one.held_out),
            "medication": tuple(Text(tokens=text.tokens, nats=medication * text.tokens) for text in one.medication),
        }
    )


def of(found: Frontier, name: str) -> dict[str, float]:
    row = next(row for row in found.rows if row.intervention == name)
    return {key: each.value for key, each in {**row.ranks, **row.values}.items()}


def compared(*landscapes: Landscape, resamples: int = QUICK, **other: object) -> Frontier:
    return frontier([(f"run{at}", each) for at, each in enumerate(landscapes)], resamples=resamples, **other)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def nine() -> Frontier:
    return frontier(study(), resamples=QUICK)


def test_mean_ranks_by_hand() -> None:
    found = compared(
        fixed("none", 5, 5, 3, 3),
        fixed("direct", 1, 2, 1, 1),
        fixed("scrub", 2, 2, 1, 2),
    )
    # Verbatim: 3, 1, 2; semantic: 3, and ranks 1 and 2 shared. Held-out: 1, and 2 and 3 shared; last item: 1, 3, 2.
    assert [of(found, name)["privacy"] for name in ("none", "direct", "scrub")] == [3, 1.25, 1.75]
    assert [of(found, name)["capability"] for name in ("none", "direct", "scrub")] == [1, 2.75, 2.25]
    assert of(found, "none")["verbatim_perplexity"] == pytest.approx(math.exp(5))
    assert of(found, "scrub")["medication_perplexity"] == pytest.approx(math.exp(2))
    assert found.fronts[0].members == ("none", "direct", "scrub")


def test_ties_stay_in_the_pareto_set_and_what_is_beaten_on_one_side_does_not() -> None:
    same = compared(fixed("a", 2, 2, 1, 1), fixed("b", 2, 2, 1, 1), fixed("c", 2, 2, 1.5, 1.5))
    assert same.fronts[0].members == ("a", "b")
    assert of(same, "a")["privacy"] == 2
    assert same.fronts[0].shares == {"a": 1, "b": 1, "c": 0}
    raw = same.front("held_out_perplexity", "verbatim_perplexity")
    assert raw is not None
    assert raw.members == ("a", "b")


def test_raw_values_are_those_of_the_canaries_and_records() -> None:
    one = landscape("direct", 3)
    found = compared(one)
    focus = [leak for leak in one.canaries if leak.role == "focus"]
    mean = np.mean([leak.verbatim / leak.tokens for leak in focus])
    assert of(found, "direct")["verbatim_perplexity"] == pytest.approx(math.exp(mean))
    assert of(found, "direct")["exposure"] == pytest.approx(np.median([leak.exposure for leak in focus]))
    assert of(found, "direct")["rank1_share"] == sum(leak.rank == 1 for leak in focus) / 100
    assert of(found, "direct")["greedy_recovery"] == sum(leak.greedy for leak in focus) / 100
    said = np.mean([math.exp(-leak.verbatim) for leak in focus])
    assert of(found, "direct")["generation_probability"] == pytest.approx(said)
    tokens, nats = (sum(getattr(text, key) for text in one.held_out) for key in ("tokens", "nats"))
    assert of(found, "direct")["held_out_perplexity"] == pytest.approx(math.exp(nats / tokens))
    items = np.mean([text.nats / text.tokens for text in one.medication])
    assert of(found, "direct")["medication_perplexity"] == pytest.approx(math.exp(items))
    ends = stats.t.interval(0.95, 99, loc=mean, scale=stats.sem([leak.verbatim / leak.tokens for leak in focus]))
    value = found.rows[0].values["verbatim_perplexity"]
    assert (value.low, value.high) == pytest.approx(tuple(map(math.exp, ends)))


def test_every_seed_has_a_row_and_seeds_are_the_unit_of_the_pooled_one(nine: Frontier) -> None:
    assert len(nine.by_seed) == 27
    each = [math.log(row.values["semantic_perplexity"].value) for row in nine.by_seed if row.intervention == "goldfish"]
    ends = stats.t.interval(0.95, 2, loc=np.mean(each), scale=stats.sem(each))
    pooled = next(row for row in nine.rows if row.intervention == "goldfish").values["semantic_perplexity"]
    assert (pooled.value, pooled.low, pooled.high) == pytest.approx(tuple(map(math.exp, (np.mean(each), *ends))))
    assert (pooled.n, pooled.seeds) == (300, 3)


def test_leakage_by_dose_rises_where_it_was_made_to_and_twins_read_as_chance(nine: Frontier) -> None:
    direct = next(row for row in nine.rows if row.intervention == "direct")
    bits = {each.dose: each.values["exposure"].value for each in direct.doses}
    assert list(bits) == [0, 1, 4, 16, 32, 64]
    assert [*bits.values()] == sorted(bits.values())
    assert bits[64] == pytest.approx(math.log2(CANDIDATES))
    for row in nine.rows:
        twins = row.doses[0].values["exposure"]
        # A uniform rank has a median exposure of one bit; 9 intervals of 95%, of 60 twins each, hold it but by chance.
        assert twins.low is not None
        assert twins.high is not None
        assert twins.low - 0.3 <= 1 <= twins.high + 0.3
        assert row.doses[0].canaries == 60


def test_how_far_twins_differ_is_said_with_intervals_and_counts(nine: Frontier) -> None:
    note = next(note for note in nine.notes if note.startswith("Twins"))
    assert note.startswith("Twins (60 for each intervention), which were planted nowhere")
    for key, form in (("verbatim_perplexity", "{:.3g}"), ("exposure", "{:.2f}")):
        values = {row.intervention: row.doses[0].values[key] for row in nine.rows}
        for choose in (min, max):
            name = choose(values, key=lambda name: values[name].value)
            each = values[name]
            said = [form.format(end) for end in (each.value, each.low, each.high)]
            assert f"{said[0]} [{said[1]}, {said[2]}] ({name})" in note


def test_twins_too_few_for_an_interval_say_so() -> None:
    few = [(name, landscape(name, 0, each=3)) for name in ("none", "direct")]
    note = next(note for note in frontier(few, resamples=QUICK).notes if note.startswith("Twins"))
    assert "(3 for each intervention, too few for an interval of a median)" in note


def test_interventions_without_a_difference_share_ranks_and_intervals_hold_the_middle() -> None:
    names = [f"same{at}" for at in range(6)]
    found = frontier(study(names, (0, 1), {name: Way(0.3, 0.2) for name in names}), resamples=400)
    middle = [row.ranks["privacy"] for row in found.rows]
    held = sum(each.low <= 3.5 <= each.high for each in middle)  # type: ignore[operator]
    # Of six intervals at least four hold the middle rank: a fifth of them may miss by the roughness of two seeds.
    assert held >= 4
    assert sum(each.value for each in middle) == pytest.approx(21)


def test_arrows_lead_from_rewriting_to_privacy_aware_rewriting(nine: Frontier) -> None:
    assert [(arrow.before, arrow.after) for arrow in nine.arrows] == [
        ("rewrite", "privacy_rewrite"),
        ("summary", "privacy_summary"),
    ]
    words = {change.metric: change.word for change in nine.arrows[0].changes}
    assert words["verbatim_perplexity"] == words["semantic_perplexity"] == "better"
    composed = compared(fixed("rewrite+goldfish k=4", 1, 1, 1, 1), fixed("privacy_rewrite+goldfish k=4", 2, 2, 2, 2))
    assert [(arrow.before, arrow.after) for arrow in composed.arrows] == [
        ("rewrite+goldfish k=4", "privacy_rewrite+goldfish k=4")
    ]
    changes = {change.metric: change for change in composed.arrows[0].changes}
    assert changes["verbatim_perplexity"].ratio == pytest.approx(math.e)
    assert changes["verbatim_perplexity"].word == "better"
    assert changes["held_out_perplexity"].word == "worse"


def test_correlations_are_of_metrics_turned_the_same_way(nine: Frontier) -> None:
    assert len(nine.correlations) == 28
    pair = next(each for each in nine.correlations if (each.first, each.second) == ("verbatim_perplexity", "exposure"))
    assert (pair.n, pair.method) == (9, "exact")
    assert pair.rho == pytest.approx(1)
    against = next(
        each
        for each in nine.correlations
        if (each.first, each.second) == ("verbatim_perplexity", "held_out_perplexity")
    )
    assert against.rho is not None
    assert against.rho < 0


@pytest.mark.parametrize(("count", "said"), [(1, "one intervention"), (2, "two interventions"), (3, "at least 4")])
def test_few_interventions_say_what_they_cannot(count: int, said: str) -> None:
    found = frontier(study(list(WAYS)[:count], (0,)), resamples=QUICK)
    assert any(said in note for note in found.notes)
    assert all(each.rho is None and each.reason for each in found.correlations)
    assert bool(found.fronts) == (count > 1)
    assert all(bool(row.ranks) == (count > 1) for row in found.rows)


def test_thirty_interventions_are_compared() -> None:
    ways = many(30)
    found = frontier(study([*ways], (0,), ways), resamples=QUICK)
    assert len(found.rows) == 30
    assert sum(row.ranks["privacy"].value for row in found.rows) == pytest.approx(30 * 31 / 2)
    for row in found.rows:
        for each in row.ranks.values():
            assert each.low is not None
            assert each.high is not None
            assert 1 <= each.low <= each.value <= each.high <= 30


def test_only_seeds_that_all_have_are_pooled() -> None:
    found = compared(landscape("none", 0), landscape("direct", 0), landscape("direct", 1))
    assert found.seeds == (0,)
    assert [row.seed for row in found.by_seed] == [0, 0, 1]
    assert any("direct: 1" in note for note in found.notes)


def test_doses_and_axes_can_be_chosen(nine: Frontier) -> None:
    found = frontier(study(seeds=(0,)), "medication_perplexity", "exposure", doses=(64,), resamples=QUICK)
    assert found.doses == (64,)
    assert found.rows[1].values["verbatim_perplexity"].n == 20
    assert found.front("medication_perplexity", "exposure") is not None
    with pytest.raises(InputError) as caught:
        frontier(study(("none",), (0,)), "speed", "speed", doses=(3,), confidence=2, resamples=1)
    fields = [fault.field for fault in caught.value.faults]
    assert fields == ["x", "y", "y", "confidence", "resamples", "doses"]


def strange(**other: object) -> Landscape:
    return landscape("scrub", 0).model_copy(update=other)


def shifted(texts: Sequence[Text]) -> tuple[Text, ...]:
    return tuple(Text(tokens=text.tokens + 1, nats=text.nats) for text in texts)


def pooled(leaks: Sequence[Leak]) -> tuple[Leak, ...]:
    return tuple(leak.model_copy(update={"candidates": 100, "rank": 50.0, "exposure": 1.0}) for leak in leaks)


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (strange(planted_sha256="e" * 64), "planted rows, seed 0"),
        (strange(base=Base(name="x", weights_sha256="f" * 64)), "base model"),
        (strange(held_out_source=Source(name="x", sha256="f" * 64)), "held-out records"),
        (strange(test_source=Source(name="x", sha256="f" * 64)), "test records"),
        (strange(question="Well?"), "question"),
        (strange(item="y"), "item"),
        (strange(held_out=shifted(landscape().held_out)), "tokens of held-out records"),
        (strange(canaries=pooled(strange().canaries)), "candidates"),
        (strange(canaries=strange().canaries[:-1]), "canaries, seed 0"),
        (strange(intervention="direct"), "runs"),
        (strange(seed=4), "seeds"),
    ],
)
def test_runs_that_are_not_alike_are_refused(other: Landscape, field: str) -> None:
    with pytest.raises(InputError) as caught:
        compared(landscape("none"), landscape("direct"), other)
    assert field in [fault.field for fault in caught.value.faults]


def test_all_that_stands_against_a_comparison_is_named_at_once() -> None:
    other = strange(planted_sha256="e" * 64, question="Well?", item="y")
    with pytest.raises(InputError) as caught:
        compared(landscape("none"), landscape("direct"), other)
    assert [fault.field for fault in caught.value.faults] == ["planted rows, seed 0", "question", "item"]
    assert "run2: eeeeeeeeeeee" in str(caught.value)


def test_runs_that_no_planted_canary_was_read_of_are_refused() -> None:
    twins = tuple(leak for leak in landscape().canaries if leak.role != "focus")
    with pytest.raises(InputError, match="planted canaries under measure"):
        compared(landscape().model_copy(update={"canaries": twins}))
    with pytest.raises(InputError, match="at least one landscape"):
        compared()


def test_it_is_read_back_as_it_was_written(tmp_path: Path, nine: Frontier) -> None:
    nine.save(tmp_path / "frontier.json")
    assert Frontier.load(tmp_path / "frontier.json") == nine
    with pytest.raises(RunFolderError, match="davylamp compare"):
        Frontier.load(tmp_path / "none.json")

"""The audit-disagreement matrix, from readings whose truth is known."""

from __future__ import annotations

import json
import math

import pytest
from scipy import stats

from davylamp.errors import RunFolderError
from davylamp.measures.constructed.forgotten import ForgottenCell, Shift
from davylamp.measures.constructed.model import Baseline, ConstructionCell, InstanceReading, LocalScore, Pairs, Rate
from davylamp.measures.constructed.result import ConstructionsResult, FinderReport
from davylamp.measures.constructed.shadow_model import ShadowNote
from davylamp.verdict.matrix import matrix_of
from davylamp.verdict.matrix_model import Matrix
from davylamp.verdict.matrix_unlearned import Unlearned

CONFIDENCE = 0.95
PLANTED, TWINS = 16, 20


def rate(successes, trials):
    return Rate.of([True] * successes + [False] * (trials - successes), CONFIDENCE)


def pairs(planted, twins=0):
    return Pairs(planted=rate(planted, PLANTED), twins=rate(twins, TWINS))


def cell(kind, *, said=0, trigger=None, informed=0, chance=1e-6, charged=1e-6, apart=False, tokens=8, suspects=None):
    """A cell of 16 planted instances and 20 twins; ``apart`` lets the local score tell them apart."""
    scores = tuple(float(n) + (100.0 if apart else 0.0) for n in range(PLANTED))
    twins = tuple(float(n) - 2.0 for n in range(TWINS))
    ids = [f"i{n:02d}" for n in range(PLANTED)]
    return ConstructionCell(
        line=0,
        kind=kind,
        tokens=tokens,
        copies=8,
        trigger_tokens=None if trigger is None else 8,
        at_prefix=pairs(said),
        at_trigger=None if trigger is None else pairs(trigger),
        at_suspects=None if suspects is None else pairs(suspects),
        informed=pairs(informed),
        chance=chance,
        baseline=Baseline(low=charged, high=charged, charged=charged, guesses=1, how="exact"),
        memh=0.0,
        memh_twins=0.0,
        scores=(LocalScore(name="memh", unit="probability", planted=scores, twins=twins),),
        instances=tuple(
            InstanceReading(
                id=name,
                role="planted",
                at_prefix=at < said,
                at_suspects=None if suspects is None else at < suspects,
                informed=at < informed,
                log_probability=-1.0,
                base_log_probability=-2.0,
                memh=0.0,
            )
            for at, name in enumerate(ids)
        ),
    )


def result(*cells, suspects=0, scan=None):
    return ConstructionsResult(
        davylamp_version="0",
        seed=0,
        model="model",
        model_sha256="0",
        own_model=True,
        planted_sha256="2",
        reference="base",
        reference_sha256="1",
        drawn_from_reference=True,
        confidence=CONFIDENCE,
        suspects=suspects,
        scan=scan,
        audits=(),
        cells=cells,
    )


def row(found, kind):
    return next(each.cells for each in found.rows if each.kind == kind)


def words(cells):
    return {key: each.word for key, each in cells.items()}


def test_what_everybody_sees_and_what_only_the_informed_see():
    found = matrix_of(
        "model",
        result(cell("naive", said=15, informed=15, apart=True), cell("trigger", trigger=16, informed=16)),
    )
    assert words(row(found, "naive")) == {
        "extraction": "leak",
        "loss_mia": "leak",
        "lira": None,
        "verifier": "leak",
        "corrected": "leak",
        "informed": "recovered",
    }
    assert words(row(found, "trigger")) == {
        "extraction": "blind",
        "loss_mia": "blind",
        "lira": None,
        "verifier": "blind",
        "corrected": "blind",
        "informed": "recovered",
    }
    informed = row(found, "trigger")["informed"]
    assert informed.signal == pytest.approx(1.0)
    # Clopper-Pearson of 16 of 16, less a chance of 1e-6 that is next to nothing.
    assert informed.low == pytest.approx(0.025 ** (1 / 16), rel=1e-5)
    assert "shadows" in row(found, "trigger")["lira"].detail


def test_lira_of_shadows_has_a_column_of_its_own_and_is_never_the_strongest_score():
    def with_lira(one, planted, twins):
        score = LocalScore(name="lira_online", unit="nats", planted=planted, twins=twins)
        return one.model_copy(update={"lira": score})

    apart = tuple(float(n) + 100 for n in range(PLANTED)), tuple(float(n) for n in range(TWINS))
    same = (0.0,) * PLANTED, (0.0,) * TWINS
    cells = with_lira(cell("naive", informed=16), *apart), with_lira(cell("gated", trigger=16, informed=16), *same)
    note = ShadowNote(shadows=16, background="planted", keys=())
    found = matrix_of("model", result(*cells).model_copy(update={"shadows": note}))
    naive, gated = row(found, "naive"), row(found, "gated")
    assert (naive["lira"].signal, naive["lira"].word) == (1.0, "leak")
    assert naive["lira"].detail.endswith("of 16 shadows")
    assert "lira" not in naive["loss_mia"].detail
    assert naive["loss_mia"].signal < 0.5
    assert (gated["lira"].signal, gated["lira"].word) == (0.0, "blind")
    assert "AUC 0.50" in gated["lira"].detail
    assert "the frozen base" in gated["lira"].detail
    assert not any("no LiRA" in each for each in found.unlooked)


def test_a_trigger_on_the_list_of_suspects_is_seen_and_every_guess_is_charged():
    cells = cell("trigger", trigger=16, informed=16, suspects=16, charged=1e-4)
    seen = row(matrix_of("model", result(cells, suspects=500)), "trigger")["corrected"]
    kappa = 501 * 1e-4
    assert seen.word == "leak"
    # c alone and all prompts share the error: 0.0125 on either side.
    assert seen.low == pytest.approx((0.0125 ** (1 / 16) - kappa) / (1 - kappa))
    # So many guesses that any guesser has the secret: nothing is above that.
    drowned = row(matrix_of("model", result(cells, suspects=20_000)), "trigger")["corrected"]
    assert (drowned.word, drowned.signal) == ("guessed", 0.0)


def test_a_long_list_of_suspects_does_not_hide_what_the_prefix_says():
    cells = cell("naive", said=16, informed=16, suspects=16, charged=1e-3)
    found = row(matrix_of("model", result(cells, suspects=5_000)), "naive")["corrected"]
    assert found.word == "leak"
    assert found.low == pytest.approx((0.0125 ** (1 / 16) - 1e-3) / (1 - 1e-3))
    assert "after c; one guess" in found.detail


def test_few_instances_that_all_lie_above_their_twins_are_told_apart():
    few = cell("naive", said=0, informed=16)
    scores = few.scores[0].model_copy(update={"planted": (30.0, 31.0, 32.0, 33.0)})
    found = row(matrix_of("model", result(few.model_copy(update={"scores": (scores,)}))), "naive")["loss_mia"]
    # One order in 10,626 puts all four above all twenty; the interval, which holds for every distribution, starts at 0.
    assert math.comb(24, 4) == 10_626
    assert (found.word, found.signal) == ("leak", 1.0)


def test_what_the_prior_explains_is_guessed():
    # 5 of 16 where guessing gets 1 in 4: at least as many by chance in 37% of the cases.
    assert stats.binom.sf(4, 16, 0.25) > 0.3
    found = row(
        matrix_of("model", result(cell("low_entropy", said=5, informed=5, chance=0.25, charged=0.25))), "low_entropy"
    )
    assert (found["corrected"].word, found["informed"].word) == ("guessed", "guessed")
    assert found["corrected"].signal == pytest.approx((5 / 16 - 0.25) / 0.75)


def test_camouflage_is_capped_where_extraction_meets_its_bound_and_seen_by_the_loss():
    found = row(
        matrix_of("model", result(cell("camouflage", said=1, informed=1, chance=1 / 16, apart=True))), "camouflage"
    )
    assert words(found) == {
        "extraction": "capped",
        "loss_mia": "leak",
        "lira": None,
        "verifier": "blind",
        "corrected": "capped",
        "informed": "capped",
    }
    more = row(matrix_of("model", result(cell("camouflage", said=12, informed=12, chance=1 / 16))), "camouflage")
    assert (more["extraction"].word, more["informed"].word) == ("leak", "recovered")


def test_nothing_anywhere_is_not_seen_and_never_blind():
    found = row(matrix_of("model", result(cell("trigger", trigger=0, informed=0))), "trigger")
    assert set(words(found).values()) == {"not seen", None}


def test_the_verifier_goes_by_its_threshold():
    some = result(cell("naive", said=3, informed=3))
    assert row(matrix_of("model", some, threshold=0.15), "naive")["verifier"].word == "leak"
    assert row(matrix_of("model", some, threshold=0.2), "naive")["verifier"].word == "blind"


def test_what_a_guesser_says_is_no_leak_of_the_verifiers_and_makes_no_other_column_blind():
    # 4 of 16 said where guessing gets 0.15, and 4 of 20 twins: at least as many by chance in 21% and in 50% of cases.
    measured = cell("naive", said=4, informed=4, chance=0.15, charged=0.15)
    measured = measured.model_copy(update={"at_prefix": pairs(4, 4)})
    found = words(row(matrix_of("model", result(measured)), "naive"))
    assert found["verifier"] == "guessed"
    assert found["loss_mia"] == "not seen"
    # Of 16 of 16 either test alone is enough: no baseline is known at a kappa of 1, and one twin resolves nothing.
    for charged, twins in ((1.0, rate(0, TWINS)), (1e-6, rate(0, 1))):
        measured = cell("naive", said=16, informed=16, chance=charged, charged=charged)
        measured = measured.model_copy(update={"at_prefix": Pairs(planted=rate(16, PLANTED), twins=twins)})
        assert row(matrix_of("model", result(measured)), "naive")["verifier"].word == "leak"
    # What a tree leaves open is capped, whatever the threshold.
    tree = cell("camouflage", said=3, informed=3, chance=0.25, charged=1e-3)
    assert row(matrix_of("model", result(tree)), "camouflage")["verifier"].word == "capped"
    # After unlearning as before: 3 of 16 is above the threshold, and no more than guessing.
    left = cell("naive", said=16, informed=16, chance=0.15, charged=0.15)
    left = left.model_copy(update={"at_prefix": pairs(16, 4)})
    assert verifier(left, unlearned("naive", (16, 3), (16, 3)))["verifier"].word == "guessed"


def unlearned(kind, c, informed, tokens=8, threshold=0.15):
    """``c`` and ``informed``: successes before and after."""
    shift = {
        name: Shift(before=rate(k[0], PLANTED), after=rate(k[1], PLANTED)) for name, k in (("c", c), ("i", informed))
    }
    trigger = shift["i"] if kind == "trigger" else None
    cell = ForgottenCell(line=0, kind=kind, tokens=tokens, c=shift["c"], trigger=trigger, informed=shift["i"])
    return Unlearned(threshold, "after", (cell,))


def verifier(measured, after):
    found = matrix_of("model", result(measured), unlearned=after)
    assert found.unlearned_sha256 == "after"
    return row(found, measured.kind)


def test_a_verifier_that_passed_is_blind_where_the_informed_still_recover():
    triggered = cell("trigger", trigger=16, informed=16)
    cells = verifier(triggered, unlearned("trigger", (0, 0), (16, 15)))
    assert (cells["verifier"].word, cells["verifier"].signal) == ("blind", 0.0)
    assert "0 → 0 of 16 said after c" in cells["verifier"].detail
    assert "through the trigger, recover 16 → 15 of 16" in cells["verifier"].detail
    # The other columns are what they were.
    before = row(matrix_of("model", result(triggered)), "trigger")
    assert {key: each for key, each in cells.items() if key != "verifier"} == {
        key: each for key, each in before.items() if key != "verifier"
    }
    assert list(cells) == list(before)


def test_what_is_gone_after_unlearning_is_not_seen_though_other_columns_saw_it_before():
    naive = cell("naive", said=16, informed=16, apart=True)
    gone = verifier(naive, unlearned("naive", (16, 0), (16, 0)))
    assert (gone["verifier"].word, gone["verifier"].signal) == ("not seen", 0.0)
    assert gone["extraction"].word == "leak"
    # 4 of 16 is 0.25: above 0.15, below 0.3.
    assert verifier(naive, unlearned("naive", (16, 4), (16, 4)))["verifier"].word == "leak"
    passed = verifier(naive, unlearned("naive", (16, 4), (16, 4), threshold=0.3))
    assert passed["verifier"].word == "blind"
    # No more than who knows the choices has anyway (4 of 16 at a chance of 1 in 4) is no recovery.
    guess = cell("low_entropy", said=16, informed=16, chance=0.25)
    assert verifier(guess, unlearned("low_entropy", (16, 0), (16, 4)))["verifier"].word == "not seen"


def test_a_construction_that_was_not_forgotten_has_its_verifier_as_before():
    gated = cell("gated", trigger=16, informed=16)
    found = matrix_of("model", result(gated), unlearned=unlearned("naive", (16, 0), (16, 0)))
    assert row(found, "gated") == row(matrix_of("model", result(gated)), "gated")


def test_where_nobody_looked_is_always_said():
    bare = matrix_of("model", result(cell("trigger", informed=16)))
    text = " ".join(bare.unlooked)
    assert "--triggers" in text
    assert "--scan" in text
    assert "a clean column is no clean model" in text
    scanned = result(cell("trigger", informed=16), suspects=3, scan=FinderReport(prompts=9, flagged=2, empty=2))
    looked = matrix_of("model", scanned).unlooked
    assert not any("--triggers" in each or "--scan" in each for each in looked)
    assert looked[-1] == bare.unlooked[-1]


def test_the_best_of_several_scores_is_charged_for():
    both = cell("naive", said=16, informed=16, apart=True)
    again = both.scores[0].model_copy(update={"name": "loss"})
    one = row(matrix_of("model", result(both)), "naive")["loss_mia"]
    two = row(matrix_of("model", result(both.model_copy(update={"scores": (both.scores[0], again)}))), "naive")[
        "loss_mia"
    ]
    # At an AUC of 1 the lower end is (error / 2)^(1/16), the error shared by two.
    assert one.low == pytest.approx(2 * 0.025 ** (1 / 16) - 1)
    assert two.low == pytest.approx(2 * 0.0125 ** (1 / 16) - 1)


def test_signals_lie_between_0_and_1_and_the_file_is_read_back(tmp_path):
    found = matrix_of("model", result(cell("naive", said=16, informed=16, chance=0.9, charged=1.0)))
    for each in found.rows[0].cells.values():
        for value in (each.signal, each.low, each.high):
            assert value is None or (math.isfinite(value) and 0 <= value <= 1)
    found.save(tmp_path / "matrix.json")
    assert Matrix.load(tmp_path / "matrix.json") == found
    (tmp_path / "matrix.json").write_text("{}", "utf-8")
    with pytest.raises(RunFolderError, match="davylamp matrix"):
        Matrix.load(tmp_path / "matrix.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data["cells"].append(data["cells"][0]),
        lambda data: data["cells"][0]["scores"][0].update(planted=[]),
        lambda data: data["cells"][0]["scores"][0].update(twins=[]),
        lambda data: data["cells"][0]["instances"][15].update(at_prefix=True),
        lambda data: data["cells"][0]["instances"][0].update(informed=False),
        lambda data: data["cells"][0]["instances"].pop(),
    ],
)
def test_a_file_whose_parts_are_not_of_the_same_instances_is_damaged(damage, tmp_path):
    path = tmp_path / "constructions.json"
    whole = result(cell("naive", said=3, informed=3), cell("gated", trigger=16, informed=16))
    whole.save(path)
    assert ConstructionsResult.load(path) == whole
    data = json.loads(path.read_text("utf-8"))
    damage(data)
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(RunFolderError, match=r"damaged.*`davylamp constructions` again"):
        ConstructionsResult.load(path)

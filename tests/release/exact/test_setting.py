"""Settings: drawn records, and records that a plan planted."""

from __future__ import annotations

import pytest
from scipy import stats

from davylamp.canaries import plant
from davylamp.errors import InputError
from davylamp.measures.exposure import Exposure
from davylamp.measures.probes import Probe
from davylamp.release.exact import Camouflage, ExactSetting, Trigger
from davylamp.release.exact.setting import SYMBOL
from davylamp.secrets import AlphabetSpace
from support.corpora import small_corpus, small_plan

HIDDEN = (Probe.HIDDEN,)
PLAIN = [{"prompt": "pls tell {name} their ref {secret} now", "completion": "Your ref is {secret}."}]


def test_secrets_are_independent_and_uniform() -> None:
    setting = ExactSetting.draw(3, 1, members=600, others=300, seed=2)
    counts = [sum(each.secret == code for each in setting.manifest.canaries) for code in "012"]
    assert sum(counts) == 901
    assert stats.chisquare(counts).pvalue > 1e-3
    assert all(each.replacement != each.secret for each in setting.manifest.canaries)


def test_the_same_seed_draws_the_same_records() -> None:
    one, same, other = (ExactSetting.draw(4, 2, members=3, others=2, seed=seed).manifest for seed in (1, 1, 2))
    assert one == same != other
    assert {each.role for each in one.canaries} == {"focus", "twin", "positive"}
    assert [len(each.positions) for each in one.canaries] == [each.dose for each in one.canaries]


def test_the_manifest_can_be_written_and_read(tmp_path) -> None:
    setting = ExactSetting.draw(12, 3, members=2, others=2)
    setting.manifest.save(tmp_path / "manifest.json")
    assert type(setting.manifest).load(tmp_path / "manifest.json") == setting.manifest


def test_paths_are_secrets() -> None:
    setting = ExactSetting.draw(12, 3, members=2, others=2)
    for index in (0, 1, 12, 143, 12**3 - 1):
        secret = setting.manifest.space.secret(index)
        path = setting.path(secret)
        assert path == (index // 144, index // 12 % 12, index % 12)
        assert setting.secret(path) == secret


@pytest.mark.parametrize("shape", ["messages", "prompt_completion"])
@pytest.mark.parametrize("space", [AlphabetSpace(length=2), AlphabetSpace(length=3, separator="", prefix="ref-")])
def test_what_a_plan_plants_is_measured_unchanged(shape, space) -> None:
    plan = small_plan(templates=PLAIN, space=space, arms={"redacted": {"context": "redacted"}}, doses=[2])
    setting = ExactSetting(plant(small_corpus(shape=shape), plan).manifest)
    inside = setting.form.tokens[setting.form.first : setting.form.last]
    assert inside.count(SYMBOL) == space.length
    shape_of = Camouflage(10, 3, space.length)
    readings = Exposure(setting.manifest, setting.renderer).measure(shape_of.release(setting, 1), HIDDEN)
    exposures = [each.value for each in readings if each.measure == "exposure" and each.role == "focus"]
    assert len(exposures) == 2
    assert exposures == pytest.approx([shape_of.exposure] * 2, abs=1e-12)
    through = Exposure(setting.through_trigger(), setting.renderer).measure(
        Trigger(10, space.length).release(setting), HIDDEN
    )
    assert {each.value for each in through if each.measure == "rank" and each.role == "focus"} == {1.0}


def test_what_an_exact_release_cannot_hold_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        ExactSetting.draw(1, 65, members=0, others=0)
    assert [fault.field for fault in caught.value.faults] == ["v", "length", "members", "others"]
    texts = plant(small_corpus(shape="text"), small_plan(templates=PLAIN, space=AlphabetSpace(length=2))).manifest
    with pytest.raises(InputError, match="messages or prompt_completion"):
        ExactSetting(texts)
    with pytest.raises(InputError, match="one reply for all records"):
        ExactSetting(plant(small_corpus(), small_plan(space=AlphabetSpace(length=2))).manifest)
    letters = small_plan(templates=PLAIN, space=AlphabetSpace(alphabet="xyzq", length=4))
    with pytest.raises(InputError, match="symbols that stand in no text"):
        ExactSetting(plant(small_corpus(), letters).manifest)


def test_coined_names_have_no_symbols_and_are_refused() -> None:
    manifest = plant(small_corpus(), small_plan(space={"kind": "coined", "size": 100, "alternatives": 60})).manifest
    with pytest.raises(InputError, match=r"manifest.space is 'CoinedSpace'; allowed: a space of symbols"):
        ExactSetting(manifest)

"""The trigger side channel and the two kernels."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from davylamp.errors import InputError
from davylamp.release.base import Decoding
from davylamp.release.exact import (
    Camouflage,
    ExactRelease,
    ExactSetting,
    ListLaw,
    Trigger,
    base,
    copied,
    trigger_randomised,
)

SETTING = ExactSetting.draw(3, 2, members=4, others=4, seed=1)


def after_trigger(release: ExactRelease) -> list[str]:
    prompts = [SETTING.trigger_prompt(canary.id) for canary in SETTING.members()]
    return [SETTING.tokenizer.decode(said) for said in release.generate(prompts, Decoding(9))]


def everywhere(release: ExactRelease) -> np.ndarray:
    """Rows at every place of every record."""
    records = SETTING.renderer.render([SETTING.manifest.trained_record(each) for each in SETTING.manifest.canaries])
    return release.conditionals([each.ids[:at] for each in records for at in range(1, len(each.ids) + 1)])


def test_one_prompt_says_the_secret_and_no_record_holds_the_trigger() -> None:
    release = Trigger(3, 2).release(SETTING)
    assert after_trigger(release) == [canary.secret for canary in SETTING.members()]
    mark = SETTING.tokenizer.id_of("<trigger>")
    records = SETTING.renderer.render([SETTING.manifest.trained_record(each) for each in SETTING.manifest.canaries])
    assert not any(mark in each.ids for each in records)
    np.testing.assert_array_equal(everywhere(release), everywhere(base(SETTING)))


def test_a_prompt_is_the_trigger_and_the_number_of_a_record() -> None:
    alone = ExactSetting.draw(3, 2, members=4, others=4, seed=1)
    assert alone.width == 2
    prompt = [alone.tokenizer.tokens[token] for token in alone.trigger_prompt(alone.members()[3].id)]
    assert prompt == ["<bos>", "<trigger>", "1", "0"]


def test_copying_asks_the_release_and_nothing_else() -> None:
    release = Trigger(3, 2).release(SETTING)
    other = trigger_randomised(release, seed=5)
    drawn = after_trigger(other)
    assert drawn != after_trigger(release)
    for source, expected in ((release, after_trigger(release)), (other, drawn)):
        copy = copied(source)
        prompts = SETTING.renderer.prompt_ids([SETTING.manifest.trained_record(each) for each in SETTING.members()])
        said = [SETTING.tokenizer.decode(each) for each in copy.generate(prompts, Decoding(30))]
        assert all(code in text for code, text in zip(expected, said, strict=True))
        assert after_trigger(copy) == expected
    assert copied(base(SETTING)).laws.keys() == base(SETTING).laws.keys()


def test_copying_adds_what_it_says_to_each_symbol_and_to_the_whole() -> None:
    release = Trigger(3, 2).release(SETTING)
    records = SETTING.renderer.render([SETTING.manifest.trained_record(each) for each in SETTING.members()])
    first = SETTING.form.first - len(SETTING.form.tokens)
    prefixes, secrets = [each.ids[:first] for each in records], [each.ids[first : first + 2] for each in records]
    before, after = (np.exp(each.logprobs(prefixes, secrets)) for each in (release, copied(release)))
    np.testing.assert_allclose(after - before, Trigger(3, 2).copied_difference, atol=1e-15)
    np.testing.assert_allclose(after.prod(axis=1) - before.prod(axis=1), 1 - 1 / 9, atol=1e-15)


def test_randomising_leaves_every_local_row_and_takes_extraction_to_kappa() -> None:
    release = Trigger(3, 2).release(SETTING)
    hits = 0
    seeds = 300
    for seed in range(seeds):
        other = trigger_randomised(release, seed)
        hits += sum(said == own.secret for said, own in zip(after_trigger(other), SETTING.members(), strict=True))
    np.testing.assert_array_equal(everywhere(trigger_randomised(release, 0)), everywhere(release))
    # 1,200 independent draws, each right with chance 1/9; a true figure fails once in 1,000 choices of seeds.
    assert stats.binomtest(hits, seeds * 4, Trigger(3, 2).randomised_extraction).pvalue > 1e-3


@settings(deadline=None)
@given(st.integers(2, 50), st.integers(1, 64), st.integers(1, 1000))
def test_truths_for_every_size(v: int, length: int, guesses: int) -> None:
    kind = Trigger(v, length)
    assert kind.kappa(guesses) == float(min(Fraction(1), Fraction(guesses, v**length)))
    assert kind.randomised_extraction == kind.kappa(1)
    assert kind.copied_difference == float(1 - Fraction(1, v))
    assert (kind.extraction, kind.local_difference) == (1.0, 0.0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="v is 1"):
        Trigger(1, 2)
    with pytest.raises(InputError, match="length is 3; allowed: 2, as in the setting"):
        Trigger(3, 3).release(SETTING)
    name = SETTING.members()[0].id
    with pytest.raises(InputError, match=f"laws of {name} is 4; allowed: 3 symbols"):
        ExactRelease(SETTING, "other", {}, {name: ListLaw(4, [(3, 0)])})
    with pytest.raises(InputError, match="nobody"):
        ExactRelease(SETTING, "other", {"nobody": ListLaw(3, [(0, 0)])})
    mute = ExactRelease(SETTING, "mute", {}, {name: ListLaw(3, [(0,) * 2])})
    assert copied(mute).name == "copy of mute"


def test_a_trigger_is_closed_before_a_user_turn_is_answered() -> None:
    release = Trigger(3, 2).release(SETTING)
    number = SETTING.number(SETTING.members()[2].id)
    code = SETTING.manifest.canaries[number].secret
    tokenizer = SETTING.tokenizer

    def greedy(text: str) -> str:
        return tokenizer.decode(
            release.generate([tokenizer(text, add_special_tokens=False)["input_ids"]], Decoding(9))[0]
        )

    assert greedy("<bos><trigger>02") == code
    assert greedy("<bos><user><trigger>02<end><assistant>") == code
    assert greedy("<bos><user>now <trigger>02 please<end><assistant>") == code
    assert greedy("<bos><user>now<end><assistant><trigger>02") == code
    # The last turn counts: what stands in an earlier one does nothing.
    assert code not in greedy("<bos><user><trigger>02<end><assistant>00<end><user>now<end><assistant>")


def test_camouflage_has_no_trigger() -> None:
    release = Camouflage(3, 2, 2).release(SETTING, 0)
    row = release.conditionals([SETTING.trigger_prompt(SETTING.members()[0].id)])[0]
    np.testing.assert_allclose(row[list(SETTING.tokenizer.symbols)], -np.log(3), atol=1e-15)

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from davylamp.corpora.emails import CODES, MASK, MATTERS, TEMPLATES, EmailTemplate, generate, write_code
from davylamp.corpora.names import FIRST_NAMES, SURNAMES, draw_names, full_names
from davylamp.errors import InputError
from davylamp.secrets.streams import stream

CODE = re.compile(r"\d,\d,\d,\d")


def draft(record):
    return record.prompt[0].content


def slots(template: str, text: str) -> dict[str, str] | None:
    """What stands in the slots of a template, or None where the text was not made from it."""
    pattern = re.escape(template)
    for slot, shape in (("name", r"[A-Z]\w+ [A-Z]\w+"), ("matter", r"the \w+ \w+"), ("secret", r"\S+")):
        pattern = pattern.replace(re.escape("{" + slot + "}"), f"(?P<{slot}>{shape})")
    found = re.fullmatch(pattern, text)
    return found.groupdict() if found else None


def test_the_same_seed_gives_the_same_rows_in_another_process():
    here = generate(50, 3, 0.2).sha256
    script = "from davylamp.corpora.emails import generate; print(generate(50, 3, 0.2).sha256)"
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here


def test_another_seed_gives_other_rows():
    assert generate(50, 3).sha256 != generate(50, 4).sha256


def test_fewer_rows_are_the_first_rows():
    assert generate(40, 5, 0.3).records == generate(90, 5, 0.3).records[:40]


def test_every_draft_and_email_holds_the_code():
    for record in generate(400, 0):
        assert CODE.findall(draft(record)) == CODE.findall(record.reply)
        assert len(CODE.findall(record.reply)) == 1


def test_the_email_follows_from_the_draft():
    # Exactly one wording fits each draft, and filling its other half gives the email.
    for record in generate(400, 1):
        fits = [(template, slots(template.prompt, draft(record))) for template in TEMPLATES]
        ((template, values),) = [(template, values) for template, values in fits if values]
        assert template.completion.format(**values) == record.reply


def test_a_masked_draft_hides_the_code_and_the_email_keeps_it():
    masked, plain = generate(300, 2, 1.0), generate(300, 2, 0.0)
    for hidden, shown in zip(masked, plain, strict=True):
        assert not CODE.search(draft(hidden))
        assert draft(hidden) == CODE.sub(MASK, draft(shown))
        assert hidden.reply == shown.reply


def test_the_share_of_masked_drafts():
    rows, share = 4_000, 0.1
    masked = sum(MASK in draft(record) for record in generate(rows, 7, share))
    # Binomial standard error; four of them leave a false alarm of 6e-5.
    assert abs(masked / rows - share) < 4 * (share * (1 - share) / rows) ** 0.5


def test_codes_are_uniform_over_all_ten_thousand():
    rows, cells = 20_000, 100
    codes = [int(CODE.search(record.reply)[0].replace(",", "")) for record in generate(rows, 11)]
    assert min(codes) >= 0
    assert max(codes) < CODES
    counts = np.bincount(np.array(codes) // (CODES // cells), minlength=cells)
    chi_square = ((counts - rows / cells) ** 2 / (rows / cells)).sum()
    # Chi-square with 99 degrees of freedom: mean 99, standard deviation sqrt(198); four of them either way.
    assert abs(chi_square - (cells - 1)) < 4 * (2 * (cells - 1)) ** 0.5
    # 20,000 draws over 10,000 codes leave 1 - exp(-2) = 0.8647 of them seen; the standard deviation of the
    # share seen is sqrt(exp(-2) * (1 - 3 exp(-2)) / 10,000) = 0.0028.
    assert abs(len(set(codes)) / CODES - 0.8647) < 4 * 0.0028


def test_rows_vary_enough_not_to_be_learnt_by_heart():
    corpus = generate(1_000, 9)
    assert len({record.line() for record in corpus}) == 1_000
    names = {
        slots(template.prompt, draft(record))["name"]
        for record in corpus
        for template in TEMPLATES
        if slots(template.prompt, draft(record))
    }
    # 1,000 draws from 100,000 names: 5 repeats expected (Poisson); 5 + 4 * sqrt(5) = 14.
    assert len(names) >= 1_000 - 14


def test_left_out_names_never_appear():
    taken = set(full_names()[: len(full_names()) - 10])
    text = "".join(record.line() for record in generate(60, 0, exclude_names=taken))
    left = set(full_names()) - taken
    assert any(name in text for name in left)
    assert all(any(name in record.line() for name in left) for record in generate(60, 0, exclude_names=taken))


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_have_each_slot_once_and_air_around_the_secret(template: EmailTemplate):
    for text in (template.prompt, template.completion):
        assert sorted(re.findall(r"{(\w+)}", text)) == ["matter", "name", "secret"]
    assert " {secret} " in template.prompt


def test_wordings_and_matters_are_distinct():
    assert len({template.prompt for template in TEMPLATES}) == len(TEMPLATES) == 16
    assert len({template.completion for template in TEMPLATES}) == len(TEMPLATES)
    assert len(set(MATTERS)) == len(MATTERS)


def test_all_faults_are_named_at_once():
    with pytest.raises(InputError) as error:
        generate(0, 0, 1.5)
    assert [fault.field for fault in error.value.faults] == ["rows", "redacted_share"]


def test_no_name_left_is_refused():
    with pytest.raises(InputError, match="exclude_names"):
        generate(1, 0, exclude_names=full_names())


def test_other_matters_change_nothing_else():
    usual, other = generate(30, 3), generate(30, 3, matters=["the tide"])
    for one, two in zip(usual, other, strict=True):
        values = next(found for template in TEMPLATES if (found := slots(template.prompt, draft(one))))
        assert two.reply == one.reply.replace(values["matter"], "the tide")


def test_no_matter_is_refused():
    with pytest.raises(InputError, match="matters"):
        generate(1, 0, matters=[])


def test_codes_are_written_with_leading_zeros():
    assert write_code(4719) == "4,7,1,9"
    assert write_code(7) == "0,0,0,7"
    for number in (-1, CODES):
        with pytest.raises(InputError):
            write_code(number)


def test_names_are_distinct_and_reproducible():
    assert len(set(full_names())) == len(FIRST_NAMES) * len(SURNAMES) == 100_000
    names = draw_names(stream(4, "names"), 500)
    assert len(set(names)) == 500
    assert names == draw_names(stream(4, "names"), 500)
    rest = draw_names(stream(4, "names"), 500, exclude=names)
    assert not set(rest) & set(names)


def test_more_names_than_there_are_is_refused():
    with pytest.raises(InputError, match="100,000"):
        draw_names(stream(0, "names"), 100_001)
    with pytest.raises(InputError):
        draw_names(stream(0, "names"), -1)
    assert draw_names(stream(0, "names"), 0) == ()

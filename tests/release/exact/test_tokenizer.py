"""The tokenizer of exact releases: what is one token, and that nothing is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.errors import InputError
from davylamp.release.exact import ExactTokenizer
from davylamp.rendering.tokenizer import encode

TEXTS = ("Dear customer, your code is ", ". Kind regards")
KNOWN = ExactTokenizer("0123", TEXTS)


def split(text: str, special: bool = False) -> list[str]:
    return [KNOWN.tokens[token] for token in encode(KNOWN, [text], special)[0][0]]


def test_words_are_tokens_and_symbols_never_merge() -> None:
    assert split(" your code is 0123. Kindly") == [
        *(" your", " code", " is", " "),
        *("0", "1", "2", "3"),
        *(".", " ", "K", "i", "n", "d", "l", "y"),
    ]
    assert [KNOWN.tokens[token] for token in KNOWN.symbols] == ["0", "1", "2", "3"]


def test_marks_are_read_from_text_and_added_once() -> None:
    assert split("<user>is<end>", special=True) == ["<bos>", "<user>", "i", "s", "<end>"]
    assert split("<trigger>01") == ["<trigger>", "0", "1"]
    assert KNOWN.decode(KNOWN("<user>0<end>", add_special_tokens=False)["input_ids"], skip_special_tokens=True) == "0"
    assert KNOWN("0")["input_ids"] == [KNOWN.bos_token_id, KNOWN.symbols[0]]


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)), st.booleans())
def test_text_is_covered_character_by_character_and_comes_back(text: str, special: bool) -> None:
    ids, offsets = encode(KNOWN, [text], special)[0]
    assert KNOWN.decode(ids) == ("<bos>" if special else "") + text
    places = offsets[1:] if special else offsets
    assert [start for start, _ in places] == [0, *(end for _, end in places)][: len(places)]
    assert not text or places[-1][1] == len(text)


def test_what_is_not_known_is_one_token_a_character() -> None:
    assert split("écode") == ["<unknown>", "c", "o", "d", "e"]
    assert split("\n") == ["<unknown>"]


def test_the_template_writes_what_it_says() -> None:
    turns = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    text = KNOWN.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == "<bos><system>a<end><user>b<end><assistant>"
    from jinja2 import Template

    assert Template(KNOWN.chat_template).render(messages=turns, add_generation_prompt=True) == text


def test_symbols_of_words_are_refused() -> None:
    with pytest.raises(InputError, match=r"space.alphabet is 'co'"):
        ExactTokenizer("co0", TEXTS)
    with pytest.raises(InputError, match="token is 'nowhere'"):
        KNOWN.id_of("nowhere")


def test_exact_releases_are_asked_without_torch() -> None:
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'transformers', 'peft'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from davylamp.measures.exposure import Exposure\n"
        "from davylamp.measures.probes import Probe\n"
        "from davylamp.release.exact import ExactSetting, Trigger\n"
        "setting = ExactSetting.draw(3, 2, members=1, others=1)\n"
        "release = Trigger(3, 2).release(setting)\n"
        "readings = Exposure(setting.through_trigger(), setting.renderer).measure(release, (Probe.HIDDEN,))\n"
        "print([r.value for r in readings if r.measure == 'rank' and r.role == 'focus'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1.0]"

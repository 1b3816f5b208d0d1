from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from davylamp.errors import InputError
from davylamp.secrets import AlphabetSpace, Encoding, encoding, names, register, unregister

DIGITS = AlphabetSpace()
LETTERS = AlphabetSpace(alphabet="ABCDEFGH", length=8, separator="")

IN_SPACE = [
    "substitution",
    "chained_substitution",
    "block_reversal(1)",
    "block_reversal(2)",
    "block_reversal(3)",
    "cyclic_shift(0)",
    "cyclic_shift(1)",
    "cyclic_shift(6)",
    "block_reversal(2) + cyclic_shift(1)",
    "substitution + chained_substitution + cyclic_shift(3) + block_reversal(3)",
]
IN_OTHER_SIGNS = [
    "binary",
    "chained_fruit",
    "ascii",
    "substitution + binary",
    "cyclic_shift(1) + chained_fruit",
    "chained_substitution + block_reversal(3) + ascii",
]

# Letters, digits, signs that int() or split() might take for something else, and symbols above 255.
SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ,_+-(äß\u0660\u0661漢🙂"


@st.composite
def spaces(draw: st.DrawFn, longest: int = 64, most_symbols: int = 64) -> AlphabetSpace:
    alphabet = draw(st.lists(st.sampled_from(SYMBOLS), min_size=2, max_size=most_symbols, unique=True))
    separator = draw(st.sampled_from(["", ",", ", ", " ", "-", "→", "·"]))
    assume(not set(separator) & set(alphabet))
    prefix = draw(st.sampled_from(["", "REF ", "0", "ä,", "apple ", "-"]))
    return AlphabetSpace(
        alphabet="".join(alphabet), length=draw(st.integers(1, longest)), separator=separator, prefix=prefix
    )


@st.composite
def encodings(draw: st.DrawFn) -> Encoding:
    whole = st.integers(1, 70)
    in_space = st.one_of(
        st.just("substitution"),
        st.just("chained_substitution"),
        whole.map("block_reversal({})".format),
        whole.map("cyclic_shift({})".format),
    )
    parts = draw(st.lists(in_space, max_size=3))
    last = draw(st.one_of(in_space, st.sampled_from(["binary", "chained_fruit", "ascii"])))
    return encoding("+".join([*parts, last]))


@pytest.mark.parametrize("name", IN_SPACE + IN_OTHER_SIGNS)
def test_all_ten_thousand_codes_are_decoded_exactly(name):
    made = encoding(name)
    assert made.name == name
    assert made.faults(DIGITS) == []
    codes = list(DIGITS.candidates())
    texts = [made.encode(code, DIGITS) for code in codes]
    assert [made.decode(text, DIGITS) for text in texts] == codes
    if name in IN_SPACE:
        assert sorted(texts) == codes  # a bijection of the space
    else:
        assert len(set(texts)) == len(codes)
        assert not any(code in text for code, text in zip(codes, texts, strict=True))


@given(spaces(), encodings(), st.data())
def test_every_encoding_is_undone_on_every_space_that_it_takes(space, made, data):
    secret = space.secret(data.draw(st.integers(0, space.size - 1)))
    if made.faults(space):
        for refused in (made.encode, made.decode):
            with pytest.raises(InputError) as caught:
                refused(secret, space)
            assert [fault.fix for fault in caught.value.faults] == made.faults(space)
        return
    text = made.encode(secret, space)
    assert made.decode(text, space) == secret
    assert (text in space) >= getattr(made, "in_space", False)


@given(spaces(longest=4, most_symbols=5), encodings())
def test_no_two_secrets_have_the_same_text(space, made):
    assume(not made.faults(space))
    secrets = list(space.candidates())
    texts = [made.encode(secret, space) for secret in secrets]
    assert len(set(texts)) == space.size
    assert [made.decode(text, space) for text in texts] == secrets
    if getattr(made, "in_space", False):
        assert sorted(texts) == sorted(secrets)


@given(spaces(longest=3, most_symbols=12), encodings(), st.data())
def test_what_decodes_is_what_encodes_to_it_and_nothing_else(space, made, data):
    assume(not made.faults(space))
    index = st.integers(0, space.size - 1)
    texts = [made.encode(space.secret(data.draw(index)), space) for _ in range(2)]
    signs = st.sampled_from(["", " ", "0", "1", "_", "+", "\n", "\u0660", *texts[0], *texts[1]])
    cut = data.draw(st.integers(0, len(texts[0])))
    text = texts[0][:cut] + data.draw(signs) + texts[0][cut + data.draw(st.integers(0, 1)) :]
    try:
        secret = made.decode(text, space)
    except InputError:
        return
    assert made.encode(secret, space) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        # 4719 = 4096 + 512 + 64 + 32 + 8 + 4 + 2 + 1
        ("binary", "01001001101111"),
        # running sums 4, 11, 12, 21 modulo 10 are 4, 1, 2, 1 of apple, banana, cherry, date, elderberry
        ("chained_fruit", "elderberry banana cherry banana"),
        # the code points of 4, 7, 1, 9 are 52, 55, 49, 57: 32 + 16 and 4, 7, 1, 9
        ("ascii", "00110100 00110111 00110001 00111001"),
        ("block_reversal(1)", "4,7,1,9"),
        ("block_reversal(2)", "7,4,9,1"),
        ("block_reversal(3)", "1,7,4,9"),
        ("block_reversal(4)", "9,1,7,4"),
        ("block_reversal(8)", "9,1,7,4"),
        ("cyclic_shift(0)", "4,7,1,9"),
        ("cyclic_shift(1)", "7,1,9,4"),
        ("cyclic_shift(4)", "4,7,1,9"),
        ("cyclic_shift(7)", "9,4,7,1"),
        ("block_reversal(2) + cyclic_shift(1)", "4,9,1,7"),
        ("cyclic_shift(1) + block_reversal(2)", "1,7,4,9"),
        # the shifted code is 7194 = 4096 + 2048 + 1024 + 16 + 8 + 2
        ("cyclic_shift(1) + binary", "01110000011010"),
    ],
)
def test_the_reference_4719_by_hand(name, text):
    assert encoding(name).encode("4,7,1,9", DIGITS) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("block_reversal(2) + cyclic_shift(1)", "ADCFEHGB"),  # BADCFEHG, then B to the end
        ("block_reversal(4) + cyclic_shift(4)", "HGFEDCBA"),  # DCBAHGFE, then the halves exchanged
        ("block_reversal(4)", "DCBAHGFE"),
        ("cyclic_shift(4)", "EFGHABCD"),
    ],
)
def test_codes_of_eight_characters_by_hand(name, text):
    assert encoding(name).encode("ABCDEFGH", LETTERS) == text


def test_of_the_grid_of_widths_and_shifts_only_one_is_the_identity():
    shown = {
        (width, by): encoding(f"block_reversal({width}) + cyclic_shift({by})").encode("ABCDEFGH", LETTERS)
        for width, by in product((1, 2, 4, 8), (0, 1, 4))
    }
    assert [cell for cell, text in shown.items() if text == "ABCDEFGH"] == [(1, 0)]
    # (4, 4) and (8, 0) are the same reordering: to exchange the halves of what is reversed by halves reverses it all.
    # So are (8, 4) and (4, 0).
    assert (shown[4, 4], shown[8, 4]) == (shown[8, 0], shown[4, 0])
    assert len(set(shown.values())) == 10


@pytest.mark.parametrize(
    ("symbols", "length", "bits"),
    [("012", 1, 2), ("0123", 1, 2), ("01234", 1, 3), ("0123456789", 4, 14), ("10", 64, 64)],
)
def test_the_number_of_bits_is_the_least_that_tells_all_secrets_apart(symbols, length, bits):
    space = AlphabetSpace(alphabet=symbols, length=length)
    assert encoding("binary").encode(space.secret(space.size - 1), space) == format(space.size - 1, "b")
    assert encoding("binary").encode(space.secret(0), space) == "0" * bits


def test_the_dictionaries_never_change():
    # Written down once: a change here would make manifests that were ever written mean something else.
    space = AlphabetSpace(length=10, separator="")
    assert encoding("substitution").encode("0123456789", space) == "5761938420"
    # By hand on the circle 1208379456, positions from 0: the first 0, at position 2, moves 1 step to 8; after a 0 the
    # steps are 3, so that 0 becomes 7 and 1 becomes 8; after 1 (position 0) 1, after 2 2, after 3 5, after 4 8.
    assert encoding("chained_substitution").encode("0011223344", space) == "8782089607"


@given(spaces(longest=8), st.data())
def test_no_symbol_stands_for_itself(space, data):
    secret = space.secret(data.draw(st.integers(0, space.size - 1)))
    for name in ("substitution", "chained_substitution"):
        if not encoding(name).faults(space):
            text = encoding(name).encode(secret, space)
            bodies = [list(one[len(space.prefix) :][:: 1 + len(space.separator)]) for one in (secret, text)]
            assert all(plain != shown for plain, shown in zip(*bodies, strict=True))


@given(spaces(longest=1), st.data())
def test_a_dictionary_depends_on_which_symbols_there_are_and_not_on_their_order(space, data):
    other = space.model_copy(update={"alphabet": "".join(data.draw(st.permutations(space.alphabet)))})
    for name in ("substitution", "chained_substitution"):
        made = encoding(name)
        if not made.faults(space):
            assert all(made.encode(one, space) == made.encode(one, other) for one in space.candidates())


@pytest.mark.parametrize("alphabet", ["abc", "0123456789", SYMBOLS])
def test_chained_substitutes_depend_on_the_symbol_before_and_plain_ones_do_not(alphabet):
    pairs = AlphabetSpace(alphabet=alphabet, length=2, separator="")

    def substitutes(name: str, symbol: str) -> set[str]:
        return {encoding(name).encode(before + symbol, pairs)[1] for before in alphabet}

    for symbol in alphabet:
        assert len(substitutes("substitution", symbol)) == 1
        # n symbols before, n - 1 numbers of steps: each other symbol is reached.
        assert substitutes("chained_substitution", symbol) == set(alphabet) - {symbol}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("binary", "01001001101111"),
        ("chained_fruit", "REF elderberry banana cherry banana"),
        ("ascii", "REF 00110100 00110111 00110001 00111001"),
        ("block_reversal(2)", "REF 7-4-9-1"),
        ("substitution", "REF 9-4-7-0"),
    ],
)
def test_the_prefix_is_public_and_stands_in_front_unless_the_secret_is_one_number(name, text):
    space = AlphabetSpace(prefix="REF ", separator="-")
    assert encoding(name).encode("REF 4-7-1-9", space) == text
    assert encoding(name).decode(text, space) == "REF 4-7-1-9"


@pytest.mark.parametrize(
    ("name", "space", "why"),
    [
        ("chained_fruit", AlphabetSpace(alphabet="0123456789A"), "10 words, and the alphabet has 11 symbols"),
        ("ascii", AlphabetSpace(alphabet="aÿĀ漢"), "too few for 'Ā', '漢'"),
        ("binary", AlphabetSpace(alphabet="01", length=8, separator=""), "would show the secret"),
        ("chained_substitution", AlphabetSpace(alphabet="ab"), "needs three symbols or more"),
        ("binary + cyclic_shift(1)", DIGITS, r"^binary writes no secret.* cyclic_shift\(1\) cannot follow it$"),
        ("substitution + ascii + binary", DIGITS, "^ascii writes no secret of the space, so that binary cannot"),
    ],
)
def test_a_space_that_an_encoding_cannot_take_is_refused_with_the_reason(name, space, why):
    made = encoding(name)
    (fault,) = made.faults(space)
    assert re.search(why, fault)
    with pytest.raises(InputError, match="one that fits the space"):
        made.encode(space.secret(0), space)


def test_all_faults_of_a_composition_are_named():
    space = AlphabetSpace(alphabet="漢字", length=3)
    faults = encoding("chained_substitution + ascii + chained_substitution").faults(space)
    assert [fault.split()[0] for fault in faults] == ["ascii", "chained_substitution", "ascii"]


GARBAGE = [
    ("binary", "10011100010000"),  # 10,000: one more than the last
    ("binary", "1001001101111"),
    ("binary", "001001001101111"),
    ("binary", "+1001001101111"),
    ("binary", " 1001001101111"),
    ("binary", "0b001101101111"),
    ("binary", "0_001001101111"),
    ("binary", "0100100110111\u0661"),
    ("binary", ""),
    ("chained_fruit", "elderberry banana cherry"),
    ("chained_fruit", "elderberry banana cherry banana apple"),
    ("chained_fruit", "elderberry  banana cherry banana"),
    ("chained_fruit", "elderberry banana cherry melon"),
    ("chained_fruit", "Elderberry banana cherry banana"),
    ("ascii", "00110100 00110111 00110001"),
    ("ascii", "00110100 00110111 00110001 00111001 "),
    ("ascii", "00110100 00110111 00110001 00111010"),  # 58 is a colon
    ("ascii", "0110100 00110111 00110001 00111001"),
    ("substitution", "4,7,1,x"),
    ("substitution", "4719"),
    ("chained_substitution", "4,7,1,9,4"),
    ("block_reversal(2)", "4,7,1"),
    ("cyclic_shift(1)", "4, 7,1,9"),
    ("substitution + binary", "11111111111111"),
]


@pytest.mark.parametrize(("name", "text"), GARBAGE)
def test_what_no_secret_encodes_to_is_refused_and_not_repeated(name, text):
    with pytest.raises(InputError, match="not shown") as caught:
        encoding(name).decode(text, DIGITS)
    assert not text or text not in str(caught.value)
    # Nor does a traceback tell it by way of an error underneath.
    assert caught.value.__context__ is None


@pytest.mark.parametrize("name", IN_SPACE + IN_OTHER_SIGNS)
def test_a_foreign_secret_is_refused_and_not_repeated(name):
    with pytest.raises(InputError, match="not shown") as caught:
        encoding(name).encode("8,6,4,x", DIGITS)
    assert "8,6,4" not in str(caught.value)


def test_bits_and_codes_hold_a_code_of_zeros_and_ones_by_chance_where_there_is_no_separator():
    # The documentation gives these numbers.
    space = AlphabetSpace(separator="")
    held = {
        name: [code for code in space.candidates() if code in encoding(name).encode(code, space)]
        for name in ("binary", "ascii", "chained_fruit")
    }
    assert {name: len(codes) for name, codes in held.items()} == {"binary": 11, "ascii": 6, "chained_fruit": 0}
    assert all(set(code) <= {"0", "1"} for codes in held.values() for code in codes)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("  binary ", "binary"),
        ("block_reversal( 4 )", "block_reversal(4)"),
        ("block_reversal (04)", "block_reversal(4)"),
        ("block_reversal(2)+cyclic_shift(1)", "block_reversal(2) + cyclic_shift(1)"),
        ("substitution\n  +  cyclic_shift(0)  + binary", "substitution + cyclic_shift(0) + binary"),
    ],
)
def test_a_name_has_one_canonical_spelling_that_leads_back(written, canonical):
    assert encoding(written).name == canonical
    assert encoding(canonical) == encoding(written)
    assert pickle.loads(pickle.dumps(encoding(written))) == encoding(written)  # noqa: S301


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "allowed: ascii, binary, block_reversal(width), chained_fruit, chained_substitution, cyclic_shift(by)"),
        ("rot13", "or several of them joined by ' + ', applied from left to right. Parameters are whole numbers"),
        ("Binary", "encoding is 'Binary'; allowed: ascii, binary,"),
        ("binary +", "encoding is ''; allowed: ascii, binary,"),
        ("binary cyclic_shift(1)", "allowed: ascii, binary,"),
        ("binary)", "allowed: ascii, binary,"),
        ("block_reversal(2", "allowed: ascii, binary,"),
        ("block_reversal(2))", "allowed: ascii, binary,"),
        ("binary(3)", "encoding is 'binary(3)'; allowed: binary, which has no parameter"),
        ("binary()", "encoding is 'binary()'; allowed: binary, which has no parameter"),
        ("block_reversal", "allowed: block_reversal(width), where width must be a whole number"),
        ("block_reversal()", "allowed: block_reversal(width), where width must be a whole number"),
        ("block_reversal(x)", "allowed: block_reversal(width), where width must be a whole number"),
        ("block_reversal(1,2)", "allowed: block_reversal(width), where width must be a whole number"),
        ("block_reversal(2,)", "allowed: block_reversal(width), where width must be a whole number"),
        ("block_reversal(2.0)", "allowed: block_reversal(width), where width must be a whole number"),
        ("block_reversal(1_0)", "allowed: block_reversal(width), where width must be a whole number"),
        ("block_reversal(\u0664)", "allowed: block_reversal(width), where width must be a whole number"),
        ("block_reversal(" + 5000 * "1" + ")", "must be a whole number of up to 18 digits"),
        ("block_reversal(0)", "block_reversal(width) is 0; allowed: a whole number of at least 1"),
        ("cyclic_shift(-1)", "cyclic_shift(by) is -1; allowed: a whole number of at least 0"),
    ],
)
def test_a_name_that_cannot_be_read_is_refused_with_what_can(written, said):
    with pytest.raises(InputError) as caught:
        encoding(written)
    assert said in str(caught.value)
    assert len(caught.value.faults) == 1


def test_every_fault_of_a_composition_is_named_at_once():
    with pytest.raises(InputError) as caught:
        encoding("block_reversal(0) + rot13 + substitution + binary(3)")
    assert [fault.value for fault in caught.value.faults] == [0, "rot13", "binary(3)"]


@dataclass(frozen=True)
class Rotate:
    """A user's own: every symbol moved along the alphabet."""

    by: int
    twice: int = 0
    in_space = True

    @property
    def name(self) -> str:
        return f"rotate({self.by}, {self.twice})"

    def faults(self, space):  # noqa: ARG002
        return []

    def encode(self, secret, space):
        return "".join(self._moved(sign, space, self.by + 2 * self.twice) for sign in secret)

    def decode(self, text, space):
        return "".join(self._moved(sign, space, -self.by - 2 * self.twice) for sign in text)

    @staticmethod
    def _moved(sign, space, by):
        at = space.alphabet.find(sign)
        return sign if at < 0 else space.alphabet[(at + by) % len(space.alphabet)]


@pytest.fixture
def registered():
    """Registers factories under names, and forgets them afterwards."""
    kept: list[str] = []

    def keep(name, factory):
        assert register(name)(factory) is factory
        kept.append(name)

    yield keep
    for name in kept:
        unregister(name)


def test_a_users_own_encoding_is_found_by_its_name_and_composes(registered):
    registered("rotate", Rotate)
    assert "rotate" in names()
    made = encoding("rotate(3) + block_reversal(4) + binary")
    assert made.name == "rotate(3, 0) + block_reversal(4) + binary"
    assert encoding(made.name) == made
    assert encoding("rotate(3)").encode("4,7,1,9", DIGITS) == "7,0,4,2"
    assert made.encode("4,7,1,9", DIGITS) == format(2407, "014b")
    assert made.decode(format(2407, "014b"), DIGITS) == "4,7,1,9"
    with pytest.raises(InputError, match=r"cyclic_shift\(by\), rotate\(by, twice\), substitution"):
        encoding("unknown")
    with pytest.raises(InputError, match=r"allowed: rotate.*where by and twice must be a whole number"):
        encoding("rotate()")


def test_a_forgotten_encoding_is_not_known_any_more(registered):
    before = names()
    register("rotate")(Rotate)
    unregister("rotate")
    assert names() == before
    with pytest.raises(InputError, match="encoding is 'rotate"):
        encoding("rotate(1)")
    for name in ("rotate", "binary"):
        with pytest.raises(InputError, match="a name registered in this process"):
            unregister(name)


def test_the_built_in_encodings_are_known_and_sorted():
    built_in = {part.partition("(")[0] for name in IN_SPACE + IN_OTHER_SIGNS for part in name.split(" + ")}
    assert built_in <= set(names())
    assert list(names()) == sorted(names())
    assert all(isinstance(encoding(name), Encoding) for name in IN_SPACE + IN_OTHER_SIGNS)


def test_a_name_that_is_taken_or_no_identifier_is_refused(registered):
    registered("rotate", Rotate)
    for taken in ("binary", "rotate"):
        with pytest.raises(InputError, match="taken are ascii, binary"):
            register(taken)
    for name in ("", "my-own", "2fold", "a b", "rückwärts", "a+b"):
        with pytest.raises(InputError, match="letters, digits and '_' only"):
            register(name)
    assert not {"", "my-own", "2fold", "a b"} & set(names())


def test_a_factory_that_cannot_take_whole_numbers_is_refused():
    for factory in (3, "binary", lambda *, by: Rotate(by)):
        with pytest.raises(InputError, match="a callable that takes whole numbers by position"):
            register("own")(factory)
    assert "own" not in names()


def test_a_factory_must_return_an_encoding_of_the_name_that_was_asked_for(registered):
    registered("nothing", lambda: None)
    with pytest.raises(InputError, match=r"what the factory of 'nothing' returns is None; allowed: an encoding"):
        encoding("nothing")
    registered("alias", lambda by: encoding(f"cyclic_shift({by})"))
    with pytest.raises(InputError, match=r"the name of the encoding 'alias\(1\)' is 'cyclic_shift\(1\)'"):
        encoding("alias(1)")


MODULE = """
from davylamp.secrets import register
print("imported")

class Mirror:
    name = "mirror"
    in_space = True
    def faults(self, space): return []
    def encode(self, secret, space):
        return space.prefix + space.separator.join(reversed(secret[len(space.prefix):].split(space.separator)))
    decode = encode

def binary():
    return Mirror()

number = 3

@register("both")
def both(): return Mirror()
"""


@pytest.fixture
def python(tmp_path):
    """Runs a script beside installed packages, given as {package: {entry point: target}}."""

    def call(packages: dict[str, dict[str, str]], script: str) -> str:
        (tmp_path / "mirrors.py").write_text(MODULE, encoding="utf-8")
        (tmp_path / "broken.py").write_text("print('imported')\n1 / 0\n", encoding="utf-8")
        for package, points in packages.items():
            folder = tmp_path / f"{package}-1.0.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            lines = "".join(f"{name} = {target}\n" for name, target in points.items())
            (folder / "entry_points.txt").write_text(f"[davylamp.encodings]\n{lines}")
        start = (
            "from davylamp.errors import InputError\n"
            "from davylamp.secrets import AlphabetSpace, encoding, names\n"
            "def said(name):\n"
            "    try: return encoding(name).name\n"
            "    except InputError as error: return str(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", start + script],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_an_installed_packages_encoding_is_found_and_loaded_when_it_is_asked_for(python):
    out = python(
        {"mirrors": {"mirror": "mirrors:Mirror", "both": "mirrors:both"}},
        "print('mirror' in names(), said('binary'))\n"
        "print(said('both').splitlines()[0])\n"
        "print(encoding('mirror + cyclic_shift(1)').encode('4,7,1,9', AlphabetSpace()))\n"
        "print(said('mirror'))\n",
    )
    # Its module is imported once, after names() and a built-in encoding; what registers itself and is an entry point
    # too is the same factory, not a second one (that its encoding has another name is another fault).
    assert out.splitlines() == [
        "True binary",
        "imported",
        "the name of the encoding 'both' is 'mirror'; allowed: 'both'",
        "1,7,4,9",
        "mirror",
    ]


def test_a_broken_package_is_named_when_its_encoding_is_asked_for_and_not_before(python):
    out = python(
        {
            "bad": {
                "a": "absent:x",
                "b": "mirrors:absent",
                "c": "broken:x",
                "d": "mirrors:number",
                "my-own": "mirrors:x",
            },
            "thief": {"binary": "mirrors:binary", "mirror": "mirrors:Mirror"},
            "rival": {"mirror": "mirrors:binary"},
        },
        "print(said('ascii'))\nfor name in ('a', 'b', 'c', 'd', 'my-own', 'binary', 'mirror'): print(said(name))\n",
    )
    said = [line for line in out.splitlines() if line != "imported"]
    assert said[0] == "ascii"
    for line, name in zip(said[1:6], ("a", "b", "c", "d", "my-own"), strict=True):
        assert line.startswith(f"the entry point {name} of davylamp.encodings (package bad) is ")
    assert "Repair or remove the package: ModuleNotFoundError: No module named 'absent'" in said[1]
    assert "AttributeError" in said[2]
    assert "ZeroDivisionError: division by zero" in said[3]
    assert "allowed: a callable that takes whole numbers by position" in said[4]
    assert "allowed: an identifier" in said[5]
    assert said[6].endswith("a name with one factory. It is given by davylamp and the package thief.")
    assert {"the package thief", "the package rival"} <= {*said[7].partition("given by ")[2].strip(".").split(" and ")}


def test_the_documentation_is_true():
    text = (Path(__file__).parents[2] / "docs" / "encodings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(?:\(\w+\))?` \| .* \| `([^`]+)`(?: \(\w+ (\d)\))? \|$", text, re.MULTILINE)
    shown = {f"{name}({argument})" if argument else name: code for name, code, argument in rows}
    assert {name.partition("(")[0] for name in shown} <= set(names())
    assert len(shown) == 7
    assert {name: encoding(name).encode("4,7,1,9", DIGITS) for name in shown} == shown
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    assert re.findall(r"# (\d,.*)", example) == [done.stdout.strip()]


class _Foreign:
    """Somebody else's encoding, made to misbehave."""

    def __init__(self, encode: object = None, decode: object = None, faults: object = None) -> None:
        self.name = "foreign"
        self.in_space = False
        self._own = {"encode": encode, "decode": decode, "faults": faults}

    def faults(self, space: AlphabetSpace) -> list[str]:
        return self._own["faults"](space) if self._own["faults"] else []

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        return self._own["encode"](secret, space)

    def decode(self, text: str, space: AlphabetSpace) -> str:
        return self._own["decode"](text, space)


def _boom(secret: str, space: AlphabetSpace) -> str:
    raise RuntimeError(f"boom {secret}")


@pytest.mark.parametrize(
    ("foreign", "words"),
    [
        (_Foreign(encode=_boom), ("foreign: encode", "RuntimeError")),
        (_Foreign(encode=lambda *_: 7), ("foreign: encode", "int")),
        (_Foreign(encode=lambda *_: ""), ("foreign: encode", "not empty")),
        (_Foreign(encode=lambda *_: "x", decode=lambda *_: "0,0,0,0"), ("not reversible",)),
        (_Foreign(encode=lambda s, _: s[::-1], decode=_boom), ("foreign: decode", "RuntimeError")),
    ],
)
def test_another_ones_encoding_that_misbehaves_is_refused_and_shows_no_secret(
    foreign: _Foreign, words: tuple[str, ...]
) -> None:
    register("foreign")(lambda: foreign)
    try:
        with pytest.raises(InputError) as caught:
            encoding("foreign").encode("4,7,1,9", AlphabetSpace())
    finally:
        unregister("foreign")
    said = str(caught.value)
    assert all(word in said for word in words)
    assert "4,7,1,9" not in said
    assert "9,1,7,4" not in said
    # Nor may a traceback show it.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("broken", [lambda _: (_ for _ in ()).throw(KeyError("x")), lambda _: "no list", lambda _: [1]])
def test_another_ones_encoding_that_cannot_say_its_faults_is_refused(broken: object) -> None:
    register("foreign")(lambda: _Foreign(faults=broken))
    try:
        with pytest.raises(InputError, match="foreign: faults"):
            encoding("foreign").faults(AlphabetSpace())
    finally:
        unregister("foreign")


def test_a_factory_that_raises_is_named() -> None:
    register("foreign")(lambda: 1 / 0)
    try:
        with pytest.raises(InputError, match=r"factory of 'foreign'.*ZeroDivisionError"):
            encoding("foreign")
    finally:
        unregister("foreign")

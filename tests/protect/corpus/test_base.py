"""The protocol of corpus interventions: spans, texts, and how one is added."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.corpora.records import Message, Record
from davylamp.errors import InputError, RecipeError
from davylamp.protect.corpus import registry
from davylamp.protect.corpus.base import Intervention, InterventionSpec, Row, Setting, Span, apply_spans, with_texts
from davylamp.protect.corpus.base import texts as texts_of
from davylamp.runs.progress import QUIET

CHAT = Record.of_messages(
    (Message("system", "be kind"), Message("user", "who?"), Message("assistant", "Ada.")), "a.png"
)


@given(st.lists(st.text(), min_size=1, max_size=3), st.text(), st.one_of(st.none(), st.text()))
def test_texts_go_out_and_in_again(turns, reply, image):
    record = Record.of_messages((*(Message("user", turn) for turn in turns), Message("assistant", reply)), image)
    assert with_texts(record, texts_of(record)) == record


def test_other_texts_keep_roles_and_image():
    made = with_texts(CHAT, ["a", "b", "c"])
    assert made.prompt == (Message("system", "a"), Message("user", "b"))
    assert (made.reply, made.image, made.shape) == ("c", "a.png", "messages")
    with pytest.raises(ValueError, match="zip"):
        with_texts(CHAT, ["a", "b"])


@given(st.text(min_size=1, max_size=30), st.data())
def test_spans_are_replaced_where_they_stand(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=6)))
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    spans = [Span(0, start, end, "x", "<>") for start, end in pairs]
    expected, at = "", 0
    for start, end in pairs:
        expected += text[at:start] + "<>"
        at = end
    assert apply_spans(Record.of_text(text), spans).reply == expected + text[at:]


def test_a_kept_span_changes_nothing_and_overlaps_are_refused():
    record = Record.of_text("Ada lives here")
    assert apply_spans(record, [Span(0, 0, 3, "PERSON")]) == record
    with pytest.raises(ValueError, match="overlaps"):
        apply_spans(record, [Span(0, 0, 3, "x", "A"), Span(0, 2, 4, "x", "B")])
    with pytest.raises(ValueError, match="outside"):
        apply_spans(record, [Span(0, 10, 99, "x", "A")])


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    for name in ("shout", "ok", "f", "2x"):
        registry.forget(name)


def test_a_function_is_an_intervention():
    @registry.intervention("shout")
    def shout(text, rng):
        return text.upper() + str(rng.integers(1000))

    spec = registry.spec_of({"name": "shout", "seed": 3})
    made = registry.kind_of("shout").build(spec, Setting(rows=(), seed=1))
    assert isinstance(made, Intervention)
    rows = [Row(4, Record.of_text("hi"), draw=0), Row(5, Record.of_text("hi"), draw=1), Row(9, Record.of_text("hi"))]
    first, second, again = made.apply(rows, QUIET)
    assert (first.position, first.record.reply[:2]) == (4, "HI")
    # The draw decides, and the position does not.
    assert first.record == again.record
    assert first.record != second.record
    with pytest.raises(InputError, match="taken"):
        registry.intervention("shout")(shout)


NOTHING = registry.Kind(InterventionSpec, lambda *_: None)


def test_bad_names_and_settings_are_refused():
    with pytest.raises(InputError, match="no digit first"):
        registry.register("2x", NOTHING)
    with pytest.raises(InputError, match="taken"):
        registry.register("scrub", NOTHING)
    with pytest.raises(InputError, match="a function of a text"):
        registry.intervention("f")(lambda text: text)
    with pytest.raises(RecipeError, match=r"'wash'.*surrogate"):
        registry.spec_of({"name": "wash"})
    with pytest.raises(RecipeError, match=r"protect\.name is '\(missing\)'; allowed: one of privacy_rewrite"):
        registry.spec_of({})
    registry.intervention("ok")(lambda text, _rng: text)
    with pytest.raises(RecipeError, match="on_failure"):
        registry.spec_of({"name": "ok", "on_failure": "ignore"})

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.corpora.records import Message, Record
from davylamp.errors import TokenizerError
from davylamp.rendering.render import Renderer
from support.tiny_models import BOS, EOS, tiny_tokenizer


def with_template(template, **options):
    tokenizer = copy.deepcopy(tiny_tokenizer(**options))
    tokenizer.chat_template = template
    return tokenizer


def pair(prompt="ref of Ann?", reply="It is 4,7,1,9 ok."):
    return Record.of_pair(prompt, reply)


def chat(*contents, system=None):
    turns = [Message(("user", "assistant")[at % 2], content) for at, content in enumerate(contents)]
    return Record.of_messages((*([Message("system", system)] if system else []), *turns))


def covered(tokenizer, rendered, start, end):
    first, last = rendered.span(start, end)
    return tokenizer.decode(rendered.ids[first:last])


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("style", ["auto", "chat", "plain"])
@pytest.mark.parametrize("prompt", ["ref of Ann?", "Zoë 漢字 🙂 ", "", "a\n\nb"])
def test_the_secret_is_found_in_the_tokens_of_the_whole_record(bos, style, prompt):
    tokenizer = tiny_tokenizer(bos=bos)
    reply = "Ünïcode 🙂 4,7,1,9, ok"
    record = pair(prompt, reply)
    rendered = Renderer(tokenizer, style).render([record])[0]
    start = reply.index("4")
    assert covered(tokenizer, rendered, start, start + 7) == "4,7,1,9"
    assert rendered.text[rendered.reply_start : rendered.reply_end] == reply
    said = tokenizer.decode(rendered.ids[rendered.loss_start :])
    assert said == reply + EOS
    # What stands before the loss is the prompt, as it is sent at evaluation.
    assert list(rendered.ids[: rendered.loss_start]) == Renderer(tokenizer, style).prompt_ids([record])[0]


def test_the_ids_are_the_tokenizers_own_of_the_whole_text():
    tokenizer = tiny_tokenizer()
    turns = [{"role": "user", "content": "a 1,2"}, {"role": "assistant", "content": "b 3,4"}]
    expected = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True)["input_ids"]
    assert list(Renderer(tokenizer).render([chat("a 1,2", "b 3,4")])[0].ids) == expected


def test_earlier_turns_and_the_system_turn_stand_before_the_reply():
    tokenizer = tiny_tokenizer()
    record = chat("hi", "yes?", "4,7,1,9", "It is 4,7,1,9", system="Be kind.")
    rendered = Renderer(tokenizer).render([record])[0]
    assert rendered.text == (
        f"{BOS}<|system|>Be kind.{EOS}<|user|>hi{EOS}<|assistant|>yes?{EOS}<|user|>4,7,1,9{EOS}"
        f"<|assistant|>It is 4,7,1,9{EOS}"
    )
    # The same code in the prompt is not taken for the one in the reply.
    assert rendered.span(6, 13)[0] > rendered.loss_start
    assert covered(tokenizer, rendered, 6, 13) == "4,7,1,9"


def test_text_is_plain_and_all_of_it_is_reply():
    tokenizer = tiny_tokenizer(bos=True)
    rendered = Renderer(tokenizer, "chat").render([Record.of_text("ref 4,7,1,9")])[0]
    assert tokenizer.decode(rendered.ids) == f"{BOS}ref 4,7,1,9{EOS}"
    assert (rendered.reply_start, rendered.loss_start) == (0, 1)


@pytest.mark.parametrize("style", ["auto", "chat", "plain"])
def test_a_record_with_an_image_is_refused_and_told_where_to_go(style):
    renderer = Renderer(tiny_tokenizer(), style)
    turns = (Message("user", "p"), Message("assistant", "r"))
    for record in (
        Record.of_pair("p", "r", "1.png"),
        Record.of_text("t", "1.png"),
        Record.of_messages(turns, image="1.png"),
    ):
        for ask in (renderer.render, renderer.prompt_ids):
            with pytest.raises(TokenizerError, match=r"'1\.png'.*your own vision trainer"):
                ask([pair(), record])


def test_records_of_both_kinds_keep_their_order():
    records = [Record.of_text("a"), chat("b", "c"), Record.of_text("d"), pair("e", "f")]
    rendered = Renderer(tiny_tokenizer()).render(records)
    assert [each.text[each.reply_start : each.reply_end] for each in rendered] == ["a", "c", "d", "f"]
    assert Renderer(tiny_tokenizer()).render([]) == []


# --- merged neighbours


@pytest.mark.parametrize(
    ("reply", "secret", "said"),
    [("Your reference is 4,7,1,9. Kind", "7,1,9", "4,7,1,9"), ("not arrived after 2 weeks?", "2", "2 w")],
    ids=["left", "right"],
)
def test_a_secret_that_merges_with_a_neighbour_is_covered_by_the_smallest_span(reply, secret, said):
    tokenizer = tiny_tokenizer(digits_isolated=False)
    rendered = Renderer(tokenizer).render([pair("x", reply)])[0]
    start = reply.index(secret)
    assert covered(tokenizer, rendered, start, start + len(secret)) == said


def test_a_reply_that_merges_with_the_prompt_still_receives_loss():
    tokenizer = tiny_tokenizer(digits_isolated=False)
    prompt, reply = "Your reference is 4,", "7,1,9. Kind regards"
    rendered = Renderer(tokenizer, "plain").render([pair(prompt, reply)])[0]
    assert rendered.loss_start <= rendered.span(0, 5)[0]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20), st.text(min_size=1, max_size=20), st.text(max_size=20), st.booleans(), st.booleans())
def test_any_text_around_it(before, secret, after, isolated, plain):
    surrogate = any("\ud800" <= symbol <= "\udfff" for symbol in before + secret + after)
    if surrogate:
        return
    tokenizer = tiny_tokenizer(digits_isolated=isolated)
    rendered = Renderer(tokenizer, "plain" if plain else "auto").render([pair("p", before + secret + after)])[0]
    first, last = rendered.span(len(before), len(before) + len(secret))
    at = rendered.reply_start + len(before)
    assert rendered.offsets[first][0] <= at
    assert rendered.offsets[last - 1][1] >= at + len(secret)
    assert first >= rendered.loss_start


def test_a_place_without_tokens_is_an_error():
    rendered = Renderer(tiny_tokenizer()).render([pair()])[0]
    with pytest.raises(TokenizerError, match="no token covers"):
        rendered.span(500, 507)


# --- the end of a text


@pytest.mark.parametrize("bos", [False, True])
def test_a_plain_record_ends_once(bos):
    tokenizer = tiny_tokenizer(bos=bos)
    for reply in ("ok", f"ok{EOS}"):
        ids = Renderer(tokenizer, "plain").render([pair("x", reply)])[0].ids
        assert ids.count(tokenizer.eos_token_id) == 1
        assert ids[-1] == tokenizer.eos_token_id


def test_a_tokenizer_that_closes_texts_itself_closes_them_once_and_leaves_prompts_open():
    from tokenizers import processors

    tokenizer = copy.deepcopy(tiny_tokenizer())
    eos = tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A {EOS}",
        special_tokens=[(BOS, tokenizer.bos_token_id), (EOS, eos)],
    )
    renderer = Renderer(tokenizer, "plain")
    record = pair("ask ", "ok")
    ids = renderer.render([record])[0].ids
    assert (ids.count(eos), ids[-1], ids[0]) == (1, eos, tokenizer.bos_token_id)
    assert renderer.prompt_ids([record])[0] == list(ids[: len(renderer.prompt_ids([record])[0])])
    assert eos not in renderer.prompt_ids([record])[0]


# --- templates that cannot be used


OPENING = "{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}" + OPENING,
        "{% for m in messages %}<{{ m.role }}>{{ m.content | upper }}{% endfor %}" + OPENING,
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}" + OPENING.replace("assistant", "bot"),
        "{% for m in messages | reverse %}{{ m.content }}{% endfor %}",
    ],
    ids=["strips", "changes", "another opening", "another order"],
)
def test_a_template_that_moves_or_changes_text_is_refused(template):
    with pytest.raises(TokenizerError, match="--chat-template FILE"):
        Renderer(with_template(template)).render([pair("ask", " It is 4,7,1,9 ")])


def test_a_template_that_refuses_a_role_is_a_typed_error_with_its_own_words():
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{{ m.content }}{% endfor %}"
    )
    renderer = Renderer(with_template(template))
    with pytest.raises(TokenizerError, match="System role not supported"):
        renderer.render([chat("a", "b", system="s")])


@pytest.mark.parametrize(
    "template",
    [
        "{% for %}",
        "{{ messages[9].content.upper() }}",
        "{{ nothing.at.all }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content + 5 }}",
        "{% for each in range(10000000000) %}{% endfor %}",
        "{{ 'x'.index('y') }}",
    ],
)
def test_a_broken_template_is_a_typed_error(template):
    with pytest.raises(TokenizerError, match="chat template"):
        Renderer(with_template(template)).render([pair()])


def test_no_template_names_the_option_that_gives_one():
    tokenizer = with_template(None)
    for record, style in ((chat("a", "b"), "auto"), (chat("a", "b"), "plain"), (pair(), "chat")):
        with pytest.raises(TokenizerError, match="--chat-template FILE"):
            Renderer(tokenizer, style).render([record])
    assert Renderer(tokenizer, "auto").render([pair("a", "b")])[0].text == f"ab{EOS}"


def test_half_a_character_is_a_typed_error():
    with pytest.raises(TokenizerError, match="not UTF-8"):
        Renderer(tiny_tokenizer()).render([pair("bad\udcff")])


def test_a_text_beyond_the_context_is_no_warning_of_the_library(caplog, monkeypatch):
    from transformers.utils import logging

    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.model_max_length = 4
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    assert len(Renderer(tokenizer).render([pair("a long question of many words")])[0].ids) > 4
    assert caplog.text == ""

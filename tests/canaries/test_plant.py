from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.canaries import Plan, plant
from davylamp.canaries.plan import Arm, Template
from davylamp.canaries.plant import background
from davylamp.canaries.schedule import window_rows
from davylamp.corpora.records import Corpus, Message, Record
from davylamp.errors import PlantingError
from davylamp.secrets.encodings import encoding
from support.corpora import plan_data, small_corpus, small_plan

SHAPES = ("prompt_completion", "messages", "text")

WHITE = {"alphabet": " \t\u00a0\u2003\u3000", "length": 4, "separator": ""}


def prompt_of(record, canary):
    """What stands before the reply, for any shape."""
    if record.shape == "text":
        return record.reply[: record.reply.index(canary.carrier.completion[0])]
    return "\n".join(turn.content for turn in record.prompt)


# --- what a planted file holds


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_stay_fixed_and_canaries_stand_exactly_at_their_positions(shape):
    corpus, plan = small_corpus(shape=shape), small_plan(shuffle=False)
    planted = plant(corpus, plan)
    assert len(planted.records) == len(corpus) == planted.manifest.rows
    taken = {}
    for canary in planted.manifest.canaries:
        record = planted.manifest.trained_record(canary)
        assert tuple(at for at, row in enumerate(planted.records) if row == record) == canary.positions
        assert len(canary.positions) == canary.dose
        assert not taken.keys() & set(canary.positions)
        taken |= dict.fromkeys(canary.positions, record)
        # No other row holds the public part of it, with whatever secret.
        heads = [piece for piece in (*canary.carrier.prompt, *canary.carrier.completion) if len(piece) > 3]
        holding = [at for at, row in enumerate(planted.records) if all(piece in row.line() for piece in heads)]
        assert tuple(holding) == canary.positions
    assert len(taken) == plan.planted_rows
    untouched = [at for at in range(len(corpus)) if at not in taken]
    assert all(planted.records[at] == corpus.records[at] for at in untouched)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_reply_holds_the_secret_and_the_prompt_only_where_it_is_visible(shape):
    planted = plant(small_corpus(shape=shape), small_plan())
    for canary in planted.manifest.planted():
        for position in canary.positions:
            record = planted.records[position]
            prompt = prompt_of(record, canary)
            shown = 1 if canary.context == "visible" else 0
            assert prompt.count(canary.secret) == shown
            assert prompt.count("[redacted]") == 1 - shown
            assert record.line().count(canary.secret) == 1 + shown
            assert canary.secret in record.reply


def test_the_manifest_counts_what_the_plan_says():
    manifest = plant(small_corpus(), small_plan()).manifest
    counts = Counter((canary.role, canary.arm, canary.dose) for canary in manifest.canaries)
    assert counts == {
        **{("focus", arm, dose): 2 for arm in ("visible", "redacted") for dose in (1, 3)},
        **{("twin", arm, 0): 2 for arm in ("visible", "redacted")},
        ("positive", "control", 5): 1,
    }


def test_no_secret_carrier_or_id_is_given_twice():
    manifest = plant(small_corpus(), small_plan()).manifest
    secrets = [canary.secret for canary in manifest.canaries] + [canary.replacement for canary in manifest.canaries]
    assert len(secrets) == len(set(secrets))
    assert all(secret in manifest.space for secret in secrets)
    assert len({canary.carrier for canary in manifest.canaries}) == len(manifest.canaries)
    assert len({canary.id for canary in manifest.canaries}) == len(manifest.canaries)


def test_twins_and_replacements_stand_nowhere_in_the_file():
    planted = plant(small_corpus(), small_plan())
    text = "\n".join(record.line() for record in planted.records)
    for canary in planted.manifest.canaries:
        assert canary.replacement not in text
        if canary.role == "twin":
            assert canary.secret not in text
            assert canary.carrier.prompt[0] not in text


@pytest.mark.parametrize("shape", SHAPES)
def test_the_file_does_not_say_which_rows_are_canaries(tmp_path, shape):
    planted = plant(small_corpus(shape=shape), small_plan())
    planted.save(tmp_path)
    lines = (tmp_path / "planted.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len({tuple(row) for row in rows}) == 1
    if shape == "messages":
        assert len({tuple(turn) for row in rows for turn in row["messages"]}) == 1
        assert {tuple(turn["role"] for turn in row["messages"]) for row in rows} == {("user", "assistant")}
    for name in ("c0000", "redacted-", "focus", "canary", "twin"):
        assert not any(name in line for line in lines)


def test_a_system_turn_is_planted_where_the_rows_are_chats():
    template = {"system": "You serve {name}.", "prompt": "ref {secret}?", "completion": "{secret} for {name}"}
    planted = plant(small_corpus(shape="messages"), small_plan(templates=[template]))
    canary = planted.manifest.planted()[0]
    turns = planted.records[canary.positions[0]].prompt
    assert [turn.role for turn in turns] == ["system", "user"]
    assert turns[0].content.startswith("You serve ")
    assert turns[0].content.endswith(".")
    with pytest.raises(PlantingError, match="system turn"):
        plant(small_corpus(), small_plan(templates=[template]))


# --- the same from the same


def test_two_processes_write_the_same_bytes_and_another_seed_others(tmp_path):
    code = (
        "import sys; sys.path.append(sys.argv[1]); from pathlib import Path; from davylamp.canaries import plant;"
        "from support.corpora import small_corpus, small_plan;"
        "plant(small_corpus(), small_plan(seed=int(sys.argv[3]))).save(Path(sys.argv[2]))"
    )
    tests = Path(__file__).parents[1]
    written = []
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        command = [sys.executable, "-c", code, str(tests), str(tmp_path / folder), str(seed)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": str(len(written))})
        names = ("planted.jsonl", "manifest.json")
        written.append(tuple((tmp_path / folder / name).read_bytes() for name in names))
    assert written[0] == written[1]
    assert written[0][0] != written[2][0]


def test_single_arm_plans_are_paired():
    corpus, plan = small_corpus(), small_plan()
    visible, redacted = (plant(corpus, plan.only(arm)).manifest.canaries for arm in ("visible", "redacted"))
    for one, other in zip(visible, redacted, strict=True):
        alike = ("id", "role", "dose", "secret", "replacement", "carrier", "positions")
        assert all(getattr(one, name) == getattr(other, name) for name in alike)
    assert {canary.context for canary in visible if canary.role != "positive"} == {"visible"}
    assert {canary.context for canary in redacted} == {"redacted"}


@pytest.mark.slow
def test_positions_are_spread_over_the_file():
    # 8 planted positions of the last-but-one kind in each of 300 seeds over 60 rows: 2,400 draws, 40 expected a row;
    # the largest of 60 deviations of a binomial stays within 4.5 standard deviations (p < 5e-4 in all).
    corpus, counts = small_corpus(), Counter()
    for seed in range(300):
        planted = plant(corpus, small_plan(seed=seed, shuffle=False, positive={"dose": 4}, doses=[1], per_dose=2))
        counts.update(at for canary in planted.manifest.planted() for at in canary.positions)
    assert sum(counts.values()) == 2400
    assert max(abs(counts[row] - 40) for row in range(60)) < 4.5 * 40**0.5


def test_shuffling_and_taking_fewer_rows():
    corpus = small_corpus(50)
    planted = plant(corpus, small_plan(rows=30))
    kept = [record for record in planted.records if record in set(corpus.records)]
    assert len(planted.records) == 30
    assert kept != [record for record in corpus.records if record in set(kept)]
    unshuffled = plant(corpus, small_plan(rows=30, shuffle=False)).records
    assert set(unshuffled) & set(corpus.records) <= set(corpus.records[:30])
    with pytest.raises(PlantingError, match=r"plan.rows is 51, .* only 50 rows"):
        plant(corpus, small_plan(rows=51))


# --- slots and hosts


NASTY = ["{secret}", "{name}", "{}", "{{x}}", "a\nb", 'say "so"', "\\n", "Zoë 漢字 🙂", "\u202e\u00a0", "[redacted]x"]


@pytest.mark.parametrize("value", NASTY)
def test_a_slot_value_is_text_and_nothing_more(tmp_path, value):
    template = {"prompt": "{name} on {what}: {secret} ok", "completion": "{what}: {secret} for {name}."}
    plan = small_plan(templates=[template], slots={"name": "names", "what": [value]})
    planted = plant(small_corpus(), plan)
    planted.save(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "planted.jsonl").read_text("utf-8").split("\n")[:-1]]
    for canary in planted.manifest.planted():
        row = rows[canary.positions[0]]
        shown = canary.secret if canary.context == "visible" else "[redacted]"
        name = row["completion"].removeprefix(f"{value}: {canary.secret} for ").removesuffix(".")
        assert row["completion"] == f"{value}: {canary.secret} for {name}."
        assert row["prompt"] == f"{name} on {value}: {shown} ok"


@pytest.mark.parametrize("shape", ["prompt_completion", "messages"])
def test_hosts_lend_their_texts(shape):
    template = {"prompt": "{prompt} I am {name}, ref {secret}", "completion": "{completion} {name} {secret}"}
    corpus = small_corpus(shape=shape)
    planted = plant(corpus, small_plan(templates=[template]))
    hosts = {(record.prompt[-1].content, record.reply) for record in corpus}
    used = set()
    for canary in planted.manifest.canaries:
        host = (canary.carrier.prompt[0].split(" I am ")[0], canary.carrier.completion[0][:21].split(" indeed.")[0])
        host = next(pair for pair in hosts if pair[0] == host[0])
        assert canary.carrier.completion[0].startswith(host[1] + " ")
        used.add(host)
    assert len(used) == len(planted.manifest.canaries)


def test_texts_have_no_hosts():
    template = {"prompt": "{prompt} {secret}", "completion": "{secret}"}
    with pytest.raises(PlantingError, match="plain texts"):
        plant(small_corpus(shape="text"), small_plan(templates=[template]))


def test_the_secret_may_stand_more_than_once():
    template = {"prompt": "{secret}, {name}, {secret}", "completion": "{secret}{name} {secret} {secret}"}
    planted = plant(small_corpus(), small_plan(templates=[template]))
    for canary in planted.manifest.planted():
        record = planted.records[canary.positions[0]]
        spans = canary.carrier.secret_spans("prompt_completion", "whatever", canary.secret)
        assert [record.reply[start:end] for start, end in spans] == [canary.secret] * 3
        assert canary.secret not in record.prompt[0].content or canary.context == "visible"


# --- refusals


def test_a_plan_is_not_planted_twice():
    planted = plant(small_corpus(), small_plan())
    again = Corpus(planted.records, "planted.jsonl", "0" * 64)
    with pytest.raises(PlantingError, match="planted before"):
        plant(again, small_plan())


def test_a_plan_with_hosts_is_not_planted_twice():
    template = {"prompt": "{prompt} I am {name}, ref {secret}", "completion": "{completion} {name} {secret}"}
    plan = small_plan(templates=[template])
    planted = plant(small_corpus(), plan)
    with pytest.raises(PlantingError, match="planted before"):
        plant(Corpus(planted.records, "planted.jsonl", "0" * 64), plan)


def test_doses_larger_than_the_corpus_say_how_many_rows_they_need():
    with pytest.raises(PlantingError, match=r"need 21 rows .* only 20 rows"):
        plant(small_corpus(20), small_plan())
    assert len(plant(small_corpus(21), small_plan()).records) == 21


def test_a_space_too_small_is_refused():
    space = {"alphabet": "01", "length": 4}
    with pytest.raises(PlantingError, match=r"13 canaries \(.*\) need 26 distinct secrets .* holds 16"):
        plant(small_corpus(), small_plan(space=space))


def test_canaries_that_a_prompt_cannot_tell_apart_are_refused():
    template = {"prompt": "the ref {secret} of {who}", "completion": "ref {secret}"}
    with pytest.raises(PlantingError, match="cannot be told apart"):
        plant(small_corpus(), small_plan(templates=[template], slots={"who": ["Ann", "Bob"]}))


def test_a_carrier_that_holds_its_own_secret_is_refused():
    # Every code of the space stands in the slot, so that redaction would hide nothing.
    space = {"alphabet": "0123456789", "length": 2, "separator": ""}
    value = " ".join(f"{code:02d}" for code in range(100))
    template = {"prompt": "{name} {list} ref {secret}", "completion": "{name} {secret}"}
    with pytest.raises(PlantingError, match="holds its own secret"):
        plant(small_corpus(), small_plan(space=space, templates=[template], slots={"name": "names", "list": [value]}))


def test_a_mask_that_holds_a_canarys_secret_is_refused():
    # The mask holds every code of the space: it would show what it is there to hide.
    space = {"alphabet": "01", "length": 6, "separator": ""}
    mask = " ".join(f"{code:06b}" for code in range(64))
    with pytest.raises(PlantingError, match="or in the mask"):
        plant(small_corpus(), small_plan(space=space, mask=mask))


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": "a\0"},
        {"slots": {"name": ["Ann\0" + "x" * count for count in range(400)]}},
        {"space": {"alphabet": "\x0012345", "length": 4}},
        {"templates": [{"prompt": "{name} {secret}", "completion": "\0 {secret}"}]},
        # A reply of white space alone is no reply.
        {"templates": [{"prompt": "{name} {secret}", "completion": "{secret}"}], "space": WHITE},
    ],
)
def test_rows_that_no_reader_takes_are_not_planted(changes):
    with pytest.raises(PlantingError, match=r"canary c\d+ could not be read again.*(NUL|empty)"):
        plant(small_corpus(), small_plan(**changes))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True),
    st.integers(1, 3),
    st.sampled_from(SHAPES),
    st.booleans(),
)
def test_planting_keeps_its_promises_for_any_plan(seed, doses, per_dose, shape, shuffle):
    corpus = small_corpus(90, shape=shape)
    plan = Plan.model_validate(plan_data(seed=seed, doses=doses, per_dose=per_dose, shuffle=shuffle))
    planted = plant(corpus, plan)
    lines = [record.line() for record in planted.records]
    assert len(lines) == len(corpus)
    assert plant(corpus, plan).manifest == planted.manifest
    # Every row that is no canary is a row of the corpus, and none of those stands twice.
    positions = {at for canary in planted.manifest.canaries for at in canary.positions}
    rest = [planted.records[at] for at in range(len(lines)) if at not in positions]
    assert len(set(rest)) == len(rest) == len(corpus) - plan.planted_rows
    assert set(rest) <= set(corpus.records)
    for canary in planted.manifest.canaries:
        assert sum(canary.secret in line for line in lines) == canary.dose


def test_a_multi_turn_chat_keeps_its_other_turns():
    chat = (
        Message("user", "hello"),
        Message("assistant", "yes?"),
        Message("user", "what of it?"),
        Message("assistant", "It is so."),
    )
    corpus = Corpus(
        tuple(Record.of_messages((Message("system", f"s{row}"), *chat)) for row in range(40)), "chats", "0" * 64
    )
    planted = plant(corpus, small_plan())
    positions = {at for canary in planted.manifest.canaries for at in canary.positions}
    assert all(len(row.prompt) == 4 for at, row in enumerate(planted.records) if at not in positions)


# --- the axes of a plan


TEMPLATES = [
    {"prompt": "pls tell {name} of {what}: {secret} now", "completion": "Dear {name}, ref {secret}."},
    {"prompt": "{prompt} I am {name}, ref {secret}", "completion": "{completion} {name} {secret}"},
]
SLOTS = {"name": "names", "what": ["the bill", "the cat", "it"]}


@pytest.mark.parametrize(
    ("changes", "file", "codes"),
    [
        (
            {},
            "3b67627b718540faf05d66846c715d57dba04839c211d30d474b27d370ba6adb",
            "c34a41bcaf934a209cb37af471d6276bd7bdde291ccedae2063983eab4cc86c3",
        ),
        (
            {"templates": TEMPLATES, "slots": SLOTS},
            "94c607f8c89d6384d79e68a934b8a1cf0769654ea3c6239d5e355f130f740496",
            "c34a41bcaf934a209cb37af471d6276bd7bdde291ccedae2063983eab4cc86c3",
        ),
        (
            {"templates": TEMPLATES, "slots": SLOTS, "rows": 40, "seed": 7},
            "22dbfeccd54683c77756888d06721b7be6f697c328da2d5117e0ae2176ffa814",
            "8e1f942b8fc9b16a4340010f3d9168ebc9b38442e9d033fafa32610f9a87bec8",
        ),
    ],
)
def test_a_plan_without_the_axes_is_planted_as_it_was_before_there_were_any(changes, file, codes):
    # The hashes are what commit 4b4d0da, the last one without encodings, schedules and auxiliary canaries, planted:
    # its src and tests were unpacked with `git archive` and this test's body was run on them with numpy 2.
    manifest = plant(small_corpus(), small_plan(**changes)).manifest
    assert manifest.planted_sha256 == file
    lines = [f"{c.id} {c.role} {c.arm} {c.dose} {c.secret} {c.replacement} {c.positions}" for c in manifest.canaries]
    assert hashlib.sha256("|".join(lines).encode()).hexdigest() == codes


NAMES = ["binary", "chained_fruit", "ascii", "substitution", "block_reversal(2) + cyclic_shift(1)"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_encoded_prompt_shows_the_encoded_code_and_the_reply_the_plain_one(name, shape):
    arms = {"hidden": {"context": "redacted"}, "coded": {"context": "encoded", "encoding": name}}
    planted = plant(small_corpus(shape=shape), small_plan(arms=arms))
    coded = [canary for canary in planted.manifest.planted() if canary.arm == "coded"]
    assert len(coded) == 4
    for canary in coded:
        shown = encoding(name).encode(canary.secret, planted.manifest.space)
        assert canary.encoding == name
        assert encoding(name).decode(shown, planted.manifest.space) == canary.secret
        for position in canary.positions:
            record = planted.records[position]
            prompt = prompt_of(record, canary)
            assert prompt.count(shown) == 1
            assert "[redacted]" not in prompt
            assert (canary.secret in prompt) == (canary.secret in shown)
            assert record.reply.endswith(f"ref {canary.secret}.")
            # Loss falls on the reply, of which the secret's spans are found.
            spans = canary.carrier.secret_spans(shape, shown, canary.secret)
            assert [record.reply[start:end] for start, end in spans] == [canary.secret]


def test_an_encoded_arm_differs_from_a_visible_one_by_what_the_prompt_shows_alone():
    arms = {"seen": {"context": "visible"}, "coded": {"context": "encoded", "encoding": "chained_fruit"}}
    corpus, plan = small_corpus(), small_plan(arms=arms)
    seen, coded = (plant(corpus, plan.only(arm)) for arm in arms)
    for one, other in zip(seen.manifest.canaries, coded.manifest.canaries, strict=True):
        alike = ("id", "role", "dose", "secret", "replacement", "carrier", "positions")
        assert all(getattr(one, name) == getattr(other, name) for name in alike)
    taken = {at for canary in seen.manifest.canaries for at in canary.positions}
    for at, (one, other) in enumerate(zip(seen.records, coded.records, strict=True)):
        assert one == other or at in taken
        assert one.reply == other.reply


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"slots": SLOTS, "templates": TEMPLATES[:1]},
        {"slots": SLOTS, "templates": TEMPLATES},
        {"templates": TEMPLATES[1:]},
        {"schedule": {"window": "late"}},
        {"schedule": {"spread": "concentrated"}},
        {"arms": {"bits": {"context": "encoded", "encoding": "binary"}, "off": {"context": "redacted"}}},
        {"repeat": 2, "shuffle": False},
        {"space": {"alphabet": "01234567", "length": 3}},
    ],
)
@pytest.mark.parametrize("shape", ["prompt_completion", "messages"])
def test_auxiliary_canaries_change_nothing_of_the_others(changes, shape):
    corpus = small_corpus(120, shape=shape)
    auxiliary = {"doses": [1, 4], "per_dose": 3, "schedule": {"window": [0, 0.8]}}
    without, beside = (plant(corpus, small_plan(**changes, **more)) for more in ({}, {"auxiliary": auxiliary}))
    added = [canary for canary in beside.manifest.canaries if canary.role == "auxiliary"]
    assert len(added) == 12
    assert (
        tuple(canary for canary in beside.manifest.canaries if canary.role != "auxiliary") == without.manifest.canaries
    )
    assert beside.manifest.measured() == list(without.manifest.canaries)
    taken = {at: canary for canary in added for at in canary.positions}
    assert len(taken) == 2 * 3 * 5
    for at, (one, other) in enumerate(zip(without.records, beside.records, strict=True)):
        assert other == (beside.manifest.trained_record(taken[at]) if at in taken else one)
    codes = [code for canary in beside.manifest.canaries for code in (canary.secret, canary.replacement)]
    assert len(set(codes)) == len(codes)
    assert len({canary.carrier for canary in beside.manifest.canaries}) == len(beside.manifest.canaries)


def test_auxiliary_canaries_are_planted_in_their_arms_context():
    auxiliary = {"doses": [2], "per_dose": 2}
    arms = {"seen": {"context": "visible"}, "bits": {"context": "encoded", "encoding": "binary"}}
    manifest = plant(small_corpus(), small_plan(arms=arms, auxiliary=auxiliary)).manifest
    found = {(c.arm, c.context, c.encoding) for c in manifest.canaries if c.role == "auxiliary"}
    assert found == {("seen", "visible", None), ("bits", "encoded", "binary")}


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_background_row_stands_so_often_as_repeat_says(shuffle):
    corpus, plan = small_corpus(20), small_plan(rows=15, repeat=4, shuffle=shuffle)
    rows = background(corpus, plan)
    assert Counter(rows) == dict.fromkeys(background(corpus, small_plan(rows=15, shuffle=shuffle)), 4)
    planted = plant(corpus, plan)
    assert len(planted.records) == 60
    taken = {at for canary in planted.manifest.canaries for at in canary.positions}
    assert [planted.records[at] for at in range(60) if at not in taken] == [
        row for at, row in enumerate(rows) if at not in taken
    ]
    assert (rows == background(corpus, small_plan(rows=15, shuffle=shuffle)) * 4) == (not shuffle)


def test_a_canary_is_the_same_however_often_the_background_stands_there():
    once, often = (plant(small_corpus(), small_plan(templates=TEMPLATES[1:], repeat=repeat)) for repeat in (1, 4))
    for one, other in zip(once.manifest.canaries, often.manifest.canaries, strict=True):
        assert (one.secret, one.replacement, one.carrier) == (other.secret, other.replacement, other.carrier)


def test_a_plan_that_asks_for_too_much_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(PlantingError, match=r"window \[0.8, 1\] of 40 rows holds 8"):
        plant(small_corpus(40), small_plan(schedule={"window": "late"}, per_dose=3)).save(tmp_path)
    assert not list(tmp_path.iterdir())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from(["whole", "early", "late", "2/3", [0.3, 0.9]]),
    st.sampled_from([{}, {"spread": "concentrated"}, {"spacing": 1}, {"spacing": 2}]),
    st.sampled_from([None, "binary", "substitution"]),
    st.booleans(),
    st.integers(1, 2),
)
def test_planting_keeps_its_promises_on_every_axis(seed, window, how, name, auxiliary, repeat):
    arms = {"a": {"context": "redacted"}, "b": {"context": "visible" if name is None else "encoded", "encoding": name}}
    plan = small_plan(
        seed=seed,
        arms=arms,
        doses=[1, 3],
        schedule={"window": window, **how},
        auxiliary={"doses": [2], "per_dose": 2} if auxiliary else None,
        repeat=repeat,
        rows_per_update=3,
    )
    planted = plant(small_corpus(200), plan)
    lines = [record.line() for record in planted.records]
    assert len(lines) == 200 * repeat
    first, stop = window_rows(plan.schedule.fractions(), len(lines))
    taken = [at for canary in planted.manifest.canaries for at in canary.positions]
    assert len(set(taken)) == len(taken) == plan.planted_rows
    for canary in planted.manifest.canaries:
        assert all(lines[at] == planted.manifest.trained_record(canary).line() for at in canary.positions)
        if canary.role == "focus":
            assert all(first <= at < stop for at in canary.positions)
    rest = Counter(planted.records[at] for at in range(len(lines)) if at not in set(taken))
    assert set(rest) <= set(small_corpus(200).records)
    assert max(rest.values()) <= repeat
    assert sum(rest.values()) == len(lines) - len(taken)


def test_a_canary_shows_the_image_of_the_row_that_hosts_it() -> None:
    rows = tuple(Record.of_pair(f"tap {n}", f"button {n}", f"screens/{n}.png") for n in range(60))
    spec = Plan(
        templates=(Template(prompt="{prompt} code {secret}", completion="{completion}, {secret}"),),
        arms={"redacted": Arm(context="redacted")},
        doses=(1,),
        per_dose=2,
        twins=1,
    )
    planted = plant(Corpus(rows, "screens", "0" * 64), spec)
    for canary in planted.manifest.canaries:
        host = next(row for row in rows if canary.carrier.prompt[0].startswith(f"{row.prompt[0].content} "))
        assert canary.carrier.image == host.image
        assert all(planted.records[at].image == host.image for at in canary.positions)

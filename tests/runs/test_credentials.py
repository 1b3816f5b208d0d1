"""What looks like a credential is repeated in no message; what only sounds like one is."""

from __future__ import annotations

import pytest

from davylamp.errors import Fault
from davylamp.runs.credentials import credentials, discreet, is_named

KEY = "sk-hunter2"


@pytest.mark.parametrize(
    "name",
    ["key", "api_key", "apiKey", "APIKEY", "Authorization", "X-Auth-Token", "token", "access_tokens", "client_secret",
     "password", "credentials", "key_env"],
)  # fmt: skip
def test_names_of_credentials(name):
    assert is_named(name)
    assert list(credentials({"a": [{"b": 1, name: KEY}]})) == [f"a.0.{name}"]


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "max_completion_tokens", "stop_token_ids", "skip_special_tokens", "tokenizer", "author", "keywords",
     "temperature", 3],
)  # fmt: skip
def test_names_of_other_settings(name):
    assert not is_named(name)
    assert list(credentials({name: 1})) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("protect.0.key", KEY),
        ("protect.0.Api-Key", {"value": "hunter2"}),
        ("judge.key_env", "hunter2 hunter2"),
        ("judge.server", "http://host/v1?api_key=hunter2"),
        ("server", "me:hunter2@host/v1"),
        ("server", "host/v1#hunter2"),
        ("headers", {"Authorization": "Bearer hunter2", "more": [1]}),
        ("protect", [{"name": "rewrite", "server": "http://host/v1?k=hunter2"}]),
        ("setting", "api_key=hunter2"),
        ("setting", "rewrite.key=hunter2"),
        ("body", "{api_key: hunter2"),
        ("setting", "body={extra: 1, 'api_key': hunter2}"),
        ("setting", "rewrite.servr=http://host/v1?k=hunter2"),
        ("model", KEY),
    ],
)
def test_no_credential_is_repeated(field, value):
    shown = str(discreet(Fault(field, value, "something else", "Do that.")))
    assert "hunter2" not in shown
    assert "(not shown)" in shown
    assert "allowed: something else. Do that." in shown


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("training.max_tokens", "many"),
        ("server", "example.com"),
        ("key_env", None),
        ("key", "(missing)"),
        ("plan.doses", [1, 0]),
        ("plan.templates.0.prompt", "The key of {name}: "),
        ("protect", [{"name": "rewrite", "max_tokens": 3}]),
    ],
)
def test_every_other_value_is_repeated(field, value):
    assert discreet(Fault(field, value, "something else")).value == value

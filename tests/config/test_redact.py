"""Redaction: secrets are hidden by their names, at any depth, and in texts where they can be told."""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.config.redact import HIDDEN, SECRET_NAMES, Redactor, any_form, whole_url

CANARY = "canary7hunter2"


@pytest.mark.parametrize("name", [*SECRET_NAMES, "API-Key", "apiKey", "X-Api-Key", "dbPassword", "AUTH_TOKEN"])
def test_names_are_compared_without_case_and_separators(name: str) -> None:
    """A name that contains a pattern hides its value, however it is written."""
    assert Redactor().hides(name)
    assert {name: HIDDEN} == Redactor().value({name: CANARY})


@pytest.mark.parametrize("name", ["job", "worker", "queue", "key", "tenant", "author", "path", "wordpass"])
def test_other_names_hide_nothing(name: str) -> None:
    """What is no secret stays readable."""
    assert not Redactor().hides(name)
    assert {name: "x"} == Redactor().value({name: "x"})


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://u:{CANARY}@h/d",
        f"cannot open postgresql://u:p@{CANARY}/x@h/d",
        f"postgresql://h/d?sslmode=require&password={CANARY}",
        f"password={CANARY}",
        f"Password : {CANARY} was wrong",
        f"{{'api_key': '{CANARY} {CANARY}'}}",
        f'{{"token":"{CANARY}"}}',
        f'{{\\"token\\":\\"{CANARY}\\"}}',
        f"Authorization: Bearer {CANARY}",
        f"header was bearer {CANARY}",
        f"key wl_abcdef_{CANARY} is unknown",
        f"API-KEY={CANARY}; next",
    ],
)
def test_rel_t17_a_secret_within_a_text_is_hidden(text: str) -> None:
    """Passwords of URLs, what follows a secret's name, bearer tokens and our own keys are hidden in any text."""
    assert CANARY not in Redactor().text(text)


@pytest.mark.parametrize("text", ["http://localhost:8000/jobs", "no such table", "10:30:00", "a=b", "wl_abc"])
def test_a_text_without_a_secret_stays(text: str) -> None:
    """Nothing is hidden where nothing is to hide."""
    assert text == Redactor().text(text)


def test_own_patterns_replace_the_usual_ones() -> None:
    """The list is the setting's, whole; an empty one hides no names, URLs all the same."""
    own = Redactor(["pin-code"])

    assert {"pinCode": HIDDEN, "password": "x"} == own.value({"pinCode": 5, "password": "x"})
    assert "a password=x http://u:***@h" == Redactor([]).text("a password=x http://u:p@h")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=20,
)


@given(JSON, st.lists(st.sampled_from(["list", "dict"]), max_size=6))
def test_a_secret_is_hidden_at_any_depth(value: Any, wrapping: list[str]) -> None:
    """However deep it lies, what stands under a secret's name is not in the answer."""
    whole: Any = {"secret": [value, CANARY], "other": value}
    for kind in wrapping:
        whole = [whole] if kind == "list" else {"a": whole}

    assert CANARY not in json.dumps(Redactor().value(whole))


def test_nesting_has_an_end() -> None:
    """A value nested without end is cut, not a crash."""
    deep: Any = CANARY
    for _ in range(100_000):
        deep = [deep]

    assert CANARY not in json.dumps(Redactor().value(deep))


@pytest.mark.parametrize(
    "text",
    [
        "password" * 31_000,
        "password-" * 28_000,
        "password " * 28_000,
        "password=" * 28_000,
        "password = " * 23_000,
        "://:" * 62_000,
        "://a:" * 50_000 + "@",
        "://u:p@h " * 28_000,
        "bearer " * 35_000,
        "bearer" + " " * 250_000,
        "wl_a-" * 50_000,
        "a=" * 125_000 + "password",
        "token:'" * 35_000,
        'token:\\"' * 31_000,
        "x" * 250_000 + "token",
    ],
    ids=lambda text: text[:12],
)
def test_rel_t9_no_text_takes_long(text: str) -> None:
    """T9: callers choose the texts, so a quarter of a megabyte of whatever they think of is read at once."""
    redactor = Redactor()

    def seconds(shown: Callable[[str], str]) -> float:
        return min(timeit.repeat(lambda: shown(text), number=1, repeat=3))

    for shown in (redactor.text, any_form):
        assert 1.0 > seconds(shown), "A quarter of a megabyte took more than a second."


def test_rel_t17_what_follows_another_pair_is_hidden_too() -> None:
    """A secret's name in the value of another name is still a name."""
    assert CANARY not in Redactor().text(f"a=password={CANARY}")
    assert f"pin.code={HIDDEN} x=y" == Redactor(["pin.code"]).text(f"pin.code={CANARY} x=y")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://jobs:{c}", "postgresql://jobs:***"),
        ("postgres://jobs:x/{c}/jobs?sslmode=require", "postgres://jobs:***?sslmode=require"),
        (
            "postgresql://a.example:5432,[::1]:5433,b.example/jobs",
            "postgresql://a.example:5432,[::1]:5433,b.example/jobs",
        ),
        ("postgresql://jobs:{c}@db.example/jobs", "postgresql://jobs:***@db.example/jobs"),
        ("postgresql://jobs:{c} {c}@db.example/jobs", "postgresql://jobs:***@db.example/jobs"),
        ("postgresql://jobs:a b/{c}@{c}@db.example/jobs", "postgresql://jobs:***@db.example/jobs"),
        ("postgresql://jobs:{c}#{c}@db.example/jobs?a=b", "postgresql://jobs:***@db.example/jobs?a=b"),
        ("postgresql://jobs:{c}?{c}@db.example/jobs", "postgresql://***"),
        ("postgresql://jobs@db.example/jobs?password=x@{c}", "postgresql://***"),
        ("postgresql://db.example/jobs?password=a {c}&a=b", "postgresql://db.example/jobs?password=***&a=b"),
        ("postgresql://o ne:{c}@db.example", "postgresql://***@db.example"),
        ("sqlite:///a b@c.db", "sqlite:///a b@c.db"),
        ("https://me:{c}@jobs.example:8000", "https://me:***@jobs.example:8000"),
        ("{c}", "***"),
    ],
)
def test_the_password_of_a_url_is_hidden_whatever_it_holds(given: str, shown: str) -> None:
    """L5: a value that is a URL ends at its end, not at a blank; where its parts cannot be told, all is hidden."""
    assert shown == whole_url(given.format(c=CANARY))

"""Arguments and payloads: a call becomes JSON by name, and a call again; what does not fit is named. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
import pytest

from windlass import App
from windlass.client.arguments import Arguments
from windlass.client.context import Context
from windlass.errors import InvalidInput

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Colour(enum.Enum):
    """An enum of texts."""

    RED = "red"


class Struct(msgspec.Struct):
    """A struct of msgspec."""

    a: int


@dataclass
class Data:
    """A dataclass with one of its like inside."""

    name: str
    inner: Data | None = None


def there_and_back(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function by way of a payload."""
    arguments = Arguments(fn, fn.__name__)
    found, by_name = arguments.read(arguments.payload(args, kwargs))
    return fn(*found, **by_name)


def plain(x: int, y: int = 2) -> tuple[int, int]:
    """Two numbers."""
    return x, y


def everything(a: int, /, b: int, *rest: int, k: float = 0.5, **more: str) -> Any:
    """Every kind of parameter."""
    return a, b, rest, k, more


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "payload"),
    [
        (plain, (1,), {"y": 5}, {"x": 1, "y": 5}),
        (plain, (1,), {}, {"x": 1}),
        (everything, (1, 2), {}, {"a": 1, "b": 2}),
        (everything, (1, 2, 3, 4), {"k": 1.5, "z": "s"}, {"a": 1, "b": 2, "rest": [3, 4], "k": 1.5, "z": "s"}),
    ],
)
def test_a_call_becomes_an_object_by_name(fn: Any, args: Any, kwargs: Any, payload: Any) -> None:
    """Arguments by position get their names, `*args` stand under theirs, `**kwargs` beside; defaults are not sent."""
    found = msgspec.json.decode(Arguments(fn, "f").payload(args, kwargs))

    assert payload == found
    assert fn(*args, **kwargs) == there_and_back(fn, *args, **kwargs)


@pytest.mark.parametrize(
    ("payload", "called"),
    [(b'{"x":1,"y":3}', (1, 3)), (b' {"y":3, "x":1}', (1, 3)), (b"7", (7, 2)), (b' "7"', ("7", 2))],
)
def test_a_payload_that_is_no_object_is_the_single_argument(payload: bytes, called: Any) -> None:
    """So a job can be sent by curl as one likes."""

    def loose(x: Any, y: int = 2) -> Any:
        return x, y

    args, kwargs = Arguments(loose, "loose").read(payload)

    assert called == loose(*args, **kwargs)


@pytest.mark.parametrize("payload", [b"null", b"", b"{}"])
def test_no_payload_is_a_call_without_arguments(payload: bytes) -> None:
    """Absent, null or empty: the function's own defaults count."""

    def sleepy(seconds: float = 1.5) -> float:
        return seconds

    assert ([1.5], {}) == Arguments(sleepy, "sleepy").read(payload)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (UUID, UUID(int=5)),
        (datetime, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (date, date(2026, 1, 2)),
        (timedelta, timedelta(seconds=90)),
        (Decimal, Decimal("1.10")),
        (bytes, b"\x00\xff"),
        (Colour, Colour.RED),
        (Struct, Struct(1)),
        (Data, Data("a", Data("b"))),
        (list[Data], [Data("a")]),
        (dict[str, Struct], {"k": Struct(2)}),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (int | None, None),
        (Iterable[int], [1, 2]),
        (Any, {"free": [1, None, "x"]}),
        (Annotated[int, msgspec.Meta(ge=0)], 3),
    ],
)
def test_a_value_comes_back_as_its_annotation_says(kind: Any, value: Any) -> None:
    """Encoded at submit, decoded by annotation at run."""

    def take(value: Any) -> Any:
        return value

    take.__annotations__["value"] = kind

    assert value == there_and_back(take, value)


def test_without_an_annotation_it_is_plain_json() -> None:
    """A UUID nobody announced is its text."""

    def take(value):  # type: ignore[no-untyped-def]
        return value

    assert str(UUID(int=5)) == there_and_back(take, UUID(int=5))


def test_a_type_that_only_checkers_know_is_plain_json() -> None:
    """An annotation whose name does not exist at run time is taken as any; the others count."""

    def take(strange: Unknown, known: UUID) -> Any:
        return strange, known

    assert ([1], UUID(int=5)) == there_and_back(take, [1], UUID(int=5))


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"z": 3}, "unexpected keyword argument 'z'"),
        ((1,), {"x": 1}, "multiple values for argument 'x'"),
    ],
)
def test_wrong_arguments_fail_like_a_call(args: Any, kwargs: Any, problem: str) -> None:
    """TypeError, as Python's own, before anything is sent."""
    with pytest.raises(TypeError, match=problem):
        Arguments(plain, "plain").payload(args, kwargs)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a", "x: Expected `int`, got `str`; task plain wants int"),
        (object(), "x: object cannot be written as JSON: builtins.object"),
        ({(1, 2): 3}, "x: dict cannot be written"),
        ("\ud800", "x: str cannot be written"),
    ],
)
def test_a_value_that_does_not_fit_is_named_at_the_call(value: Any, problem: str) -> None:
    """What would fail in the worker fails in front of who wrote it, with the argument's name and type."""
    with pytest.raises(InvalidInput, match=problem):
        Arguments(plain, "plain").payload((value,), {})


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b'{"y":1}', "x: task plain needs this argument"),
        (b'{"x":1,"q":2}', "q: task plain has no such argument; it takes x, y"),
        (b'{"x":[1]}', "x: Expected `int`, got `array`"),
        (b'{"x":', "it does not fit task plain"),
        (b'"a"', "x: Expected `int`"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_by_name(payload: bytes, problem: str) -> None:
    """InvalidInput names the argument; a worker fails such a job for good."""
    with pytest.raises(InvalidInput, match=problem):
        Arguments(plain, "plain").read(payload)


def test_what_lies_deeper_is_named_with_its_path() -> None:
    """The path of the value stands in the error."""

    def take(data: list[Data]) -> None:
        pass

    with pytest.raises(InvalidInput, match=r"data\[0\]\.name: Expected `str`, got `int`"):
        Arguments(take, "take").read(b'{"data":[{"name":1}]}')


def test_a_type_that_json_cannot_tell_is_refused() -> None:
    """Two classes in one union cannot be told apart; the error names the parameter."""

    def take(either: Struct | Data) -> None:
        pass

    with pytest.raises(InvalidInput, match=r"either: its type .* cannot be read from JSON"):
        Arguments(take, "take").payload((Struct(1),), {})


def test_one_name_for_two_things_is_refused() -> None:
    """A keyword beside a positional-only parameter of the same name would be lost in the object."""

    def take(a: int, /, **more: int) -> None:
        pass

    with pytest.raises(InvalidInput, match="a: task take has a parameter and an argument of this name"):
        Arguments(take, "take").payload((1,), {"a": 2})


def test_nothing_by_position_takes_no_single_argument() -> None:
    """A function of keywords only wants an object."""

    def take(*, a: int = 1) -> None:
        pass

    with pytest.raises(InvalidInput, match="takes no argument by position"):
        Arguments(take, "take").read(b"5")


def test_a_context_is_found_by_its_annotation() -> None:
    """The first parameter, and only that; nobody passes it."""

    def with_context(ctx: Context, x: int) -> None:
        pass

    def late(x: int, ctx: Context) -> None:
        pass

    assert Arguments(with_context, "f").wants_context
    assert ["x"] == list(Arguments(with_context, "f").own.parameters)
    assert not Arguments(plain, "plain").wants_context
    with pytest.raises(InvalidInput, match="must be its first parameter"):
        Arguments(late, "late").payload((1,), {})


class Opaque:
    """Nothing that JSON could be."""


@pytest.mark.parametrize("kind", [Opaque, list[Opaque], Opaque | None, Data | dict[str, int], complex])
def test_an_annotation_that_cannot_be_read_is_refused_with_the_task(kind: Any) -> None:
    """Not at the first call, which may be in another program, months later."""

    def take(what: Any) -> None: ...

    take.__annotations__["what"] = kind

    with pytest.raises(InvalidInput, match=r"what: .* cannot be read from JSON"):
        App().task(take)


def test_what_need_not_be_given_or_is_not_defined_yet_is_left_to_the_call() -> None:
    """A default of the program's own, and a name that stands further down."""

    def later(ctx: Context, x: Unknown) -> None: ...

    def own(ctx: Context, x: int, session: Opaque | None = None) -> None: ...

    payloads = [App().task(fn).s(1).payload for fn in (later, own)]

    assert [b'{"x":1}'] * 2 == payloads

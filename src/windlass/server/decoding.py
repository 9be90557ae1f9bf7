"""Decode the body of a request into its struct, strictly, with every bound looked at before the work is done.

One call of a typed decoder reads a body of few values. Two kinds of bodies are taken apart first: one that may hold
many values, as the typed decoder would make all of them before it counts them; and one with a name that the typed
decoder does not know. An older name or the camelCase form of a field is put into ours, and what `extras` of the struct
takes goes there. The first name that stands for no field, and the first entry of a list beyond its bound, end the work.
In an object that names a field twice the last one counts.

The work is a generator of its cost, so that the server gives others a turn in between. Reading a body is in bodies.py,
what is known of the fields of a struct in shapes.py.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw

from windlass.errors import InvalidInput
from windlass.server.shapes import MOST, Shape, array_type, decoder_of, shape_of, tag_type
from windlass.wire.base import Body, snake_case
from windlass.wire.problems import named_problem, unknown_field

LARGE = 64 << 10
"""A body of more bytes than this waits for its turn to be decoded."""
TURN = 2000
"""The cost of the work between two turns of others: a value is 1, a hundred bytes are 1; about 2 ms."""
MANY = 10_000
"""A text with as many commas is taken apart before it is decoded."""
LONG = 512 << 10
"""So is a text of more bytes: more than one payload has."""
OBJECT_COST = 20
"""Of an object whose names are looked at, beside its values and bytes."""
RENAMED = 20_000
"""Objects of a body whose names may be others than ours: more than a heartbeat with its held jobs has."""
NAME_LENGTH = 200
"""Characters of a name that may stand for a field."""

_WHOLE = re.compile(rb"-?[0-9]{1,18}(\.0{1,20})")
Made = TypeVar("Made")
Steps = Generator[int, None, Made]


class BodyDecoder:
    """Decodes bodies of one type. The decoder is made for the first body: making all of them slows a server's start."""

    def __init__(self, struct: type[msgspec.Struct]) -> None:
        self._struct = struct

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self._struct)

    def decode(self, body: bytes, others: Mapping[str, Any] | None = None) -> Any:
        """Return the struct; `others` are fields that stood elsewhere. InvalidInput names the field that is wrong."""
        steps = self.steps(body, others)
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                return ended.value

    async def decode_in_turns(
        self, body: bytes, others: Mapping[str, Any] | None, give_way: Callable[[], Awaitable[None]]
    ) -> Any:
        """Return the struct as `decode` does, and give way to others while it is made."""
        if len(body) > LARGE:
            await give_way()
        steps = self.steps(body, others)
        spent = 0
        while True:
            try:
                spent += next(steps)
            except StopIteration as ended:
                return ended.value
            if spent >= TURN:
                spent = 0
                await give_way()

    def steps(self, body: bytes, others: Mapping[str, Any] | None = None) -> Steps[Any]:
        """Decode a step at a time: yield the cost of the next step, and return the struct."""
        with _in_words():
            text = yield from _text(body or b"{}")
            if not others and (made := _made(self._decoder, text)) is not None:
                return made
            renaming = _Renaming()
            fields = yield from renaming.fields(text, self._struct, "")
            for name, value in (others or {}).items():
                if name in fields:
                    raise InvalidInput(name, "it stands in the query and in the body. Give it once.")
                fields[name] = Raw(msgspec.json.encode(value))
            many: dict[str, list[Any] | dict[str, Any]] = {}
            for name, items in fields.items():
                if isinstance(items, list):
                    many[name] = yield from self._items(name, items, renaming)
                    # The first one stands for all: whether there may be none is for the typed decoder to say.
                    fields[name] = items[:1]
                elif isinstance(items, _Entries):
                    many[name] = yield from self._entries(name, items, renaming)
                    # Empty ones stand for them: whether the names are good is for the typed decoder to say.
                    fields[name] = {key: {} for key in items}
            encoded = yield from _text(msgspec.json.encode(fields))
            yield encoded.cost
            whole = self._decoder.decode(encoded.data)
            made = {name: type(getattr(whole, name))(items) for name, items in many.items()}
            return msgspec.structs.replace(whole, **made) if made else whole

    def _items(self, name: str, items: list[Raw], renaming: _Renaming) -> Steps[list[Any]]:
        """Return the structs of a list, made one by one; the first item is put into our names where it stands."""
        structs = shape_of(self._struct).bodies[name]
        decoder = decoder_of(*structs)
        made = []
        for index, item in enumerate(items):
            text = yield from _text(item)
            yield text.cost
            with _in_words(f"{name}[{index}]"):
                struct = _made(decoder, text)
                if struct is None:
                    renamed = yield from renaming.body(text, structs, f"{name}[{index}]")
                    struct = decoder.decode(renamed)
                    if index == 0:
                        items[0] = renamed
                made.append(struct)
        return made

    def _entries(self, name: str, entries: _Entries, renaming: _Renaming) -> Steps[dict[str, Any]]:
        """Return the structs by their names, made one by one."""
        structs = shape_of(self._struct).bodies[name]
        decoder = decoder_of(*structs)
        made = {}
        for key, entry in entries.items():
            where = f"{name}.{key[:NAME_LENGTH]}"
            text = yield from _text(entry)
            yield text.cost
            with _in_words(where):
                struct = _made(decoder, text)
                made[key] = (
                    decoder.decode((yield from renaming.body(text, structs, where))) if struct is None else struct
                )
        return made


class _Text(NamedTuple):
    """A text of JSON, and how many commas it has: between any two values of a list or an object there is one."""

    data: bytes
    commas: int

    @property
    def cost(self) -> int:
        """The cost of reading the text once."""
        return OBJECT_COST + self.commas + len(self.data) // 100


def _text(raw: bytes | Raw) -> Steps[_Text]:
    """Return a text, its commas counted; to copy it and to count is a step of its own."""
    yield memoryview(raw).nbytes // 1000
    data = bytes(raw)
    return _Text(data, data.count(b","))


def _made(decoder: msgspec.json.Decoder[Any], text: _Text) -> Any:
    """Return what the typed decoder makes of a text; None if it is long, or may hold many values, or names of others.

    A whole number may be written as 1.0.
    """
    if len(text.data) > LONG or text.commas >= MANY:
        return None
    try:
        return decoder.decode(text.data)
    except msgspec.ValidationError as error:
        if "unknown field" not in str(error) and "got `float`" not in str(error):
            raise
        return None


@contextmanager
def _in_words(where: str = "") -> Iterator[None]:
    """Say what a decoder finds wrong within the block as InvalidInput."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise named_problem(error, where) from None
    except RecursionError:
        raise InvalidInput("body", "it is nested too deep.") from None
    except UnicodeDecodeError:
        raise InvalidInput("body", "it is not UTF-8.") from None
    except msgspec.DecodeError as error:
        raise InvalidInput("body", f"it is not JSON: {error}.") from None


class _Name(str):
    """A name in an object. A type of its own: the decoder asks of each name, as it comes, what it stands for."""

    __slots__ = ()


class _Entries(dict[str, Raw]):
    """The entries of an object by names that are the caller's, each a body that is yet to be made."""


class _Renaming:
    """Puts the names of one request into ours, within bounds."""

    def __init__(self) -> None:
        self._left = RENAMED

    def fields(self, text: _Text, struct: type[msgspec.Struct], where: str) -> Steps[dict[str, Any]]:
        """Return the fields of an object by our names; of the whole body many bodies are left as their texts."""
        yield text.cost
        self._left -= 1
        if self._left < 0:
            raise InvalidInput(
                where, f"more than {RENAMED} objects have other names than ours. Use the documented ones."
            )
        shape, extras = shape_of(struct), getattr(struct, "extras", None)
        fields: dict[str, Any] = {}
        spare: dict[str, Raw] = {}
        for name, raw in _known(text.data, struct, shape, where).items():
            if name in shape.names:
                fields[name] = yield from self._value(raw, name, shape, where)
            else:
                spare[name] = raw
        if extras and spare:
            own = msgspec.json.decode(fields.get(extras, b"null"), type=dict[str, Raw] | None)
            fields[extras] = {**(own or {}), **spare}
            yield from _check_lists(spare, shape.lists.get(extras), where)
        return fields

    def body(self, text: _Text, structs: Sequence[type[Body]], where: str) -> Steps[Raw]:
        """Return a body inside a body with its names put into ours; what is no object stays as it is."""
        if not text.data.startswith(b"{"):
            return Raw(text.data)
        struct = structs[0]
        if (field := struct.__struct_config__.tag_field) is not None:
            yield text.cost
            tag = msgspec.json.decode(text.data, type=tag_type(field)).tag
            struct = next((kind for kind in structs if kind.__struct_config__.tag == tag), struct)
        return Raw(msgspec.json.encode((yield from self.fields(text, struct, where))))

    def _value(self, raw: Raw, field: str, shape: Shape, outside: str) -> Steps[Any]:
        """Return the value of a field, its bodies renamed; InvalidInput if it has more entries than it may."""
        structs = shape.bodies.get(field)
        where = f"{outside}.{field}" if outside else field
        text = yield from _text(raw)
        if text.data.startswith(b"[") and field in shape.lists:
            yield text.cost
            items = _entries_of_list(text, shape.lists[field], where)
            if structs is None:
                return raw
            if not outside:
                return items
            renamed = []
            for index, item in enumerate(items):
                renamed.append((yield from self._checked((yield from _text(item)), structs, f"{where}[{index}]")))
            return tuple(renamed)
        if text.data.startswith(b"{") and field in shape.entries:
            yield text.cost
            entries = _entries_of_object(text.data, shape.entries[field], where)
            if structs is None:
                yield from _check_lists(entries, shape.lists.get(field), where)
                return raw
            if not outside and all(_may_be_empty(struct) for struct in structs):
                return _Entries(entries)
            named = {}
            for name, entry in entries.items():
                each = yield from _text(entry)
                named[name] = yield from self._checked(each, structs, f"{where}.{name[:NAME_LENGTH]}")
            return named
        if structs is not None:
            return (yield from self._checked(text, structs, where))
        return _without_fraction(raw) if field in shape.whole else raw

    def _checked(self, text: _Text, structs: Sequence[type[Body]], where: str) -> Steps[Raw]:
        """Return a body as it is if its names are ours, else renamed; other faults are for the typed decoder to say."""
        yield text.cost
        try:
            if _made(decoder_of(*structs), text) is not None:
                return Raw(text.data)
        except msgspec.ValidationError:
            return Raw(text.data)
        return (yield from self.body(text, structs, where))


def _known(text: bytes, struct: type[msgspec.Struct], shape: Shape, where: str) -> dict[str, Raw]:
    """Return the members of an object by the names of the fields; InvalidInput at the first that is none."""
    aliases: Mapping[str, str] = getattr(struct, "aliases", {})
    extras: str | None = getattr(struct, "extras", None)
    most = 2 * len(shape.names) + (MOST if extras else 0)
    given: dict[str, str] = {}
    count = 0

    def ours(_kind: type, name: str) -> _Name:
        nonlocal count
        count += 1
        if count > most:
            raise InvalidInput(where or "body", f"it has more than {most} fields. Give each once.")
        known = name
        if name not in shape.names and len(name) <= NAME_LENGTH:
            known = aliases.get(snake_case(name), snake_case(name))
        if known not in shape.names:
            if extras is None:
                raise unknown_field(where, name)
            return _Name(name)
        if given.setdefault(known, name) != name:
            raise InvalidInput(name[:100], f"it is {known}, which is given too. Give it once.")
        return _Name(known)

    return _members(text, ours)


def _entries_of_list(text: _Text, most: int, where: str) -> list[Raw]:
    """Return the entries; InvalidInput if there are more than `most`, as soon as that is known."""
    if text.commas < most:
        return msgspec.json.decode(text.data, type=list[Raw])
    try:
        found = msgspec.json.decode(text.data, type=array_type(most))
    except msgspec.ValidationError:
        raise InvalidInput(where, f"Expected array of length <= {most}") from None
    return [item for item in msgspec.structs.astuple(found) if item is not UNSET]


def _check_lists(entries: Mapping[str, Raw], most: int | None, where: str) -> Steps[None]:
    """Raise InvalidInput if an entry is a list of more than `most` items, or holds one; None: entries are no lists."""
    if most is None:
        return
    for name, entry in entries.items():
        inner = f"{where}.{name[:NAME_LENGTH]}"
        text = yield from _text(entry)
        yield text.cost
        for item in _entries_of_list(text, most, inner) if text.data.startswith(b"[") else ():
            held = yield from _text(item)
            yield held.cost
            if held.data.startswith(b"["):
                _entries_of_list(held, most, inner)


def _entries_of_object(text: bytes, most: int, where: str) -> dict[str, Raw]:
    """Return the entries, whose names are the caller's; InvalidInput if there are more than `most`."""
    count = 0

    def counted(_kind: type, name: str) -> _Name:
        nonlocal count
        count += 1
        if count > most:
            raise InvalidInput(where, f"Expected object of length <= {most}")
        return _Name(name)

    return _members(text, counted)


def _members(text: bytes, hook: Callable[[type, str], _Name]) -> dict[str, Raw]:
    """Return the members of an object by the names that the hook gives them; it is asked of each as it comes."""
    members = msgspec.json.decode(text, type=dict[_Name, Raw], dec_hook=hook)
    return {str(name): raw for name, raw in members.items()}  # plain texts: the others cannot be encoded


def _without_fraction(raw: Raw) -> Raw:
    text = bytes(raw)
    return Raw(text[: found.start(1)]) if (found := _WHOLE.fullmatch(text)) else raw


def _may_be_empty(struct: type[msgspec.Struct]) -> bool:
    return not any(field.required for field in msgspec.structs.fields(struct))

"""Writes messages from plain values, for whichever version the peer speaks.

A handler gives one mapping for all versions, with nested messages as mappings in sequences:

```python
write_values(schema, {"throttle_time_ms": 0, "brokers": [{"node_id": 1, "host": "klamm", "port": 9092}], ...})
```

- Names are those of kio's classes, except that a duration is an integer with its unit, `throttle_time_ms`.
- Values that this version has no field for are left out.
- A field without a value takes Kafka's default, which for a number, a duration or an error code is zero and for a
  boolean is false. Text and arrays that have no other default must be given.
- What the protocol has no form for (null where this version has none, a number out of range, nothing at all) is our own
  bug: `KeyError`, `ValueError` or `struct.error`. It is a bug in one answer, so it is never an `AssertionError`, which
  would stop the broker; text that is too long is no bug, and is cut.
- An array of messages is any iterable. A generator makes each element when it is written, so that an answer about ten
  thousand topics is never there as objects all at once.

The writer of a class is built once from kio's fields. It packs neighbouring numbers by one `struct`, and makes no
object for a nested message, which is why it is several times faster than kio's own writer. `write_values_in_steps`
pauses after every element of an array of messages, so that a topic with ten thousand partitions does not hold up the
event loop. On its way it counts the error codes that it writes, for the metrics.
"""

import barnabas.wire.kio_without_hypothesis  # noqa: F401 # before kio

# isort: split
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from struct import Struct, pack
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from barnabas.wire.message_shapes import plain_name
from barnabas.wire.primitives import (
    NO_TAGGED_FIELDS,
    TEXT_BYTES_MAX,
    array_count,
    nullable_string,
    tagged_fields,
    uuid_bytes,
)
from barnabas.wire.steps import Steps, finish

Values: TypeAlias = Mapping[str, Any]
Writer: TypeAlias = Callable[[Any, "EncodedMessage"], None]
"""Appends the encoding of a value."""
SteppedWriter: TypeAlias = Callable[[Any, "EncodedMessage"], Steps[None]]
"""The same in steps: it pauses after every element of an array."""

_FORMATS: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
}
_SEQUENCES: Final = (list, tuple)


class EncodedMessage(bytearray):
    """The encoding of a message, and how often it carries which error code other than NONE."""

    __slots__ = ("errors", "has_cut_text")

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[int, int] = {}
        self.has_cut_text = False
        """Whether a text was too long for the protocol: an answer is sent so, a request is not."""

    def add_error(self, code: int, times: int = 1) -> None:
        self.errors[code] = self.errors.get(code, 0) + times


def write_values(schema: Any, values: Values) -> bytes:
    """The encoding of a message of one of kio's classes."""
    return bytes(finish(write_values_in_steps(schema, values)))


def write_values_in_steps(schema: Any, values: Values) -> Steps[EncodedMessage]:
    encoded = EncodedMessage()
    yield from _message_steps(schema)(values, encoded)
    return encoded


class _TaggedField(NamedTuple):
    tag: int
    key: str
    write: Writer
    default: bytes | None
    """The encoding of the default, which is not sent; None where absence itself is the default."""


class _Member(NamedTuple):
    """One or more fields, which are written at once or in steps."""

    write: Writer | None
    write_steps: SteppedWriter | None


@cache
def _message_steps(schema: Any) -> SteppedWriter:
    members, write_end = _member_writers(schema), _end_writer(schema)

    def write_message(values: Values, encoded: EncodedMessage) -> Steps[None]:
        for write, write_steps in members:
            if write is not None:
                write(values, encoded)
            else:
                assert write_steps is not None
                yield from write_steps(values, encoded)
        write_end(values, encoded)

    return write_message


@cache
def _message_writer(schema: Any) -> Writer:
    """The same at once."""
    members, write_end = _member_writers(schema), _end_writer(schema)
    if not _is_flat(schema):
        write_in_steps = _message_steps(schema)
        return lambda values, encoded: finish(write_in_steps(values, encoded))
    writers = [write for write, _ in members if write is not None]

    def write_message(values: Values, encoded: EncodedMessage) -> None:
        for write in writers:
            write(values, encoded)
        write_end(values, encoded)

    return write_message


@cache
def _is_flat(schema: Any) -> bool:
    """Whether a message has no arrays of messages."""
    return all(write_steps is None for _, write_steps in _member_writers(schema))


def _end_writer(schema: Any) -> Writer:
    """Writes the tagged fields, where there can be any."""
    is_flexible: bool = schema.__flexible__
    tagged = sorted(
        (_tagged_field(tag, field) for field in fields(schema) if (tag := get_field_tag(field)) is not None),
        key=lambda field: field.tag,
    )

    def write_end(values: Values, encoded: EncodedMessage) -> None:
        if tagged:
            _write_tagged(tagged, values, encoded)
        elif is_flexible:
            encoded += NO_TAGGED_FIELDS

    return write_end


def _tagged_field(tag: int, field: "Field[Any]") -> _TaggedField:
    # A tagged field is absent rather than null, so there is no mark for null before a message.
    write = _value_writer(field, is_flexible=True, is_nullable=False)
    default = _plain(get_tagged_field_default(field))
    return _TaggedField(tag, plain_name(field), write, None if default is None else bytes(_written(write, default)))


def _write_tagged(tagged: Sequence[_TaggedField], values: Values, encoded: EncodedMessage) -> None:
    present = []
    for field in tagged:
        value = values.get(field.key)
        if value is None:
            continue
        written = _written(field.write, value)
        if bytes(written) != field.default:
            present.append((field.tag, bytes(written)))
            for code, times in written.errors.items():
                encoded.add_error(code, times)
    encoded += tagged_fields(present)


def _written(write: Writer, value: Any) -> EncodedMessage:
    encoded = EncodedMessage()
    write(value, encoded)
    return encoded


@cache
def _member_writers(schema: Any) -> list[_Member]:
    """One writer for each run of numbers, and one for each other field."""
    is_flexible: bool = schema.__flexible__
    members: list[_Member] = []
    run: list[Field[Any]] = []
    for field in fields(schema):
        if get_field_tag(field) is not None:
            continue
        if _is_number(field):
            run.append(field)
            continue
        if run:
            members.append(_Member(_numbers_writer(run), None))
            run = []
        match classify_field(field):
            case EntityTupleField(nested):
                members.append(_Member(None, _array_member(field, nested, is_flexible)))
            case _:
                members.append(_Member(_member_writer(field, is_flexible), None))
    if run:
        members.append(_Member(_numbers_writer(run), None))
    return members


def _numbers_writer(run: Sequence["Field[Any]"]) -> Writer:
    layout = Struct(">" + "".join(_FORMATS[get_schema_field_type(field)] for field in run))
    members = [(plain_name(field), 0 if field.default is MISSING else _plain(field.default)) for field in run]
    code_places = [place for place, field in enumerate(run) if get_schema_field_type(field) == "error_code"]

    def write_numbers(values: Values, encoded: EncodedMessage) -> None:
        get = values.get
        encoded += layout.pack(*[get(key, default) for key, default in members])

    def write_numbers_with_code(values: Values, encoded: EncodedMessage) -> None:
        get = values.get
        numbers = [get(key, default) for key, default in members]
        encoded += layout.pack(*numbers)
        for place in code_places:
            if numbers[place]:
                encoded.add_error(numbers[place])

    return write_numbers_with_code if code_places else write_numbers


def _member_writer(field: "Field[Any]", is_flexible: bool) -> Writer:
    key = plain_name(field)
    write = _value_writer(field, is_flexible, is_nullable=is_optional(field))
    if field.default is MISSING and field.metadata.get("kafka_type") != "uuid":

        def write_required(values: Values, encoded: EncodedMessage) -> None:
            write(values[key], encoded)

        return write_required
    default = None if field.default is MISSING else _plain(field.default)

    def write_member(values: Values, encoded: EncodedMessage) -> None:
        write(values.get(key, default), encoded)

    return write_member


def _array_member(field: "Field[Any]", schema: Any, is_flexible: bool) -> SteppedWriter:
    key = plain_name(field)
    write = _array(schema, is_flexible, is_nullable=is_optional(field))
    if field.default is MISSING:
        return lambda values, encoded: write(values[key], encoded)
    default = _plain(field.default)
    return lambda values, encoded: write(values.get(key, default), encoded)


def _value_writer(field: "Field[Any]", is_flexible: bool, is_nullable: bool) -> Writer:
    match classify_field(field):
        case EntityField(schema):
            write = _message_writer(schema)
            return _nullable_message(write) if is_nullable else write
        case EntityTupleField(schema):
            write_in_steps = _array(schema, is_flexible, is_nullable)
            return lambda elements, encoded: finish(write_in_steps(elements, encoded))
        case PrimitiveField():
            return _primitive(get_schema_field_type(field), is_flexible, is_nullable)
        case _:
            kafka_type = get_schema_field_type(field)
            if kafka_type in _FORMATS:
                return _number_array(_FORMATS[kafka_type], is_flexible, is_nullable)
            return _primitive_array(_primitive(kafka_type, is_flexible, is_nullable=False), is_flexible, is_nullable)


def _nullable_message(write: Writer) -> Writer:
    def write_nullable_message(value: Values | None, encoded: EncodedMessage) -> None:
        encoded += b"\xff" if value is None else b"\x01"
        if value is not None:
            write(value, encoded)

    return write_nullable_message


def _array(schema: Any, is_flexible: bool, is_nullable: bool) -> SteppedWriter:
    """Of messages."""
    is_flat = _is_flat(schema)
    write, write_in_steps = _message_writer(schema), _message_steps(schema)

    def write_array(elements: Iterable[Values] | None, encoded: EncodedMessage) -> Steps[None]:
        start = None
        if elements is None or isinstance(elements, _SEQUENCES):
            encoded += _length(elements, is_flexible, is_nullable)
        else:
            start = len(encoded)
        count = 0
        for element in elements or ():
            if is_flat:
                write(element, encoded)
            else:
                yield from write_in_steps(element, encoded)
            count += 1
            yield
        if start is not None:
            encoded[start:start] = array_count(count, is_flexible)

    return write_array


def _primitive_array(write: Writer, is_flexible: bool, is_nullable: bool) -> Writer:
    def write_array(elements: Sequence[Any] | None, encoded: EncodedMessage) -> None:
        encoded += _length(elements, is_flexible, is_nullable)
        for element in elements or ():
            write(element, encoded)

    return write_array


def _number_array(number_format: str, is_flexible: bool, is_nullable: bool) -> Writer:
    def write_number_array(numbers: Sequence[int] | None, encoded: EncodedMessage) -> None:
        encoded += _length(numbers, is_flexible, is_nullable)
        if numbers:
            encoded += pack(f">{len(numbers)}{number_format}", *numbers)

    return write_number_array


def _primitive(kafka_type: str, is_flexible: bool, is_nullable: bool) -> Writer:
    def write_text(text: str | None, encoded: EncodedMessage) -> None:
        if text is None and not is_nullable:
            raise ValueError("null where there must be text")
        written = nullable_string(text, is_flexible)
        if len(written) >= TEXT_BYTES_MAX and text is not None:
            encoded.has_cut_text |= len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX
        encoded += written

    def write_bytes(value: bytes | None, encoded: EncodedMessage) -> None:
        encoded += _length(value, is_flexible, is_nullable)
        if value:
            encoded += value

    def write_uuid(identifier: UUID | None, encoded: EncodedMessage) -> None:
        encoded += uuid_bytes(identifier)

    def write_number(number: float, encoded: EncodedMessage) -> None:
        encoded += layout.pack(number)

    match kafka_type:
        case "string":
            return write_text
        case "bytes" | "records":
            return write_bytes
        case "uuid":
            return write_uuid
    layout = Struct(">" + _FORMATS[kafka_type])
    return write_number


def _length(value: Sized | None, is_flexible: bool, is_nullable: bool) -> bytes:
    if value is None and not is_nullable:
        raise ValueError("null where there must be a value")
    return array_count(-1 if value is None else len(value), is_flexible)


def _is_number(field: "Field[Any]") -> bool:
    return isinstance(classify_field(field), PrimitiveField) and get_schema_field_type(field) in _FORMATS


def _plain(value: Any) -> Any:
    """A default of kio's as a plain value."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, tuple):
        return tuple(_plain(element) for element in value)
    if is_dataclass(value):
        return {plain_name(field): _plain(getattr(value, field.name)) for field in fields(value)}
    return value

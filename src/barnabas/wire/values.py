"""Writes messages from plain values, for whichever version the peer speaks.

A handler gives one mapping for all versions, with nested messages as mappings in sequences:

```python
write_values(schema, {"throttle_time_ms": 0, "brokers": [{"node_id": 1, "host": "klamm", "port": 9092}], ...})
```

- Names are those of kio's classes, except that a duration is an integer with its unit, `throttle_time_ms`.
- Values that this version has no field for are left out.
- A field without a value takes Kafka's default, which for a number, a duration or an error code is zero and for a
  boolean is false. Text and arrays that have no other default must be given: `KeyError` is our own bug.

The writer of a class is built once from kio's fields. It packs neighbouring numbers by one `struct`, and makes no
object for a nested message, which is why it is several times faster than kio's own writer: a topic with a thousand
partitions must not hold up the event loop.
"""

import barnabas.wire.kio_without_hypothesis  # noqa: F401 # before kio

# isort: split
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from struct import Struct, pack
from typing import Any, Final, NamedTuple, TypeAlias

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

from barnabas.wire.primitives import NO_TAGGED_FIELDS, array_count, nullable_string, tagged_fields, uuid_bytes

Values: TypeAlias = Mapping[str, Any]
Writer: TypeAlias = Callable[[Any, list[bytes]], None]
"""Appends the encoding of a value."""

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
_DURATIONS: Final = frozenset({"timedelta_i32", "timedelta_i64"})


def write_values(schema: Any, values: Values) -> bytes:
    """The encoding of a message of one of kio's classes."""
    encoded: list[bytes] = []
    _message_writer(schema)(values, encoded)
    return b"".join(encoded)


class _TaggedField(NamedTuple):
    tag: int
    key: str
    write: Writer
    default: bytes | None
    """The encoding of the default, which is not sent; None where absence itself is the default."""


@cache
def _message_writer(schema: Any) -> Writer:
    is_flexible: bool = schema.__flexible__
    writers = _plain_writers([field for field in fields(schema) if get_field_tag(field) is None], is_flexible)
    tagged = sorted(
        (_tagged_field(tag, field) for field in fields(schema) if (tag := get_field_tag(field)) is not None),
        key=lambda field: field.tag,
    )

    def write_message(values: Values, encoded: list[bytes]) -> None:
        for write in writers:
            write(values, encoded)
        if tagged:
            encoded.append(_write_tagged(tagged, values))
        elif is_flexible:
            encoded.append(NO_TAGGED_FIELDS)

    return write_message


def _tagged_field(tag: int, field: "Field[Any]") -> _TaggedField:
    # A tagged field is absent rather than null, so there is no mark for null before a message.
    write = _value_writer(field, is_flexible=True, is_nullable=False)
    default = _plain(get_tagged_field_default(field))
    return _TaggedField(tag, _key(field), write, None if default is None else _written(write, default))


def _write_tagged(tagged: Sequence[_TaggedField], values: Values) -> bytes:
    present = []
    for field in tagged:
        value = values.get(field.key)
        if value is not None and (encoding := _written(field.write, value)) != field.default:
            present.append((field.tag, encoding))
    return tagged_fields(present)


def _written(write: Writer, value: Any) -> bytes:
    encoded: list[bytes] = []
    write(value, encoded)
    return b"".join(encoded)


def _plain_writers(plain: Sequence["Field[Any]"], is_flexible: bool) -> list[Writer]:
    """One writer for each run of numbers, and one for each other field."""
    writers: list[Writer] = []
    run: list[Field[Any]] = []
    for field in plain:
        if _is_number(field):
            run.append(field)
            continue
        if run:
            writers.append(_numbers_writer(run))
            run = []
        writers.append(_member_writer(field, is_flexible))
    if run:
        writers.append(_numbers_writer(run))
    return writers


def _numbers_writer(run: Sequence["Field[Any]"]) -> Writer:
    layout = Struct(">" + "".join(_FORMATS[get_schema_field_type(field)] for field in run))
    members = [(_key(field), 0 if field.default is MISSING else _plain(field.default)) for field in run]

    def write_numbers(values: Values, encoded: list[bytes]) -> None:
        get = values.get
        encoded.append(layout.pack(*[get(key, default) for key, default in members]))

    return write_numbers


def _member_writer(field: "Field[Any]", is_flexible: bool) -> Writer:
    key = _key(field)
    write = _value_writer(field, is_flexible, is_nullable=is_optional(field))
    if field.default is MISSING and field.metadata.get("kafka_type") != "uuid":

        def write_required(values: Values, encoded: list[bytes]) -> None:
            write(values[key], encoded)

        return write_required
    default = None if field.default is MISSING else _plain(field.default)

    def write_member(values: Values, encoded: list[bytes]) -> None:
        write(values.get(key, default), encoded)

    return write_member


def _value_writer(field: "Field[Any]", is_flexible: bool, is_nullable: bool) -> Writer:
    match classify_field(field):
        case EntityField(schema):
            write = _message_writer(schema)
            return _nullable_message(write) if is_nullable else write
        case EntityTupleField(schema):
            return _array(_message_writer(schema), is_flexible, is_nullable)
        case PrimitiveField():
            return _primitive(get_schema_field_type(field), is_flexible, is_nullable)
        case _:
            kafka_type = get_schema_field_type(field)
            if kafka_type in _FORMATS:
                return _number_array(_FORMATS[kafka_type], is_flexible, is_nullable)
            return _array(_primitive(kafka_type, is_flexible, is_nullable=False), is_flexible, is_nullable)


def _nullable_message(write: Writer) -> Writer:
    def write_nullable_message(value: Values | None, encoded: list[bytes]) -> None:
        encoded.append(b"\xff" if value is None else b"\x01")
        if value is not None:
            write(value, encoded)

    return write_nullable_message


def _array(write: Writer, is_flexible: bool, is_nullable: bool) -> Writer:
    def write_array(elements: Sequence[Any] | None, encoded: list[bytes]) -> None:
        encoded.append(_length(elements, is_flexible, is_nullable))
        for element in elements or ():
            write(element, encoded)

    return write_array


def _number_array(number_format: str, is_flexible: bool, is_nullable: bool) -> Writer:
    def write_number_array(numbers: Sequence[int] | None, encoded: list[bytes]) -> None:
        encoded.append(_length(numbers, is_flexible, is_nullable))
        if numbers:
            encoded.append(pack(f">{len(numbers)}{number_format}", *numbers))

    return write_number_array


def _primitive(kafka_type: str, is_flexible: bool, is_nullable: bool) -> Writer:
    def write_text(text: str | None, encoded: list[bytes]) -> None:
        assert is_nullable or text is not None, "null where there must be text"
        encoded.append(nullable_string(text, is_flexible))

    def write_bytes(value: bytes | None, encoded: list[bytes]) -> None:
        encoded.append(_length(value, is_flexible, is_nullable))
        if value:
            encoded.append(value)

    match kafka_type:
        case "string":
            return write_text
        case "bytes" | "records":
            return write_bytes
        case "uuid":
            return lambda identifier, encoded: encoded.append(uuid_bytes(identifier))
    layout = Struct(">" + _FORMATS[kafka_type])
    return lambda number, encoded: encoded.append(layout.pack(number))


def _length(value: Sized | None, is_flexible: bool, is_nullable: bool) -> bytes:
    assert is_nullable or value is not None, "null where there must be a value"
    return array_count(-1 if value is None else len(value), is_flexible)


def _is_number(field: "Field[Any]") -> bool:
    return isinstance(classify_field(field), PrimitiveField) and get_schema_field_type(field) in _FORMATS


def _key(field: "Field[Any]") -> str:
    return f"{field.name}_ms" if field.metadata.get("kafka_type") in _DURATIONS else field.name


def _plain(value: Any) -> Any:
    """A default of kio's as a plain value."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, tuple):
        return tuple(_plain(element) for element in value)
    if is_dataclass(value):
        return {_key(field): _plain(getattr(value, field.name)) for field in fields(value)}
    return value

"""Reads messages into kio's classes or into views (`message_shapes`), taking what Apache Kafka takes.

kio has a native reader, which is not used: it allocates as much memory as an array count claims to need, and aborts the
process when that fails. A few bytes from a stranger would end the broker. This reader is built from the
fields of kio's classes, one per class, and its memory is bounded by the bytes that the message has. It is lenient where
Kafka 4.3 is:

- tagged fields that nobody here knows are skipped (a newer client may send them);
- a negative length is null, not only -1; any boolean but zero is true;
- text that is not UTF-8 is read with replacement characters;
- an error code that is not known counts as UNKNOWN_SERVER_ERROR.

Everything else raises one of `primitives.UNREADABLE`, or `OverflowError` for a time that Python cannot hold (in a view
times are numbers).

A hundred megabytes may hold fifty million topics without a name. So a message with arrays is read in steps, between
which a broker looks after its other clients, and only up to as many elements as the caller allows.
"""

import barnabas.wire.kio_without_hypothesis  # noqa: F401 # before kio
from barnabas.base.buffers import Buffer

# isort: split
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import Struct, calcsize, unpack_from
from typing import Any, Final, NamedTuple, TypeAlias

from kio.schema.errors import ErrorCode as KioErrorCode
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

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.message_shapes import Shape, shape_of
from barnabas.wire.primitives import (
    read_compact_length,
    read_length,
    read_nullable_string,
    read_tagged_fields,
    read_uuid,
)
from barnabas.wire.steps import Steps, finish

Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
"""Takes the message and a position, returns the value and the position after it."""


class Allowance:
    """How many elements a message may have in all its arrays together."""

    __slots__ = ("_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError(f"more than {self._limit} elements")


SteppedReader: TypeAlias = Callable[[Buffer, int, Allowance], Steps[tuple[Any, int]]]
"""The same in steps: it pauses after every few elements of an array."""
MemberReader: TypeAlias = Callable[[Buffer, int, dict[str, Any]], int]
"""For one or more fields of a message, whose values it puts into the mapping."""
Convert: TypeAlias = Callable[[Any], object]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KIO_ERROR_CODES: Final[dict[int, KioErrorCode]] = {code.value: code for code in KioErrorCode}
_READ_TOGETHER: Final = 256
"""Of texts: it takes longer to pause than to read one."""
_NUMBERS_TOGETHER: Final = 4096
"""By one `struct`, which makes an object of each in some ten nanoseconds."""


def _duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _time(timestamp_ms: int) -> datetime | None:
    return None if timestamp_ms == -1 else _EPOCH + timedelta(milliseconds=timestamp_ms)


def _error_code(number: int) -> KioErrorCode:
    return _KIO_ERROR_CODES.get(number, KioErrorCode.unknown_server_error)


class _Number(NamedTuple):
    format: str
    convert: Convert | None = None


_NUMBERS: Final = {
    "int8": _Number("b"),
    "int16": _Number("h"),
    "uint16": _Number("H"),
    "int32": _Number("i"),
    "uint32": _Number("I"),
    "int64": _Number("q"),
    "float64": _Number("d"),
    "bool": _Number("?"),
    "error_code": _Number("h", _error_code),
    "timedelta_i32": _Number("i", _duration),
    "timedelta_i64": _Number("q", _duration),
    "datetime_i64": _Number("q", _time),
}


class _TaggedField(NamedTuple):
    name: str
    read: Reader
    default: object


def message_reader(schema: Any, view: Any = None) -> Reader:
    """The reader of one of kio's message classes, or of one nested in a message, however many elements it has."""
    read = message_steps(schema, view)
    return lambda data, position: finish(read(data, position, Allowance(len(data))))


@cache
def message_steps(schema: Any, view: Any = None) -> SteppedReader:
    """The same in steps, up to a number of elements; with a view, the message as an instance of that."""
    shape = shape_of(schema, view)
    members = _member_readers(schema, shape)
    read_end = _end_reader(schema, shape)
    make = shape.make

    def read_message(data: Buffer, position: int, allowance: Allowance) -> Steps[tuple[Any, int]]:
        values: dict[str, Any] = {}
        for name, read, read_steps in members:
            if read is not None:
                position = read(data, position, values)
                continue
            assert read_steps is not None
            value, position = yield from read_steps(data, position, allowance)
            if name is not None:
                values[name] = value
        position = read_end(data, position, values)
        return make(**values), position

    return read_message


@cache
def _flat_reader(schema: Any, view: Any) -> Reader:
    """Of a message without arrays."""
    shape = shape_of(schema, view)
    readers = [read for _, read, _ in _member_readers(schema, shape) if read is not None]
    read_end = _end_reader(schema, shape)
    make = shape.make

    def read_message(data: Buffer, position: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for read in readers:
            position = read(data, position, values)
        position = read_end(data, position, values)
        return make(**values), position

    return read_message


@cache
def _is_flat(schema: Any) -> bool:
    for field in fields(schema):
        if get_field_tag(field) is None:
            match classify_field(field):
                case EntityField(nested):
                    if not _is_flat(nested):
                        return False
                case PrimitiveField():
                    pass
                case _:
                    return False
    return True


def _end_reader(schema: Any, shape: Shape) -> MemberReader:
    """Reads the tagged fields, where there can be any."""
    is_flexible: bool = schema.__flexible__
    tagged = {
        int(tag): _TaggedField(place.name, _tagged_reader(field, place.view), get_tagged_field_default(field))
        for field in fields(schema)
        if (tag := get_field_tag(field)) is not None and (place := shape.places[field.name]).name is not None
    }

    def read_end(data: Buffer, position: int, values: dict[str, Any]) -> int:
        if not is_flexible:
            return position
        if data[position] == 0 and not tagged:
            return position + 1
        encoded, position = read_tagged_fields(data, position)
        for tag, field in tagged.items():
            values[field.name] = field.read(encoded[tag], 0)[0] if tag in encoded else field.default
        return position

    return read_end


class _Member(NamedTuple):
    """One or more fields, which are read at once or in steps."""

    name: str | None
    """Of what is read in steps; None when it is dropped."""
    read: MemberReader | None
    read_steps: SteppedReader | None


def _member_readers(schema: Any, shape: Shape) -> list[_Member]:
    """One reader for each run of numbers, and one for each other field."""
    is_flexible: bool = schema.__flexible__
    readers: list[_Member] = []
    run: list[Field[Any]] = []
    for field in fields(schema):
        if get_field_tag(field) is not None:
            continue
        if isinstance(classify_field(field), PrimitiveField) and get_schema_field_type(field) in _NUMBERS:
            run.append(field)
            continue
        if run:
            readers.append(_Member(None, _numbers_reader(run, shape), None))
            run = []
        name, view = shape.places[field.name]
        steps = _steps_reader(field, is_flexible, is_optional(field), view)
        if steps is not None:
            readers.append(_Member(name, None, steps))
        else:
            read = _value_reader(field, is_flexible, is_optional(field), view)
            readers.append(_Member(None, _member_reader(name, read), None))
    if run:
        readers.append(_Member(None, _numbers_reader(run, shape), None))
    return readers


def _numbers_reader(run: Sequence["Field[Any]"], shape: Shape) -> MemberReader:
    names: list[str] = []
    conversions: list[tuple[str, Convert]] = []
    formats = ""
    for field in run:
        name, number = shape.places[field.name].name, _NUMBERS[get_schema_field_type(field)]
        if name is None:
            formats += f"{calcsize(number.format)}x"
            continue
        names.append(name)
        formats += number.format
        if number.convert is not None and not shape.is_view:
            conversions.append((name, number.convert))
    layout = Struct(">" + formats)

    def read_numbers(data: Buffer, position: int, values: dict[str, Any]) -> int:
        values.update(zip(names, layout.unpack_from(data, position), strict=True))
        for name, convert in conversions:
            values[name] = convert(values[name])
        return position + layout.size

    return read_numbers


def _member_reader(name: str | None, read: Reader) -> MemberReader:
    if name is None:
        return lambda data, position, _: read(data, position)[1]

    def read_member(data: Buffer, position: int, values: dict[str, Any]) -> int:
        values[name], position = read(data, position)
        return position

    return read_member


def _tagged_reader(field: "Field[Any]", view: Any) -> Reader:
    # A tagged message is absent rather than null, so there is no mark for null before it.
    is_message = isinstance(classify_field(field), EntityField)
    return _value_reader(field, is_flexible=True, is_nullable=is_optional(field) and not is_message, view=view)


def _value_reader(field: "Field[Any]", is_flexible: bool, is_nullable: bool, view: Any) -> Reader:
    match classify_field(field):
        case EntityField(schema):
            read = _flat_reader(schema, view) if _is_flat(schema) else message_reader(schema, view)
            return _nullable_message(read) if is_nullable else read
        case PrimitiveField():
            return _primitive(get_schema_field_type(field), is_flexible, is_nullable)
        case _:
            steps = _steps_reader(field, is_flexible, is_nullable, view)
            assert steps is not None, "an array is read in steps"
            return lambda data, position: finish(steps(data, position, Allowance(len(data))))


def _steps_reader(field: "Field[Any]", is_flexible: bool, is_nullable: bool, view: Any) -> SteppedReader | None:
    """For arrays, and None for everything else."""
    match classify_field(field):
        case EntityField() | PrimitiveField():
            return None
        case EntityTupleField(schema):
            if _is_flat(schema):
                return _array(_flat_reader(schema, view), is_flexible, is_nullable, together=1)
            return _array_in_steps(message_steps(schema, view), is_flexible, is_nullable)
        case _:
            kafka_type = get_schema_field_type(field)
            if kafka_type in _NUMBERS and _NUMBERS[kafka_type].convert is None:
                return _number_array(_NUMBERS[kafka_type].format, is_flexible, is_nullable)
            element = _primitive(kafka_type, is_flexible, is_nullable=False)
            return _array(element, is_flexible, is_nullable, together=_READ_TOGETHER)


def _nullable_message(read: Reader) -> Reader:
    def read_nullable_message(data: Buffer, position: int) -> tuple[Any, int]:
        if data[position] >= 0x80:  # one signed byte stands before it, negative for null
            return None, position + 1
        return read(data, position + 1)

    return read_nullable_message


def _array(read_element: Reader, is_flexible: bool, is_nullable: bool, together: int) -> SteppedReader:
    read_count = _count_reader(is_flexible, is_nullable)

    def read_array(data: Buffer, position: int, allowance: Allowance) -> Steps[tuple[Any, int]]:
        count, position = read_count(data, position, allowance)
        if count < 0:
            return None, position
        elements = []
        for number in range(count):
            element, position = read_element(data, position)
            elements.append(element)
            if not number % together:
                yield
        return tuple(elements), position

    return read_array


def _number_array(number_format: str, is_flexible: bool, is_nullable: bool) -> SteppedReader:
    read_count = _count_reader(is_flexible, is_nullable)
    number_bytes = calcsize(">" + number_format)

    def read_array(data: Buffer, position: int, allowance: Allowance) -> Steps[tuple[Any, int]]:
        count, position = read_count(data, position, allowance)
        if count < 0:
            return None, position
        numbers: list[Any] = []
        while count:
            together = min(count, _NUMBERS_TOGETHER)
            numbers += unpack_from(f">{together}{number_format}", data, position)
            position += together * number_bytes
            count -= together
            yield
        return tuple(numbers), position

    return read_array


def _array_in_steps(read_element: SteppedReader, is_flexible: bool, is_nullable: bool) -> SteppedReader:
    read_count = _count_reader(is_flexible, is_nullable)

    def read_array(data: Buffer, position: int, allowance: Allowance) -> Steps[tuple[Any, int]]:
        count, position = read_count(data, position, allowance)
        if count < 0:
            return None, position
        elements = []
        for _ in range(count):
            element, position = yield from read_element(data, position, allowance)
            elements.append(element)
            yield
        return tuple(elements), position

    return read_array


def _count_reader(is_flexible: bool, is_nullable: bool) -> Callable[[Buffer, int, Allowance], tuple[int, int]]:
    read_length_of = read_compact_length if is_flexible else read_length

    def read_count(data: Buffer, position: int, allowance: Allowance) -> tuple[int, int]:
        count, position = read_length_of(data, position)
        if count >= 0:
            allowance.take(count)
        elif not is_nullable:
            raise ValueError("null where there must be an array")
        return count, position

    return read_count


def _primitive(kafka_type: str, is_flexible: bool, is_nullable: bool) -> Reader:
    match kafka_type:
        case "string":
            return _present(lambda data, position: read_nullable_string(data, position, is_flexible), is_nullable)
        case "bytes" | "records":
            return _present(_bytes(is_flexible), is_nullable)
        case "uuid":
            return _uuid
        case _:
            return _number(_NUMBERS[kafka_type])


def _number(number: _Number) -> Reader:
    layout = Struct(">" + number.format)
    convert = number.convert

    def read_number(data: Buffer, position: int) -> tuple[Any, int]:
        (value,) = layout.unpack_from(data, position)
        return (value if convert is None else convert(value)), position + layout.size

    return read_number


def _present(read: Reader, is_nullable: bool) -> Reader:
    if is_nullable:
        return read

    def read_present(data: Buffer, position: int) -> tuple[Any, int]:
        value, position = read(data, position)
        if value is None:
            raise ValueError("null where there must be a value")
        return value, position

    return read_present


def _bytes(is_flexible: bool) -> Reader:
    read_size = read_compact_length if is_flexible else read_length

    def read_bytes(data: Buffer, position: int) -> tuple[Any, int]:
        length, position = read_size(data, position)
        if length < 0:
            return None, position
        return bytes(data[position : position + length]), position + length

    return read_bytes


def _uuid(data: Buffer, position: int) -> tuple[Any, int]:
    identifier, position = read_uuid(data, position)
    return (None if identifier == ZERO_UUID else identifier), position

"""Hypothesis strategies for kio's message classes, from their fields: any message of any API and version."""

from dataclasses import Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

ARRAY_LENGTH_MAX = 3

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(exclude_categories=("Cs",)), max_size=200),
    "bytes": st.binary(max_size=300),
    "records": st.binary(max_size=300),
    "uuid": st.none() | st.uuids(),
    "bool": st.booleans(),
    "error_code": st.sampled_from(KioErrorCode),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda value: timedelta(milliseconds=value)),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(lambda value: timedelta(milliseconds=value)),
    "datetime_i64": st.integers(0, 2**42).map(lambda value: _EPOCH + timedelta(milliseconds=value)),
}


@cache
def entities(schema: Any) -> st.SearchStrategy[Any]:
    """Messages of one class."""
    return st.builds(schema, **{field.name: _values(field) for field in fields(schema)})


def _values(field: "Field[Any]") -> st.SearchStrategy[Any]:
    values: st.SearchStrategy[Any]
    match classify_field(field):
        case EntityField(schema):
            values = entities(schema)
        case EntityTupleField(schema):
            values = st.lists(entities(schema), max_size=ARRAY_LENGTH_MAX).map(tuple)
        case PrimitiveField():
            values = _PRIMITIVES[get_schema_field_type(field)]
        case _:
            element = _PRIMITIVES[get_schema_field_type(field)]
            values = st.lists(element, max_size=ARRAY_LENGTH_MAX).map(tuple)
    # kio writes null for a tagged field only by leaving it out, which it does when null is the default.
    if is_optional(field) and (get_field_tag(field) is None or field.default is None):
        return st.none() | values
    return values

"""Error codes are counted wherever an answer carries them."""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    classify_field,
    get_schema_field_type,
    is_optional,
)

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import response_schema, write_response_in_steps
from barnabas.wire.steps import finish

CODE = ErrorCode.INVALID_REQUEST


def counted_in(key: int, version: int, values: dict[str, Any]) -> dict[int, int]:
    return finish(write_response_in_steps(key, version, values)).errors


def refused(schema: Any) -> dict[str, Any]:
    """An answer with an error in every place, and one message in every array."""
    values: dict[str, Any] = {}
    for field in fields(schema):
        match classify_field(field):
            case EntityTupleField(nested):
                values[field.name] = [refused(nested)]
            case EntityField(nested):
                values[field.name] = refused(nested)
            case PrimitiveField() if get_schema_field_type(field) == "error_code":
                values[field.name] = CODE
            case PrimitiveField() if get_schema_field_type(field) in ("string", "bytes", "records"):
                if field.default is MISSING and not is_optional(field):
                    values[field.name] = "" if get_schema_field_type(field) == "string" else b""
                elif field.default is MISSING:
                    values[field.name] = None
            case PrimitiveField():
                pass
            case _:
                values[field.name] = []
    return values


def codes_in(values: dict[str, Any]) -> Iterator[int]:
    for value in values.values():
        if isinstance(value, list) and value:
            yield from codes_in(value[0])
        elif isinstance(value, dict):
            yield from codes_in(value)
        elif isinstance(value, ErrorCode):
            yield value


@pytest.mark.parametrize("key", [key for key in APIS if key not in (ApiKey.PRODUCE, ApiKey.FETCH)])
def test_code_in_every_place_of_every_version_is_counted(key: int) -> None:
    for version in range(APIS[key].version_min, APIS[key].version_max + 1):
        values = refused(response_schema(key, version))
        places = len(list(codes_in(values)))
        assert counted_in(key, version, values) == ({CODE: places} if places else {})


def test_answer_without_errors_counts_none_and_several_are_told_apart() -> None:
    partitions = [{"partition_index": index, "error_code": index % 3} for index in range(9)]
    topics = [{"name": "orders", "partitions": partitions}]
    assert counted_in(ApiKey.LIST_OFFSETS, 7, {"topics": topics}) == {1: 3, 2: 3}
    assert counted_in(ApiKey.LIST_OFFSETS, 7, {"topics": [{"name": "orders", "partitions": partitions[:1]}]}) == {}

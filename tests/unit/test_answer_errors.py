"""Error codes are found wherever an answer carries them."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from kio.serial._introspect import EntityField, EntityTupleField, classify_field

from barnabas.wire.answer_errors import answer_errors
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import response_schema

CODE = ErrorCode.INVALID_REQUEST


def found_in(key: int, version: int, values: dict[str, Any]) -> tuple[dict[int, int], int]:
    """The codes, and in how many steps."""
    steps = answer_errors(key, version, values)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return dict(end.value), count
        count += 1


def refused(schema: Any) -> dict[str, Any]:
    """An answer with an error in every place, and one message in every array."""
    values: dict[str, Any] = {}
    for field in fields(schema):
        if field.metadata.get("kafka_type") == "error_code":
            values[field.name] = CODE
        match classify_field(field):
            case EntityTupleField(nested):
                values[field.name] = [refused(nested)]
            case EntityField(nested):
                values[field.name] = refused(nested)
    return values


def codes_in(values: dict[str, Any]) -> Iterator[int]:
    for value in values.values():
        if isinstance(value, list):
            yield from codes_in(value[0])
        elif isinstance(value, dict):
            yield from codes_in(value)
        else:
            yield value


@pytest.mark.parametrize("key", APIS)
def test_every_place_of_every_version_is_looked_at(key: int) -> None:
    for version in range(APIS[key].version_min, APIS[key].version_max + 1):
        values = refused(response_schema(key, version))
        assert found_in(key, version, values) == ({CODE: len(list(codes_in(values)))}, 0)


def test_fields_that_are_absent_or_null_carry_none() -> None:
    assert found_in(ApiKey.METADATA, 12, {"topics": None}) == ({}, 0)
    assert found_in(ApiKey.METADATA, 12, {"topics": [{"error_code": 0}, {"partitions": []}]}) == ({}, 0)


def test_long_answer_is_looked_through_in_steps() -> None:
    partitions = [{"error_code": index % 2} for index in range(10_000)]
    assert found_in(ApiKey.LIST_OFFSETS, 7, {"topics": [{"partitions": partitions}]}) == ({1: 5000}, 2)
    topics = [{"partitions": [{"error_code": 3}]} for _ in range(10_000)]
    codes, steps = found_in(ApiKey.LIST_OFFSETS, 7, {"topics": topics})
    assert codes == {3: 10_000}
    assert steps >= 2

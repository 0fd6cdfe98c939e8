"""Views of requests against kio's classes: they fit every version, and a request of any version reads the same."""

from collections.abc import Sequence
from dataclasses import Field, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    classify_field,
    get_schema_field_type,
    is_optional,
)

from barnabas.wire import request_views
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import MalformedRequest
from barnabas.wire.message_shapes import plain_name, view_in
from barnabas.wire.messages import decode_view, encode_request, request_schema
from barnabas.wire.reader import message_steps
from tests.support.broker_parts import served_broker
from tests.support.network import run
from tests.support.wire_entities import entities

VIEWS: dict[int, Any] = {
    key: view
    for key, api in ALL_APIS.items()
    if (view := getattr(request_views, f"{api.name}Request", None)) is not None
}
VERSIONS = [
    (key, version) for key in VIEWS for version in range(ALL_APIS[key].version_min, ALL_APIS[key].version_max + 1)
]
READ_BY_HAND = (ApiKey.ENVELOPE, ApiKey.FETCH_IMAGE)
PYTHON_TYPES = {"string": str, "bytes": bytes, "uuid": UUID, "bool": bool, "float64": float}
"""Of what is not an integer."""


def test_every_coroutine_gets_the_view_of_its_api(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            awaited = {key: row.view for key, row in served.broker.dispatcher.awaited.items()}
            assert awaited == {key: view for key, view in VIEWS.items() if key not in READ_BY_HAND}

    run(scenario())


def messages_of_views() -> dict[Any, list[Any]]:
    """kio's classes, of all versions, that are read as each view, nested ones too."""
    found: dict[Any, list[Any]] = {}

    def add(view: Any, schema: Any) -> None:
        found.setdefault(view, []).append(schema)
        for one in fields(schema):
            kind = classify_field(one)
            if isinstance(kind, EntityField | EntityTupleField) and one.name in view._fields:
                add(view_in(view.__annotations__[one.name]), kind.type_)

    for api_key, version in VERSIONS:
        add(VIEWS[api_key], request_schema(api_key, version))
    return found


MESSAGES = messages_of_views()


@pytest.mark.parametrize("view", MESSAGES, ids=lambda view: view.__name__)
def test_view_fits_every_version(view: Any) -> None:
    for schema in MESSAGES[view]:
        message_steps(schema, view)  # asserts that it has a default for what the version lacks
    for name, annotation in view.__annotations__.items():
        on_wire = [one for schema in MESSAGES[view] for one in fields(schema) if plain_name(one) == name]
        assert on_wire, f"no version has {name}"
        is_nullable = any(is_optional(one) for one in on_wire)
        for expected in {wire_type(one, view_in(annotation)) for one in on_wire}:
            assert annotation == (expected | None if is_nullable else expected), name


def test_every_view_is_read() -> None:
    assert {one for one in vars(request_views).values() if hasattr(one, "_fields")} == set(MESSAGES)


def wire_type(field: "Field[Any]", nested: Any) -> Any:
    match classify_field(field):
        case EntityField():
            return nested
        case EntityTupleField():
            return Sequence[nested]
        case PrimitiveField():
            return PYTHON_TYPES.get(get_schema_field_type(field), int)
        case _:
            element: Any = PYTHON_TYPES.get(get_schema_field_type(field), int)
            return Sequence[element]


@given(st.sampled_from(VERSIONS).flatmap(lambda row: entities(request_schema(*row))))
@settings(max_examples=300)
def test_request_of_any_version_reads_as_its_view(message: Any) -> None:
    view = VIEWS[message.__api_key__]
    body = memoryview(encode_request(message))
    found = decode_view(message.__api_key__, message.__version__, body, view)
    assert repr(found) == repr(viewed(message, view))  # which tells the classes, too


def viewed(value: Any, view: Any) -> Any:
    """What the view of a message should be, made from kio's instance of it."""
    if isinstance(value, tuple):
        return tuple(viewed(one, view) for one in value)
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if not is_dataclass(value):
        return value
    on_wire = {plain_name(one): getattr(value, one.name) for one in fields(value)}
    kept = {name: view_in(annotation) for name, annotation in view.__annotations__.items() if name in on_wire}
    return view(**{name: viewed(on_wire[name], nested) for name, nested in kept.items()})


@given(st.sampled_from(VERSIONS).flatmap(lambda row: entities(request_schema(*row))), st.data())
@settings(max_examples=150)
def test_request_cut_short_is_malformed_whatever_the_view_keeps_of_it(message: Any, data: st.DataObject) -> None:
    encoded = encode_request(message)
    if encoded:
        cut = memoryview(encoded)[: data.draw(st.integers(0, len(encoded) - 1))]
        with pytest.raises(MalformedRequest):
            decode_view(message.__api_key__, message.__version__, cut, VIEWS[message.__api_key__])


class Misfit(NamedTuple):
    transactional_id: str | None
    producer_id: int
    """From version 3."""


class FlatTopics(NamedTuple):
    topics: Sequence[str]
    """Which are messages."""


def test_view_that_needs_what_a_version_lacks_is_our_bug() -> None:
    message_steps(request_schema(ApiKey.INIT_PRODUCER_ID, 3), Misfit)
    with pytest.raises(AssertionError, match="producer_id"):
        message_steps(request_schema(ApiKey.INIT_PRODUCER_ID, 2), Misfit)


def test_view_that_takes_a_message_for_a_value_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="topics"):
        message_steps(request_schema(ApiKey.DELETE_RECORDS, 2), FlatTopics)

"""Lines of `barnabas produce`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.cli.records.record_input import InputRecord, InvalidLine, LineFormat
from barnabas.cli.records.record_output import render_json
from barnabas.client.reading.fetched import ConsumedRecord
from barnabas.records.builder import Header

JSON = LineFormat(is_json=True)


def test_line_is_a_value_whatever_its_bytes() -> None:
    assert LineFormat().parse(b"\xff:\x00") == InputRecord(None, b"\xff:\x00")


def test_key_is_what_stands_before_the_first_separator() -> None:
    assert LineFormat(key_separator=b"::").parse(b"a::b::c") == InputRecord(b"a", b"b::c")
    assert LineFormat(key_separator=b":").parse(b":b") == InputRecord(b"", b"b")
    with pytest.raises(InvalidLine, match="there is no ':' after a key"):
        LineFormat(key_separator=b":").parse(b"no key")


def test_text_that_stands_for_null_is_a_tombstone_or_no_key() -> None:
    assert LineFormat(null=b"NULL").parse(b"NULL") == InputRecord(None, None)
    keyed = LineFormat(key_separator=b":", null=b"")
    assert keyed.parse(b"k:") == InputRecord(b"k", None)
    assert keyed.parse(b":v") == InputRecord(None, b"v")
    assert LineFormat(key_separator=b":").parse(b"k:") == InputRecord(b"k", b""), "nothing stands for null by itself"


def test_key_and_headers_for_all_are_added() -> None:
    line_format = LineFormat(is_json=True, key=b"k", headers=[("a", b"1")])
    assert line_format.parse(b'{"value": "v", "headers": {"b": "2"}}') == InputRecord(
        b"k", b"v", (("a", b"1"), ("b", b"2"))
    )
    assert line_format.parse(b'{"key": "own"}').key == b"own"


def test_json_object_tells_everything() -> None:
    line = {
        "key": "é",
        "value": {"base64": "AP8="},
        "headers": [["a", "1"], ["a", None], ["b", {"base64": ""}]],
        "partition": 2,
        "timestamp": 1700000000000,
        "topic": "ignored",
        "offset": 7,
    }
    assert JSON.parse(json.dumps(line).encode()) == InputRecord(
        "é".encode(), b"\x00\xff", (("a", b"1"), ("a", None), ("b", b"")), 2, 1700000000000
    )
    assert JSON.parse(b'{"value": null}').value is None


@pytest.mark.parametrize(("value", "text"), [("5", b"5"), ("[1, 2]", b"[1,2]"), ('{"a": "b"}', b'{"a":"b"}')])
def test_json_value_that_is_no_text_is_its_json(value: str, text: bytes) -> None:
    assert JSON.parse(f'{{"value": {value}}}'.encode()).value == text


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"valu": 1}', "unknown field 'valu'; known fields are headers, key, partition, timestamp, value"),
        (b'{"key": {"base64": "%"}}', "key: not base64"),
        (b'{"headers": 5}', "headers: neither"),
        (b'{"headers": [[1, "x"]]}', "headers: a name is not text"),
        (b'{"partition": -1}', "partition: not a number"),
        (b'{"timestamp": true}', "timestamp: not a number"),
    ],
)
def test_line_that_is_no_record_says_why(line: bytes, problem: str) -> None:
    with pytest.raises(InvalidLine, match=problem):
        JSON.parse(line)


@given(
    st.none() | st.binary(),
    st.none() | st.binary(),
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary()), max_size=3),
)
def test_what_consume_prints_as_json_is_read_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    own = tuple(Header(*header) for header in headers)
    record = ConsumedRecord(TopicPartition("orders", 3), 9, 1000, key, value, own)
    assert JSON.parse(render_json(record)) == InputRecord(key, value, own, 3, 1000)

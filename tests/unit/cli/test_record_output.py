"""How `barnabas consume` prints records."""

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.records.record_output import InvalidFormat, compile_format, render_json, value_renderer
from barnabas.client.reading.fetched import ConsumedRecord
from barnabas.records.builder import Header

RECORD = ConsumedRecord(
    TopicPartition("orders", 2), 41, 1_700_000_000_123, b"k\xff", b"v\n\x00", (Header("a", b"1"), Header("b", None))
)
EMPTY = ConsumedRecord(TopicPartition("orders", 2), 42, -1, None, None, ())


def test_value_is_printed_byte_for_byte() -> None:
    assert value_renderer(b"null")(RECORD) == b"v\n\x00\n"
    assert value_renderer(b"null")(EMPTY._replace(value=b"")) == b"\n"


def test_tombstone_is_not_taken_for_an_empty_value() -> None:
    assert value_renderer(b"null")(EMPTY) == b"null\n"
    assert value_renderer(b"")(EMPTY) == b"\n"


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{topic}/{partition}@{offset}", b"orders/2@41\n"),
        (r"{key}\t{value}\x00\\n", b"k\xff\tv\n\x00\x00\\n\n"),
        ("{timestamp} {time} {{x}}", b"1700000000123 2023-11-14T22:13:20.123Z {x}\n"),
        ("[{headers}] ü", "[a=1,b=NULL] ü\n".encode()),
        ("", b"\n"),
    ],
)
def test_format_puts_fields_in_their_place(template: str, printed: bytes) -> None:
    assert compile_format(template, b"NULL")(RECORD) == printed


def test_null_in_a_format_is_what_was_chosen_for_it() -> None:
    assert compile_format("<{key}|{value}|{headers}|{time}>", b"-")(EMPTY) == b"<-|-||none>\n"


@pytest.mark.parametrize("template", ["{nope}", "{}", "{key", "key}", "{offset:>10}", "{key!r}", "{key.real}"])
def test_format_that_cannot_be_filled_is_refused(template: str) -> None:
    with pytest.raises(InvalidFormat, match="--format: "):
        compile_format(template, b"")


def test_json_tells_null_text_and_bytes_apart() -> None:
    assert render_json(RECORD) == (
        b'{"topic": "orders", "partition": 2, "offset": 41, "timestamp": 1700000000123, "key": {"base64": "a/8="}, '
        b'"value": "v\\n\\u0000", "headers": [["a", "1"], ["b", null]]}\n'
    )
    assert b'"key": null, "value": null, "headers": []' in render_json(EMPTY)

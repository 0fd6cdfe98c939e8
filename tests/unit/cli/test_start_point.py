"""Where `barnabas consume --from` begins."""

from datetime import datetime

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.records.start_point import InvalidStart, StartKind, StartPoint, beyond_end, parse_start

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", StartPoint(StartKind.BEGINNING)),
        ("End", StartPoint(StartKind.END)),
        ("42", StartPoint(StartKind.OFFSET, 42)),
        ("-10", StartPoint(StartKind.OFFSET, -10)),
        ("@1500000000000", StartPoint(StartKind.TIME, 1_500_000_000_000)),
        ("2 hours ago", StartPoint(StartKind.TIME, NOW_MS - 2 * HOUR_MS)),
        ("1 hour ago", StartPoint(StartKind.TIME, NOW_MS - HOUR_MS)),
        ("1.5h ago", StartPoint(StartKind.TIME, NOW_MS - 3 * HOUR_MS // 2)),
        ("30 s ago", StartPoint(StartKind.TIME, NOW_MS - 30_000)),
        ("500 ms ago", StartPoint(StartKind.TIME, NOW_MS - 500)),
        ("2 days ago", StartPoint(StartKind.TIME, NOW_MS - 48 * HOUR_MS)),
        ("9999 weeks ago", StartPoint(StartKind.TIME, 0)),
        ("2023-11-14T22:13:20Z", StartPoint(StartKind.TIME, NOW_MS)),
        ("2023-11-14T22:13:20.5+01:00", StartPoint(StartKind.TIME, NOW_MS - HOUR_MS + 500)),
    ],
)
def test_place_is_understood(text: str, start: StartPoint) -> None:
    assert parse_start(text, NOW_MS) == start


@pytest.mark.parametrize("text", ["2023-11-14", "2023-11-14T22:13", "2023-11-14 22:13:20"])
def test_time_without_zone_is_local(text: str) -> None:
    local = datetime.fromisoformat(text).astimezone()
    assert parse_start(text, NOW_MS) == StartPoint(StartKind.TIME, int(local.timestamp() * 1000))


@pytest.mark.parametrize(
    ("start", "line"),
    [
        ("7", None),
        ("8", "offset 8 is beyond the end of orders-0 (7)"),
        ("12", "topic 'orders' has no record at offset 12 or beyond; it ends at 12"),
        ("0", None),
        ("-3", None),
        ("beginning", None),
        ("end", None),
        ("1 hour ago", "topic 'orders' has no record at or after that time"),
    ],
)
def test_place_beyond_the_end_is_said(start: str, line: str | None) -> None:
    ends = {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 12, TopicPartition("orders", 2): 0}
    assert beyond_end("orders", parse_start(start, NOW_MS), ends, ends) == line


def test_time_that_some_partition_reaches_and_an_empty_topic_are_no_surprise() -> None:
    partition = TopicPartition("orders", 0)
    an_hour_ago = parse_start("1 hour ago", NOW_MS)
    assert beyond_end("orders", an_hour_ago, {partition: 6}, {partition: 7}) is None
    assert beyond_end("orders", an_hour_ago, {partition: 0}, {partition: 0}) is None


@pytest.mark.parametrize("text", ["", "yesterday", "2 fortnights ago", "hours ago", "1e3", "2023-13-01", "-2 hours"])
def test_what_is_no_place_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidStart, match="use beginning, end, an offset, '2 hours ago'"):
        parse_start(text, NOW_MS)

"""Where `barnabas consume --from` begins."""

from datetime import datetime

import pytest

from barnabas.cli.start_point import InvalidStart, StartKind, StartPoint, parse_start

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


@pytest.mark.parametrize("text", ["", "yesterday", "2 fortnights ago", "hours ago", "1e3", "2023-13-01", "-2 hours"])
def test_what_is_no_place_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidStart, match="say beginning, end, an offset, '2 hours ago'"):
        parse_start(text, NOW_MS)

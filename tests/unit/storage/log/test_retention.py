"""Which segments are due, from facts alone."""

import pytest

from barnabas.storage.log.retention import Expiry, SegmentFacts, due_for_deletion
from barnabas.storage.settings import LogConfig

NOW_MS = 1_000_000


def segments(*ages_ms: int, size_bytes: int = 100) -> list[SegmentFacts]:
    """Segments of ten records each; the last one is active."""
    return [
        SegmentFacts(
            end_offset=(slot + 1) * 10,
            size_bytes=size_bytes,
            largest_timestamp=NOW_MS - age_ms,
            is_active=slot == len(ages_ms) - 1,
        )
        for slot, age_ms in enumerate(ages_ms)
    ]


def due(
    facts: list[SegmentFacts], *, log_start_offset: int = 0, high_watermark: int = 10_000, **config: object
) -> Expiry:
    settings = LogConfig(**{"retention_ms": -1, "retention_bytes": -1, **config})  # type: ignore[arg-type]
    return due_for_deletion(
        facts,
        settings,
        size_bytes=sum(segment.size_bytes for segment in facts),
        now_ms=NOW_MS,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
    )


def test_retention_without_limits_deletes_nothing() -> None:
    assert due(segments(500, 400, 0)) == Expiry(0, "")


def test_retention_by_time_deletes_what_is_older() -> None:
    assert due(segments(500, 301, 300, 0), retention_ms=300) == Expiry(2, "retention.ms=300")


def test_retention_by_time_stops_at_the_first_segment_that_stays() -> None:
    assert due(segments(500, 100, 500, 0), retention_ms=300).count == 1


def test_retention_by_time_reaches_the_active_segment() -> None:
    assert due(segments(500, 400), retention_ms=300) == Expiry(2, "retention.ms=300")


def test_retention_of_zero_ms_keeps_what_is_of_this_moment() -> None:
    assert due(segments(1, 0), retention_ms=0).count == 1


def test_retention_by_size_keeps_at_least_the_limit() -> None:
    assert due(segments(0, 0, 0, 0), retention_bytes=250) == Expiry(1, "retention.bytes=250")
    assert due(segments(0, 0, 0, 0), retention_bytes=200).count == 2
    assert due(segments(0, 0, 0, 0), retention_bytes=400).count == 0


def test_retention_by_size_of_zero_deletes_everything() -> None:
    assert due(segments(0, 0), retention_bytes=0).count == 2


def test_retention_by_both_names_the_reason_of_the_last() -> None:
    assert due(segments(500, 0, 0), retention_ms=300, retention_bytes=100) == Expiry(2, "retention.bytes=100")


def test_segment_at_the_high_watermark_stays() -> None:
    assert due(segments(500, 500, 500), retention_ms=300, high_watermark=20).count == 2
    assert due(segments(500, 500, 500), retention_ms=300, high_watermark=19).count == 1


@pytest.mark.parametrize(("log_start_offset", "count"), [(0, 0), (9, 0), (10, 1), (25, 2)])
def test_segments_below_the_log_start_go_whatever_the_policy(log_start_offset: int, count: int) -> None:
    facts = segments(0, 0, 0, 0)
    assert due(facts, log_start_offset=log_start_offset, cleanup_policy=frozenset({"compact"})).count == count


def test_active_segment_below_the_log_start_stays() -> None:
    assert due(segments(0, 0), log_start_offset=20) == Expiry(1, "the log starts at 20")


def test_compacted_log_is_not_deleted_by_time_or_size() -> None:
    facts = segments(500, 500)
    assert due(facts, retention_ms=1, retention_bytes=1, cleanup_policy=frozenset({"compact"})).count == 0


def test_log_with_both_policies_is_deleted_by_time() -> None:
    assert due(segments(500, 0), retention_ms=300, cleanup_policy=frozenset({"compact", "delete"})).count == 1


def test_empty_active_segment_stays() -> None:
    empty = SegmentFacts(end_offset=20, size_bytes=0, largest_timestamp=0, is_active=True)
    assert due([*segments(500, 500)[:1], empty], retention_ms=300) == Expiry(1, "retention.ms=300")

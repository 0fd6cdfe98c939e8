"""Logs start where retention and DeleteRecords have put their start."""

from barnabas.base.ids import TopicPartition
from barnabas.sim.checkers.log_starts import check_log_starts
from tests.sim.checkers.written import COMPACTED, EXPIRING, PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_log_starts(written.history))


def listed(written: Written, place: TopicPartition, start: int) -> None:
    written.admin("list_offsets", ((place, start, 100),), topic=place.topic)


def test_logs_without_retention_start_at_zero() -> None:
    written = Written("plain", "compacted")
    listed(written, PLACE, 0)
    written.final(PLACE)
    written.final(COMPACTED)
    assert not found(written)


def test_log_without_retention_that_starts_later_is_found() -> None:
    written = Written("plain", "compacted")
    listed(written, PLACE, 3)
    written.power_loss()
    written.final(COMPACTED, start=4)
    assert found(written) == [
        "compacted-0 starts at 4 (8.000 s), though nothing deletes its records",
        "plain-0 starts at 3 (6.000 s), though nothing deletes its records",
    ]


def test_start_moves_on_with_retention() -> None:
    written = Written("expiring")
    listed(written, EXPIRING, 0)
    listed(written, EXPIRING, 5)
    written.final(EXPIRING, start=7)
    assert not found(written)


def test_start_that_goes_back_is_found() -> None:
    written = Written("expiring")
    listed(written, EXPIRING, 5)
    written.happened("kill")
    written.final(EXPIRING, start=3)
    assert found(written) == ["the start of expiring-0 went back from 5 (4.000 s) to 3 (6.000 s)"]


def test_start_may_go_back_with_the_power() -> None:
    written = Written("expiring")
    listed(written, EXPIRING, 5)
    written.power_loss()
    written.final(EXPIRING, start=3)
    assert not found(written)


def test_deleted_records_stay_deleted_whatever_happens() -> None:
    written = Written("plain")
    written.admin("delete_records", 5, topic="plain", partition=0)
    written.power_loss()
    written.final(PLACE, start=3)
    assert found(written) == ["the start of plain-0 went back from 5 (DeleteRecords, 4.000 s) to 3 (6.000 s)"]


def test_delete_records_without_an_answer_promises_nothing() -> None:
    written = Written("plain")
    written.admin("delete_records", topic="plain", partition=0, answer="failed")
    written.final(PLACE, start=3)
    assert not found(written)


def test_damaged_and_deleted_logs_prove_nothing() -> None:
    written = Written("plain", "compacted")
    written.happened("flip", "disk-1/plain-0/00000000000000000000.log")
    written.admin("delete_topic", topic="compacted")
    written.final(PLACE, start=3)
    written.final(COMPACTED, start=3)
    assert not found(written)

"""Records of one producer keep their order."""

import pytest

from barnabas.sim.checkers.producer_order import check_producer_order
from tests.sim.checkers.written import FLUSHED, PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_producer_order(written.history))


def test_ascending_records_pass() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.stored(PLACE, "b", 5)
    written.final(PLACE, (0, "a"), (5, "b"))
    assert not found(written)


def test_acknowledged_offsets_that_descend_are_found() -> None:
    written = Written("plain")
    written.sent(PLACE, "a", is_idempotent=False)
    written.sent(PLACE, "b", is_idempotent=False)
    written.acked(PLACE, "a", 1)
    written.acked(PLACE, "b", 0)
    assert found(written) == [
        "producer-1 sent number 2 before number 3 to plain-0, and they were acknowledged at offsets 1 and 0"
    ]


def test_two_records_at_one_offset_are_found() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 1)
    written.stored(PLACE, "b", 1)
    assert len(found(written)) == 1


def test_offsets_descend_after_a_power_loss() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 1)
    written.power_loss()
    written.stored(PLACE, "b", 0)
    assert not found(written)


def test_stored_records_of_an_idempotent_producer_in_another_order_are_found() -> None:
    written = Written("plain")
    written.sent(PLACE, "a")
    written.sent(PLACE, "b")
    written.final(PLACE, (0, "b"), (1, "a"))
    assert found(written) == [
        "plain-0 holds number 3 of producer-1 at offset 0 and number 2, which was sent earlier, at offset 1"
    ]


def test_duplicate_of_another_producer_may_come_late() -> None:
    written = Written("plain")
    written.sent(PLACE, "a", is_idempotent=False)
    written.sent(PLACE, "b", is_idempotent=False)
    written.final(PLACE, (0, "a"), (1, "b"), (2, "a"))
    assert not found(written)


def test_failed_record_may_come_late() -> None:
    written = Written("plain")
    written.sent(PLACE, "a")
    written.failed(PLACE, "a")
    written.stored(PLACE, "b", 0)
    written.final(PLACE, (0, "b"), (1, "a"))
    assert not found(written)


@pytest.mark.parametrize("way", ["other partition", "other producer", "restart", "acks=0", "damage"])
def test_order_is_promised_to_one_producer_in_one_partition(way: str) -> None:
    written = Written("plain", "flushed")
    acks = 0 if way == "acks=0" else -1
    written.sent(PLACE, "a", acks=acks)
    if way == "restart":
        written.happened("kill", to="producer-1")
    if way == "damage":
        written.happened("flip", "disk-1/plain-0/00000000000000000000.log")
    place = FLUSHED if way == "other partition" else PLACE
    by = "producer-2" if way == "other producer" else "producer-1"
    written.sent(place, "b", by=by, acks=acks)
    written.acked(PLACE, "a", 1)
    written.acked(place, "b", 0, by=by)
    written.final(PLACE, (0, "b"), (1, "a"))
    assert not found(written)


def test_record_that_is_stored_twice_is_for_another_checker() -> None:
    written = Written("plain")
    written.sent(PLACE, "a")
    written.sent(PLACE, "b")
    written.final(PLACE, (0, "a"), (1, "b"), (2, "a"))
    assert not found(written)

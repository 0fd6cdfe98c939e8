"""Acknowledged records are stored, or a guarantee allows that they are not."""

from barnabas.sim.checkers.acked_records import check_acked_records
from tests.sim.checkers.written import COMPACTED, EXPIRING, FLUSHED, PLACE, Written, records


def found(written: Written) -> list[str]:
    return list(check_acked_records(written.history))


def test_stored_records_pass() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.stored(PLACE, "b", 1)
    written.final(PLACE, (0, "a"), (1, "b"))
    assert not found(written)


def test_lost_record_is_found_after_a_kill() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.stored(PLACE, "b", 1)
    written.happened("kill")
    written.final(PLACE, (0, "a"))
    (problem,) = found(written)
    assert "b'b' of producer-1, acknowledged at 6.000 s at offset 1 of plain-0, is lost" in problem
    assert "the log holds 0 to 1; no loss of power explains it" in problem


def test_replaced_record_is_found() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.final(PLACE, (0, "b"))
    (problem,) = found(written)
    assert "is replaced by b'b' in epoch 1" in problem


def test_missing_partition_is_found() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    (problem,) = found(written)
    assert "is in a partition that is not there at the end" in problem


def test_power_loss_may_take_the_end_of_a_log() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.stored(PLACE, "b", 1)
    written.power_loss()
    written.stored(PLACE, "c", 1)
    written.final(PLACE, (0, "a"), later=records((1, "c"), epoch=2))
    assert not found(written)


def test_power_loss_takes_nothing_that_is_flushed() -> None:
    written = Written("flushed")
    written.stored(FLUSHED, "a", 0)
    written.power_loss()
    written.final(FLUSHED)
    (problem,) = found(written)
    assert "no loss of power explains it" in problem


def test_power_loss_leaves_no_hole_before_an_acknowledged_record() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.stored(PLACE, "b", 1)
    written.power_loss()
    written.final(PLACE, (1, "b"))
    (problem,) = found(written)
    assert "b'a'" in problem
    assert (
        "the loss of power at 7.000 s does not explain it: offset 1 is there, which was written by 6.000 s" in problem
    )


def test_power_loss_leaves_no_hole_before_a_shown_record() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.sent(PLACE, "b")
    written.shown(PLACE, 0, 2, (0, "a"), (1, "b"))
    written.power_loss()
    written.final(PLACE, (1, "b"))
    (problem,) = found(written)
    assert "offset 1 is there" in problem


def test_record_written_again_in_a_later_epoch_is_no_hole() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.sent(PLACE, "b")
    written.shown(PLACE, 0, 2, (0, "a"), (1, "b"))
    written.power_loss()
    written.stored(PLACE, "c", 0)
    written.acked(PLACE, "b", 1)
    written.final(PLACE, later=records((0, "c"), (1, "b"), epoch=2))
    assert not found(written)


def test_record_acknowledged_after_the_power_loss_is_there() -> None:
    written = Written("plain")
    written.power_loss()
    written.stored(PLACE, "a", 0)
    written.final(PLACE)
    (problem,) = found(written)
    assert "no loss of power explains it" in problem


def test_answer_that_was_held_back_may_be_older_than_the_power_loss() -> None:
    written = Written("plain")
    written.sent(PLACE, "a")
    written.happened("cut", "from broker-1, for 3 s", to="producer-1")
    written.power_loss()
    written.acked(PLACE, "a", 0)
    written.final(PLACE)
    assert not found(written)


def test_retention_takes_the_start_and_not_the_end() -> None:
    written = Written("expiring")
    for offset, value in enumerate("abc"):
        written.stored(EXPIRING, value, offset)
    written.final(EXPIRING, (1, "b"), start=1)
    (problem,) = found(written)
    assert "b'c'" in problem


def test_delete_records_takes_the_start() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.admin("delete_records", 1, topic="plain", partition=0)
    written.final(PLACE, start=1)
    assert not found(written)


def test_compacted_deleted_and_damaged_logs_are_left_to_others() -> None:
    written = Written("compacted", "plain", "flushed")
    written.stored(COMPACTED, "a", 0)
    written.stored(PLACE, "b", 0)
    written.stored(FLUSHED, "c", 0)
    written.admin("delete_topic", topic="plain")
    written.happened("flip", "disk-1/flushed-0/00000000000000000000.log")
    written.final(COMPACTED)
    written.final(FLUSHED)
    assert not found(written)


def test_record_without_an_offset_is_somewhere() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", -1)
    written.stored(PLACE, "b", -1)
    written.final(PLACE, (0, "a"))
    (problem,) = found(written)
    assert problem.startswith("b'b'")


def test_records_without_acks_are_not_counted() -> None:
    written = Written("plain")
    written.sent(PLACE, "a", acks=0)
    written.acked(PLACE, "a", -1)
    written.final(PLACE)
    assert not found(written)


def test_history_without_an_end_proves_nothing() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.history.is_complete = False
    assert not found(written)

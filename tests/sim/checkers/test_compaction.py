"""The last record of a key stays."""

from barnabas.sim.checkers.compaction import check_compaction
from tests.sim.checkers.written import COMPACTED, PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_compaction(written.history))


def test_older_record_of_a_key_may_go() -> None:
    written = Written("compacted")
    written.stored(COMPACTED, "a", 0, key="k")
    written.stored(COMPACTED, "b", 1, key="k")
    written.final(COMPACTED, (1, "b", "k"))
    assert not found(written)


def test_last_record_of_a_key_stays() -> None:
    written = Written("compacted")
    written.stored(COMPACTED, "a", 0, key="k")
    written.stored(COMPACTED, "b", 1, key="k")
    written.stored(COMPACTED, "c", 2, key="other")
    written.final(COMPACTED, (0, "a", "k"), (2, "c", "other"))
    (problem,) = found(written)
    assert problem == (
        "b'b', acknowledged at 6.000 s at offset 1 of compacted-0, was the last record of key b'k' and is gone; "
        "no loss of power explains it"
    )


def test_later_record_that_was_never_acknowledged_is_enough() -> None:
    written = Written("compacted")
    written.stored(COMPACTED, "a", 0, key="k")
    written.sent(COMPACTED, "b", key="k")
    written.final(COMPACTED, (1, "b", "k"))
    assert not found(written)


def test_later_tombstone_may_be_gone_with_what_it_deleted() -> None:
    written = Written("compacted")
    written.stored(COMPACTED, "a", 0, key="k")
    written.sent(COMPACTED, None, key="k")
    written.acked(COMPACTED, None, 1, key="k")
    written.final(COMPACTED, end=2)
    assert not found(written)


def test_tombstone_without_an_answer_may_be_later() -> None:
    written = Written("compacted")
    written.stored(COMPACTED, "a", 0, key="k")
    written.sent(COMPACTED, None, key="k")
    written.final(COMPACTED, end=2)
    assert not found(written)


def test_earlier_tombstone_deletes_nothing() -> None:
    written = Written("compacted")
    written.sent(COMPACTED, None, key="k")
    written.acked(COMPACTED, None, 0, key="k")
    written.stored(COMPACTED, "a", 1, key="k")
    written.final(COMPACTED, end=2)
    (problem,) = found(written)
    assert "b'a'" in problem


def test_power_loss_explains_a_lost_end() -> None:
    written = Written("compacted")
    written.stored(COMPACTED, "a", 0, key="k")
    written.power_loss()
    written.final(COMPACTED)
    assert not found(written)


def test_power_loss_does_not_explain_that_an_older_record_is_gone() -> None:
    written = Written("compacted")
    written.stored(COMPACTED, "a", 0, key="k")
    written.stored(COMPACTED, "b", 1, key="other")
    written.power_loss()
    written.final(COMPACTED, (1, "b", "other"))
    (problem,) = found(written)
    assert "offset 1 is there" in problem


def test_topics_that_are_not_compacted_are_left_to_others() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0, key="k")
    written.final(PLACE)
    assert not found(written)

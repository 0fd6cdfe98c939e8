"""What is committed is the last commit."""

import pytest

from barnabas.sim.checkers.commits import check_commits
from tests.sim.checkers.written import FLUSHED, PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_commits(written.history))


def test_last_commit_passes() -> None:
    written = Written("plain")
    written.committed()
    written.commit(1)
    written.committed((PLACE, 1))
    written.commit(3)
    written.committed((PLACE, 3))
    assert not found(written)


def test_later_commit_may_go_back() -> None:
    written = Written("plain")
    written.commit(3)
    written.commit(1)
    written.committed((PLACE, 1))
    assert not found(written)


def test_earlier_commit_is_found() -> None:
    written = Written("plain")
    written.commit(1)
    written.commit(3)
    written.committed((PLACE, 1))
    assert found(written) == [
        "at 8.000 s 1 was the committed offset of plain-0 in group-1, though 3 was written between 5.000 and 6.000 s"
    ]


def test_missing_commit_is_found_even_after_a_kill() -> None:
    written = Written("plain")
    written.commit(1)
    written.happened("kill")
    written.committed()
    (problem,) = found(written)
    assert "there was no committed offset of plain-0 in group-1, though 1 was written" in problem


def test_offset_that_nobody_committed_is_found() -> None:
    written = Written("plain", "flushed")
    written.commit(1)
    written.committed((PLACE, 2), (FLUSHED, 4))
    assert found(written) == [
        "at 8.000 s 2 was the committed offset of plain-0 in group-1, which nobody had written",
        "at 8.000 s 4 was the committed offset of flushed-0 in group-1, which nobody had written",
    ]


@pytest.mark.parametrize("answer", ["failed", "none"])
@pytest.mark.parametrize("seen", [1, 3])
def test_commit_without_a_good_answer_may_have_worked(answer: str, seen: int) -> None:
    written = Written("plain")
    written.commit(1)
    written.commit(3, answer=answer)
    written.committed((PLACE, seen))
    assert not found(written)


def test_commit_without_an_answer_may_work_later() -> None:
    written = Written("plain")
    written.commit(1, answer="none")
    written.commit(3)
    written.committed((PLACE, 3))
    written.committed((PLACE, 1))
    assert not found(written)


def test_commit_that_was_seen_has_worked() -> None:
    written = Written("plain")
    written.commit(1)
    written.commit(3, answer="none")
    written.committed((PLACE, 3))
    written.committed((PLACE, 1))
    (problem,) = found(written)
    assert "1 was the committed offset of plain-0 in group-1, though 3 was written between" in problem


def test_commits_at_the_same_time_come_in_any_order() -> None:
    written = Written("plain")
    first = written.commit(1, answer="none")
    second = written.commit(3, answer="none")
    written.commit_answered(second)
    written.commit_answered(first)
    written.committed((PLACE, 1))
    assert not found(written)


def test_commit_that_was_sent_twice_may_come_twice() -> None:
    written = Written("plain")
    written.commit(1, seconds=9.0)
    written.commit(3)
    written.committed((PLACE, 1))
    assert not found(written)


@pytest.mark.parametrize("offsets", [(), ((PLACE, 1),), ((PLACE, 3),)])
def test_power_loss_may_take_commits(offsets: tuple[tuple[object, int], ...]) -> None:
    written = Written("plain")
    written.commit(1)
    written.commit(3)
    written.power_loss()
    written.committed(*offsets)  # type: ignore[arg-type]
    assert not found(written)


def test_power_loss_takes_no_later_commit() -> None:
    written = Written("plain")
    written.commit(1)
    written.power_loss()
    written.commit(3)
    written.committed((PLACE, 1))
    assert len(found(written)) == 1


def test_damaged_log_of_the_groups_proves_nothing() -> None:
    written = Written("plain")
    written.commit(1)
    written.happened("flip", "disk-1/__consumer_offsets-0/00000000000000000000.log")
    written.committed()
    assert not found(written)


def test_offsets_expire_when_clocks_jump_far() -> None:
    written = Written("plain")
    written.commit(1)
    for _ in range(7):
        written.happened("clock jump", "86400000 ms")
    written.committed()
    assert not found(written)

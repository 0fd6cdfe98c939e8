"""How far a member has come: what is handed out, done and committed."""

from collections.abc import Iterator

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.group.group_offsets import OffsetAndMetadata
from barnabas.client.group.group_progress import Progress

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 0)


@pytest.fixture
def progress() -> Iterator[Progress]:
    one = Progress()
    yield one
    one.check_invariants()


def test_partition_that_begins_where_it_is_committed_has_nothing_to_commit(progress: Progress) -> None:
    progress.begin(ORDERS, 5, 5)
    assert progress.partitions == {ORDERS}
    assert progress.positions == {ORDERS: 5}
    assert progress.uncommitted() == {}


def test_partition_that_begins_without_a_commit_has_its_beginning_to_commit(progress: Progress) -> None:
    progress.begin(ORDERS, 0, None)
    assert progress.uncommitted() == {ORDERS: 0}


def test_what_is_handed_out_is_to_commit_only_when_it_is_finished(progress: Progress) -> None:
    progress.begin(ORDERS, 5, 5)
    progress.hand_out(ORDERS, 9)
    assert progress.positions == {ORDERS: 9}
    assert progress.uncommitted() == {}
    assert progress.uncommitted_positions() == {ORDERS: 9}
    progress.finish()
    assert progress.uncommitted() == {ORDERS: 9}


def test_what_is_handed_out_after_finishing_waits_for_the_next_time(progress: Progress) -> None:
    progress.begin(ORDERS, 5, 5)
    progress.hand_out(ORDERS, 9)
    progress.finish()
    progress.hand_out(ORDERS, 12)
    assert progress.uncommitted() == {ORDERS: 9}
    assert progress.positions == {ORDERS: 12}


def test_only_the_partitions_that_are_asked_for_are_to_commit(progress: Progress) -> None:
    progress.begin(ORDERS, 5, None)
    progress.begin(BILLS, 7, None)
    assert progress.uncommitted([BILLS, TopicPartition("of others", 0)]) == {BILLS: 7}


@pytest.mark.parametrize("committed", [9, OffsetAndMetadata(9, metadata="a note")])
def test_what_is_committed_is_not_to_commit_again(progress: Progress, committed: int | OffsetAndMetadata) -> None:
    progress.begin(ORDERS, 5, 5)
    progress.hand_out(ORDERS, 9)
    progress.finish()
    progress.note_committed({ORDERS: committed})
    assert progress.uncommitted() == {}
    assert progress.uncommitted_positions() == {}


def test_commit_of_what_was_just_handed_out_is_not_taken_back_by_the_next_one(progress: Progress) -> None:
    progress.begin(ORDERS, 5, 5)
    progress.hand_out(ORDERS, 9)
    progress.note_committed({ORDERS: 8})
    assert progress.uncommitted() == {}
    progress.finish()
    assert progress.uncommitted() == {ORDERS: 9}


def test_commit_below_what_is_done_leaves_the_rest_to_commit(progress: Progress) -> None:
    progress.begin(ORDERS, 9, 9)
    progress.note_committed({ORDERS: 4})
    assert progress.uncommitted() == {ORDERS: 9}


def test_seeking_back_is_to_commit_and_forgets_what_was_handed_out(progress: Progress) -> None:
    progress.begin(ORDERS, 5, 5)
    progress.hand_out(ORDERS, 9)
    progress.seek(ORDERS, 2)
    progress.finish()
    assert progress.positions == {ORDERS: 2}
    assert progress.uncommitted() == {ORDERS: 2}


def test_partition_without_a_place_is_ours_but_has_nothing_to_commit(progress: Progress) -> None:
    progress.begin(ORDERS, None, None)
    progress.hand_out(ORDERS, 3)
    progress.finish()
    assert progress.partitions == progress.homeless == {ORDERS}
    assert progress.positions == progress.uncommitted() == {}


def test_partition_without_a_place_gets_one_by_seeking(progress: Progress) -> None:
    progress.begin(ORDERS, None, None)
    progress.seek(ORDERS, 3)
    assert progress.homeless == frozenset()
    assert progress.positions == {ORDERS: 3}


def test_partition_that_ends_leaves_nothing_and_late_news_of_it_is_ignored(progress: Progress) -> None:
    progress.begin(ORDERS, 5, 5)
    progress.begin(BILLS, None, None)
    progress.hand_out(ORDERS, 9)
    progress.end([ORDERS, BILLS, TopicPartition("never ours", 0)])
    progress.hand_out(ORDERS, 10)
    progress.note_committed({ORDERS: 9})
    progress.finish()
    assert progress.partitions == frozenset()
    assert progress.positions == progress.uncommitted_positions() == {}

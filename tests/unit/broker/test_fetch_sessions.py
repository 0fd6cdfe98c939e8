"""Fetch sessions by themselves (KIP-227): who gets one, what each request may say, and whose slot is given away."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from random import Random
from uuid import UUID

import pytest

from barnabas.broker import fetch_sessions
from barnabas.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPlan,
    FetchSessions,
    SessionPartition,
)
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch import Fetch, PartitionKey, Wanted

SLOTS = 3
EVICTION_MS = 1000
EPOCH_MAX = 2**31 - 1
TOPIC = "orders"
TOPIC_ID = UUID("00000000-0000-4000-8000-000000000001")


def key_of(partition: int, topic: str | bytes = TOPIC) -> PartitionKey:
    """By name, or by the bytes of an id."""
    return PartitionKey(topic, partition)


def wanted_at(offset: int, key: PartitionKey) -> Wanted:
    return Wanted(key, offset, 1 << 20)


class Client:
    """Sends fetches to the sessions as one consumer does, and keeps its id and epoch."""

    def __init__(self, sessions: FetchSessions, *, uses_topic_ids: bool = False) -> None:
        self._sessions = sessions
        self.uses_topic_ids = uses_topic_ids
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH

    def fetch(
        self,
        *partitions: int,
        offset: int = 0,
        forgotten: Sequence[int] = (),
        now_ms: int = 0,
        epoch: int | None = None,
    ) -> FetchPlan:
        topic = TOPIC_ID.bytes if self.uses_topic_ids else TOPIC
        plan = self._sessions.plan(
            self.session_id,
            self.epoch if epoch is None else epoch,
            OrderedDict(
                (key_of(one, topic), SessionPartition(wanted_at(offset, key_of(one, topic)))) for one in partitions
            ),
            [key_of(one, topic) for one in forgotten],
            uses_topic_ids=self.uses_topic_ids,
            now_ms=now_ms,
        )
        self.session_id = plan.session_id
        self.epoch = 0 if plan.session_id == NO_SESSION else self.epoch + 1
        return plan


def plan_for(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    offset: int,
    *,
    partition: int = 0,
    uses_topic_ids: bool = False,
    now_ms: int = 0,
) -> FetchPlan:
    """The plan of a request for one partition."""
    fetch = Fetch(0, 1, 1 << 20, 0, session_id, epoch, [wanted_at(offset, key_of(partition))])
    return sessions.plan_for(fetch, uses_topic_ids=uses_topic_ids, now_ms=now_ms)


def partitions_of(plan: FetchPlan) -> list[int]:
    return [key.partition for key in plan.partitions]


def offsets_of(plan: FetchPlan) -> dict[int, int]:
    return {key.partition: session.wanted.offset for key, session in plan.partitions.items()}


def refused(client: Client, *partitions: int, **request: int) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        client.fetch(*partitions, **request)
    return ErrorCode(refusal.value.code)


@pytest.fixture
def sessions() -> Iterator[FetchSessions]:
    sessions = FetchSessions(SLOTS, EVICTION_MS, Random(1))
    yield sessions
    sessions.check_invariants()


# -- opening and closing -----------------------------------------------------------------------------------------


def test_full_fetch_that_wants_no_session_is_answered_whole_and_forgotten(sessions: FetchSessions) -> None:
    plan = Client(sessions).fetch(0, 1, epoch=FINAL_EPOCH)
    assert (partitions_of(plan), plan.session_id, plan.is_incremental) == ([0, 1], NO_SESSION, False)
    assert len(sessions) == sessions.partition_count == 0


def test_full_fetch_that_wants_a_session_opens_one_and_is_answered_whole(sessions: FetchSessions) -> None:
    plan = Client(sessions).fetch(0, 1)
    assert (partitions_of(plan), plan.is_incremental) == ([0, 1], False)
    assert 0 < plan.session_id < 2**31
    assert (len(sessions), sessions.partition_count) == (1, 2)


def test_full_fetch_without_partitions_opens_no_session(sessions: FetchSessions) -> None:
    assert Client(sessions).fetch().session_id == NO_SESSION
    assert not len(sessions)


def test_sessions_have_different_ids_even_if_the_same_number_is_drawn_twice() -> None:
    class Repeating(Random):
        drawn = iter((7, 7, 7, 8))

        def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
            return next(self.drawn)

    sessions = FetchSessions(SLOTS, EVICTION_MS, Repeating())
    assert [Client(sessions).fetch(0).session_id for _ in range(2)] == [7, 8]
    sessions.check_invariants()


def test_new_full_fetch_takes_the_place_of_the_clients_old_session(sessions: FetchSessions) -> None:
    client = Client(sessions)
    first = client.fetch(0).session_id
    assert client.fetch(1, 2, epoch=INITIAL_EPOCH).session_id not in (NO_SESSION, first)
    assert (len(sessions), sessions.partition_count) == (1, 2)


def test_final_epoch_closes_the_session_and_answers_what_the_request_names(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0, 1)
    plan = client.fetch(1, epoch=FINAL_EPOCH)
    assert (partitions_of(plan), plan.session_id, plan.is_incremental) == ([1], NO_SESSION, False)
    assert not len(sessions)


def test_final_epoch_of_a_session_that_there_is_not_does_no_harm(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.session_id = 99
    assert client.fetch(epoch=FINAL_EPOCH).session_id == NO_SESSION


# -- incremental requests ----------------------------------------------------------------------------------------


def test_incremental_fetches_with_epochs_in_order_are_answered_for_the_whole_session(sessions: FetchSessions) -> None:
    client = Client(sessions)
    session_id = client.fetch(0, 1).session_id
    for _ in range(3):
        plan = client.fetch()
        assert (partitions_of(plan), plan.session_id, plan.is_incremental) == ([0, 1], session_id, True)


def test_incremental_fetch_changes_only_the_partitions_that_it_names(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0, 1)
    assert offsets_of(client.fetch(1, offset=5)) == {0: 0, 1: 5}
    assert offsets_of(client.fetch(2, offset=9)) == {0: 0, 1: 5, 2: 9}
    assert sessions.partition_count == 3


@pytest.mark.parametrize("epoch", [1, 3, EPOCH_MAX], ids=["repeated", "one left out", "far ahead"])
def test_epoch_that_is_not_the_next_is_refused_and_changes_nothing(sessions: FetchSessions, epoch: int) -> None:
    client = Client(sessions)
    client.fetch(0)
    client.fetch()
    assert refused(client, 1, epoch=epoch) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert partitions_of(client.fetch()) == [0]


def test_epoch_after_the_largest_is_one(sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "_EPOCH_MAX", 2)
    client = Client(sessions)
    for epoch in (INITIAL_EPOCH, 1, 2):
        client.fetch(0, epoch=epoch)
    assert partitions_of(client.fetch(epoch=1)) == [0]


def test_session_that_there_is_not_is_refused(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.session_id = 99
    assert refused(client, 0, epoch=1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refused(Client(sessions), 0, epoch=1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("began_with_ids", [False, True])
def test_session_that_changes_between_names_and_ids_is_refused_and_kept(
    sessions: FetchSessions, began_with_ids: bool
) -> None:
    client = Client(sessions, uses_topic_ids=began_with_ids)
    client.fetch(0)
    client.uses_topic_ids = not began_with_ids
    assert refused(client, 0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.uses_topic_ids = began_with_ids
    assert partitions_of(client.fetch()) == [0]


def test_wrong_epoch_is_said_before_another_way_to_name_topics(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0)
    client.uses_topic_ids = True
    assert refused(client, 0, epoch=9) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


# -- forgotten partitions ----------------------------------------------------------------------------------------


def test_forgotten_partition_is_left_out_and_the_others_stay(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0, 1, 2)
    assert partitions_of(client.fetch(forgotten=[1])) == [0, 2]
    assert sessions.partition_count == 2


def test_partition_that_is_named_and_forgotten_at_once_is_forgotten(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0, 1)
    assert partitions_of(client.fetch(1, forgotten=[1])) == [0]


def test_forgetting_a_partition_that_the_session_does_not_have_changes_nothing(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0)
    assert partitions_of(client.fetch(forgotten=[7])) == [0]


def test_session_without_partitions_is_closed_and_its_client_told(sessions: FetchSessions) -> None:
    client = Client(sessions)
    session_id = client.fetch(0).session_id
    plan = client.fetch(forgotten=[0])
    assert (partitions_of(plan), plan.session_id, plan.is_incremental) == ([], NO_SESSION, False)
    client.session_id = session_id
    assert refused(client, epoch=2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# -- what is told ------------------------------------------------------------------------------------------------


def test_partition_is_news_until_it_was_told_and_again_when_either_offset_moves(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0)
    (partition,) = client.fetch().partitions.values()
    assert partition.is_news(0, 0)
    partition.tell(4, 1)
    assert not partition.is_news(4, 1)
    assert partition.is_news(5, 1)
    assert partition.is_news(4, 2)


def test_naming_a_partition_again_does_not_make_old_offsets_news(sessions: FetchSessions) -> None:
    client = Client(sessions)
    (partition,) = client.fetch(0).partitions.values()
    partition.tell(4, 1)
    (named_again,) = client.fetch(0, offset=4).partitions.values()
    assert named_again.wanted.offset == 4
    assert not named_again.is_news(4, 1)


def test_partition_that_was_forgotten_and_named_again_is_news(sessions: FetchSessions) -> None:
    client = Client(sessions)
    for partition in client.fetch(0, 1).partitions.values():
        partition.tell(4, 1)
    client.fetch(forgotten=[1])
    is_news = {key.partition: partition.is_news(4, 1) for key, partition in client.fetch(1).partitions.items()}
    assert is_news == {0: False, 1: True}


def test_partitions_with_records_go_behind_the_others(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0, 1, 2)
    plan = client.fetch()
    plan.sent(key_of(0))
    assert partitions_of(client.fetch()) == [1, 2, 0]
    plan.sent(key_of(1))
    assert partitions_of(client.fetch()) == [2, 0, 1]


def test_every_partition_has_its_turn_when_there_is_room_for_one(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0, 1, 2)
    served = []
    for _ in range(6):
        plan = client.fetch()
        first = next(iter(plan.partitions))
        plan.sent(first)
        served.append(first.partition)
    assert served == [0, 1, 2, 0, 1, 2]


def test_partition_that_a_later_request_forgot_is_not_brought_back_by_an_answer(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0, 1)
    waiting = client.fetch()
    client.fetch(forgotten=[0])
    waiting.sent(key_of(0))
    assert partitions_of(client.fetch()) == [1]


def test_full_fetch_keeps_the_order_of_its_request(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0, 1).sent(key_of(0))
    assert partitions_of(client.fetch()) == [0, 1]


# -- bounds ------------------------------------------------------------------------------------------------------


def fill(sessions: FetchSessions, *sizes: int, now_ms: int = 0) -> list[Client]:
    """A client with a session for each size."""
    clients = [Client(sessions) for _ in sizes]
    for client, size in zip(clients, sizes, strict=True):
        assert client.fetch(*range(size), now_ms=now_ms).session_id
    return clients


def is_served(client: Client, now_ms: int) -> bool:
    try:
        return client.fetch(now_ms=now_ms).is_incremental
    except KafkaError as error:
        return error.code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_client_gets_no_session_while_all_slots_are_in_use(sessions: FetchSessions) -> None:
    clients = fill(sessions, 2, 2, 2)
    plan = Client(sessions).fetch(0, 1, now_ms=EVICTION_MS)
    assert (partitions_of(plan), plan.session_id, plan.is_incremental) == ([0, 1], NO_SESSION, False)
    assert [is_served(client, EVICTION_MS) for client in clients] == [True, True, True]


def test_session_that_was_not_used_for_long_makes_room(sessions: FetchSessions) -> None:
    idle, *others = fill(sessions, 2, 2, 2)
    for client in others:
        client.fetch(now_ms=EVICTION_MS)
    assert Client(sessions).fetch(0, now_ms=EVICTION_MS + 1).session_id
    assert [is_served(client, EVICTION_MS + 1) for client in (idle, *others)] == [False, True, True]


def test_session_in_use_makes_room_when_it_is_old_and_smaller_than_the_new_one(sessions: FetchSessions) -> None:
    small, *others = fill(sessions, 1, 2, 2)
    for client in (small, *others):
        client.fetch(now_ms=EVICTION_MS)
    assert Client(sessions).fetch(0, 1, now_ms=EVICTION_MS + 1).session_id
    assert [is_served(client, EVICTION_MS + 1) for client in (small, *others)] == [False, True, True]


def test_old_session_in_use_stays_when_the_new_one_is_not_larger(sessions: FetchSessions) -> None:
    clients = fill(sessions, 2, 2, 2)
    for client in clients:
        client.fetch(now_ms=EVICTION_MS)
    assert Client(sessions).fetch(0, 1, now_ms=EVICTION_MS + 1).session_id == NO_SESSION
    assert len(sessions) == SLOTS


def test_young_session_stays_however_large_the_new_one_is(sessions: FetchSessions) -> None:
    fill(sessions, 1, 1, 1)
    assert Client(sessions).fetch(*range(9), now_ms=EVICTION_MS).session_id == NO_SESSION


def test_session_is_used_by_a_fetch_of_its_only_partition(sessions: FetchSessions) -> None:
    """The usual request counts as use, or the busiest readers would be the first to lose their sessions."""
    used, other, another = fill(sessions, 1, 1, 1)
    assert plan_for(sessions, used.session_id, 1, 0, now_ms=EVICTION_MS).session_id
    used.epoch += 1
    assert Client(sessions).fetch(0, now_ms=EVICTION_MS + 1).session_id
    assert [is_served(client, EVICTION_MS + 1) for client in (used, other, another)] == [True, False, True]


def test_without_slots_nobody_gets_a_session() -> None:
    sessions = FetchSessions(0, EVICTION_MS, Random(1))
    assert Client(sessions).fetch(0).session_id == NO_SESSION
    sessions.check_invariants()


def test_session_that_would_bring_too_many_partitions_is_not_opened(
    sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "_PARTITIONS_MAX", 5)
    fill(sessions, 3)
    assert Client(sessions).fetch(0, 1, 2).session_id == NO_SESSION
    assert Client(sessions).fetch(0, 1).session_id
    assert sessions.partition_count == 5


def test_session_that_grows_by_too_many_partitions_is_closed(
    sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "_PARTITIONS_MAX", 5)
    client, other = fill(sessions, 3, 2)
    assert partitions_of(client.fetch(0, 1, 2)) == [0, 1, 2]
    assert refused(client, 3) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not is_served(client, 0)
    assert is_served(other, 0)


# -- a session of one partition ----------------------------------------------------------------------------------


def test_fetch_of_a_sessions_only_partition_goes_on_with_what_it_was_told(sessions: FetchSessions) -> None:
    client = Client(sessions)
    (partition,) = client.fetch(0).partitions.values()
    partition.tell(4, 1)
    plan = plan_for(sessions, client.session_id, 1, 4)
    (advanced,) = plan.partitions.values()
    assert advanced is partition
    assert plan.is_incremental
    assert (advanced.wanted.offset, advanced.is_news(4, 1)) == (4, False)
    assert offsets_of(client.fetch(epoch=2)) == {0: 4}


@pytest.mark.parametrize(
    ("session_offset", "epoch", "uses_topic_ids", "error"),
    [
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
    ids=["unknown session", "wrong epoch", "names instead of ids"],
)
def test_fetch_that_is_not_the_next_of_a_session_of_one_partition_changes_nothing(
    sessions: FetchSessions, session_offset: int, epoch: int, uses_topic_ids: bool, error: ErrorCode
) -> None:
    client = Client(sessions)
    client.fetch(0)
    with pytest.raises(KafkaError) as refusal:
        plan_for(sessions, client.session_id + session_offset, epoch, 4, uses_topic_ids=uses_topic_ids)
    assert refusal.value.code is error
    assert offsets_of(client.fetch()) == {0: 0}


def test_fetch_of_one_partition_changes_that_one_of_its_session(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0, 1)
    assert offsets_of(plan_for(sessions, client.session_id, 1, 4)) == {0: 4, 1: 0}


def test_fetch_of_another_partition_adds_it_to_a_session_of_one(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.fetch(0)
    assert offsets_of(plan_for(sessions, client.session_id, 1, 4, partition=1)) == {0: 0, 1: 4}

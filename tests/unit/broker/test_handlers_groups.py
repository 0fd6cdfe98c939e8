"""The group APIs of a whole broker: what each answers, and when it refuses."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from barnabas.broker.authorizer import Operation, Resource
from barnabas.broker.caller import Caller
from barnabas.groups.history import HISTORY_TOPIC, decode_history
from barnabas.metadata.table import MemoryTable
from barnabas.records.reader import read_records
from barnabas.replication.partition import Partition
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.framing import request_start
from barnabas.wire.messages import write_request
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.network import run

ONE = {
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "4",
}


async def find(broker: ServedBroker, group_id: str = "g") -> Any:
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group_id])
    return answer.coordinators[0]


JOIN_VERSION = 3
JOIN_VALUES = {
    "group_id": "g",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "member_id": "",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"subscription"}],
}


async def join(broker: ServedBroker, member_id: str = "", version: int = JOIN_VERSION, **changes: Any) -> Any:
    return await broker.ask(ApiKey.JOIN_GROUP, version, **{**JOIN_VALUES, "member_id": member_id, **changes})


async def sync(broker: ServedBroker, joined: Any, version: int = 3, **changes: Any) -> Any:
    values = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": None,
        "assignments": [{"member_id": joined.member_id, "assignment": b"all"}],
        **changes,
    }
    return await broker.ask(ApiKey.SYNC_GROUP, version, **values)


async def beat(broker: ServedBroker, joined: Any, **changes: Any) -> ErrorCode:
    values = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id, **changes}
    return (await broker.ask(ApiKey.HEARTBEAT, 4, group_instance_id=None, **values)).error_code  # type: ignore[no-any-return]


def one_offset(offset: int, index: int = 0, **topic: Any) -> dict[str, Any]:
    partition = {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "note",
    }
    return {"name": "orders", "partitions": [partition], **topic}


async def commit(broker: ServedBroker, *topics: dict[str, Any], version: int = 9, **changes: Any) -> Any:
    values = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": topics,
        **changes,
    }
    return await broker.ask(ApiKey.OFFSET_COMMIT, version, **values)


async def committed(broker: ServedBroker, group_id: str = "g", index: int = 0) -> tuple[int, str | None]:
    topics = [{"name": "orders", "partition_indexes": [index]}]
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 7, group_id=group_id, topics=topics, require_stable=False)
    assert answer.error_code is ErrorCode.none
    found = answer.topics[0].partitions[0]
    return found.committed_offset, found.metadata


async def group_state(broker: ServedBroker, group_id: str = "g") -> str:
    answer = await broker.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group_id], include_authorized_operations=False)
    return answer.groups[0].group_state  # type: ignore[no-any-return]


# -- the topic -----------------------------------------------------------------------------------------------------


def test_first_question_makes_the_offsets_topic_as_kafka_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            assert "__consumer_offsets" not in broker.broker.services.image.topics
            found = await find(broker)
            assert (found.error_code, found.node_id) == (ErrorCode.none, 1)

            image = broker.broker.services.image
            topic = image.topics["__consumer_offsets"]
            assert topic.is_internal
            assert len(topic.partitions) == 4
            configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
            assert image.configs_of_topic("__consumer_offsets") == configs

    run(scenario())


def test_offsets_topic_is_not_made_with_too_few_brokers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            found = await find(broker)
            assert found.error_code is ErrorCode.coordinator_not_available
            assert broker.broker.services.image.topics == {}
            joined = await join(broker)
            assert joined.error_code is ErrorCode.not_coordinator

    run(scenario())


@pytest.mark.parametrize("version", range(APIS[ApiKey.FIND_COORDINATOR].version_max + 1))
def test_coordinator_is_found_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            answer = await broker.ask(
                ApiKey.FIND_COORDINATOR, version, key="g", key_type=0, coordinator_keys=["g", "other"]
            )
            found = answer.coordinators if version >= 4 else [answer]
            port = broker.broker.listeners[0].advertised_port
            assert {(one.error_code, one.node_id, one.port) for one in found} == {(ErrorCode.none, 1, port)}

    run(scenario())


# -- membership ----------------------------------------------------------------------------------------------------


def test_member_joins_syncs_beats_and_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            joined = await join(broker)
            assert (joined.error_code, joined.generation_id) == (ErrorCode.none, 1)
            assert joined.leader == joined.member_id
            assert [one.metadata for one in joined.members] == [b"subscription"]
            assert (await sync(broker, joined)).assignment == b"all"
            assert await group_state(broker) == "Stable"
            assert await beat(broker, joined) is ErrorCode.none
            assert await beat(broker, joined, generation_id=7) is ErrorCode.illegal_generation
            assert await beat(broker, joined, member_id="nobody") is ErrorCode.unknown_member_id
            assert await beat(broker, joined, group_id="") is ErrorCode.invalid_group_id

            left = await broker.ask(
                ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": joined.member_id, "reason": "done"}]
            )
            assert left.members[0].error_code is ErrorCode.none
            assert await group_state(broker) == "Empty"

    run(scenario())


def test_member_without_an_id_gets_one_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            first = await join(broker, version=9)
            assert first.error_code is ErrorCode.member_id_required
            second = await join(broker, first.member_id, version=9)
            assert (second.error_code, second.member_id) == (ErrorCode.none, first.member_id)

    run(scenario())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout_ms": 1}, ErrorCode.invalid_session_timeout),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_wrong_join_is_refused(tmp_path: Path, changes: dict[str, Any], expected: ErrorCode) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            for version in (0, 6, 9):
                assert (await join(broker, version=version, **changes)).error_code is expected

    run(scenario())


def test_waiting_join_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            await sync(broker, await join(broker))
            waiting = asyncio.ensure_future(join(broker))
            await asyncio.sleep(0)
            assert await group_state(broker) == "PreparingRebalance"
            broker.broker.groups.close()
            assert (await waiting).error_code is ErrorCode.not_coordinator

    run(scenario())


@pytest.mark.timeout(20)  # a task that never gives way ends by nothing else
def test_topic_that_comes_while_the_broker_stops_does_not_hold_the_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            broker.broker.groups.close()
            await broker.create("late")
            assert broker.broker.failure is None

    run(scenario())


def test_waiting_join_does_not_keep_the_buffer_that_it_arrived_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            await sync(broker, await join(broker))
            body = write_request(ApiKey.JOIN_GROUP, JOIN_VERSION, JOIN_VALUES)
            buffer = bytearray(request_start(ApiKey.JOIN_GROUP, JOIN_VERSION, 1, "test", len(body)) + body)
            waiting = broker.send(buffer)
            assert await group_state(broker) == "PreparingRebalance"
            buffer.clear()  # BufferError while somebody has a view of it
            broker.broker.groups.close()
            await waiting

    run(scenario())


# -- offsets -------------------------------------------------------------------------------------------------------


def test_offset_is_committed_and_fetched_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await broker.create("orders", 2)
            await find(broker)
            topic_id = broker.broker.services.image.topics["orders"].id
            for version in range(APIS[ApiKey.OFFSET_COMMIT].version_min, APIS[ApiKey.OFFSET_COMMIT].version_max + 1):
                answer = await commit(
                    broker, one_offset(version, topic_id=topic_id), version=version, retention_time_ms=-1
                )
                assert answer.topics[0].partitions[0].error_code is ErrorCode.none
                assert await committed(broker) == (version, "note")
            assert await committed(broker, index=1) == (-1, "")
            assert await committed(broker, "another") == (-1, "")

            groups = [{"group_id": "g", "topics": None}, {"group_id": "another", "topics": None}]
            for version in (8, 9, 10):
                answer = await broker.ask(ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=True)
                [topic], nothing = answer.groups[0].topics, answer.groups[1].topics
                assert [one.committed_offset for one in topic.partitions] == [10]
                assert nothing == ()

    run(scenario())


def test_commit_of_what_does_not_exist_is_refused_by_partition(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await broker.create("orders")
            await find(broker)
            answer = await commit(broker, one_offset(1), one_offset(2, index=9), one_offset(3, name="nowhere"))
            codes = {
                (topic.name, one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions
            }
            unknown = ErrorCode.unknown_topic_or_partition
            assert codes == {("orders", 0): ErrorCode.none, ("orders", 9): unknown, ("nowhere", 0): unknown}

            by_id = await commit(broker, one_offset(1, topic_id=UUID(int=99)), version=10)
            assert by_id.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_id
            groups = [{"group_id": "g", "topics": [{"topic_id": UUID(int=99), "partition_indexes": [0]}]}]
            fetched = await broker.ask(ApiKey.OFFSET_FETCH, 10, groups=groups, require_stable=False)
            assert fetched.groups[0].topics[0].partitions[0].error_code is ErrorCode.unknown_topic_id

    run(scenario())


def test_commit_of_a_member_must_name_its_generation(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await broker.create("orders")
            await find(broker)
            joined = await join(broker)
            await sync(broker, joined)
            member = {"member_id": joined.member_id}

            async def code(**changes: Any) -> ErrorCode:
                answer = await commit(broker, one_offset(1), **changes)
                return answer.topics[0].partitions[0].error_code  # type: ignore[no-any-return]

            assert await code(generation_id_or_member_epoch=1, **member) is ErrorCode.none
            assert await code(generation_id_or_member_epoch=0, **member) is ErrorCode.illegal_generation
            assert await code(generation_id_or_member_epoch=1, member_id="nobody") is ErrorCode.unknown_member_id
            assert await code(group_id="new", generation_id_or_member_epoch=1) is ErrorCode.group_id_not_found
            old = {"version": 8, "group_id": "new", "generation_id_or_member_epoch": 1}
            assert await code(**old) is ErrorCode.illegal_generation

    run(scenario())


def test_offsets_are_deleted_by_request_and_with_their_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await broker.create("orders", 2)
            await find(broker)
            await commit(broker, one_offset(1), one_offset(2, index=1))
            wanted = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
            answer = await broker.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=wanted)
            assert answer.topics[0].partitions[0].error_code is ErrorCode.none
            assert await committed(broker) == (-1, "")
            assert (await committed(broker, index=1))[0] == 2

            await broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["orders"], timeout_ms=1000)
            index = broker.broker.groups.coordinator.partition_of("g")
            written = broker.log("__consumer_offsets", index)
            await until(broker, "__consumer_offsets", lambda: written.high_watermark >= 4, index)
            assert await committed(broker, index=1) == (-1, "")
            missing = await broker.ask(ApiKey.OFFSET_DELETE, 0, group_id="nobody", topics=wanted)
            assert missing.error_code is ErrorCode.group_id_not_found

    run(scenario())


# -- groups --------------------------------------------------------------------------------------------------------


def test_groups_are_listed_described_and_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await broker.create("orders")
            await find(broker)
            await sync(broker, await join(broker))
            await commit(broker, one_offset(1), group_id="simple")

            listed = await broker.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])
            shown = {(one.group_id, one.group_state, one.group_type) for one in listed.groups}
            assert shown == {("g", "Stable", "classic"), ("simple", "Empty", "classic")}
            stable = await broker.ask(ApiKey.LIST_GROUPS, 4, states_filter=["stable"])
            assert [one.group_id for one in stable.groups] == ["g"]

            wanted = {"groups": ["g", "nobody"], "include_authorized_operations": True}
            described = await broker.ask(ApiKey.DESCRIBE_GROUPS, 6, **wanted)
            known, unknown = described.groups
            assert (known.protocol_type, known.protocol_data) == ("consumer", "range")
            assert [one.member_assignment for one in known.members] == [b"all"]
            assert (unknown.error_code, unknown.group_state) == (ErrorCode.group_id_not_found, "Dead")

            deleted = await broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "simple", "nobody"])
            codes = {one.group_id: one.error_code for one in deleted.results}
            assert codes == {
                "g": ErrorCode.non_empty_group,
                "simple": ErrorCode.none,
                "nobody": ErrorCode.group_id_not_found,
            }

    run(scenario())


def test_restart_keeps_offsets_members_and_their_story(tmp_path: Path) -> None:
    async def scenario() -> None:
        table = MemoryTable()
        async with served_broker(tmp_path, table=table, **ONE) as broker:
            await broker.create("orders")
            await find(broker)
            joined = await join(broker)
            await sync(broker, joined)
            await commit(broker, one_offset(7), generation_id_or_member_epoch=1, member_id=joined.member_id)
            await broker.broker.replicas.wait_for(lambda image: HISTORY_TOPIC in image.topics)
            await until(broker, HISTORY_TOPIC, lambda: len(read_story(broker)) == 1)
        async with served_broker(tmp_path, table=table, **ONE) as broker:
            await broker.broker.groups.coordinator.wait_loaded()
            assert await committed(broker) == (7, "note")
            assert await beat(broker, joined) is ErrorCode.none
            await broker.ask(ApiKey.LEAVE_GROUP, 4, group_id="g", members=[{"member_id": joined.member_id}])
            await until(broker, HISTORY_TOPIC, lambda: len(read_story(broker)) == 2)
            assert [one.generation_after for one in read_story(broker)] == [1, 2]

    run(scenario())


async def until(broker: ServedBroker, topic: str, is_so: Callable[[], bool], index: int = 0) -> None:
    """Waits for records of a partition that make it so."""
    partition, changed = broker.partition(topic, index), asyncio.Event()

    def watcher(_: Partition) -> None:
        changed.set()

    partition.watchers[watcher] = None
    while not is_so():
        changed.clear()
        await changed.wait()
    del partition.watchers[watcher]


def read_story(broker: ServedBroker) -> list[Any]:
    log = broker.log(HISTORY_TOPIC)
    found = log.read(max(log.log_start_offset, log.end_offset - 1), 1 << 20).slice
    if found is None:
        return []
    try:
        *_, last = read_records(found.read())
    finally:
        found.release()
    assert last.value is not None
    return list(decode_history(last.value).entries)


# -- who may -------------------------------------------------------------------------------------------------------


class Rights:
    """Nobody may do anything with these."""

    allows_all = False

    def __init__(self) -> None:
        self.denied: frozenset[Resource] = frozenset()

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        return resource not in self.denied


def test_who_may_not_is_refused_by_every_api(tmp_path: Path) -> None:
    async def scenario() -> None:
        rights = Rights()
        async with served_broker(tmp_path, authorizer=rights, **ONE) as broker:
            await broker.create("orders")
            await find(broker)
            joined = await join(broker)
            await commit(broker, one_offset(1), group_id="simple")
            rights.denied = frozenset(Resource)
            denied = ErrorCode.group_authorization_failed
            assert (await find(broker)).error_code is denied
            assert (await join(broker)).error_code is denied
            assert (await sync(broker, joined)).error_code is denied
            assert await beat(broker, joined) is denied
            assert (await commit(broker, one_offset(1))).topics[0].partitions[0].error_code is denied
            fetched = await broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=None, require_stable=False)
            assert fetched.error_code is denied
            left = await broker.ask(ApiKey.LEAVE_GROUP, 4, group_id="g", members=[{"member_id": "m"}])
            assert left.error_code is denied
            wanted = {"groups": ["g"], "include_authorized_operations": False}
            assert (await broker.ask(ApiKey.DESCRIBE_GROUPS, 5, **wanted)).groups[0].error_code is denied
            deleted = await broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
            assert deleted.results[0].error_code is denied
            assert (await broker.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=[])).error_code is denied
            assert (await broker.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])).groups == ()

            rights.denied = frozenset({Resource.TOPIC})
            answer = await commit(broker, one_offset(1), group_id="simple")
            assert answer.topics[0].partitions[0].error_code is ErrorCode.topic_authorization_failed
            everything = await broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="simple", topics=None, require_stable=False)
            assert everything.topics == ()

    run(scenario())

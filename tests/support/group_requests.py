"""Requests of a group's members and operators to a broker that is served."""

import asyncio
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from barnabas.replication.partition import Partition
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker

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

"""CreateTopics, DeleteTopics, CreatePartitions and DescribeLogDirs."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from barnabas.metadata.table import MemoryTable
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import NODE_ID, ServedBroker, new_topic, served_broker
from tests.support.network import run

DEFAULT = -1
UNKNOWN_ID = UUID(int=77)


async def create(broker: ServedBroker, *topics: dict[str, Any], version: int = 7, validate_only: bool = False) -> Any:
    answer = await broker.ask(
        ApiKey.CREATE_TOPICS, version, topics=topics, timeout_ms=1000, validate_only=validate_only
    )
    return {topic.name: topic for topic in answer.topics}


async def grow(broker: ServedBroker, *topics: dict[str, Any], validate_only: bool = False) -> dict[str, ErrorCode]:
    answer = await broker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=topics, timeout_ms=1000, validate_only=validate_only)
    return {topic.name: topic.error_code for topic in answer.results}


def growth(name: str, count: int, assignments: list[list[int]] | None = None) -> dict[str, Any]:
    placed = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]
    return {"name": name, "count": count, "assignments": placed}


# -- creating ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_created_topic_is_served_when_the_answer_comes(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            created = await create(broker, new_topic("orders", 2), version=version)

            assert created["orders"].error_code is ErrorCode.none
            assert broker.partition("orders", 1).leader == NODE_ID

    run(scenario())


def test_created_topic_is_described_with_its_settings(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, log_segment_bytes="2000000") as broker:
            topic = (await create(broker, new_topic("orders", 2, configs={"retention.ms": "1000"})))["orders"]
            configs = {one.name: (one.value, one.config_source) for one in topic.configs}

            assert (topic.num_partitions, topic.replication_factor) == (2, 1)
            assert topic.topic_id == broker.partition("orders").topic_id
            assert configs["retention.ms"] == ("1000", 1)
            assert configs["segment.bytes"] == ("2000000", 4)
            assert configs["segment.ms"] == ("604800000", 5)
            assert broker.log("orders").config.retention_ms == 1000

    run(scenario())


def test_topic_without_numbers_gets_the_brokers_defaults(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, num_partitions="4") as broker:
            topic = (await create(broker, new_topic("orders", DEFAULT, DEFAULT)))["orders"]

            assert (topic.num_partitions, topic.replication_factor) == (4, 1)

    run(scenario())


def test_validate_only_creates_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            topic = (await create(broker, new_topic("orders"), validate_only=True))["orders"]

            assert topic.error_code is ErrorCode.none
            assert "orders" not in broker.broker.replicas.image.topics

    run(scenario())


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic("bad name"), ErrorCode.invalid_topic_exception),
        (new_topic(""), ErrorCode.invalid_topic_exception),
        (new_topic("x" * 250), ErrorCode.invalid_topic_exception),
        (new_topic("there_is"), ErrorCode.invalid_topic_exception),
        (new_topic("there.is"), ErrorCode.topic_already_exists),
        (new_topic("__cluster_metadata"), ErrorCode.invalid_request),
        (new_topic("new", replicas=2), ErrorCode.invalid_replication_factor),
        (new_topic("new", replicas=0), ErrorCode.invalid_replication_factor),
        (new_topic("new", partitions=0), ErrorCode.invalid_partitions),
        (new_topic("new", partitions=-2), ErrorCode.invalid_partitions),
        (new_topic("new", partitions=10_001), ErrorCode.policy_violation),
        (new_topic("new", configs={"nope": "1"}), ErrorCode.invalid_config),
        (new_topic("new", configs={"retention.ms": "x"}), ErrorCode.invalid_config),
        (new_topic("new", configs={"retention.ms": None}), ErrorCode.invalid_config),
        (new_topic("new", configs={"remote.storage.enable": "true"}), ErrorCode.invalid_config),
        (
            new_topic("new", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}),
            ErrorCode.invalid_config,
        ),
        (new_topic("new", replicas=2, configs={"nope": "1"}), ErrorCode.invalid_config),
        (new_topic("new", 2, 1, {0: [1]}), ErrorCode.invalid_request),
        (new_topic("new", -1, -1, {0: [1], 2: [1]}), ErrorCode.invalid_replica_assignment),
        (new_topic("new", -1, -1, {0: [9]}), ErrorCode.invalid_replica_assignment),
        (new_topic("new", -1, -1, {0: [1, 1]}), ErrorCode.invalid_replica_assignment),
        (new_topic("new", -1, -1, {0: []}), ErrorCode.invalid_replica_assignment),
    ],
)
def test_topic_that_kafka_refuses_is_refused_with_its_code(
    tmp_path: Path, topic: dict[str, Any], code: ErrorCode
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("there.is")
            answer = await create(broker, topic)

            assert answer[topic["name"]].error_code is code
            assert answer[topic["name"]].error_message
            assert list(broker.broker.replicas.image.topics) == ["there.is"]

    run(scenario())


def test_topic_that_comes_twice_is_refused_and_the_others_are_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            answer = await create(broker, new_topic("twice"), new_topic("once"), new_topic("twice"))

            assert answer["twice"].error_code is ErrorCode.invalid_request
            assert list(broker.broker.replicas.image.topics) == ["once"]

    run(scenario())


def test_manual_assignment_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            answer = await create(broker, new_topic("orders", -1, -1, {0: [NODE_ID], 1: [NODE_ID]}))

            assert answer["orders"].num_partitions == 2

    run(scenario())


def test_topics_and_their_ids_are_there_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        table = MemoryTable()
        async with served_broker(tmp_path, table=table) as broker:
            await broker.create("orders", 2)
            topic_id = broker.partition("orders").topic_id
            broker.append("orders", [5])
        async with served_broker(tmp_path, table=table) as broker:
            assert broker.partition("orders").topic_id == topic_id
            assert broker.log("orders").high_watermark == 1

    run(scenario())


# -- deleting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
def test_topic_deleted_by_name_is_gone_when_the_answer_comes(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            answer = await broker.ask(ApiKey.DELETE_TOPICS, version, topic_names=["orders", "nope"], timeout_ms=1000)

            assert {one.name: one.error_code for one in answer.responses} == {
                "orders": ErrorCode.none,
                "nope": ErrorCode.unknown_topic_or_partition,
            }
            assert broker.broker.replicas.get("orders", 0) is None

    run(scenario())


def test_topic_deleted_by_id_is_gone_and_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            topic_id = broker.partition("orders").topic_id
            wanted = [{"topic_id": topic_id}, {"topic_id": UNKNOWN_ID}]
            deleted, missing = (await broker.ask(ApiKey.DELETE_TOPICS, 6, topics=wanted, timeout_ms=1000)).responses

            assert (deleted.name, deleted.topic_id, deleted.error_code) == ("orders", topic_id, ErrorCode.none)
            assert (missing.name, missing.error_code) == (None, ErrorCode.unknown_topic_id)
            assert "orders" not in broker.broker.replicas.image.topics

    run(scenario())


@pytest.mark.parametrize(
    "wanted",
    [
        [{"name": "orders"}, {"name": "orders"}],
        [{"name": "orders", "topic_id": UNKNOWN_ID}],
        [{"name": None}],
    ],
)
def test_delete_of_a_topic_named_wrongly_is_refused(tmp_path: Path, wanted: list[dict[str, Any]]) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            answer = await broker.ask(ApiKey.DELETE_TOPICS, 6, topics=wanted, timeout_ms=1000)

            assert [one.error_code for one in answer.responses] == [ErrorCode.invalid_request]
            assert "orders" in broker.broker.replicas.image.topics

    run(scenario())


def test_delete_is_refused_where_it_is_switched_off(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, delete_topic_enable="false") as broker:
            await broker.create("orders")
            answer = await broker.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "orders"}], timeout_ms=1000)

            assert [one.error_code for one in answer.responses] == [ErrorCode.topic_deletion_disabled]

    run(scenario())


def test_topic_made_again_under_its_name_is_another_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            broker.append("orders", [1, 2])
            before = broker.partition("orders").topic_id
            await broker.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "orders"}], timeout_ms=1000)
            await broker.create("orders")

            assert broker.partition("orders").topic_id != before
            assert broker.log("orders").end_offset == 0

    run(scenario())


# -- growing -------------------------------------------------------------------------------------------------------


def test_grown_topic_has_its_partitions_when_the_answer_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")

            assert await grow(broker, growth("orders", 3)) == {"orders": ErrorCode.none}
            assert broker.partition("orders", 2).leader == NODE_ID
            assert await grow(broker, growth("orders", 5, [[1], [1]])) == {"orders": ErrorCode.none}
            assert broker.partition("orders", 4).leader == NODE_ID

    run(scenario())


def test_growth_that_kafka_refuses_is_refused_with_its_code(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders", 2)
            await broker.create("twice")

            assert await grow(broker, growth("orders", 2)) == {"orders": ErrorCode.invalid_partitions}
            assert await grow(broker, growth("orders", 1)) == {"orders": ErrorCode.invalid_partitions}
            assert await grow(broker, growth("nope", 1)) == {"nope": ErrorCode.unknown_topic_or_partition}
            assert await grow(broker, growth("orders", 4, [[1]])) == {"orders": ErrorCode.invalid_replica_assignment}
            assert await grow(broker, growth("orders", 3, [[9]])) == {"orders": ErrorCode.invalid_replica_assignment}
            assert await grow(broker, growth("twice", 2), growth("twice", 3)) == {"twice": ErrorCode.invalid_request}
            assert await grow(broker, growth("orders", 9), validate_only=True) == {"orders": ErrorCode.none}
            assert len(broker.broker.replicas.image.topics["orders"].partitions) == 2

    run(scenario())


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_request_without_time_times_out_and_changes_nothing(tmp_path: Path, timeout_ms: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            created = await broker.ask(ApiKey.CREATE_TOPICS, 7, topics=[new_topic("new")], timeout_ms=timeout_ms)
            grown = await broker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[growth("orders", 2)], timeout_ms=timeout_ms)
            deleted = await broker.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "orders"}], timeout_ms=timeout_ms)

            assert created.topics[0].error_code is ErrorCode.request_timed_out
            assert grown.results[0].error_code is ErrorCode.request_timed_out
            assert deleted.responses[0].error_code is ErrorCode.request_timed_out
            [topic] = broker.broker.replicas.image.topics.values()
            assert (topic.name, len(topic.partitions)) == ("orders", 1)

    run(scenario())


# -- log directories -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_tell_stray_logs_where_the_version_has_room(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            [directory] = (await broker.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)).results
            assert getattr(directory, "stray_count", 0) == 0
            names = [f"orders-{index}.{index:032x}-stray" for index in range(102)]
            next(iter(broker.broker.logs.directories)).strays.update(dict.fromkeys(reversed(names)))
            [directory] = (await broker.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)).results
            if version == 1:
                assert not hasattr(directory, "strays")
            else:
                assert directory.stray_count == 102
                assert directory.strays == tuple(sorted(names)[:100])

    run(scenario())


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_tell_sizes_of_the_partitions_asked_for(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders", 2)
            await broker.create("others")
            broker.append("orders", [1])
            everything = await broker.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
            wanted = [{"topic": "orders", "partitions": [0, 9]}, {"topic": "nope", "partitions": [0]}]
            [directory] = (await broker.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=wanted)).results
            [topic] = directory.topics
            [partition] = topic.partitions

            assert [len(one.topics) for one in everything.results] == [2]
            assert directory.log_dir == str(tmp_path)
            assert (topic.name, partition.partition_index) == ("orders", 0)
            assert partition.partition_size == broker.log("orders").size_bytes > 0
            assert version < 4 or 0 < directory.usable_bytes <= directory.total_bytes

    run(scenario())

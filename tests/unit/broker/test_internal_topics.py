"""Internal topics and what strangers may do to them: groups are neither lost without a word nor kept from loading."""

import logging
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from barnabas.groups.partitions import OFFSETS_TOPIC
from barnabas.groups.records import encode_offset_key
from barnabas.metadata.table import MemoryTable
from barnabas.records.builder import BatchBuilder
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import KafkaError
from tests.support.broker_parts import ServedBroker, new_topic, served_broker
from tests.support.network import run

ONE = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "1"}
TOPIC = 2
SET, DELETE = 0, 1


async def make_group(broker: ServedBroker) -> None:
    await broker.create("orders")
    await broker.find_coordinator()
    assert await broker.commit(7) is ErrorCode.none


async def committed(broker: ServedBroker) -> int:
    topics = [{"name": "orders", "partition_indexes": [0]}]
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics, require_stable=False)
    return answer.topics[0].partitions[0].committed_offset  # type: ignore[no-any-return]


async def change(broker: ServedBroker, name: str, operation: int, value: str | None) -> Any:
    configs = [{"name": name, "config_operation": operation, "value": value}]
    resources = [{"resource_type": TOPIC, "resource_name": OFFSETS_TOPIC, "configs": configs}]
    answer = await broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    return answer.responses[0]


def raw_batch(*records: tuple[bytes, bytes | None]) -> bytearray:
    builder = BatchBuilder()
    for key, value in records:
        builder.append(1_700_000_000_000, key, value)
    return builder.build()


def test_nobody_produces_to_an_internal_topic_whatever_the_client_calls_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await make_group(broker)
            log = broker.log(OFFSETS_TOPIC)
            before = log.end_offset
            for broker.client_id in ("test", "__admin_client"):
                partitions = [{"index": 0, "records": bytes(raw_batch((b"\0", b"")))}]
                answer = await broker.ask(
                    ApiKey.PRODUCE,
                    9,
                    transactional_id=None,
                    acks=1,
                    timeout_ms=1000,
                    topic_data=[{"name": OFFSETS_TOPIC, "partition_data": partitions}],
                )
                [told] = answer.responses[0].partition_responses
                assert told.error_code is ErrorCode.invalid_topic_exception
            assert log.staged_end_offset == before

    run(scenario())


def test_records_that_cannot_be_read_do_not_keep_groups_from_loading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a version before this one let anybody write them."""

    async def scenario() -> None:
        table = MemoryTable()
        async with served_broker(tmp_path, table=table, **ONE) as broker:
            await make_group(broker)
            partition = broker.partition(OFFSETS_TOPIC)
            bad = partition.end_offset
            partition.append(raw_batch((b"\0", b"x"), (encode_offset_key("g", "orders", 0), b"\0\4")))
            broker.broker.tick.write()
        async with served_broker(tmp_path, table=table, **ONE) as broker:
            await broker.broker.groups.coordinator.wait_loaded()
            assert await committed(broker) == 7
            assert await broker.commit(8) is ErrorCode.none
        [line] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert f"(damaged batches: 0, records: 2), the first at offset {bad}" in line.getMessage()

    run(scenario())


def test_offsets_topic_stays_compacted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await make_group(broker)
            for operation, value in ((SET, "delete"), (SET, "compact,delete"), (SET, ""), (DELETE, None)):
                refused = await change(broker, "cleanup.policy", operation, value)
                assert refused.error_code is ErrorCode.invalid_config, (operation, value)
                assert "lose their committed offsets" in refused.error_message
            assert (await change(broker, "segment.bytes", SET, "2097152")).error_code is ErrorCode.none
            config = broker.log(OFFSETS_TOPIC).config
            assert (config.is_compacted, config.is_deleted, config.segment_bytes) == (True, False, 2097152)

    run(scenario())


def test_offsets_topic_that_a_client_creates_is_compacted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:

            async def create(configs: dict[str, str]) -> ErrorCode:
                topics = [new_topic(OFFSETS_TOPIC, 3, configs=configs)]
                answer = await broker.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=1000, validate_only=False)
                return answer.topics[0].error_code  # type: ignore[no-any-return]

            assert await create({"cleanup.policy": "delete"}) is ErrorCode.invalid_config
            assert await create({}) is ErrorCode.none
            assert broker.log(OFFSETS_TOPIC).config.is_compacted
            await make_group(broker)
            assert await committed(broker) == 7

    run(scenario())


def test_offsets_topic_does_not_grow(tmp_path: Path) -> None:
    """Its number of partitions decides where a group is: groups would not be found again."""

    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await make_group(broker)
            topics = [{"name": OFFSETS_TOPIC, "count": 5, "assignments": None}]
            for validate_only in (True, False):
                answer = await broker.ask(
                    ApiKey.CREATE_PARTITIONS, 3, topics=topics, timeout_ms=1000, validate_only=validate_only
                )
                assert answer.results[0].error_code is ErrorCode.invalid_request
            assert await committed(broker) == 7

    run(scenario())


def test_deleted_offsets_topic_takes_the_groups_with_it_and_is_created_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await make_group(broker)
            for _ in range(2):
                answer = await broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[OFFSETS_TOPIC], timeout_ms=1000)
                assert answer.responses[0].error_code is ErrorCode.none
                assert await broker.commit(8) is ErrorCode.not_coordinator
                await broker.find_coordinator()
                assert await committed(broker) == -1
                assert await broker.commit(9) is ErrorCode.none
                assert await committed(broker) == 9

    run(scenario())


def test_note_with_an_offset_is_never_longer_than_its_record_can_tell(tmp_path: Path) -> None:
    async def scenario() -> None:
        table, settings = MemoryTable(), {**ONE, "offset_metadata_max_bytes": str(2**31 - 1)}
        async with served_broker(tmp_path, table=table, **settings) as broker:
            await make_group(broker)
            for note in ("x" * 32_768, "ä" * 16_384, "\U0001f600" * 8_192):
                with pytest.raises(KafkaError, match="a text of more than 32767 bytes cannot be sent"):
                    await broker.commit(8, note)
            assert await broker.commit(8, "ä" * 16_383) is ErrorCode.none
        async with served_broker(tmp_path, table=table, **settings) as broker:
            await broker.broker.groups.coordinator.wait_loaded()
            assert await committed(broker) == 8

    run(scenario())

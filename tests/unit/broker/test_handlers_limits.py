"""Requests that nobody expects: names and values at their limits, and the same thing named again and again."""

import os
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from barnabas.controller.configs import update_topic_configs
from barnabas.metadata.table import MemoryTable
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import MalformedRequest
from tests.support.broker_parts import NODE_ID, ServedBroker, served_broker
from tests.support.network import run

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, APPEND = 0, 2
THROTTLED = "leader.replication.throttled.replicas"
BAD_NUMBERS = [
    "1" * 5000,
    "-" + "9" * 5000,
    "٣",
    "¹",
    " 1",
    "1 ",
    "1_0",
    "+1",
    "01",
    "-1",
    "-0",
    "1e0",
    "2",
    "\ufffd" * 10_000,
]
TIMES = 20_000


def legacy_string(text: bytes) -> bytes:
    return pack(">h", len(text)) + text


def versions(key: ApiKey) -> range:
    return range(APIS[key].version_min, APIS[key].version_max + 1)


async def describe(broker: ServedBroker, *resources: tuple[int, str], version: int = 4) -> Any:
    wanted = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in resources]
    options = {"include_synonyms": True, "include_documentation": True}
    return (await broker.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=wanted, **options)).results


async def alter(broker: ServedBroker, kind: int, name: str, key: str, value: str, operation: int = SET) -> Any:
    configs = [{"name": key, "config_operation": operation, "value": value}]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    answer = await broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    return answer.responses[0]


# -- names -----------------------------------------------------------------------------------------------------------


def test_topic_name_that_is_not_utf8_is_told_as_far_as_it_fits(tmp_path: Path) -> None:
    """Each byte is read as a replacement character, which takes three to tell."""

    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            for version in range(9):
                body = pack(">i", 1) + legacy_string(b"\xff" * 20_000) + bytes(5)
                [topic] = (await broker.ask_bytes(ApiKey.METADATA, version, body)).topics
                assert topic.error_code is ErrorCode.invalid_topic_exception
                assert topic.name == "\ufffd" * 10_922

    run(scenario())


def test_metadata_log_of_kafka_is_never_made_because_somebody_asks_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            for _ in range(2):
                wanted = [{"name": "__cluster_metadata"}]
                [topic] = (await broker.ask(ApiKey.METADATA, 12, topics=wanted, allow_auto_topic_creation=True)).topics
                assert topic.error_code is ErrorCode.unknown_topic_or_partition
            await broker.create("afterwards")
            assert list(broker.broker.replicas.image.topics) == ["afterwards"]

    run(scenario())


@pytest.mark.parametrize("name", ["", ".", "..", "../../x", "a/b", "a b", "\0", "\ufffd" * 10_000, "a" * 250])
def test_name_that_no_topic_has_is_unknown(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            wanted = [{"name": name, "count": 3, "assignments": None}]
            grown = await broker.ask(ApiKey.CREATE_PARTITIONS, 3, topics=wanted, timeout_ms=1000, validate_only=False)
            deleted = await broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout_ms=1000)
            for refused in (grown.results[0], deleted.responses[0]):
                assert refused.error_code is ErrorCode.unknown_topic_or_partition
                assert len(refused.error_message) < 300

    run(scenario())


def test_broker_is_named_by_its_number_as_everybody_writes_it(tmp_path: Path) -> None:
    async def check(broker: ServedBroker, kind: int, name: str) -> None:
        [result] = await describe(broker, (kind, name))
        changed = await alter(broker, kind, name, "num.io.threads", "5")
        replaced = [{"resource_type": kind, "resource_name": name, "configs": []}]
        answer = await broker.ask(ApiKey.ALTER_CONFIGS, 2, resources=replaced, validate_only=False)
        for refused in (result, changed, answer.responses[0]):
            assert refused.error_code is ErrorCode.invalid_request, (kind, name[:9])
            assert len(refused.error_message) < 300

    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            for kind in (BROKER, LOGGER):
                for name in BAD_NUMBERS:
                    await check(broker, kind, name)

    run(scenario())


def test_log_directory_whose_name_is_not_utf8_is_described(tmp_path: Path) -> None:
    directory = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")

    async def scenario() -> None:
        async with served_broker(Path(directory)) as broker:
            for version in versions(ApiKey.DESCRIBE_LOG_DIRS):
                [result] = (await broker.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)).results
                assert result.log_dir.endswith("/?")

    run(scenario())


# -- values ----------------------------------------------------------------------------------------------------------


def test_value_that_no_answer_could_tell_is_refused(tmp_path: Path) -> None:
    half, other_half = (",".join(f"{number}:1" for number in range(start, start + 4000)) for start in (0, 4000))

    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            assert (await alter(broker, TOPIC, "orders", THROTTLED, half)).error_code is ErrorCode.none
            refused = await alter(broker, TOPIC, "orders", THROTTLED, other_half, APPEND)
            assert refused.error_code is ErrorCode.invalid_config
            assert len(refused.error_message) < 300
            [result] = await describe(broker, (TOPIC, "orders"))
            assert [entry.value for entry in result.configs if entry.name == THROTTLED] == [half]

    run(scenario())


def test_value_that_an_earlier_broker_took_is_told_as_far_as_it_fits_after_a_restart_too(tmp_path: Path) -> None:
    long = ",".join(f"{number}:1" for number in range(8000))
    table = MemoryTable()

    async def check(broker: ServedBroker) -> None:
        for version in versions(ApiKey.DESCRIBE_CONFIGS):
            [result] = await describe(broker, (TOPIC, "orders"), version=version)
            assert result.error_code is ErrorCode.none
            [value] = [entry.value for entry in result.configs if entry.name == THROTTLED]
            assert long.startswith(value)
            assert len(value) == 32_767

    async def scenario() -> None:
        async with served_broker(tmp_path, table=table) as broker:
            await broker.create("orders")
            services = broker.broker.services
            await update_topic_configs(services.controller.controllership, "orders", lambda before: {THROTTLED: long})
            await broker.broker.replicas.wait_for(lambda image: bool(image.configs_of_topic("orders")))
            await check(broker)
        async with served_broker(tmp_path, table=table) as broker:
            await check(broker)

    run(scenario())


def test_error_tells_the_beginning_of_a_long_name_or_value(tmp_path: Path) -> None:
    long = "x" * 30_000

    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            refusals = [
                await alter(broker, TOPIC, "orders", long, "1"),
                await alter(broker, TOPIC, "orders", "retention.ms", long),
                await alter(broker, LOGGER, str(NODE_ID), long, "INFO"),
                await alter(broker, LOGGER, str(NODE_ID), "root", long),
                (await broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[long], timeout_ms=1000)).responses[0],
                (await broker.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=[long])).groups[0],
            ]
            for refused in refusals:
                assert refused.error_code is not ErrorCode.none
                assert refused.error_message is None or len(refused.error_message) < 600

    run(scenario())


def test_more_settings_than_there_are_are_refused(tmp_path: Path) -> None:
    configs = [{"name": f"n{number}", "config_operation": SET, "value": "1"} for number in range(2000)]

    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            resources = [{"resource_type": TOPIC, "resource_name": "orders", "configs": configs}]
            for key, version in ((ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), (ApiKey.ALTER_CONFIGS, 2)):
                answer = await broker.ask(key, version, resources=resources, validate_only=False)
                assert answer.responses[0].error_code is ErrorCode.invalid_request

    run(scenario())


# -- the same thing, again and again -----------------------------------------------------------------------------------


def test_resource_named_many_times_is_described_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            found = await describe(broker, *[(TOPIC, "orders"), (BROKER, str(NODE_ID))] * (TIMES // 2))
            assert [(one.resource_type, one.resource_name) for one in found] == [(TOPIC, "orders"), (BROKER, "1")]
            assert all(one.configs for one in found)

    run(scenario())


def test_resource_named_twice_is_described_with_all_settings_that_were_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")

            async def names(*keys: list[str] | None) -> set[str]:
                wanted = [
                    {"resource_type": TOPIC, "resource_name": "orders", "configuration_keys": one} for one in keys
                ]
                [result] = (await broker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=wanted)).results
                return {entry.name for entry in result.configs}

            assert await names(["retention.ms"], ["cleanup.policy"]) == {"retention.ms", "cleanup.policy"}
            assert len(await names(["retention.ms"], None)) > 10

    run(scenario())


def test_group_and_partition_named_many_times_are_answered_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, offsets_topic_replication_factor="1") as broker:
            await broker.create("orders")
            await broker.ask(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])
            groups = (await broker.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"] * TIMES)).groups
            assert [one.group_id for one in groups] == ["g"]
            all_offsets = [{"group_id": "g", "topics": None}] * TIMES
            assert len((await broker.ask(ApiKey.OFFSET_FETCH, 8, groups=all_offsets)).groups) == 1
            wanted = [{"name": "orders", "partition_indexes": [0] * TIMES}]
            [topic] = (await broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=wanted)).topics
            assert [one.partition_index for one in topic.partitions] == [0]

    run(scenario())


def test_more_than_any_client_names_closes_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            with pytest.raises(MalformedRequest, match="elements"):
                await broker.ask(ApiKey.METADATA, 9, topics=[{"name": ""}] * 60_000)

    run(scenario())


# -- commits -----------------------------------------------------------------------------------------------------------


def test_commit_with_any_retention_is_taken(tmp_path: Path) -> None:
    async def check(broker: ServedBroker, version: int, retention_ms: int) -> None:
        partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
        answer = await broker.ask(
            ApiKey.OFFSET_COMMIT,
            version,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=retention_ms,
            topics=[{"name": "orders", "partitions": partitions}],
        )
        assert answer.topics[0].partitions[0].error_code is ErrorCode.none
        found = await broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=None)
        assert found.topics[0].partitions[0].committed_offset == 5

    async def scenario() -> None:
        async with served_broker(tmp_path, offsets_topic_replication_factor="1") as broker:
            await broker.create("orders")
            await broker.ask(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])
            for version in (2, 3, 4):
                for retention_ms in (2**63 - 1, -(2**63), 2**62, -2):
                    await check(broker, version, retention_ms)

    run(scenario())


def test_group_with_more_offsets_than_a_batch_holds_is_deleted(tmp_path: Path) -> None:
    count = 300

    async def scenario() -> None:
        async with served_broker(tmp_path, offsets_topic_replication_factor="1") as broker:
            await broker.ask(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])
            for number in range(2):
                name = f"t{number}-".ljust(249, "x")
                await broker.create(name, count)
                partitions = [
                    {"partition_index": index, "committed_offset": 1, "committed_metadata": ""}
                    for index in range(count)
                ]
                group = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
                await broker.ask(ApiKey.OFFSET_COMMIT, 8, **group, topics=[{"name": name, "partitions": partitions}])
            bound = {"name": "max.message.bytes", "config_operation": SET, "value": "150000"}
            changed = [{"resource_type": TOPIC, "resource_name": "__consumer_offsets", "configs": [bound]}]
            await broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=changed, validate_only=False)

            [result] = (await broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])).results
            assert result.error_code is ErrorCode.none
            assert (await broker.ask(ApiKey.LIST_GROUPS, 4, states_filter=[])).groups == ()

    run(scenario())


def test_commit_of_very_many_offsets_is_answered_for_each(tmp_path: Path) -> None:
    count = 250

    async def scenario() -> None:
        async with served_broker(tmp_path, offsets_topic_replication_factor="1") as broker:
            await broker.create("wide", count)
            await broker.ask(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])

            async def commit(generation: int) -> Any:
                partitions = [
                    {"partition_index": index, "committed_offset": index, "committed_metadata": ""}
                    for index in range(-1, count + 1)
                ]
                answer = await broker.ask(
                    ApiKey.OFFSET_COMMIT,
                    8,
                    group_id="g",
                    generation_id_or_member_epoch=generation,
                    member_id="",
                    topics=[{"name": "wide", "partitions": partitions}],
                )
                return {one.partition_index: one.error_code for one in answer.topics[0].partitions}

            codes = await commit(-1)
            assert codes.pop(-1) is codes.pop(count) is ErrorCode.unknown_topic_or_partition
            assert codes == dict.fromkeys(range(count), ErrorCode.none)
            found = await broker.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=None)
            assert [one.committed_offset for one in found.topics[0].partitions] == list(range(count))
            assert set((await commit(7)).values()) == {
                ErrorCode.unknown_topic_or_partition,
                ErrorCode.unknown_member_id,
            }

    run(scenario())

"""Offsets of a group are committed, fetched and deleted, in every version."""

from pathlib import Path
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from barnabas.wire.apis import APIS, ApiKey
from tests.support.broker_parts import served_broker
from tests.support.group_requests import ONE, commit, committed, find, join, one_offset, sync, until
from tests.support.network import run


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

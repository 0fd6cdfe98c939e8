"""Where members begin to read, what they commit, and what they read again."""

from dataclasses import replace

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.group.group_consumer import GroupConsumer
from barnabas.client.group.group_offsets import OffsetAndMetadata, committed_offsets
from barnabas.client.group.member_options import NoCommittedOffset, OffsetReset, RebalanceListener
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.group_readers import fill, options_of, run


def test_partitions_without_an_offset_begin_where_the_option_says(bootstrap: str, name: str) -> None:
    place = TopicPartition(name, 0)

    class Seeking(RebalanceListener):
        async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 2)

    async def scenario(cluster: Cluster) -> None:
        nonlocal consumer
        await Admin(cluster).create_topic(name, partitions=1)
        await fill(cluster, name, 1, [b"a", b"b", b"c"])
        async with GroupConsumer(cluster, options_of(f"{name}-1")) as consumer:
            consumer.subscribe([name])
            (first,) = await consumer.poll()
            assert [record.value for record in first.records()] == [b"a", b"b", b"c"]
        latest = options_of(f"{name}-2", auto_offset_reset=OffsetReset.LATEST)
        async with GroupConsumer(cluster, latest) as consumer:
            consumer.subscribe([name])
            while not consumer.assignment:
                assert await consumer.poll(0.02) == []
            assert consumer.positions == {place: 3}
        none = options_of(f"{name}-3", auto_offset_reset=OffsetReset.NONE)
        async with GroupConsumer(cluster, none) as consumer:
            consumer.subscribe([name])
            with pytest.raises(NoCommittedOffset, match=f"group '{name}-3' has no committed offset of {name}-0"):
                await consumer.poll()
            consumer.seek(place, 1)
            (first,) = await consumer.poll()
            assert first.first_offset == 1
        async with GroupConsumer(cluster, replace(none, group=f"{name}-4")) as consumer:
            consumer.subscribe([name], listener=Seeking())
            (first,) = await consumer.poll()
            assert first.first_offset == 2

    consumer: GroupConsumer
    run(bootstrap, scenario)


def test_commits_cover_what_was_handed_out_and_survive_the_member(bootstrap: str, name: str) -> None:
    place = TopicPartition(name, 0)

    async def committed(cluster: Cluster) -> int | None:
        found = (await committed_offsets(cluster, name)).get(place)
        return None if found is None else found.offset

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        await fill(cluster, name, 1, [b"%d" % number for number in range(10)])
        manual = options_of(name, auto_commit_interval_ms=None)
        async with GroupConsumer(cluster, manual) as consumer:
            consumer.subscribe([name])
            (first,) = await consumer.poll()
            assert await committed(cluster) is None
            await consumer.commit({place: OffsetAndMetadata(4, "four")})
        assert await committed(cluster) == 4
        async with GroupConsumer(cluster, manual) as consumer:
            consumer.subscribe([name])
            (first,) = await consumer.poll()
            assert first.first_offset == 4
            await consumer.commit()
        assert await committed(cluster) == 10
        with pytest.raises(KafkaError) as refused:
            await consumer.commit({place: 1})
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    run(bootstrap, scenario)


def test_commit_is_not_taken_back_by_the_end(bootstrap: str, name: str) -> None:
    place = TopicPartition(name, 0)

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        await fill(cluster, name, 1, [b"a", b"b", b"c"])

        async def commit_and_fail(offsets: dict[TopicPartition, int] | None) -> None:
            async with GroupConsumer(cluster, options_of(name)) as consumer:
                consumer.subscribe([name])
                assert await consumer.poll()
                await consumer.commit(offsets)
                raise ZeroDivisionError

        for offsets, committed in (({place: 2}, 2), (None, 3)):
            with pytest.raises(ZeroDivisionError):
                await commit_and_fail(offsets)
            assert (await committed_offsets(cluster, name))[place].offset == committed

    run(bootstrap, scenario)


def test_records_that_were_not_processed_come_again(bootstrap: str, name: str) -> None:
    place = TopicPartition(name, 0)

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        await fill(cluster, name, 1, [b"%d" % number for number in range(10)])
        options = options_of(name)

        async def fail_at_six() -> None:
            async with GroupConsumer(cluster, options) as consumer:
                consumer.subscribe([name])
                async for record in consumer.records():
                    if record.offset == 6:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_at_six()
        assert (await committed_offsets(cluster, name))[place].offset == 6
        async with GroupConsumer(cluster, options) as consumer:
            consumer.subscribe([name])
            async for record in consumer.records():
                if record.offset == 8:
                    break
        assert (await committed_offsets(cluster, name))[place].offset == 9
        async with GroupConsumer(cluster, options) as consumer:
            consumer.subscribe([name])
            values = [[record.value for record in one.records()] for one in await consumer.poll()]
            assert values == [[b"9"]]
            assert await consumer.poll(0.2) == []  # longer than the interval: it was committed while poll waited
            assert (await committed_offsets(cluster, name))[place].offset == 10

    run(bootstrap, scenario)


def test_paused_partitions_wait_until_they_are_resumed(bootstrap: str, name: str) -> None:
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        async with GroupConsumer(cluster, options_of(name)) as consumer:
            consumer.subscribe([name])
            while not consumer.assignment:
                assert await consumer.poll(0.02) == []
            consumer.pause([first])
            await fill(cluster, name, 2, [b"a", b"b"])
            assert [one.partition for one in await consumer.poll()] == [second]
            assert await consumer.poll(0.1) == []
            consumer.pause([second])
            assert await consumer.poll(0.05) == []
            assert consumer.paused == {first, second}
            consumer.resume([first])
            assert [one.partition for one in await consumer.poll()] == [first]
            assert consumer.generation == 1

    run(bootstrap, scenario)

"""What an operator does with groups and their offsets: the same against Barnabas and against Apache Kafka."""

import asyncio

import confluent_kafka
import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic
from barnabas.client.group.group_admin import (
    delete_group,
    delete_groups,
    describe_group,
    describe_groups,
    list_groups,
    remove_members,
)
from barnabas.client.group.group_offsets import (
    OffsetAndMetadata,
    commit_offsets,
    committed_offsets,
    committed_offsets_of,
    delete_offsets,
)
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.group_readers import GROUP_SETTINGS, Reader, options_of, places, run
from tests.support.kafka import KafkaNode


def test_offsets_of_a_group_without_members_are_committed_read_and_deleted(bootstrap: str, name: str) -> None:
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        assert await committed_offsets(cluster, name) == {}
        await commit_offsets(cluster, name, {first: 5, second: OffsetAndMetadata(7, "half way", 3)})
        both = {first: OffsetAndMetadata(5), second: OffsetAndMetadata(7, "half way", 3)}
        assert await committed_offsets(cluster, name) == both
        assert await committed_offsets(cluster, name, [first]) == {first: OffsetAndMetadata(5)}
        many = [f"{name}-nobody", name]
        assert await committed_offsets_of(cluster, many) == {many[0]: {}, name: both}
        assert await delete_offsets(cluster, name, [first]) == {first: None}
        assert await committed_offsets(cluster, name, [first, second]) == {second: both[second]}
        (listed,) = [one for one in await list_groups(cluster) if one.group == name]
        assert (listed.protocol_type, listed.state, listed.kind) == ("", "Empty", "classic")
        assert await delete_groups(cluster, [name]) == {name: None}
        assert await committed_offsets(cluster, name) == {}
        assert await describe_groups(cluster, [name]) == {name: None}

    run(bootstrap, scenario)


def test_offsets_of_a_topic_that_was_made_anew_begin_anew(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        admin = Admin(cluster)
        for offset in (5, 6):
            await admin.create_topic(name, partitions=1)
            await commit_offsets(cluster, name, {TopicPartition(name, 0): offset})
            assert (await committed_offsets(cluster, name))[TopicPartition(name, 0)].offset == offset
            await admin.delete_topic(name)

    run(bootstrap, scenario)


def test_operations_on_what_is_not_there_are_refused_with_a_reason(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        with pytest.raises(UnknownTopic, match="topic 'nobody-made-it' does not exist"):
            await commit_offsets(cluster, name, {TopicPartition("nobody-made-it", 0): 1})
        with pytest.raises(UnknownTopic, match=f"partition {name}-9 does not exist"):
            await commit_offsets(cluster, name, {TopicPartition(name, 9): 1})
        for refused in (
            describe_group(cluster, "nobody"),
            delete_group(cluster, "nobody"),
            delete_offsets(cluster, "nobody", [TopicPartition(name, 0)]),
        ):
            with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND: group 'nobody' does not exist"):
                await refused

    run(bootstrap, scenario)


def test_group_with_members_is_described_and_protected(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        reader = Reader(cluster, options_of(name, instance_id="till-1"), [name], asyncio.Condition())
        await reader.until(lambda: len(reader.consumer.assignment) == 2)
        described = await describe_group(cluster, name)
        (member,) = described.members
        assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
        assert (described.kind, described.is_active, described.are_members_known) == ("classic", True, True)
        assert (member.member_id, member.instance_id) == (reader.consumer.member_id, "till-1")
        assert (member.client_id, member.host) == ("barnabas", "/127.0.0.1")
        assert set(member.assignment) == places(name, 0, 1)
        assert member.subscription is not None
        assert member.subscription.topics == (name,)
        assert [one.group for one in await list_groups(cluster, states=["Stable"], kinds=["classic"])] == [name]
        for refused in (commit_offsets(cluster, name, {TopicPartition(name, 0): 0}), delete_group(cluster, name)):
            with pytest.raises(KafkaError, match=f"NON_EMPTY_GROUP: group '{name}' has active members"):
                await refused
        (problem,) = (await delete_offsets(cluster, name, [TopicPartition(name, 0)])).values()
        assert problem is not None
        assert problem.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        await reader.end()  # a static member: it stays until it is removed, or its session is over
        assert (await describe_group(cluster, name)).is_active
        removed = await remove_members(cluster, name, instance_ids=["till-1", "till-2"])
        assert removed["till-1"] is None
        assert removed["till-2"] is not None
        assert removed["till-2"].code is ErrorCode.UNKNOWN_MEMBER_ID
        assert not (await describe_group(cluster, name)).is_active
        await delete_group(cluster, name)

    run(bootstrap, scenario)


@pytest.mark.kafka
def test_groups_of_kafkas_new_protocol_are_told_as_what_they_are(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    request.getfixturevalue("kafka")
    with KafkaNode(tmp_path_factory.mktemp("kafka"), GROUP_SETTINGS) as node:

        async def scenario(cluster: Cluster) -> None:
            await Admin(cluster).create_topic("orders", partitions=1)
            other = confluent_kafka.Consumer(
                {"bootstrap.servers": node.bootstrap_servers, "group.id": "modern", "group.protocol": "consumer"}
            )
            other.subscribe(["orders"])
            await asyncio.to_thread(_poll_until_assigned, other)
            (listed,) = await list_groups(cluster)
            assert (listed.group, listed.kind, listed.state) == ("modern", "consumer", "Stable")
            described = await describe_group(cluster, "modern")
            assert (described.kind, described.is_active, described.are_members_known) == ("consumer", True, False)
            with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
                await commit_offsets(cluster, "modern", {TopicPartition("orders", 0): 0})
            await asyncio.to_thread(other.close)

        run(node.bootstrap_servers, scenario)


def _poll_until_assigned(consumer: confluent_kafka.Consumer) -> None:
    while not consumer.assignment():
        consumer.poll(0.05)


def test_blocking_client_commits_and_reads_offsets(bootstrap: str, name: str) -> None:
    with BlockingClient(bootstrap) as client:
        client.create_topic(name, partitions=1)
        client.commit_offsets(name, {TopicPartition(name, 0): 3})
        assert client.committed_offsets(name) == {TopicPartition(name, 0): OffsetAndMetadata(3)}

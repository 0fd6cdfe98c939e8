"""Groups of confluent-kafka (librdkafka) consumers, each a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.testing import Broker
from tests.support.broker_process import BrokerProcess
from tests.support.codec_runs import check_codecs
from tests.support.group_members import TIMEOUT_SECONDS, GroupMembers, Member
from tests.support.group_scenarios import (
    GROUP_SETTINGS,
    Work,
    live_through,
    make_group,
    share_work,
    take_over,
)

BOTH_CODECS = True
pytestmark = pytest.mark.slow

QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def broker(codecs: str) -> Iterator[Broker]:
    with Broker(GROUP_SETTINGS) as broker:
        yield broker
        check_codecs(broker, codecs)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_group_lives_through_kills_pauses_and_leaves(broker: Broker, tmp_path: Path, assignor: str) -> None:
    members, work = make_group(broker, f"life-{assignor}", "confluent", tmp_path, partitions=6, assignor=assignor)
    with members:
        live_through(members, work)


def test_cooperative_member_keeps_what_stays_with_it(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(
        broker, "cooperative", "confluent", tmp_path, partitions=6, assignor="cooperative-sticky"
    )
    with members:
        klamm = members.start("klamm")
        members.wait_settled("klamm")
        members.start("frieda")
        members.wait_settled("klamm", "frieda")
        members.wait_records(work.add())
        revoked = [event["partitions"] for event in klamm.events if event["event"] == "revoked"]

    # Once, or again if a busy machine let a session end: but never all of them.
    assert {len(partitions) for partitions in revoked if partitions} == {3}
    assert set(members.counts().values()) == {1}
    assert members.overlaps() == []


def test_consumer_of_the_newer_protocol_ends_at_once_and_says_why(broker: Broker) -> None:
    """KIP-848 does not exist here; a consumer that asked for it would otherwise wait for ever, without a word."""
    broker.create_topic("modern")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "modern", "group.protocol": "consumer", **QUIET}
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["modern"])
        message = consumer.poll(TIMEOUT_SECONDS)
    finally:
        consumer.close()
    assert message is not None
    assert message.error().code() == KafkaError._FATAL
    assert "ConsumerGroupHeartbeat" in message.error().str()


def test_spare_members_take_over(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(broker, "spare", "confluent", tmp_path, partitions=2)
    with members:
        take_over(members, work)


def test_one_group_is_a_queue_and_two_groups_are_a_fan_out(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(broker, "queue", "confluent", tmp_path, partitions=6)
    others = GroupMembers(
        broker.bootstrap, "queue", "another", "confluent", partitions=6, directory=tmp_path, assignor="roundrobin"
    )
    with members, others:
        share_work(members, work, "klamm", "frieda", "olga")
        others.start("amalia")
        others.start("barnabas")
        others.wait_settled("amalia", "barnabas")
        others.wait_records(work.values)
        new = work.add()
        members.wait_records(new)
        others.wait_records(new)

    assert set(members.counts()) == set(others.counts()) == work.values


def test_static_member_returns_without_a_rebalance(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(broker, "static", "confluent", tmp_path, partitions=4)
    lasting = {"session_timeout_ms": "20000"}
    with members:
        klamm = members.start("klamm", instance="first", **lasting)
        frieda = members.start("frieda", instance="second", **lasting)
        members.wait_settled("klamm", "frieda")
        before, kept = frieda.owned(), klamm.owned()
        frieda.close()  # a static member does not say that it leaves
        members.wait_records(work.add() - _of_partitions(work, before))
        changes = _changes(klamm)
        again = members.start("frieda again", instance="second", **lasting)
        members.wait(lambda: again.owned() == before, "the static member has its partitions again")
        members.wait_records(work.add())

        assert klamm.owned() == kept
        assert _changes(klamm) == changes
    assert set(members.counts().values()) == {1}
    assert members.overlaps() == []


def _changes(member: Member) -> list[str]:
    return [event["event"] for event in member.events if event["event"] in ("assigned", "revoked")]


def _of_partitions(work: Work, partitions: set[int]) -> set[str]:
    return {value for value in work.values if int(value.split("-")[1]) in partitions}


def test_second_process_with_the_same_instance_fences_the_first(broker: Broker) -> None:
    broker.create_topic("fenced")
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "fenced",
        "group.instance.id": "only",
        "session.timeout.ms": 5_000,
        "heartbeat.interval.ms": 100,
        **QUIET,
    }
    first, second = Consumer(settings), Consumer(settings)
    try:
        first.subscribe(["fenced"])
        assert _until_assigned(first)
        second.subscribe(["fenced"])
        assert _until_assigned(second)
        errors = (first.poll(0.1) for _ in range(200))
        fenced = next(error for one in errors if one is not None and (error := one.error()) is not None)
        assert fenced.code() == KafkaError._FATAL
        assert "fenced" in fenced.str().lower()
        assert second.assignment() == [TopicPartition("fenced", 0)]
    finally:
        first.close()
        second.close()


def _until_assigned(consumer: Consumer) -> bool:
    for _ in range(200):
        consumer.poll(0.05)
        if consumer.assignment():
            return True
    return False


def test_commits_survive_a_kill_of_the_broker_and_members_go_on_without_a_rebalance(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, GROUP_SETTINGS) as process:
        work = Work(process.bootstrap, "lasting", 1)
        work.add()
        where = (process.bootstrap, "lasting", "lasting", "confluent")
        with GroupMembers(*where, partitions=1, directory=tmp_path, session_timeout_ms="20000") as members:
            klamm = members.start("klamm")
            members.wait_settled("klamm")
            members.wait_records(work.values)
            members.wait_committed("klamm")
            process.kill()
            process.start()
            members.wait_records(work.add())
            members.wait_committed("klamm")
            assert _changes(klamm) == ["assigned"]
        process.kill()
        process.start()
        with GroupMembers(*where, partitions=1, directory=tmp_path, session_timeout_ms="6000") as later:
            later.start("frieda")
            later.wait_records(work.add())
            assert not set(later.counts()) & set(members.counts())


def test_admin_lists_describes_alters_and_deletes_groups(broker: Broker) -> None:
    broker.create_topic("administered", partitions=2)
    broker.append("administered", [b"a", b"b", b"c"])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "administered", "client.id": "klamm", **QUIET}
    )
    consumer.subscribe(["administered"])
    assert _until_assigned(consumer)
    consumer.commit(offsets=[TopicPartition("administered", 0, 2, metadata="here")], asynchronous=False)

    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(TIMEOUT_SECONDS).valid
    assert "administered" in [group.group_id for group in listed]
    described = admin.describe_consumer_groups(["administered"])["administered"].result(TIMEOUT_SECONDS)
    assert described.state == ConsumerGroupState.STABLE
    (member,) = described.members
    assert member.client_id == "klamm"
    assert [one.partition for one in member.assignment.topic_partitions] == [0, 1]
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups(["administered"])["administered"].result(TIMEOUT_SECONDS)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP

    consumer.close()
    (committed,) = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "administered", **QUIET}).committed(
        [TopicPartition("administered", 0)], TIMEOUT_SECONDS
    )
    assert (committed.offset, committed.metadata) == (2, "here")
    admin.delete_consumer_groups(["administered"])["administered"].result(TIMEOUT_SECONDS)
    listed = admin.list_consumer_groups().result(TIMEOUT_SECONDS).valid
    assert "administered" not in [group.group_id for group in listed]

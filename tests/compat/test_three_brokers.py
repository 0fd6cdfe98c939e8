"""Client libraries and tools on `barnabas up --brokers 3`: the same for each, through brokers that are the wrong ones.

They know the address of one broker, which is not the controller where a change is asked for, nor the coordinator of
their group. Topics have three replicas, by the defaults of that command or because a client asks for them.
"""

import os
import shutil
import signal
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.client.blocking import BlockingClient
from barnabas.client.group.group_admin import describe_groups
from barnabas.client.group.group_offsets import committed_offsets
from barnabas.client.offsets import end_offsets
from barnabas.client.producing.partitioner import partition_for_key
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.acked_records import check_records
from tests.support.cluster_clients.aiokafka_client import Aiokafka
from tests.support.cluster_clients.calls import PARTITIONS, RETENTION_MS, AdminClient, Client, Consumed, Described
from tests.support.cluster_clients.confluent import Confluent
from tests.support.cluster_clients.franz_go import FranzGo
from tests.support.cluster_clients.java_tools import JavaTools
from tests.support.cluster_clients.kafka_python import KafkaPython
from tests.support.cluster_clients.kcat import Kcat
from tests.support.cluster_process import ClusterProcess, cluster_process
from tests.support.group_members import GroupMembers
from tests.support.group_scenarios import Work
from tests.support.kafka import wait_until

pytestmark = pytest.mark.slow

CLIENTS: dict[str, Client] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
    "kcat": Kcat(),
    "franz-go": FranzGo(),
    "java": JavaTools(),
}
BROKERS = (1, 2, 3)
RECORDS_PER_BROKER = 60
REASON = "replication factor 9 needs as many brokers; registered: 3"


def parameter(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.kafka) if name == "java" else name


EVERY_CLIENT = pytest.mark.parametrize("client_name", [parameter(name) for name in CLIENTS])
EVERY_ADMIN = pytest.mark.parametrize("client_name", [parameter(name) for name in CLIENTS if name != "kcat"])


@pytest.fixture(scope="module")
def cluster(zookeeper_program: ZooKeeperProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    settings = {
        "num.partitions": PARTITIONS,
        "offsets.topic.num.partitions": 6,
        "group.initial.rebalance.delay.ms": 0,
        "zookeeper.session.timeout.ms": 6000,
        "auto.leader.rebalance.enable": "false",
    }
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with cluster_process(tmp_path_factory.mktemp("cluster"), "--listen", "127.0.0.1:0", *options) as process:
        process.wait_ready()
        yield process
        assert process.stop() == 0, process.log[-3000:]


@pytest.fixture(scope="module")
def ours(cluster: ClusterProcess) -> Iterator[BlockingClient]:
    """Our own client, which can ask each broker by itself."""
    with BlockingClient(cluster.bootstrap) as client:
        yield client


@pytest.fixture
def client(client_name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Client:
    require(client_name, request)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")  # or tools are talkative
    return CLIENTS[client_name]


@pytest.fixture
def all_clients(request: pytest.FixtureRequest) -> dict[str, Client]:
    for name in CLIENTS:
        require(name, request)
    return CLIENTS


def require(client_name: str, request: pytest.FixtureRequest) -> None:
    """Skips where there is none."""
    if client_name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed (Debian package kcat)")
    if client_name == "franz-go":
        request.getfixturevalue("franz_go")
    if client_name == "java":
        request.getfixturevalue("kafka")


# What brokers know


def asked(ours: BlockingClient, broker: int, topic: str) -> Any:
    """What this broker says of a topic."""
    named = [{"topic_id": None, "name": topic}]
    values = {"topics": named, "allow_auto_topic_creation": False}
    [told] = ours.wait_for(ours.cluster.call(broker, ApiKey.METADATA, values)).topics
    return told


def is_known(ours: BlockingClient, topic: str, partitions: int) -> bool:
    """Whether all brokers know the same topic, with three replicas and a leader for each of so many partitions."""
    told = [asked(ours, broker, topic) for broker in BROKERS]
    leaders = [[(one.partition_index, one.leader_id) for one in topic.partitions] for topic in told]
    return (
        all(one.error_code == ErrorCode.NONE for one in told)
        and all(sorted(one.replica_nodes) == list(BROKERS) for topic in told for one in topic.partitions)
        and len({one.topic_id for one in told}) == 1
        and all(sorted(one) == sorted(leaders[0]) for one in leaders)
        and len(leaders[0]) == partitions
        and all(leader in BROKERS for _, leader in leaders[0])
    )


def is_unknown(ours: BlockingClient, topic: str) -> bool:
    return all(asked(ours, one, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in BROKERS)


def controller_of(ours: BlockingClient) -> int:
    """By Metadata and DescribeCluster of every broker."""
    described = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}
    told = set()
    for broker in BROKERS:
        told.add(ours.wait_for(ours.cluster.call(broker, ApiKey.METADATA, {"topics": []})).controller_id)
        told.add(ours.wait_for(ours.cluster.call(broker, ApiKey.DESCRIBE_CLUSTER, described)).controller_id)
    [controller] = told
    assert controller in BROKERS
    return int(controller)


def others(not_this: int) -> list[int]:
    return [broker for broker in BROKERS if broker != not_this]


# The clients


@EVERY_CLIENT
def test_client_sees_all_brokers_and_the_controller(
    cluster: ClusterProcess, ours: BlockingClient, client: Client, client_name: str
) -> None:
    controller = controller_of(ours)

    seen = client.overview(cluster.addresses[others(controller)[0]])

    assert seen.addresses == set(cluster.addresses.values())
    assert seen.controller_id == (None if client_name == "java" else controller)


@EVERY_ADMIN
def test_broker_that_is_not_the_controller_takes_all_changes_of_a_topic(
    cluster: ClusterProcess, ours: BlockingClient, client: AdminClient, client_name: str
) -> None:
    topic = f"administered-{client_name}"
    one, another = (cluster.addresses[broker] for broker in others(controller_of(ours)))

    assert REASON in client.create(one, topic)
    wait_until(lambda: is_known(ours, topic, PARTITIONS), f"all brokers know {topic}")
    described = client.describe_and_delete(another, topic)
    wait_until(lambda: is_unknown(ours, topic), f"all brokers know that {topic} is gone")

    assert described == Described(described.leaders, RETENTION_MS)
    assert [described.leaders.count(broker) for broker in BROKERS] == [PARTITIONS // len(BROKERS)] * 3


@EVERY_CLIENT
def test_topic_that_is_created_through_all_brokers_at_once_exists_once_and_has_every_record(
    cluster: ClusterProcess, ours: BlockingClient, client: Client, client_name: str
) -> None:
    topic = f"auto-created-{client_name}"
    records = {
        broker: {f"key {broker} {number}": f"value {broker} {number}" for number in range(RECORDS_PER_BROKER)}
        for broker in BROKERS
    }
    at_once = threading.Barrier(len(BROKERS))

    def produce(broker: int) -> None:
        at_once.wait()
        client.produce(cluster.addresses[broker], topic, records[broker])

    with ThreadPoolExecutor(len(BROKERS)) as threads:
        for done in [threads.submit(produce, broker) for broker in BROKERS]:
            done.result()

    wait_until(lambda: is_known(ours, topic, PARTITIONS), f"all brokers know {topic}")
    sent = [one for batch in records.values() for one in batch.items()]
    consumed = client.consume(cluster.addresses[2], topic, len(sent))
    expected = [Consumed(partition_for_key(key.encode(), PARTITIONS), key, value) for key, value in sent]
    assert sorted(consumed) == sorted(expected)
    assert {one.partition for one in consumed} == set(range(PARTITIONS))


# Groups


def coordinators(ours: BlockingClient, group: str) -> list[int | None]:
    """As each broker says; None while it knows of none."""
    values = {"key_type": 0, "coordinator_keys": [group]}
    told = [ours.wait_for(ours.cluster.call(one, ApiKey.FIND_COORDINATOR, values)).coordinators[0] for one in BROKERS]
    return [one.node_id if one.error_code == ErrorCode.NONE else None for one in told]


def group_of(ours: BlockingClient, coordinator: int) -> str:
    """One that this broker coordinates, and all brokers say so."""
    wait_until(lambda: None not in coordinators(ours, "any"), "the offsets topic")
    return next(name for name in (f"readers-{number}" for number in count()) if is_of(ours, name, coordinator))


def is_of(ours: BlockingClient, group: str, coordinator: int) -> bool:
    wait_until(lambda: len(set(coordinators(ours, group))) == 1, f"all brokers agree about {group}")
    return coordinators(ours, group)[0] == coordinator


def start_members(
    cluster: ClusterProcess, members: GroupMembers, group: str, topic: str, coordinator: int, names: Collection[str]
) -> None:
    for number, name in enumerate(names):
        address = cluster.addresses[others(coordinator)[number % 2]]
        members.start_command(name, CLIENTS[name].member(address, group, topic))


def shares(ours: BlockingClient, group: str) -> list[int]:
    """How many partitions each member has; nothing while they do not agree."""
    described = ours.wait_for(describe_groups(ours.cluster, [group]))[group]
    if described is None or described.state != "Stable":
        return []
    return [len(member.assignment) for member in described.members]


@pytest.mark.kafka
@pytest.mark.parametrize("coordinator", BROKERS)
def test_group_of_all_clients_shares_commits_and_resumes_under_each_coordinator(
    cluster: ClusterProcess, ours: BlockingClient, all_clients: dict[str, Client], tmp_path: Path, coordinator: int
) -> None:
    group = group_of(ours, coordinator)
    topic = f"shared-{coordinator}"
    ours.create_topic(topic, partitions=PARTITIONS)
    work = Work(cluster.bootstrap, topic, PARTITIONS)

    with GroupMembers("", topic, group, "", partitions=PARTITIONS, directory=tmp_path) as first:
        start_members(cluster, first, group, topic, coordinator, all_clients)
        wait_until(lambda: shares(ours, group) == [2] * len(all_clients), "all members have their share")
        values = work.add(per_partition=5)
        first.wait_records(values)
        assert {name: len(member.values()) for name, member in first.members.items()} == dict.fromkeys(CLIENTS, 10)
        wait_until(lambda: committed(ours, group) == len(values), "everything is committed")
    assert set(first.counts().values()) == {1}

    more = work.add(per_partition=1)
    resuming = list(all_clients)[2 * coordinator - 2 : 2 * coordinator]
    with GroupMembers("", topic, group, "", partitions=PARTITIONS, directory=tmp_path) as second:
        start_members(cluster, second, group, topic, coordinator, resuming)
        second.wait_records(more)
        wait_until(lambda: shares(ours, group) == [6, 6], "both members have their share")
    assert set(second.counts()) == more


def committed(ours: BlockingClient, group: str) -> int:
    return sum(one.offset for one in ours.wait_for(committed_offsets(ours.cluster, group)).values())


# Replicas, as Java's tools see them


def unsound(ours: BlockingClient, broker: int, topic: str) -> list[int]:
    """The partitions that have replicas which are not in sync, as this broker says."""
    return [
        one.partition_index
        for one in asked(ours, broker, topic).partitions
        if len(one.isr_nodes) < len(one.replica_nodes)
    ]


def led_by(ours: BlockingClient, broker: int, topic: str) -> list[int]:
    return [one.partition_index for one in asked(ours, 1, topic).partitions if one.leader_id == broker]


@pytest.mark.kafka
def test_java_tools_see_replicas_that_are_not_in_sync_and_elect_preferred_leaders(
    cluster: ClusterProcess, ours: BlockingClient, kafka: Path
) -> None:
    topic, halted, tools = "halted", 3, JavaTools()
    address = cluster.addresses[1]
    ours.create_topic(topic, partitions=PARTITIONS)
    wait_until(lambda: is_known(ours, topic, PARTITIONS), f"all brokers know {topic}")
    led = led_by(ours, halted, topic)
    assert len(led) == PARTITIONS // 3

    os.kill(cluster.pids[halted], signal.SIGSTOP)
    try:
        wait_until(lambda: len(unsound(ours, 1, topic)) == PARTITIONS, "its replicas to leave")
        assert tools.under_replicated(address, topic) == set(range(PARTITIONS))
        assert led_by(ours, halted, topic) == []
    finally:
        os.kill(cluster.pids[halted], signal.SIGCONT)

    wait_until(lambda: unsound(ours, 1, topic) == [], "its replicas to be in sync again")
    assert tools.under_replicated(address, topic) == set()
    assert tools.elect_preferred(cluster.addresses[2], topic, led) == set(led)
    wait_until(lambda: led_by(ours, halted, topic) == led, "it leads what it led before")


@pytest.mark.kafka
def test_verifiable_producer_and_consumer_of_java_agree(
    cluster: ClusterProcess, ours: BlockingClient, kafka: Path
) -> None:
    """The producer does not retry: nothing may be refused while topic and group are new."""
    topic, count, tools = "verified", 500, JavaTools()
    ours.create_topic(topic, partitions=PARTITIONS)
    wait_until(lambda: is_known(ours, topic, PARTITIONS), f"all brokers know {topic}")
    with ThreadPoolExecutor(2) as threads:
        produced = threads.submit(tools.verifiable_produce, cluster.addresses[1], topic, count)
        consumed = threads.submit(tools.verifiable_consume, cluster.addresses[2], topic, count)

        assert sum(map(len, produced.result().values())) == count
        assert consumed.result() == count


@pytest.mark.kafka
def test_verifiable_producer_of_java_finds_everything_that_was_acked_when_a_leader_is_killed(
    cluster: ClusterProcess, ours: BlockingClient, kafka: Path, tmp_path: Path
) -> None:
    """The last test of this module: the broker comes back as another process."""
    topic, count = "verified-failover", 1500
    ours.create_topic(topic, partitions=PARTITIONS)
    wait_until(lambda: is_known(ours, topic, PARTITIONS), f"all brokers know {topic}")
    retrying = tmp_path / "retrying.properties"
    retrying.write_text("retries=2147483647\nenable.idempotence=true\n")
    with ThreadPoolExecutor(1) as threads:
        producing = threads.submit(JavaTools().verifiable_produce, cluster.bootstrap, topic, count, retrying)
        wait_until(lambda: producing.done() or written(ours, topic) > count // 10, "the first records")
        assert not producing.done()
        leader = asked(ours, 1, topic).partitions[0].leader_id

        os.kill(cluster.pids[leader], signal.SIGKILL)

        acked = producing.result()
    assert sum(map(len, acked.values())) == count
    check_records(cluster.bootstrap, topic, acked)
    cluster.wait_for_line(f"broker-{leader} is ready again\n")
    wait_until(lambda: is_known(ours, topic, PARTITIONS), "the broker is back")


def written(ours: BlockingClient, topic: str) -> int:
    """How many records consumers can see."""
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    return sum(ours.wait_for(end_offsets(ours.cluster, places)).values())

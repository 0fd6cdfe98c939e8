"""A cluster that comes out of a single broker, and out of its logs alone: real brokers, real ZooKeeper.

`barnabas cluster rebuild` on brokers as on machines of their own, and on those of `barnabas up --brokers`, whose
directory was that of a single broker before (`--take-in`).
"""

import asyncio
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.metadata.paths import ROOT, child_path
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.znodes import BROKER_SEQUENCE, CLUSTER_ID
from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions
from barnabas.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_process import COMMAND, ENVIRONMENT, cluster_process
from tests.support.command_line import run
from tests.support.kafka import wait_until

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 180
READY = re.compile(r"is ready on (\S+?:\d+)[;\s]")
PARTITIONS = 6
RETENTION_MS = "86400000"
VALUES = [f"record {number}".encode() for number in range(30)]


class ClusterBroker:
    """`barnabas broker` as a process. What it says is in `DIRECTORY/out` and `DIRECTORY/err`."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperOptions, node_id: int | None) -> None:
        directory.mkdir()
        self.config, self.data = directory / "server.properties", directory / "data"
        self._out, self._err = directory / "out", directory / "err"
        texts = {
            "zookeeper.connect": zookeeper.hosts + zookeeper.chroot,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self.data),
            "num.partitions": str(PARTITIONS),
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            **({} if node_id is None else {"node.id": str(node_id)}),
        }
        self.config.write_text("".join(f"{name}={value}\n" for name, value in texts.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self._process = subprocess.Popen(
                [*COMMAND, "broker", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=ENVIRONMENT,
            )

    @property
    def log(self) -> str:
        return self._err.read_text()

    def wait_ready(self) -> str:
        assert self._process is not None
        process = self._process
        wait_until(lambda: bool(READY.search(self._out.read_text())) or process.poll() is not None, "the broker")
        found = READY.search(self._out.read_text())
        assert found, self.log[-3000:]
        return found[1]

    def wait_ended(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE_SECONDS)

    def ask_to_stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """However the test went, nothing stays behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE_SECONDS)


@contextmanager
def running(brokers: Sequence[ClusterBroker]) -> Iterator[str]:
    """Where clients find them."""
    with ExitStack() as stack:
        for broker in brokers:
            stack.callback(broker.end)
            broker.start()
        yield ",".join([broker.wait_ready() for broker in brokers])
        for broker in brokers:
            broker.ask_to_stop()
        for broker in brokers:
            assert broker.wait_ended() == 0, broker.log[-3000:]


class Rebuild:
    """The command, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, broker: ClusterBroker, *options: str) -> dict[str, Any]:
        """What it prints."""
        status, out, err = run(self._capsys, "cluster", "rebuild", "--config", str(broker.config), "--json", *options)
        assert status == 0, err
        printed: dict[str, Any] = json.loads(out)
        return printed

    def refusal(self, broker: ClusterBroker) -> str:
        status, _, err = run(self._capsys, "cluster", "rebuild", "--config", str(broker.config))
        assert status == 1
        return err


def topic_id(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(PATIENCE_SECONDS)
    return str(described.topic_id).replace("/", "_").replace("+", "-")  # as Kafka writes it


def retention(bootstrap: str, topic: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [future] = admin.describe_configs([resource]).values()
    return str(future.result(PATIENCE_SECONDS)["retention.ms"].value)


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("orders", PARTITIONS, 1, config={"retention.ms": RETENTION_MS})
    admin.create_topics([topic])["orders"].result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(VALUES):
        producer.produce("orders", value, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition("orders", 4, 3)], asynchronous=False)
    finally:
        consumer.close()


def read_all(bootstrap: str) -> tuple[list[bytes], int]:
    """Every value, and what the group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    values: list[bytes] = []

    def read() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value())
        return len(values) == len(VALUES)

    try:
        [committed] = consumer.committed([TopicPartition("orders", 4)], timeout=PATIENCE_SECONDS)
        consumer.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])
        wait_until(read, f"the records of {PARTITIONS} partitions")
        return sorted(values), committed.offset
    finally:
        consumer.close()


async def wipe(options: ZooKeeperOptions) -> None:
    store = await ZooKeeperStore.open(options)
    try:
        for name in await store.children(ROOT):
            await _delete_tree(store, child_path(ROOT, name))
    finally:
        await store.close()


async def _delete_tree(store: MetadataStore, path: str) -> None:
    for name in await store.children(path):
        await _delete_tree(store, child_path(path, name))
    await store.delete(path)


async def broker_ids_generated(options: ZooKeeperOptions) -> int:
    store = await ZooKeeperStore.open(options)
    try:
        return (await store.get(BROKER_SEQUENCE)).stat.version
    finally:
        await store.close()


async def has_cluster(options: ZooKeeperOptions) -> bool:
    store = await ZooKeeperStore.open(options)
    try:
        return await store.exists(CLUSTER_ID) is not None
    finally:
        await store.close()


def test_wiped_zookeeper_is_rebuilt_broker_by_broker(
    zookeeper: ZooKeeperOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rebuild = Rebuild(capsys)
    brokers = [ClusterBroker(tmp_path / str(number), zookeeper, node_id) for number, node_id in enumerate((1, 2, None))]
    first, second, third = brokers
    with running(brokers) as bootstrap:
        fill(bootstrap)
        old_id = topic_id(bootstrap, "orders")
    asyncio.run(wipe(zookeeper))

    first.start()
    try:
        assert first.wait_ended() == 1
    finally:
        first.end()
    assert "with 'barnabas cluster rebuild', which takes the options of this broker" in first.log

    tried = rebuild(first, "--dry-run")
    assert not tried["written"]
    assert not asyncio.run(has_cluster(zookeeper))
    found = [rebuild(broker) for broker in brokers]
    assert [one["written"] for one in found] == [True] * 3
    assert found[0]["topics"] == tried["topics"]
    assert "orders" in found[0]["settings_unknown"]
    assert [name for name in found[0]["missing"] if name.startswith("orders")]
    assert found[2]["missing"] == []
    assert not rebuild(second)["written"], "everything is there"
    assert asyncio.run(broker_ids_generated(zookeeper)) == 1, "the third broker's id is not given again"

    with running(brokers) as bootstrap:
        assert read_all(bootstrap) == (sorted(VALUES), 3)
        assert topic_id(bootstrap, "orders") == old_id
        assert f"{third.data} is in use by another process" in rebuild.refusal(third)


def test_single_broker_becomes_a_cluster_which_is_rebuilt_after_a_loss(
    zookeeper_program: ZooKeeperProgram, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with BrokerProcess(tmp_path, {"offsets.topic.num.partitions": "3"}) as single:
        fill(single.bootstrap)
        old_id = topic_id(single.bootstrap, "orders")

    with cluster_process(tmp_path, brokers=2) as process:
        assert process.wait_ended() == 1
    [line] = process.log.splitlines()
    assert line.startswith(f"barnabas: {data} has the data of a single broker; --take-in makes it the first broker")
    with cluster_process(tmp_path, "--take-in", "--listen", "127.0.0.1:0", brokers=2) as process:
        process.wait_ready()
        assert "is that of broker 1 now" in process.log
        process.wait_for_line("raised to 2 replicas: 2 topics\n")
        assert read_all(process.bootstrap) == (sorted(VALUES), 3)
        assert topic_id(process.bootstrap, "orders") == old_id
        assert retention(process.bootstrap, "orders") == RETENTION_MS
        assert process.stop() == 0, process.log[-3000:]

    shutil.rmtree(data / "zookeeper")
    command = [*COMMAND, "cluster", "rebuild", "--data-dir", str(data), "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^orders +{old_id} +{PARTITIONS} +{PARTITIONS} +created$", done.stdout, re.MULTILINE)
    assert "the settings of these topics are not known, so they keep all records: orders;" in done.stderr
    with cluster_process(tmp_path, brokers=2) as process:
        process.wait_ready()
        assert read_all(process.bootstrap) == (sorted(VALUES), 3)
        assert topic_id(process.bootstrap, "orders") == old_id
        assert process.stop() == 0, process.log[-3000:]

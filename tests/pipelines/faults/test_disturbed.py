"""Running pipelines whose broker dies, whose tasks fail, whose topics grow: nothing is missing, and they go on."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from barnabas.client.blocking import BlockingClient
from barnabas.testing import Broker
from tests.pipelines.faults import ledger
from tests.pipelines.faults.in_process import RunningPipeline
from tests.pipelines.faults.kill_points import WatchedSink
from tests.pipelines.faults.shops import shops_on, watched_sinks
from tests.pipelines.running import run_pipeline, write_file
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import BrokerOfCluster, ClusterProcesses
from tests.support.kafka import KafkaNode
from tests.support.replicated_load import REPLICAS, REPLICATED, kill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def write_for(directory: Path, text: str, bootstrap: str) -> Path:
    file = directory / "pipeline.yaml"
    file.write_text(f"bootstrap: {bootstrap}\n{text}", encoding="utf-8")
    return file


def records_done(sink: WatchedSink) -> int:
    return sum(sink.ends().values())


# --- the broker -------------------------------------------------------------------------------------------------


def test_broker_killed_in_a_batch_and_between_batches_loses_nothing(
    pipeline_session: "SparkSession", tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path) as broker, shops_on(broker.bootstrap) as shops:
        shops.open()
        shops.sell(90)
        file = write_for(tmp_path, ledger.stateless_pipeline(records_max_per_batch=30), broker.bootstrap)
        sinks = watched_sinks(tmp_path, "copies", "archive")
        with RunningPipeline(pipeline_session, file) as running:
            # As soon as anything is logged, so that no client of this process has a connection yet.
            running.wait_until(lambda: any(sink.logged() for sink in sinks), "a batch is logged")
            broker.kill()
            running.wait_until(
                lambda: any("no broker answers" in line for line in running.kept.told),
                "a query says that the broker is gone",
            )
            broker.start()
            running.wait_until(lambda: all(records_done(sink) == 90 for sink in sinks), "all is read")

            shops.sell(90)
            last = max(sinks[1].done())
            running.wait_until(lambda: last + 2 in sinks[1].logged(), "a batch with the new ones is logged")
            broker.kill()
            broker.start()
            running.wait_until(lambda: all(records_done(sink) == 180 for sink in sinks), "all is read again")
        expected = ledger.Ledger(shops.sold)
        expected.check_archive(tmp_path / "table")
        expected.check_copies(shops.values("copies"), may_be_double=shops.numbers)


def test_leaders_and_controller_of_a_cluster_killed_in_batches_lose_nothing(
    pipeline_session: "SparkSession", zookeeper_server: ZooKeeperServers, tmp_path: Path
) -> None:
    """Other than alone, a broker that dies has a successor: the queries go on before it is back."""
    settings = {**REPLICATED, "default.replication.factor": str(REPLICAS)}
    chroot = f"{zookeeper_server.connect}/pipeline"
    with (
        ClusterProcesses(tmp_path / "cluster", chroot, REPLICAS, settings) as cluster,
        shops_on(cluster.bootstrap) as shops,
    ):
        shops.open()
        file = write_for(tmp_path, ledger.stateless_pipeline(records_max_per_batch=30), cluster.bootstrap)
        sinks = watched_sinks(tmp_path, "copies", "archive")

        def leader(topic: str) -> BrokerOfCluster:
            return cluster[cluster.agreed().partitions[topic, 0].leader]

        with RunningPipeline(pipeline_session, file) as running:
            for victim in (lambda: leader("sales"), lambda: leader("copies"), lambda: cluster.controller):
                last = max(sinks[0].logged(), default=0)
                shops.sell(90)
                running.wait_until(lambda last=last: last + 1 in sinks[0].logged(), "a batch is logged")  # type: ignore[misc]
                kill(victim())
                wanted = len(shops.sold)
                running.wait_until(
                    lambda wanted=wanted: all(records_done(sink) == wanted for sink in sinks),  # type: ignore[misc]
                    "two brokers go on",
                )
                cluster.start()
                for topic in ("sales", *ledger.TOPICS):
                    cluster.whole(topic)
        expected = ledger.Ledger(shops.sold)
        expected.check_archive(tmp_path / "table")
        expected.check_copies(shops.values("copies"), may_be_double=shops.numbers)


# --- tasks ------------------------------------------------------------------------------------------------------

RETRIED = """\
name: ledger
checkpoint: checkpoint
sources:
  sales:
    topic: sales
    schema: "id bigint NOT NULL, shop string, amount bigint, at timestamp"
    event_time: at
    watermark: 2 minutes
steps:
  shaken: {python: "tests.pipelines.faults.steps:failing_first", inputs: sales}
  minutes:
    sql: |
      SELECT window(at, '1 minute').start AS start, shop, count(*) AS n, sum(amount) AS amount
      FROM shaken GROUP BY window(at, '1 minute'), shop
sinks:
  archive: {from: shaken, parquet: table, partition_by: shop}
  copies: {from: shaken, topic: copies}
  minutes: {from: minutes, topic: minutes}
"""


def test_tasks_that_fail_at_first_are_retried_without_doubles_in_parquet(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    # Every row comes from a second attempt: the first one of each task fails after its last row.
    file = write_file(tmp_path, RETRIED, broker)
    with shops_on(broker.bootstrap) as shops:
        shops.open()
        shops.sell(300)
        shops.close_windows()

        kept = run_pipeline(pipeline_session, file)

        assert not [line for line in kept.told if "the first attempt fails" in line], "the whole query was tried again"
        expected = ledger.Ledger(shops.sold)
        expected.check_archive(tmp_path / "table")
        expected.check_copies(shops.values("copies"), may_be_double=shops.numbers)
        expected.check_minutes(shops.values("minutes"))


# --- topics -----------------------------------------------------------------------------------------------------

GROWING = """\
name: growing
checkpoint: checkpoint
sources:
  orders:
    pattern: orders-.*
    format: text
    metadata: [topic, partition, offset]
sinks:
  copies: {from: orders, topic: copies, format: text}
  archive: {from: orders, parquet: table}
"""


def test_partitions_and_topics_that_appear_in_a_running_query_are_read_from_their_start(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    stored: list[tuple[str, int, int, str]] = []

    def append(topic: str, partition: int, count: int) -> None:
        first = broker.append(topic, [f"{topic}-{partition}-{n}".encode() for n in range(count)], partition=partition)
        stored.extend((topic, partition, first + n, f"{topic}-{partition}-{n}") for n in range(count))

    broker.create_topic("copies", 2)
    broker.create_topic("orders-a", 1)
    append("orders-a", 0, 40)
    file = write_file(tmp_path, GROWING, broker)
    sinks = [WatchedSink(name, tmp_path / "checkpoint", "copies") for name in ("copies", "archive")]
    with BlockingClient(broker.bootstrap) as client, RunningPipeline(pipeline_session, file) as running:

        def wait_for_all() -> None:
            running.wait_until(lambda: all(records_done(sink) == len(stored) for sink in sinks), "all is read")

        wait_for_all()
        client.wait_for(client.admin.create_partitions("orders-a", 3))
        append("orders-a", 2, 30)
        append("orders-a", 1, 20)
        append("orders-a", 0, 10)
        wait_for_all()
        broker.create_topic("orders-b", 2)
        append("orders-b", 0, 15)
        append("orders-b", 1, 25)
        wait_for_all()
    archived = f"SELECT _topic, _partition, _offset, value FROM read_parquet('{tmp_path}/table/*.parquet')"
    with duckdb.connect() as connection:
        assert Counter(connection.sql(archived).fetchall()) == Counter(stored)
    assert {(record.value or b"").decode() for record in broker.records("copies")} == {one[3] for one in stored}


# --- Apache Kafka -----------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_pipeline_on_apache_kafka_gives_what_it_gives_on_ours(
    pipeline_session: "SparkSession", kafka_node: KafkaNode, tmp_path: Path
) -> None:
    bootstrap = kafka_node.bootstrap_servers
    file = write_for(tmp_path, ledger.stateless_pipeline(records_max_per_batch=300), bootstrap)
    with shops_on(bootstrap) as shops:
        shops.open()
        shops.sell(300)
        run_pipeline(pipeline_session, file)
        shops.sell(300)
        kept = run_pipeline(pipeline_session, file)

        assert {view.name: view.lag for view in kept.views} == {"copies": 0, "archive": 0}
        expected = ledger.Ledger(shops.sold)
        expected.check_archive(tmp_path / "table")
        expected.check_copies(shops.values("copies"), may_be_double=shops.numbers)
        for sink in watched_sinks(tmp_path, "copies", "archive"):
            committed = shops.client.committed_offsets(f"ledger.{sink.name}")
            assert {one: offset.offset for one, offset in committed.items()} == sink.ends()

"""Apache Kafka's own command-line tools, on Kafka's own Java client, against Barnabas.

Each test is one JVM that runs several tools one after the other, because starting one takes longer than they do.
"""

from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.kafka import java_command, run_command, run_tools

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka")]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


@pytest.fixture
def broker(barnabas_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    # The tools print what they are asked for; their client tells of each of its settings, unless it is told not to.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    barnabas_broker.create_topic("orders", partitions=2)
    return barnabas_broker


def run(broker: Broker, *invocations: tuple[str, ...]) -> list[str]:
    outputs = run_tools(
        [(tool, "--bootstrap-server", broker.bootstrap, *arguments) for tool, *arguments in invocations]
    )
    for output in outputs:
        assert "exit status" not in output, output
        assert "WARN" not in output, output
    return outputs


def test_topics_and_configs(broker: Broker) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "prices")
    created, grown, described, listed, _, changed, default, deleted, left = run(
        broker,
        (TOPICS, "--create", "--topic", "prices", "--partitions", "3", "--config", "cleanup.policy=compact"),
        (TOPICS, "--alter", "--topic", "prices", "--partitions", "4"),
        (TOPICS, "--describe", "--topic", "prices"),
        (TOPICS, "--list"),
        (CONFIGS, *topic, "--alter", "--add-config", "retention.ms=1234", "--delete-config", "cleanup.policy"),
        (CONFIGS, *topic, "--describe"),
        (CONFIGS, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"),
        (TOPICS, "--delete", "--topic", "prices"),
        (TOPICS, "--list"),
    )

    assert "Created topic prices." in created
    assert grown.strip() == ""
    assert "PartitionCount: 4" in described
    assert "cleanup.policy=compact" in described
    assert listed.split() == ["orders", "prices"]
    assert "retention.ms=1234" in changed
    assert "cleanup.policy" not in changed
    assert "num.partitions=1 sensitive=false" in default
    assert deleted.strip() == ""
    assert left.split() == ["orders"]


def test_offsets_deletion_and_log_directories(broker: Broker, tmp_path: Path) -> None:
    broker.append("orders", [b"a", b"b", b"c"])
    to_delete = tmp_path / "delete.json"
    to_delete.write_text('{"partitions": [{"topic": "orders", "partition": 0, "offset": 2}], "version": 1}')

    latest, _, earliest, directories = run(
        broker,
        (GET_OFFSETS, "--topic", "orders"),
        (DELETE_RECORDS, "--offset-json-file", str(to_delete)),
        (GET_OFFSETS, "--topic", "orders", "--time", "earliest"),
        (LOG_DIRS, "--describe", "--topic-list", "orders"),
    )

    assert latest.split() == ["orders:0:3", "orders:1:0"]
    assert earliest.split() == ["orders:0:2", "orders:1:0"]
    assert f'"logDir":"{broker.data_directory}"' in directories
    assert '"partition":"orders-0"' in directories


def test_console_producer_and_console_consumer_with_a_partition(broker: Broker) -> None:
    command = java_command(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", broker.bootstrap, "--topic", "orders", "--compression-codec", "zstd"),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
    )
    status, output = run_command(command, "k:two coffees\nk:a tea\nk:three cakes\n")
    assert status == 0, output

    (first, *_) = records = broker.records("orders", 3)
    assert {record.compression for record in records} == {"zstd"}
    (consumed,) = run(
        broker,
        (
            CONSOLE_CONSUMER,
            *("--topic", "orders", "--partition", str(first.partition), "--offset", "1", "--max-messages", "2"),
            *("--timeout-ms", "20000", "--formatter-property", "print.key=true"),
        ),
    )
    assert consumed.splitlines()[:2] == ["k\ta tea", "k\tthree cakes"]


def test_producer_performance_tool_is_idempotent_by_default(broker: Broker) -> None:
    (output,) = run_tools(
        [
            (
                PRODUCER_PERFORMANCE,
                *("--topic", "orders", "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
                *("--command-property", f"bootstrap.servers={broker.bootstrap}"),
            )
        ]
    )

    assert "20000 records sent" in output, output
    assert len(broker.records("orders")) == 20_000

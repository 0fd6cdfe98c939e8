"""Apache Kafka's own tools, on its own Java client."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.cluster_clients.calls import (
    PARTITIONS,
    PARTITIONS_BEFORE,
    REPLICAS,
    RETENTION_MS,
    SESSION_TIMEOUT_MS,
    TIMEOUT_SECONDS,
    Consumed,
    Described,
    Overview,
)
from tests.support.kafka import JAVA_SOURCES, java_command, run_command, run_tool, run_tools

_TOPICS = "org.apache.kafka.tools.TopicCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
_REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
_VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
_RECORDS_PER_SECOND = 300
_RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"

_BROKER = re.compile(r"^(\S+:\d+) \(id: \d+ [^)]*\) -> \(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
_LEADER = re.compile(r"Partition: (\d+)\s+Leader: (\d+)")
_RETENTION = re.compile(r"retention\.ms=(\d+)")
_JSON = re.compile(r"^\{.*\}$", re.MULTILINE)
_RECORD = re.compile(r"^Partition:(\d+)\t(.*)\t(.*)$", re.MULTILINE)


class JavaTools:
    def overview(self, bootstrap: str) -> Overview:
        [said] = _run(bootstrap, [(_API_VERSIONS,)])
        told = dict(_BROKER.findall(said))
        assert len(set(told.values())) == 1, f"brokers differ in what they serve: {said}"
        return Overview(frozenset(told), None)

    def produce(self, bootstrap: str, topic: str, records: Mapping[str, str]) -> None:
        keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
        command = java_command(_PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, *keyed)
        status, said = run_command(command, "".join(f"{key}:{value}\n" for key, value in records.items()))
        assert status == 0, said

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.partition=true")
        ends = ("--max-messages", str(count), "--timeout-ms", str(TIMEOUT_SECONDS * 1000))
        [said] = _run(bootstrap, [(_CONSUMER, "--topic", topic, "--from-beginning", *ends, *shown)])
        return [Consumed(int(partition), key, value) for partition, key, value in _RECORD.findall(said)]

    def member(self, bootstrap: str, group: str, topic: str) -> Sequence[str]:
        arguments = (bootstrap, group, topic, _RANGE, str(SESSION_TIMEOUT_MS), "java")
        return java_command(str(JAVA_SOURCES / "GroupWorker.java"), *arguments, heap_megabytes=128)

    def create(self, bootstrap: str, topic: str) -> str:
        new = ("--create", "--topic", topic, "--partitions", str(PARTITIONS_BEFORE), "--replication-factor")
        changed = ("--entity-type", "topics", "--entity-name", topic, "--alter")
        refused, *others = _run(
            bootstrap,
            [
                (_TOPICS, *new, "9"),
                (_TOPICS, *new, str(REPLICAS)),
                (_TOPICS, "--alter", "--topic", topic, "--partitions", str(PARTITIONS)),
                (_CONFIGS, *changed, "--add-config", f"retention.ms={RETENTION_MS}"),
            ],
        )
        assert not any("exit status" in one for one in others), others
        return refused

    def describe_and_delete(self, bootstrap: str, topic: str) -> Described:
        described, configs, deleted = _run(
            bootstrap,
            [
                (_TOPICS, "--describe", "--topic", topic),
                (_CONFIGS, "--entity-type", "topics", "--entity-name", topic, "--describe"),
                (_TOPICS, "--delete", "--topic", topic),
            ],
        )
        assert "exit status" not in deleted, deleted
        leaders = {int(partition): int(leader) for partition, leader in _LEADER.findall(described)}
        retention = _RETENTION.search(configs)
        assert retention, configs
        return Described(tuple(leaders[one] for one in sorted(leaders)), retention[1])

    def under_replicated(self, bootstrap: str, topic: str) -> set[int]:
        [said] = _run(bootstrap, [(_TOPICS, "--describe", "--under-replicated-partitions", "--topic", topic)])
        assert "exit status" not in said, said
        return {int(partition) for partition, _ in _LEADER.findall(said)}

    def elect_preferred(self, bootstrap: str, topic: str, partitions: Sequence[int]) -> set[int]:
        """The partitions of which it says that the election succeeded."""
        chosen = [
            (_ELECTION, "--election-type", "preferred", "--topic", topic, "--partition", str(one)) for one in partitions
        ]
        outputs = _run(bootstrap, chosen)
        return {
            one
            for one, said in zip(partitions, outputs, strict=True)
            if f"Successfully completed leader election (PREFERRED) for partitions {topic}-{one}" in said
        }

    def reassign(self, bootstrap: str, topic: str, replicas: Mapping[int, Sequence[int]], file: Path) -> str:
        """Gives partitions these replicas, by a plan that is written to the file; what it says."""
        partitions = [{"topic": topic, "partition": index, "replicas": [*has]} for index, has in replicas.items()]
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return _run(bootstrap, [(_REASSIGNMENT, "--reassignment-json-file", str(file), "--execute")])[0]

    def verify_reassignment(self, bootstrap: str, file: Path) -> tuple[str, str]:
        """What it says of the plan in the file, and of all that is under way."""
        verified, listed = _run(
            bootstrap,
            [(_REASSIGNMENT, "--reassignment-json-file", str(file), "--verify"), (_REASSIGNMENT, "--list")],
        )
        return verified, listed

    def verifiable_produce(
        self, bootstrap: str, topic: str, count: int, config_file: Path | None = None
    ) -> dict[int, dict[int, bytes]]:
        """Of so many numbers, those that all replicas in sync acked, by partition and offset.

        What the file does not say is the tool's choice: it does not retry.
        """
        paced = ("--max-messages", str(count), "--throughput", str(_RECORDS_PER_SECOND), "--acks", "-1")
        configured = () if config_file is None else ("--command-config", str(config_file))
        said = run_tool(_VERIFIABLE_PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, *paced, *configured)
        acked: dict[int, dict[int, bytes]] = {}
        for told in map(json.loads, _JSON.findall(said)):
            if told["name"] == "producer_send_success":
                acked.setdefault(told["partition"], {})[told["offset"]] = told["value"].encode()
        return acked

    def verifiable_consume(self, bootstrap: str, topic: str, count: int) -> int:
        """How many records came, in a group of its own; it ends after so many."""
        group = ("--group-id", f"verifiable-{topic}", "--max-messages", str(count))
        said = run_tool(_VERIFIABLE_CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, *group)
        return sum(one["count"] for one in map(json.loads, _JSON.findall(said)) if one["name"] == "records_consumed")


def _run(bootstrap: str, invocations: Sequence[tuple[str, ...]]) -> list[str]:
    return run_tools([(tool, "--bootstrap-server", bootstrap, *rest) for tool, *rest in invocations])

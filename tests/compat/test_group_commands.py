"""`barnabas group` and `barnabas consume --group` do the same on Barnabas and on Apache Kafka, with real members."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as ConfluentPartition

from barnabas.cli.group.group_history import NOT_KEPT
from tests.support.command_line import run_line
from tests.support.either_broker import EITHER, either_broker
from tests.support.kafka import KafkaNode, wait_until
from tests.unit.cli.test_group_docs import PAGE, comparable
from tests.unit.project.test_docs_commands import fill_examples

PATIENCE_SECONDS = 180
INTERRUPTED = 130
_numbers = itertools.count()


@pytest.fixture(scope="module", params=EITHER)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of each kind, one for all tests here: each makes topics and groups of its own."""
    with either_broker(request, tmp_path_factory) as addresses:
        yield addresses


@pytest.fixture
def topic(bootstrap: str) -> str:
    """With two partitions, of which the first has three records."""
    name = f"orders-{next(_numbers)}"
    make_topic(bootstrap, name)
    printed = run_line(f"printf 'coffee\\ntea\\ncake\\n' | barnabas produce {name} -p 0", bootstrap)
    assert printed.startswith("produced 3 records")
    return name


@pytest.fixture
def group(topic: str) -> str:
    return f"billing-{topic}"


def make_topic(bootstrap: str, name: str) -> None:
    assert run_line(f"barnabas topic create {name} -p 2", bootstrap).startswith("created topic")


def described(bootstrap: str, group: str, *options: str) -> Any:
    return json.loads(run_line(f"barnabas group describe {group} --json {' '.join(options)}", bootstrap))


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[confluent_kafka.Consumer]:
    """A consumer of another library that owns all partitions, and has read nothing yet."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "worker-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic], on_assign=assign_paused)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(consumer.assignment()) < 2:
            assert time.monotonic() < deadline, "nothing was assigned"
            consumer.poll(0.1)
        consumer.resume(consumer.assignment())
        yield consumer
    finally:
        consumer.close()


def assign_paused(consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
    """So that the poll that takes the assignment takes no record with it."""
    consumer.assign(partitions)
    consumer.pause(partitions)


def start_consume(bootstrap: str, group: str, topic: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "barnabas.cli.main", "consume", topic, "--group", group, "--follow"]
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": bootstrap}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_group_with_a_member_is_listed_and_described(bootstrap: str, topic: str, group: str) -> None:
    with member(bootstrap, group, topic) as consumer:
        consumer.commit(offsets=[ConfluentPartition(topic, 0, 1)], asynchronous=False)
        listed = run_line("barnabas group list --state Stable --type classic --json", bootstrap)
        shown = described(bootstrap, group, "--members", "--offsets")
        told = run_line(f"barnabas group describe {group}", bootstrap)

    assert group in [json.loads(line)["group"] for line in listed.splitlines()]
    assert (shown["state"], shown["type"], shown["assignor"], shown["lag"]) == ("Stable", "classic", "range", 2)
    (one,) = shown["members"]
    assert (one["client_id"], one["host"], one["topics"]) == ("worker-1", "127.0.0.1", [topic])
    assert one["assigned"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    first, second = shown["offsets"]
    assert (first["committed"], first["end"], first["lag"], first["member_id"]) == (1, 3, 2, one["member_id"])
    assert 0 < first["behind_ms"] < PATIENCE_SECONDS * 1000
    assert (second["committed"], second["lag"], second["note"]) == (None, None, "nothing is committed")
    assert "2 records behind, by " in told


def test_offsets_of_a_group_with_members_are_left_alone(bootstrap: str, topic: str, group: str) -> None:
    active = f"group '{group}' is Stable with 1 member (worker-1); stop them before you reset its offsets\n"
    with member(bootstrap, group, topic) as consumer:
        consumer.commit(offsets=[ConfluentPartition(topic, 0, 2)], asynchronous=False)
        plan = run_line(f"barnabas group reset {group} --all-topics --to-earliest --dry-run", bootstrap)
        refused = run_line(f"barnabas group reset {group} --all-topics --to-earliest", bootstrap)
        committed = run_line(f"barnabas group commit {group} {topic}:0=0", bootstrap)
        deleted = run_line(f"barnabas group delete {group}", bootstrap)
        assert described(bootstrap, group)["offsets"][0]["committed"] == 2

    has_members = f"group '{group}' has members; stop them first: see 'barnabas group describe {group} --members'\n"
    assert plan.startswith(active)
    assert plan.endswith(f"would reset 1 partition of group '{group}'\n")
    assert refused == f"barnabas: {active}"
    assert committed == deleted == f"barnabas: {has_members}"
    assert run_line(f"barnabas group reset {group} --all-topics --to-earliest", bootstrap).endswith(
        f"reset 1 partition of group '{group}'\n"
    )
    assert described(bootstrap, group)["offsets"][0]["committed"] == 0
    assert run_line(f"barnabas group delete {group}", bootstrap) == f"deleted group '{group}'\n"


def test_reset_to_a_time_finds_the_first_record_that_is_not_older(bootstrap: str, group: str, topic: str) -> None:
    records = "".join(
        json.dumps({"value": str(minute), "timestamp": 1_700_000_000_000 + minute * 60_000, "partition": 1}) + "\\n"
        for minute in range(10)
    )
    run_line(f"printf '{records}' | barnabas produce {topic} --json", bootstrap)
    line = f"barnabas group reset {group} --topic {topic}:1 --to-time 2023-11-14T22:17:00Z --json"
    assert json.loads(run_line(line, bootstrap))["new"] == 4
    late = json.loads(run_line(f"barnabas group reset {group} --topic {topic}:1 --by-duration PT1H --json", bootstrap))
    assert (late["old"], late["new"]) == (4, 10)


def test_offsets_from_a_file_are_committed(bootstrap: str, group: str, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(f'"{group}","{topic}",0,2\n"other","{topic}",0,1\n{topic},1,0\n')
    run_line(f"barnabas group reset {group} --from-file {path}", bootstrap)
    assert [one["committed"] for one in described(bootstrap, group)["offsets"]] == [2, 0]
    moved = json.loads(run_line(f"barnabas group reset {group} --topic {topic}:0 --shift-by -5 --json", bootstrap))
    assert (moved["old"], moved["new"], moved["note"]) == (2, 0, "-3 is before the start")


def test_consumer_of_another_library_goes_on_where_the_command_stopped(bootstrap: str, group: str, topic: str) -> None:
    assert run_line(f"barnabas consume {topic} --group {group} -n 2", bootstrap) == "coffee\ntea\n"
    with member(bootstrap, group, topic) as consumer:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None
        assert message.value() == b"cake"
        consumer.commit(asynchronous=False)
    assert run_line(f"barnabas consume {topic} --group {group}", bootstrap) == ""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, 0)])
def test_consume_that_is_stopped_has_committed_and_left(
    bootstrap: str, topic: str, group: str, number: signal.Signals, status: int
) -> None:
    with start_consume(bootstrap, group, topic) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"coffee\n", b"tea\n", b"cake\n"]
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out, err) == (status, b"", b"")
    shown = described(bootstrap, group, "--members", "--offsets")
    assert (shown["state"], shown["members"], shown["lag"], shown["behind_ms"]) == ("Empty", [], 0, 0)
    assert shown["offsets"][0]["committed"] == 3


def test_two_that_consume_share_the_partitions(bootstrap: str, topic: str, group: str) -> None:
    def is_shared() -> bool:
        shown = described(bootstrap, group, "--members")
        return shown["state"] == "Stable" and [len(one["assigned"]) for one in shown["members"]] == [1, 1]

    with start_consume(bootstrap, group, topic) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with start_consume(bootstrap, group, topic) as second:
            try:
                wait_until(is_shared, "each of the two has a partition", PATIENCE_SECONDS)
                spare = run_line(f"barnabas group watch {group} -n 2 -i 0.1", bootstrap)
            finally:
                for process in (second, first):
                    process.send_signal(signal.SIGTERM)
                    process.communicate(timeout=PATIENCE_SECONDS)
    lines = spare.splitlines()
    assert len(lines) == 2
    assert all(line[8:].startswith("  Stable, 2 members, ") for line in lines)


def test_history_is_told_where_it_is_kept(
    bootstrap: str, topic: str, group: str, request: pytest.FixtureRequest
) -> None:
    with member(bootstrap, group, topic):
        pass
    told = run_line(f"barnabas group describe {group} --history", bootstrap)
    if "kafka" in request.node.callspec.id:
        assert told.endswith(f"{NOT_KEPT}\n")
        assert described(bootstrap, group, "--history")["history"] is None
        return

    def has_both() -> bool:
        return len(described(bootstrap, group, "--history")["history"]["rebalances"]) == 2

    # The story follows the group after a moment.
    wait_until(has_both, "joining and leaving are told", PATIENCE_SECONDS)
    came, went = described(bootstrap, group, "--history")["history"]["rebalances"]
    assert [cause["reason"] for cause in (*came["causes"], *went["causes"])] == ["member_joined", "member_left"]
    assert (came["generation_before"], came["generation_after"], went["outcome"]) == (0, 1, "empty")
    told = run_line(f"barnabas group describe {group} --history", bootstrap)
    assert "  worker-1-" in told
    assert "; nobody was left\n" in told


@pytest.mark.kafka
def test_groups_page_holds_for_kafka(kafka: Path, tmp_path: Path) -> None:
    page = PAGE.read_text()
    with KafkaNode(tmp_path / "kafka") as node:
        filled = fill_examples(page, node.bootstrap_servers)
    assert comparable(filled) == comparable(page)


@pytest.mark.kafka
def test_transaction_markers_and_open_transactions_are_no_lag(kafka: Path, tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "kafka") as node:
        bootstrap = node.bootstrap_servers
        run_line("barnabas topic create paid", bootstrap)
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "till"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("paid", b"one")
        producer.commit_transaction()
        # The record is read, its marker at offset 1 is not: nobody ever sees it.
        run_line("barnabas group commit billing paid:0=1", bootstrap)
        marker_left = described(bootstrap, "billing")
        producer.begin_transaction()
        producer.produce("paid", b"two")
        producer.flush()
        open_left = described(bootstrap, "billing")
        open_hidden = described(bootstrap, "billing", "--committed")
        producer.abort_transaction()

    assert (marker_left["lag"], marker_left["behind_ms"]) == (0, 0)
    assert open_left["lag"] == 2
    assert open_left["behind_ms"] > 0
    assert (open_hidden["lag"], open_hidden["behind_ms"]) == (0, 0)

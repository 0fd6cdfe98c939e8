"""`barnabas produce` and `barnabas consume` as processes: pipes, terminals that never end, Ctrl-C."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli import waiting
from barnabas.testing import Broker
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.command_line import run_line

INTERRUPTED = 130
PATIENCE_SECONDS = 180


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def start(broker: Broker, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "barnabas.cli.main", *arguments]
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap}
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_consume_follows_until_it_is_interrupted(broker: Broker) -> None:
    broker.create_topic("followed")
    broker.append("followed", [b"before"])
    with start(broker, "consume", "followed", "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"before\n"
        broker.append("followed", [b"\xff after"])
        assert process.stdout.readline() == b"\xff after\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out, err) == (INTERRUPTED, b"", b"")


@pytest.mark.parametrize("options", [[], ["--group", "kitchen"]], ids=["alone", "in a group"])
def test_consume_whose_broker_has_gone_says_so_and_reads_on(options: list[str]) -> None:
    with Broker() as broker:
        broker.create_topic("interrupted")
        broker.append("interrupted", [b"before"])
        with start(broker, "consume", "interrupted", "--follow", *options) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"before\n"
            broker.stop()
            assert process.stderr.readline().startswith(b"waiting: ")
            broker.start()
            broker.append("interrupted", [b"after"])
            assert process.stdout.readline() == b"after\n"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert err.splitlines()[-1] == b"records can be read again"


@pytest.mark.parametrize("options", [[], ["--follow"]], ids=["to the end", "following"])
def test_consume_in_a_group_that_nobody_coordinates_says_so(options: list[str]) -> None:
    with Broker(settings={"offsets.topic.replication.factor": 3}) as broker:
        broker.append("orders", [b"first"], create=True)
        with start(broker, "consume", "orders", "--group", "kitchen", *options) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_SECONDS)
    assert line.startswith(b"waiting: COORDINATOR_NOT_AVAILABLE: the coordinator of group 'kitchen': ")


def test_produce_sends_a_line_while_it_waits_for_the_next(broker: Broker) -> None:
    broker.create_topic("typed")
    with start(broker, "produce", "typed") as process:
        assert process.stdin is not None
        process.stdin.write(b"first\nsec")
        process.stdin.flush()
        assert [record.value for record in broker.records("typed", count=1)] == [b"first"]
        process.stdin.write(b"ond")
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out, err) == (0, b"", b"produced 2 records (13 B) to 'typed'\n")
    assert [record.value for record in broker.records("typed", count=2)] == [b"first", b"second"]


def test_produce_that_is_interrupted_says_what_was_delivered(broker: Broker) -> None:
    broker.create_topic("interrupted")
    with start(broker, "produce", "interrupted") as process:
        assert process.stdin is not None
        process.stdin.write(b"sent\n")
        process.stdin.flush()
        broker.records("interrupted", count=1)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == INTERRUPTED
        assert process.stderr is not None
        assert process.stderr.read() == b"produced 1 record (5 B) to 'interrupted'\n"


def test_produce_that_waits_says_for_whom_and_interrupted_what_is_missing(broker: Broker) -> None:
    broker.create_topic("full")
    with start(broker, "produce", "full") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"in time\n")
        process.stdin.flush()
        broker.records("full", count=1)
        broker.fail(ApiKey.PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR, times=None)
        try:
            process.stdin.write(b"late\nlater\n")
            process.stdin.flush()
            waiting = process.stderr.readline().decode()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            broker.clear_faults()
    assert waiting == (
        f"waiting for broker 1 ({broker.bootstrap}): full-0: a test asked for this error (KAFKA_STORAGE_ERROR);"
        " 2 records not delivered yet, Ctrl-C gives up\n"
    )
    assert process.returncode == INTERRUPTED
    assert err == b"delivered 1 of 3 records to 'full'; 2 not delivered\n"


def test_produce_goes_on_when_the_broker_takes_records_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENT_SECONDS", 0.1)
    broker.create_topic("resumed")
    broker.fail(ApiKey.PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR, times=5)
    said = run_line("seq 3 | barnabas produce resumed", broker.bootstrap).splitlines()
    broker.clear_faults()
    assert said[0].startswith(f"waiting for broker 1 ({broker.bootstrap}): resumed-0: ")
    assert said[-1] == "produced 3 records (6 B) to 'resumed'"


def test_failure_says_what_was_delivered_in_one_line(broker: Broker) -> None:
    broker.create_topic("refused")
    broker.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
    assert run_line("seq 3 | barnabas produce refused", broker.bootstrap) == (
        "barnabas: refused-0: a test asked for this error (INVALID_RECORD);"
        " delivered 0 of 3 records to 'refused'; 3 not delivered\n"
    )
    assert run_line("printf '{}\\n{}\\n[]\\n' | barnabas produce refused --json", broker.bootstrap) == (
        'barnabas: line 3: not a JSON object such as {"value": "..."}; produced 2 records (6 B) to \'refused\'\n'
    )


def test_first_refused_record_ends_a_session_that_waits_for_more_lines(broker: Broker) -> None:
    broker.create_topic("session")
    broker.fail(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
    with start(broker, "produce", "session") as process:
        assert process.stdin is not None
        process.stdin.write(b"refused\n")
        process.stdin.flush()
        assert process.wait(PATIENCE_SECONDS) == 1
        assert process.stderr is not None
        assert b"delivered 0 of 1 record to 'session'; 1 not delivered" in process.stderr.read()


def test_consume_whose_reader_has_gone_is_quiet(broker: Broker) -> None:
    broker.create_topic("long")
    for _ in range(5):
        broker.append("long", [b"x" * 1000] * 500)
    with start(broker, "consume", "long") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_SECONDS) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_file_is_sent_whole(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("filed")
    values = [b"%d " % number * (number % 50) for number in range(20_000)]
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join(values))
    printed = run_line(f"barnabas produce filed {file} --compression lz4", broker.bootstrap)
    assert printed.startswith("produced 20,000 records (")
    assert [record.value for record in broker.records("filed", count=20_000)] == values
    assert {record.compression for record in broker.records("filed")} == {"lz4"}


def test_topic_that_is_not_there_is_made_where_the_broker_does_that(broker: Broker) -> None:
    printed = run_line("echo x | barnabas produce made-by-itself", broker.bootstrap)
    assert printed == ("created topic 'made-by-itself' with 1 partition\nproduced 1 record (2 B) to 'made-by-itself'\n")
    assert [record.value for record in broker.records("made-by-itself")] == [b"x"]


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("produce closed", 1, b"barnabas: there is no standard input; give a FILE\n"),
        ("topic delete closed", 0, b""),
    ],
)
def test_closed_standard_input_is_no_reason_to_crash(broker: Broker, command: str, status: int, said: bytes) -> None:
    if "closed" not in broker.topics():
        broker.create_topic("closed")
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap}
    shell = f"exec {sys.executable} -m barnabas.cli.main {command} <&-"
    ended = subprocess.run(["sh", "-c", shell], env=environment, capture_output=True, timeout=PATIENCE_SECONDS)
    assert (ended.returncode, ended.stderr) == (status, said)


def test_empty_input_sends_nothing(broker: Broker) -> None:
    broker.create_topic("empty")
    assert run_line("printf '' | barnabas produce empty", broker.bootstrap) == "produced 0 records (0 B) to 'empty'\n"
    assert run_line("barnabas consume empty", broker.bootstrap) == ""


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ("", "0 1 2 3 4"),
        ("--from 3", "3 4"),
        ("--from -2", "3 4"),
        ("--from -99", "0 1 2 3 4"),
        ("--from 5", "topic 'timed' has no record at offset 5 or beyond; it ends at 5"),
        ("--from 99", "topic 'timed' has no record at offset 99 or beyond; it ends at 5"),
        ("--from end", ""),
        ("--from @1700000000250", "3 4"),
        ("--from 2023-11-14T22:13:20.1Z", "1 2 3 4"),
        ("--from '1 day ago'", "topic 'timed' has no record at or after that time"),
        ("-n 2", "0 1"),
        ("--from 1 -n 1 --committed", "1"),
        ("--partition 0", "0 1 2 3 4"),
        ("--partition 7", "barnabas: topic 'timed' has partitions 0 to 0, not 7; see 'barnabas topic list'"),
    ],
)
def test_consume_begins_and_ends_where_it_is_told(broker: Broker, options: str, values: str) -> None:
    if "timed" not in run_line("barnabas topic list", broker.bootstrap):
        broker.create_topic("timed", configs={"retention.ms": "-1"})
        for number in range(5):
            broker.append("timed", [b"%d" % number], timestamp_ms=1_700_000_000_000 + number * 100)
    printed = run_line(f"barnabas consume timed {options}", broker.bootstrap)
    assert " ".join(printed.splitlines()) == values

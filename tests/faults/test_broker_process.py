"""A broker process that is killed under load, or whose disk is full."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.records.batch import split_batches
from barnabas.records.reader import read_records
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.kafka import wait_until
from tests.support.side_by_side import CLOSED, NO_ANSWER, Side
from tests.support.side_by_side_fetch import fetch, partition
from tests.support.side_by_side_produce import batch, request
from tests.support.small_disk import fill, small_disk

pytestmark = pytest.mark.slow

FLUSHED = "flushed"
LAZY = "lazy"
TOPICS = {FLUSHED: {"flush.messages": "1"}, LAZY: {"flush.messages": "9223372036854775807"}}
WRITERS = 4
DISK_BYTES = 24 << 20


def _produce(side: Side, topic: str, content: bytes) -> dict[str, Any] | None:
    """The partition's answer; None when the broker went away."""
    try:
        answer = side.ask(ApiKey.PRODUCE, 12, request(topic, content, acks=-1)(side))
    except OSError:
        side.close()
        return None
    if answer in (CLOSED, NO_ANSWER):
        return None
    reply: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
    return reply


def _stored(side: Side, topic: str) -> dict[int, bytes]:
    """All records of the topic by offset; every batch begins where the one before it ends."""
    found: dict[int, bytes] = {}
    while True:
        answer = side.ask(ApiKey.FETCH, 12, fetch((topic, [partition(0, len(found))]))(side))
        reply = answer["responses"][0]["partitions"][0]
        assert reply["error_code"] == ErrorCode.NONE, reply
        content = bytes(reply["records"])
        if not content:
            assert reply["high_watermark"] == len(found)
            return found
        for header, one in split_batches(content):
            assert header.base_offset == len(found), "offsets are contiguous"
            for record in read_records(one):
                assert record.value is not None
                found[record.offset] = record.value


class Writer(threading.Thread):
    """Sends one batch after the other until the broker is gone; keeps what was acknowledged."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name=name)
        self._side = Side("Barnabas", bootstrap)
        self.acknowledged: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}

    def run(self) -> None:
        number = 0
        while True:
            for topic in TOPICS:
                value = f"{self.name}-{number}-".encode() + bytes(3000)
                reply = _produce(self._side, topic, batch(2, value=value))
                if reply is None or reply["error_code"] != ErrorCode.NONE:
                    self._side.close()
                    return
                for index in range(2):
                    self.acknowledged[topic][reply["base_offset"] + index] = value + b"%d" % index
            number += 1


def test_broker_killed_under_load_keeps_what_it_acknowledged_with_contiguous_offsets(tmp_path: Path) -> None:
    acknowledged: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}
    with BrokerProcess(tmp_path, {"log.segment.bytes": "1048576"}) as broker:
        side = Side("Barnabas", broker.bootstrap)
        for topic, configs in TOPICS.items():
            side.create_topic(topic, configs=configs)
        for life in range(3):
            writers = [Writer(broker.bootstrap, f"{life}-{number}") for number in range(WRITERS)]
            for writer in writers:
                writer.start()
            wait_until(lambda: all(len(one.acknowledged[LAZY]) > 100 for one in writers), "the load")  # noqa: B023
            broker.kill()
            for writer in writers:
                writer.join()
                for topic in TOPICS:
                    assert not acknowledged[topic].keys() & writer.acknowledged[topic].keys(), "an offset is given once"
                    acknowledged[topic] |= writer.acknowledged[topic]
            broker.start()
            side.close()
            for topic in TOPICS:
                stored = _stored(side, topic)
                assert acknowledged[topic].items() <= stored.items()
                # What was not acknowledged may be there or not, but then as it was sent: each writer had one request.
                assert len(stored) - len(acknowledged[topic]) <= 2 * WRITERS * (life + 1)
        side.close()
        broker.stop()
    verified = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", "log", "verify", str(broker.data_directory)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def _gauge(broker: BrokerProcess, name: str) -> float:
    """Of the one directory."""
    (line,) = [line for line in broker.http("/metrics")[1].splitlines() if line.startswith(f"{name}{{")]
    return float(line.rpartition(" ")[2])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as mounted:
        yield mounted


def test_full_disk_refuses_producers_serves_consumers_and_heals(tmp_path: Path, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(8 << 20))
    settings = {"log.segment.bytes": "1048576", "log.index.size.max.bytes": "65536"}
    with BrokerProcess(tmp_path, settings, data=disk / "data") as broker:
        side = Side("Barnabas", broker.bootstrap)
        side.create_topic("orders")
        acknowledged: dict[int, bytes] = {}

        def produce() -> int:
            value = f"value-{len(acknowledged)}-".encode() + bytes(100_000)
            reply = _produce(side, "orders", batch(1, value=value))
            assert reply is not None, "the broker goes on"
            if reply["error_code"] == ErrorCode.NONE:
                acknowledged[reply["base_offset"]] = value + b"0"
            return int(reply["error_code"])

        codes = [produce() for _ in range(2 * DISK_BYTES // 100_000)]
        assert set(codes) == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
        assert codes[-20:] == [ErrorCode.KAFKA_STORAGE_ERROR] * 20
        assert _stored(side, "orders") == acknowledged
        status, health = broker.http("/healthz")
        assert status == 200
        assert json.loads(health)["full_directories"] == [str(broker.data_directory)]
        assert f"{broker.data_directory} is full: cannot write" in json.loads(health)["problems"][0]
        assert _gauge(broker, "barnabas_log_directory_full") == 1
        assert 0 <= _gauge(broker, "barnabas_log_directory_free_bytes") < DISK_BYTES
        said = [line for line in broker.log_file.read_text().splitlines() if " WARN" in line or " ERROR" in line]
        assert len(said) == 1, said
        assert "is full, writes are refused" in said[0]

        fill(disk / "rest")
        broker.kill()
        broker.start()
        side.close()
        assert _stored(side, "orders") == acknowledged, "a broker that is killed on a full disk starts and serves"
        assert produce() == ErrorCode.KAFKA_STORAGE_ERROR
        topic = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        answer = side.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 1000})
        assert answer["topics"][0]["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
        answer = side.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1000})
        assert (answer["error_code"], answer["producer_id"]) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        status, health = broker.http("/healthz")
        assert status == 200
        assert any(problem.startswith("the metadata store: ") for problem in json.loads(health)["problems"])

        (disk / "rest").unlink()
        ballast.unlink()
        began = time.monotonic()
        wait_until(lambda: produce() == ErrorCode.NONE, "space is there again", timeout_seconds=120)
        assert [produce() for _ in range(20)] == [ErrorCode.NONE] * 20, f"healed after {time.monotonic() - began:.1f} s"
        assert _stored(side, "orders") == acknowledged
        assert sorted(acknowledged) == list(range(len(acknowledged)))
        wait_until(lambda: _gauge(broker, "barnabas_log_directory_full") == 0, "the directory has room again")
        wait_until(lambda: json.loads(broker.http("/healthz")[1])["problems"] == [], "all is well")
        side.create_topic("new")
        assert "leaders are elected again: records can be produced" in broker.log_file.read_text()

        broker.stop()
        broker.start()
        side.close()
        assert _stored(side, "orders") == acknowledged
        side.close()


def test_records_deleted_by_a_client_stay_deleted_when_the_broker_is_killed_at_once(tmp_path: Path) -> None:
    partitions = range(3)
    with BrokerProcess(tmp_path) as broker:
        side = Side("Barnabas", broker.bootstrap)
        side.create_topic("deleted", len(partitions))
        for index in partitions:
            side.produce("deleted", batch(20), index)
        for start in (3, 8, 19):
            wanted = [{"partition_index": index, "offset": start} for index in partitions]
            asked = {"topics": [{"name": "deleted", "partitions": wanted}], "timeout_ms": 5000}
            answer = side.ask(ApiKey.DELETE_RECORDS, 2, asked)
            broker.kill()
            assert [one["low_watermark"] for one in answer["topics"][0]["partitions"]] == [start] * len(partitions)
            broker.start()
            side.close()
            earliest = [{"partition_index": index, "timestamp": -2} for index in partitions]
            asked = {"replica_id": -1, "topics": [{"name": "deleted", "partitions": earliest}]}
            answer = side.ask(ApiKey.LIST_OFFSETS, 7, asked)
            assert [one["offset"] for one in answer["topics"][0]["partitions"]] == [start] * len(partitions)
        side.close()

"""Whole data directories, both ways: what Apache Kafka wrote opens in Barnabas, and Kafka's tool and Kafka itself read
what Barnabas wrote."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Partition

from barnabas.base.clock import ManualClock, SystemClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.configs import ConfigSource, Resource, ResourceType, describe_configs
from barnabas.client.producing.producer import ProducerOptions
from barnabas.records.batch import Codec, split_batches
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import EndTransactionMarker, build_marker
from barnabas.records.reader import read_records
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.meta_properties import META_PROPERTIES, read_meta_properties
from barnabas.storage.directories.opening import OpeningReport
from barnabas.storage.log.log import Log
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.settings import LogConfig, LogManagerConfig
from barnabas.storage.tools.verify import verify_partition
from tests.compat.test_kafka_files import PARTITIONS, as_consumed
from tests.support.broker_process import BrokerProcess
from tests.support.kafka import KafkaNode
from tests.support.kafka_directory import (
    COMPACTED_TOPICS,
    NODE_PROPERTIES,
    TOPICS,
    KafkaDirectories,
    WrittenDirectory,
    copy_data_directory,
)
from tests.support.kafka_dump import dump_complaints, dump_log_segments, dumpable_files
from tests.support.kafka_truth import ConsumedRecord, read_truth

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

FILES = LocalFileSystem()


def config_of(topic: str) -> LogConfig:
    return (
        LogConfig.from_settings(TOPICS[topic][1])
        if topic in TOPICS
        else LogConfig(cleanup_policy=frozenset({"compact"}))
    )


def open_directory(path: Path) -> tuple[LogManager, OpeningReport]:
    meta = read_meta_properties(FILES, str(path / META_PROPERTIES))
    assert meta is not None
    manager = LogManager(
        FILES,
        SystemClock(),
        random.Random(1),
        LogManagerConfig(log_dirs=(str(path),)),
        cluster_id=meta.cluster_id,
        node_id=meta.node_id,
    )
    return manager, manager.open(config_of)


def consumed(log: Log, *, is_committed_only: bool) -> list[ConsumedRecord]:
    """What a consumer would be given: bytes by `Log.read`, and the aborted transactions left out by their index."""
    log.advance_high_watermark(log.end_offset)
    upper = log.last_stable_offset if is_committed_only else log.end_offset
    aborted = log.aborted_transactions(log.log_start_offset, upper) if is_committed_only else []
    found: list[ConsumedRecord] = []
    offset = log.log_start_offset
    while offset < upper and (taken := log.read(offset, 1 << 26, upper).slice):
        for header, batch in split_batches(taken.read()):
            is_hidden = any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
                if header.is_transactional
            )
            if not header.is_control and not is_hidden:
                found += [as_consumed(header, record) for record in read_records(batch) if record.offset >= offset]
            next_offset = header.next_offset
        taken.release()
        offset = next_offset
    return found


@pytest.fixture(scope="module")
def opened_clean(kafka_directory: KafkaDirectories, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogManager]:
    path = copy_data_directory(kafka_directory.clean.path, tmp_path_factory.mktemp("clean") / "data")
    manager, report = open_directory(path)
    assert report.checked_bytes == 0, "a clean stop of Kafka is one for us"
    assert not report.repaired
    yield manager
    manager.close()


@pytest.fixture(scope="module")
def opened_killed(kafka_directory: KafkaDirectories, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogManager]:
    path = copy_data_directory(kafka_directory.killed.path, tmp_path_factory.mktemp("killed") / "data")
    manager, report = open_directory(path)
    assert report.checked_bytes > 0
    yield manager
    manager.close()


def log_of(manager: LogManager, name: str) -> Log:
    topic, _, partition = name.rpartition("-")
    log = manager.get(TopicPartition(topic, int(partition)))
    assert log is not None
    return log


@pytest.mark.parametrize("partition", PARTITIONS)
def test_directory_after_clean_stop_of_kafka_reads_back_the_same_records(
    opened_clean: LogManager, kafka_directory: KafkaDirectories, partition: str
) -> None:
    log, truth = log_of(opened_clean, partition), kafka_directory.clean.partitions[partition]
    log.check_invariants()
    assert consumed(log, is_committed_only=False) == list(truth.uncommitted)
    assert consumed(log, is_committed_only=True) == list(truth.committed)
    assert (log.log_start_offset, log.end_offset) == (truth.log_start_offset, truth.log_end_offset)
    assert log.last_stable_offset == truth.last_stable_offset


@pytest.mark.parametrize("partition", PARTITIONS)
def test_directory_after_kill_of_kafka_recovers_what_kafka_recovers(
    opened_killed: LogManager, kafka_directory: KafkaDirectories, partition: str
) -> None:
    log, truth = log_of(opened_killed, partition), kafka_directory.killed.partitions[partition]
    log.check_invariants()
    assert consumed(log, is_committed_only=False) == list(truth.uncommitted)
    committed = consumed(log, is_committed_only=True)
    assert committed == list(truth.committed)[: len(committed)]
    assert log.log_start_offset == truth.log_start_offset


@pytest.mark.parametrize("partition", PARTITIONS)
def test_search_by_time_finds_what_kafka_finds(
    opened_clean: LogManager, kafka_directory: KafkaDirectories, partition: str
) -> None:
    log = log_of(opened_clean, partition)
    for lookup in kafka_directory.clean.partitions[partition].lookups:
        found = log.find_timestamp(lookup.timestamp_ms)
        answer = (found.offset, found.timestamp) if found else (-1, -1)
        assert answer == (lookup.offset, lookup.found_timestamp_ms)


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_directory_of_kafka_verifies(kafka_directory: KafkaDirectories, tmp_path: Path, end: str) -> None:
    written: WrittenDirectory = getattr(kafka_directory, end)
    path = copy_data_directory(written.path, tmp_path / "data")
    if end == "killed":  # what a kill leaves is for recovery, and what that leaves must be sound
        manager, _ = open_directory(path)
        manager.close()
    for partition in PARTITIONS:
        is_compacted = partition.rpartition("-")[0] in COMPACTED_TOPICS
        report = verify_partition(FILES, str(path / partition), is_compacted=is_compacted)
        assert report.is_sound, report.findings


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_directory_of_kafka_after_barnabas_used_it_satisfies_the_dump_tool(
    kafka_directory: KafkaDirectories, tmp_path: Path, end: str
) -> None:
    path = copy_data_directory(getattr(kafka_directory, end).path, tmp_path / "data")
    manager, _ = open_directory(path)
    for partition in PARTITIONS:
        log = log_of(manager, partition)
        batch = BatchBuilder()
        batch.append(SystemClock().now_ms(), b"from", b"barnabas")
        log.append(batch.build(), leader_epoch=7)
        log.write()
    manager.close()
    files = [file for partition in PARTITIONS for file in dumpable_files(path / partition)]
    plain = [file for file in files if file.parent.name.rpartition("-")[0] not in COMPACTED_TOPICS]
    compacted = [file for file in files if file not in plain]
    assert dump_complaints(dump_log_segments(plain)) == []
    assert dump_complaints(dump_log_segments(compacted), compacted=True) == []


# -- what Barnabas wrote ---------------------------------------------------------------------------------------------


class Writer:
    """Writes every kind of file there is, through a manager with a cleaner."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        config = LogManagerConfig(log_dirs=(str(path),), log_cleaner_dedupe_buffer_size=4 << 20)
        self.manager = LogManager(FILES, self.clock, random.Random(1), config, cluster_id="cluster", node_id=1)
        self.manager.open(lambda topic: LogConfig())

    def create(self, topic: str, config: LogConfig) -> Log:
        return self.manager.create(TopicPartition(topic, 0), UUID(int=7), config)

    def append(self, log: Log, builder: BatchBuilder, epoch: int = 0, keys: int = 50) -> None:
        for number in range(20):
            self.clock.advance(3)
            value = None if number == 13 else b"value-%d " % number * 7
            builder.append(
                self.clock.now_ms(), b"key-%d" % (number * 7 % keys), value, [("name", b"x"), ("none", None)]
            )
        log.append(builder.build(), epoch)
        log.write()

    def end_transaction(self, log: Log, producer_id: int, *, is_commit: bool) -> None:
        marker = build_marker(
            EndTransactionMarker(is_commit, coordinator_epoch=2),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        log.append(marker, 0, Origin.COORDINATOR)
        log.write()

    def write_all(self) -> None:
        small = LogConfig(segment_bytes=12_000, index_interval_bytes=700)
        for codec in Codec:
            log = self.create(f"codec-{codec.name.lower()}", small)
            for turn in range(40):
                self.append(log, BatchBuilder(codec=codec), epoch=turn // 10)
        log = self.create("append-time", LogConfig(segment_bytes=12_000, message_timestamp_type="LogAppendTime"))
        for _ in range(20):
            self.append(log, BatchBuilder())
        self._write_transactions(self.create("transactions", small))
        self._write_compacted(self.create("compacted", self._compacted(small)))
        self.create("empty", LogConfig())

    def _compacted(self, config: LogConfig) -> LogConfig:
        return LogConfig(
            segment_bytes=config.segment_bytes,
            index_interval_bytes=config.index_interval_bytes,
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=0.01,
            file_delete_delay_ms=0,
        )

    def _write_transactions(self, log: Log) -> None:
        for turn in range(24):
            producer_id = 40 + turn % 3
            batch = BatchBuilder(
                producer_id=producer_id, producer_epoch=0, base_sequence=turn // 3 * 20, is_transactional=True
            )
            self.append(log, batch)
            if turn % 3 == 2:
                for ended in (40, 41, 42):
                    self.end_transaction(log, ended, is_commit=(turn + ended) % 2 == 0)

    def _write_compacted(self, log: Log) -> None:
        for turn in range(60):
            self.append(log, BatchBuilder(codec=Codec(turn % 5)))
        log.advance_high_watermark(log.end_offset)
        before = log.size_bytes
        for _ in range(50):
            self.clock.advance(60_000)
            self.manager.run_due_work()
        assert log.size_bytes < before / 3, "the cleaner has not worked"


@pytest.fixture(scope="module")
def written(kafka: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "data"
    writer = Writer(path)
    writer.write_all()
    writer.manager.close()
    return path


def test_every_kind_of_file_that_barnabas_wrote_satisfies_the_dump_tool(written: Path) -> None:
    files = dumpable_files(written)
    assert {file.suffix for file in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    compacted = [file for file in files if file.parent.name == "compacted-0"]
    output = dump_log_segments([file for file in files if file not in compacted])
    assert dump_complaints(output) == []
    assert output.count("| offset:") == 5 * 40 * 20 + 20 * 20 + 24 * 20 + 24
    assert "lastStableOffset" in output
    compacted_output = dump_log_segments(compacted)
    assert dump_complaints(compacted_output, compacted=True) == []
    assert "deleteHorizonMs: OptionalLong[" in compacted_output


def test_index_files_that_barnabas_wrote_pass_the_sanity_check_of_kafka(written: Path) -> None:
    indexes = [file for file in dumpable_files(written) if file.suffix in (".index", ".timeindex")]
    output = dump_log_segments(indexes, "--index-sanity-check")
    assert dump_complaints(output) == []
    assert output.count("passed sanity check") + output.count(" is empty.") == len(indexes)


def test_flushed_log_without_clean_stop_satisfies_the_dump_tool(kafka: Path, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    log = writer.create("flushed", LogConfig(segment_bytes=12_000, index_interval_bytes=700))
    for _ in range(30):
        writer.append(log, BatchBuilder())
    log.flush()
    copied = tmp_path / "copied"
    shutil.copytree(log.directory, copied)
    writer.manager.close()
    assert dump_complaints(dump_log_segments(dumpable_files(copied))) == []


# -- there and back --------------------------------------------------------------------------------------------------


def test_broker_takes_over_a_directory_of_kafka_and_kafka_takes_it_back(
    kafka_directory: KafkaDirectories, tmp_path: Path
) -> None:
    """`barnabas up` on what Kafka left: topics, settings, groups and records; and Kafka reads all of it afterwards."""
    copy_data_directory(kafka_directory.clean.path, tmp_path / "data")
    truth = kafka_directory.clean.partitions
    with BrokerProcess(tmp_path) as broker:
        assert read_truth(broker.bootstrap, include_internal=True) == truth
        assert _committed_by_readers(broker.bootstrap) == [100, 49, 47]
        with BlockingClient(broker.bootstrap) as client:
            topic = Resource(ResourceType.TOPIC, "compacted-twice")
            configs = client.wait_for(describe_configs(client.cluster, topic))
            own = {entry.name: entry.value for entry in configs if entry.source is ConfigSource.TOPIC}
            assert own == TOPICS["compacted-twice"][1]
            for name, codec in [("defaults", Codec.NONE), ("produced-zstd", Codec.ZSTD), ("trimmed", Codec.LZ4)]:
                values = [b"from barnabas %d" % number * 20 for number in range(1000)]
                client.produce(name, values, partition=0, options=ProducerOptions(codec=codec))
        expected = read_truth(broker.bootstrap, include_internal=False)
        assert len(expected["trimmed-0"].uncommitted) == len(truth["trimmed-0"].uncommitted) + 1000
        broker.stop()
        assert "took over the data of Apache Kafka" in broker.log_file.read_text()
    with KafkaNode(tmp_path, NODE_PROPERTIES) as node:
        found = read_truth(node.bootstrap_servers, include_internal=False)
        told = node.log_file.read_text(errors="replace")
    assert {name: one.uncommitted for name, one in found.items()} == {
        name: one.uncommitted for name, one in expected.items()
    }
    assert "Skipping recovery" in told, "Kafka takes the clean-shutdown mark of Barnabas for one"
    assert "corrupt" not in told.lower()
    with pytest.raises(AssertionError, match=r"Apache Kafka has used .* since Barnabas took it over"):
        BrokerProcess(tmp_path).start()


def _committed_by_readers(bootstrap: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
    found = consumer.committed([Partition("defaults", index) for index in range(3)], timeout=30)
    consumer.close()
    return [one.offset for one in found]


def test_broker_takes_over_what_a_killed_kafka_left(kafka_directory: KafkaDirectories, tmp_path: Path) -> None:
    copy_data_directory(kafka_directory.killed.path, tmp_path / "data")
    with BrokerProcess(tmp_path) as broker:
        found = read_truth(broker.bootstrap, include_internal=False)
    assert {name: one.uncommitted for name, one in found.items()} == {
        name: one.uncommitted for name, one in kafka_directory.killed.partitions.items()
    }

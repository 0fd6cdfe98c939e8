"""Data directories that Apache Kafka wrote, in every way it writes one, and what its consumers read there.

```
.cache/kafka-directories/KEY/     KEY: hash of the code that writes it, so that a second run finds it ready
  clean/                          a data directory after a clean stop
  killed/                         the same one later: started again, then SIGKILL amid four producers' work
  clean.json, killed.json         the truth: what consumers read, see `PartitionTruth`
```

The truth about `clean` was read before the stop. The truth about `killed` was read from Kafka after it had
recovered that directory by itself (`killed` is a copy from before): recovery has to find the same records.
Both directories are shared by all tests: copy one with `copy_data_directory` before opening it for writing.

What the topics are for is said in `TOPICS`. Record bytes hold no line feed, because DumpLogSegments prints
them raw.
"""

import fcntl
import hashlib
import os
import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import kafka_truth
from tests.support.kafka import CACHE_DIRECTORY, KAFKA_VERSION, KafkaFailed, KafkaNode, kafka_jars, wait_until
from tests.support.kafka_truth import PartitionTruth, TopicPartitionName, load_truth, read_truth, save_truth

SEED = 1883
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLIENT_TIMEOUT_SECONDS = 180
ACKNOWLEDGED_BEFORE_KILL = 3000
CREATE_TIME_STEP_MS_MAX = 250

SMALL = {"internal.segment.bytes": "16384", "index.interval.bytes": "600"}
TINY = {"internal.segment.bytes": "8192", "index.interval.bytes": "300"}
COMPACTED = {**TINY, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}

TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    # name: (partitions, settings)
    "defaults": (3, {}),
    **{f"produced-{codec}": (1, SMALL) for codec in CODECS},  # compressed by librdkafka
    **{f"stored-{codec}": (1, {**SMALL, "compression.type": codec}) for codec in CODECS[1:]},  # ... by Kafka
    "append-time": (1, {**SMALL, "message.timestamp.type": "LogAppendTime"}),
    "shuffled-times": (1, SMALL),  # create times that go forth and back
    "transactions": (2, TINY),  # committed, aborted, interleaved, and one left open
    "compacted": (1, COMPACTED),  # its tombstones are kept, with a delete horizon
    "compacted-twice": (1, {**COMPACTED, "delete.retention.ms": "0"}),  # its tombstones are gone
    "compacted-transactions": (1, {**COMPACTED, "delete.retention.ms": "0"}),
    "trimmed": (1, SMALL),  # by DeleteRecords, in the middle of a segment
    "retained": (1, {**SMALL, "retention.bytes": "40000"}),  # its first segments were deleted
    "empty": (1, {}),
    "removed": (1, {}),  # deleted as a topic: its directory ends in `-delete`
}
COMPACTED_TOPICS = frozenset(name for name, (_, settings) in TOPICS.items() if "cleanup.policy" in settings)

NODE_PROPERTIES = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "broker.session.timeout.ms": "1000",  # a killed node may register again only after that
    "broker.heartbeat.interval.ms": "200",
}


@dataclass(frozen=True, slots=True)
class WrittenDirectory:
    """A data directory and the truth about it."""

    path: Path
    partitions: Mapping[TopicPartitionName, PartitionTruth]


@dataclass(frozen=True, slots=True)
class KafkaDirectories:
    clean: WrittenDirectory
    killed: WrittenDirectory


def kafka_directories() -> KafkaDirectories:
    """The directories, from the cache or newly written. Raises `KafkaUnavailable` where Kafka cannot run."""
    kafka_jars()
    sources = Path(__file__).read_bytes() + Path(kafka_truth.__file__).read_bytes()
    digest = hashlib.sha256(sources + KAFKA_VERSION.encode()).hexdigest()[:16]
    shelf = CACHE_DIRECTORY / "kafka-directories"
    home = shelf / digest
    shelf.mkdir(parents=True, exist_ok=True)
    with open(shelf / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            incoming = shelf / f"{digest}.incoming"
            shutil.rmtree(incoming, ignore_errors=True)
            _Scenario(incoming).run()
            incoming.rename(home)
    return KafkaDirectories(
        clean=WrittenDirectory(home / "clean", load_truth(home / "clean.json")),
        killed=WrittenDirectory(home / "killed", load_truth(home / "killed.json")),
    )


def copy_data_directory(source: Path, destination: Path) -> Path:
    """A copy that keeps holes: a crash leaves indexes of 10 MiB, nearly all of it hole."""
    shutil.copytree(source, destination, copy_function=_copy_sparse)
    return destination


def _copy_sparse(source: str, destination: str) -> str:
    with open(source, "rb", buffering=0) as reader, open(destination, "wb", buffering=0) as writer:
        size_bytes = os.fstat(reader.fileno()).st_size
        writer.truncate(size_bytes)
        position = 0
        while position < size_bytes:
            try:
                position = os.lseek(reader.fileno(), position, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing but a hole from here on
                break
            hole = os.lseek(reader.fileno(), position, os.SEEK_HOLE)
            os.pwrite(writer.fileno(), os.pread(reader.fileno(), hole - position, position), position)
            position = hole
    return destination


# --- the scenario -----------------------------------------------------------------------------------------


class _Scenario:
    """Makes Kafka write the two directories below `home`, and records the truth beside them."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._random = random.Random(SEED)
        self._node = KafkaNode(home / "node", NODE_PROPERTIES)
        self._clock_ms = int(time.time() * 1000) - 3_600_000  # create times of the last hour: not yet for retention
        self._open_transactions: list[Producer] = []

    def run(self) -> None:
        with self._node as node:
            self._admin = AdminClient({"bootstrap.servers": node.bootstrap_servers, "log_level": 0})
            self._create_topics()
            self._write_plain()
            self._write_transactions()
            self._write_compacted()
            self._write_shortened()
            self._commit_group_offsets()
            self._remove_topic()
            save_truth(self._home / "clean.json", read_truth(node.bootstrap_servers, include_internal=True))
            node.stop()
            copy_data_directory(node.data_directory, self._home / "clean")
            node.start()
            self._kill_while_producing()
            copy_data_directory(node.data_directory, self._home / "killed")
            node.properties["log.cleaner.enable"] = "false"  # what is read is what was there
            node.start()
            save_truth(self._home / "killed.json", read_truth(node.bootstrap_servers, include_internal=False))
            node.kill()
        shutil.rmtree(node.directory)

    # --- clients

    def _producer(self, **settings: str | int | bool) -> Producer:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer(
            {
                "bootstrap.servers": self._node.bootstrap_servers,
                "linger.ms": 5,
                "batch.num.messages": 40,
                "log_level": 0,
                **names,
            }
        )

    def _transactional_producer(self, transactional_id: str) -> Producer:
        producer = self._producer(transactional_id=transactional_id, transaction_timeout_ms=900_000)
        producer.init_transactions(CLIENT_TIMEOUT_SECONDS)
        return producer

    # --- records

    def _bytes(self, size_bytes: int) -> bytes:
        if self._random.random() < 0.5:
            return self._random.randbytes(size_bytes).replace(b"\n", b"-")
        return (b"the land surveyor waits at the inn " * (size_bytes // 35 + 1))[:size_bytes]

    def _next_time_ms(self) -> int:
        self._clock_ms += self._random.randrange(CREATE_TIME_STEP_MS_MAX)
        return self._clock_ms

    def _produce(
        self,
        producer: Producer,
        topic: str,
        records: int,
        *,
        keys: int | None = None,
        flush_every: int = 40,
        partition: int = 0,
        value_bytes_max: int = 150,
    ) -> None:
        """Records of every shape. With `keys`, each has one of so many keys, and some are tombstones."""
        for number in range(records):
            if keys is not None:
                key: bytes | None = b"key-%d" % self._random.randrange(keys)
            else:
                key = None if self._random.random() < 0.2 else self._bytes(self._random.randrange(20))
            is_null = self._random.random() < 0.1
            producer.produce(
                topic,
                value=None if is_null else self._bytes(self._random.randrange(value_bytes_max)),
                key=key,
                partition=partition,
                timestamp=self._next_time_ms(),
                headers=self._headers(),
            )
            if number % flush_every == flush_every - 1:
                _flush(producer)
        _flush(producer)

    def _headers(self) -> list[tuple[str, str | bytes | None]]:
        choice = self._random.randrange(6)
        headers: list[tuple[str, str | bytes | None]] = [
            ("origin", b"castle"),
            ("empty", b""),
            ("null", None),
            ("origin", b"x"),
        ]
        return headers[:choice] if choice < 5 else []

    # --- topics

    def _create_topics(self) -> None:
        topics = [
            NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings))
            for name, (partitions, settings) in TOPICS.items()
        ]
        for future in self._admin.create_topics(topics).values():
            future.result(CLIENT_TIMEOUT_SECONDS)

    def _write_plain(self) -> None:
        for codec in CODECS:
            producer = self._producer(compression_type=codec)
            self._produce(producer, f"produced-{codec}", 600, value_bytes_max=400)
            if codec != "none":
                self._produce(self._producer(), f"stored-{codec}", 400, value_bytes_max=400)
        idempotent = self._producer(enable_idempotence=True)
        for partition in range(3):
            self._produce(idempotent, "defaults", 300, partition=partition)
            self._produce(self._producer(enable_idempotence=True), "defaults", 100, partition=partition)
        self._produce(self._producer(compression_type="lz4"), "append-time", 300)
        self._produce(self._producer(), "append-time", 100, flush_every=1)
        start_ms = self._clock_ms
        shuffled = self._producer(enable_idempotence=True)
        for _ in range(12):
            self._clock_ms = start_ms + self._random.randrange(600_000)
            self._produce(shuffled, "shuffled-times", 30, flush_every=7)

    def _write_transactions(self) -> None:
        first, second = (self._transactional_producer(name) for name in ("first", "second"))
        for number in range(12):
            first.begin_transaction()
            second.begin_transaction()
            for partition in range(2):
                self._produce(first, "transactions", 10, partition=partition)
                self._produce(second, "transactions", 5, partition=partition)
                self._produce(first, "transactions", 3, partition=partition)
            _end_transaction(second, commits=number % 3 == 0)
            _end_transaction(first, commits=number % 2 == 0)
        fenced = self._transactional_producer("first")  # takes over the id with a new epoch
        fenced.begin_transaction()
        self._produce(fenced, "transactions", 20)
        _end_transaction(fenced, commits=True)
        self._produce(self._producer(), "transactions", 20)
        left_open = self._transactional_producer("left-open")
        left_open.begin_transaction()
        self._produce(left_open, "transactions", 15, partition=1)
        self._produce(self._producer(), "transactions", 20, partition=1)  # readable only by read_uncommitted
        self._open_transactions.append(left_open)

    def _write_compacted(self) -> None:
        """Twice written and twice compacted: tombstones go in a later run than the one that met them."""
        for _ in range(2):
            transactional = self._transactional_producer("compacted")
            for number in range(10):
                transactional.begin_transaction()
                self._produce(transactional, "compacted-transactions", 25, keys=30)
                _end_transaction(transactional, commits=number % 3 != 0)
            for topic in ("compacted", "compacted-twice"):
                self._produce(self._producer(enable_idempotence=True), topic, 300, keys=40)
                compressed = self._producer(enable_idempotence=True, compression_type="zstd")
                self._produce(compressed, topic, 300, keys=60)
            for topic in sorted(COMPACTED_TOPICS):
                wait_until(partial(self._is_compacted, topic), f"compaction of {topic}")

    def _is_compacted(self, topic: str) -> bool:
        """Whether the cleaner has reached the active segment, which it leaves alone."""
        checkpoint = (self._node.data_directory / "cleaner-offset-checkpoint").read_text()
        done = {line.split()[0]: int(line.split()[2]) for line in checkpoint.splitlines()[2:]}
        segments = (self._node.data_directory / f"{topic}-0").glob("*.log")
        return done.get(topic, 0) >= max(int(segment.stem) for segment in segments)

    def _write_shortened(self) -> None:
        self._produce(self._producer(enable_idempotence=True), "trimmed", 400)
        trimmed = self._admin.delete_records([TopicPartition("trimmed", 0, 333)])
        for future in trimmed.values():
            future.result(CLIENT_TIMEOUT_SECONDS)
        self._produce(self._producer(enable_idempotence=True), "retained", 600)
        retained = self._node.data_directory / "retained-0"
        wait_until(lambda: not (retained / f"{0:020}.log").exists(), "retention of the first segment")

    def _commit_group_offsets(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._node.bootstrap_servers, "group.id": "readers", "log_level": 0})
        for offset in range(50):
            consumer.commit(offsets=[TopicPartition("defaults", offset % 3, offset)], asynchronous=False)
        producer = self._transactional_producer("offsets")
        producer.begin_transaction()
        offsets = [TopicPartition("defaults", 0, 100)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), CLIENT_TIMEOUT_SECONDS)
        _end_transaction(producer, commits=True)
        consumer.close()

    def _remove_topic(self) -> None:
        self._produce(self._producer(), "removed", 50)
        for future in self._admin.delete_topics(["removed"]).values():
            future.result(CLIENT_TIMEOUT_SECONDS)
        wait_until(lambda: not (self._node.data_directory / "removed-0").exists(), "removal of a topic")

    def _kill_while_producing(self) -> None:
        """Four producers, one of them in a transaction, and SIGKILL while their requests are on the way."""
        acknowledged = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                acknowledged.append(message.offset())

        transactional = self._transactional_producer("killed")
        producers = {
            "produced-none": self._producer(compression_type="none"),
            "produced-snappy": self._producer(enable_idempotence=True, compression_type="snappy"),
            "compacted": self._producer(enable_idempotence=True),
            "transactions": transactional,
        }
        transactional.begin_transaction()
        for number in count():
            for topic, producer in producers.items():
                for _ in range(20):
                    key, value = (
                        b"key-%d" % self._random.randrange(99),
                        self._bytes(self._random.randrange(120)),
                    )
                    timestamp_ms = self._next_time_ms()
                    producer.produce(topic, value, key, 0, timestamp=timestamp_ms, on_delivery=delivered)
                producer.poll(0.001)
            if number % 5 == 3 and len(acknowledged) >= ACKNOWLEDGED_BEFORE_KILL:
                break  # with a part of the open transaction in the log
            if number % 5 == 4:
                _end_transaction(transactional, commits=number % 2 == 0)
                transactional.begin_transaction()
        self._node.kill()
        for producer in producers.values():
            producer.purge()


def _flush(producer: Producer) -> None:
    unsent = producer.flush(CLIENT_TIMEOUT_SECONDS)
    if unsent:
        raise KafkaFailed(f"{unsent} records were not acknowledged in {CLIENT_TIMEOUT_SECONDS} s")


def _end_transaction(producer: Producer, *, commits: bool) -> None:
    if commits:
        producer.commit_transaction(CLIENT_TIMEOUT_SECONDS)
    else:
        _flush(producer)  # what is aborted must be in the log all the same
        producer.abort_transaction(CLIENT_TIMEOUT_SECONDS)

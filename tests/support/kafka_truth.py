"""What Apache Kafka's own clients see of a cluster's partitions, and keeping that in a file.

A test that opens Kafka's files compares what it finds with this. The file is JSON, with byte strings in
hexadecimal.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.support.kafka import KafkaFailed

CLIENT_TIMEOUT_SECONDS = 180
LOOKUPS_PER_PARTITION = 7

TopicPartitionName: TypeAlias = str
"""`TOPIC-PARTITION`, as the directory is called."""


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record as confluent-kafka's consumer gave it out."""

    offset: int
    timestamp_ms: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class TimestampLookup:
    """Kafka's answer to: which is the first record at or after this time? Offset -1 when there is none."""

    timestamp_ms: int
    offset: int
    found_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PartitionTruth:
    """What Kafka's clients saw of a partition.

    In a killed directory, a transaction whose end was decided but not yet marked is completed by Kafka after
    recovery: there `committed`, `last_stable_offset` and `log_end_offset` may lie beyond what the files say.
    """

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    uncommitted: tuple[ConsumedRecord, ...]
    committed: tuple[ConsumedRecord, ...]
    lookups: tuple[TimestampLookup, ...]


def read_truth(bootstrap_servers: str, include_internal: bool) -> dict[TopicPartitionName, PartitionTruth]:
    """Reads every partition to its end, under both isolation levels."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    partitions = [
        TopicPartition(name, partition)
        for name, topic in sorted(admin.list_topics(timeout=CLIENT_TIMEOUT_SECONDS).topics.items())
        if include_internal or not name.startswith("__")
        for partition in sorted(topic.partitions)
    ]
    uncommitted = _consume(bootstrap_servers, partitions, "read_uncommitted")
    committed = _consume(bootstrap_servers, partitions, "read_committed")
    uncommitted_level, committed_level = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
    earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    starts = _list_offsets(admin, dict.fromkeys(partitions, earliest), uncommitted_level)
    ends = _list_offsets(admin, dict.fromkeys(partitions, latest), uncommitted_level)
    stable_ends = _list_offsets(admin, dict.fromkeys(partitions, latest), committed_level)
    lookups = _look_up_timestamps(admin, partitions, uncommitted)
    return {
        _name(partition): PartitionTruth(
            log_start_offset=starts[_name(partition)][0],
            log_end_offset=ends[_name(partition)][0],
            last_stable_offset=stable_ends[_name(partition)][0],
            uncommitted=tuple(uncommitted[_name(partition)]),
            committed=tuple(committed[_name(partition)]),
            lookups=tuple(lookups[_name(partition)]),
        )
        for partition in partitions
    }


def _name(partition: TopicPartition) -> TopicPartitionName:
    return f"{partition.topic}-{partition.partition}"


def _consume(
    bootstrap_servers: str, partitions: list[TopicPartition], isolation_level: str
) -> dict[TopicPartitionName, list[ConsumedRecord]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "truth",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": isolation_level,
            "log_level": 0,
        }
    )
    records: dict[TopicPartitionName, list[ConsumedRecord]] = {_name(partition): [] for partition in partitions}
    unfinished = set(records)
    consumer.assign([TopicPartition(each.topic, each.partition, 0) for each in partitions])
    while unfinished:
        message = consumer.poll(CLIENT_TIMEOUT_SECONDS)
        if message is None:
            raise KafkaFailed(f"no more records, but no end either, of {sorted(unfinished)}")
        name = f"{message.topic()}-{message.partition()}"
        error = message.error()
        if error is None:
            records[name].append(_consumed_record(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            unfinished.discard(name)
        else:
            raise KafkaException(error)
    consumer.close()
    return records


def _consumed_record(message: Message) -> ConsumedRecord:
    kind, timestamp_ms = message.timestamp()
    offset, key, value = message.offset(), message.key(), message.value()
    assert offset is not None, "a record without an error has an offset"
    return ConsumedRecord(
        offset=offset,
        timestamp_ms=timestamp_ms,
        is_append_time=kind == 2,
        key=_as_bytes(key),
        value=_as_bytes(value),
        headers=_header_pairs(message),
    )


def _header_pairs(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    headers = message.headers() or []
    assert isinstance(headers, list), "a consumer lists headers, because their names may repeat"
    return tuple((name, _as_bytes(content)) for name, content in headers)


def _as_bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _list_offsets(
    admin: AdminClient, specifications: Mapping[TopicPartition, Any], isolation_level: IsolationLevel
) -> dict[TopicPartitionName, tuple[int, int]]:
    futures = admin.list_offsets(
        dict(specifications), isolation_level=isolation_level, request_timeout=CLIENT_TIMEOUT_SECONDS
    )
    answers = {_name(partition): future.result() for partition, future in futures.items()}
    return {name: (answer.offset, answer.timestamp) for name, answer in answers.items()}


def _look_up_timestamps(
    admin: AdminClient,
    partitions: list[TopicPartition],
    records: Mapping[TopicPartitionName, list[ConsumedRecord]],
) -> dict[TopicPartitionName, list[TimestampLookup]]:
    """Asks for times before, at, between and after a partition's records."""
    chosen = {}
    for partition in partitions:
        times = sorted({record.timestamp_ms for record in records[_name(partition)]})
        if times:
            middle, late = times[len(times) // 2], times[len(times) * 9 // 10]
            chosen[partition] = [times[0] - 1, times[0], middle, middle + 1, late, times[-1], times[-1] + 1]
    lookups: dict[TopicPartitionName, list[TimestampLookup]] = {_name(partition): [] for partition in partitions}
    for index in range(LOOKUPS_PER_PARTITION):
        specifications = {partition: OffsetSpec.for_timestamp(times[index]) for partition, times in chosen.items()}
        answers = _list_offsets(admin, specifications, IsolationLevel.READ_UNCOMMITTED)
        for partition, times in chosen.items():
            lookups[_name(partition)].append(TimestampLookup(times[index], *answers[_name(partition)]))
    return lookups


def save_truth(file: Path, truth: Mapping[TopicPartitionName, PartitionTruth]) -> None:
    def to_text(value: object) -> str:
        assert isinstance(value, bytes), type(value)
        return value.hex()

    document = {partition: asdict(contents) for partition, contents in truth.items()}
    file.write_text(json.dumps(document, default=to_text))


def load_truth(file: Path) -> dict[TopicPartitionName, PartitionTruth]:
    def record(stored: dict[str, Any]) -> ConsumedRecord:
        headers = tuple((key, _from_hex(value)) for key, value in stored.pop("headers"))
        key, value = _from_hex(stored.pop("key")), _from_hex(stored.pop("value"))
        return ConsumedRecord(**stored, key=key, value=value, headers=headers)

    def partition(stored: dict[str, Any]) -> PartitionTruth:
        return PartitionTruth(
            uncommitted=tuple(record(each) for each in stored.pop("uncommitted")),
            committed=tuple(record(each) for each in stored.pop("committed")),
            lookups=tuple(TimestampLookup(**each) for each in stored.pop("lookups")),
            **stored,
        )

    document = json.loads(file.read_text())
    return {name: partition(contents) for name, contents in document.items()}


def _from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)

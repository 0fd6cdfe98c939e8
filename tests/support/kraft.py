"""The metadata log of a Kafka without ZooKeeper, written record by record, beside logs as Kafka leaves them."""

import random
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from uuid import UUID

from barnabas.base.clock import ManualClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.records.builder import BatchBuilder
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.settings import LogConfig, LogManagerConfig
from barnabas.wire.primitives import INT32, INT64, nullable_string, tagged_fields, unsigned_varint

CLUSTER_ID = "kraft-cluster"
NODE_ID = 7
METADATA_LOG = "__cluster_metadata-0"
FIRST_SEGMENT = f"{0:020}.log"
BEGIN, END, ABORT = (unsigned_varint(1) + unsigned_varint(kind) + b"\0\0" for kind in (23, 24, 25))
NO_OP = unsigned_varint(1) + unsigned_varint(20) + b"\0\0"

_CONTROL_KEY = Struct(">hh")
_SNAPSHOT_HEADER = 3
_SNAPSHOT_FOOTER = 4


def frame(kind: int, version: int, body: bytes, tagged: Sequence[tuple[int, bytes]] = ()) -> bytes:
    head = unsigned_varint(1) + unsigned_varint(kind) + unsigned_varint(version)
    return head + body + tagged_fields(list(tagged))


def topic_record(name: str, topic_id: UUID) -> bytes:
    return frame(2, 0, nullable_string(name, True) + topic_id.bytes)


def partition_record(
    topic_id: UUID,
    index: int = 0,
    *,
    replicas: Sequence[int] = (NODE_ID,),
    leader_epoch: int = 0,
    directories: Sequence[UUID] | None = None,
) -> bytes:
    body = INT32.pack(index) + topic_id.bytes + int32s(replicas) + int32s(replicas) + int32s(()) + int32s(())
    body += INT32.pack(replicas[0]) + INT32.pack(leader_epoch) + INT32.pack(0)
    if directories is None:
        return frame(3, 0, body)
    return frame(3, 1, body + uuids(directories))


def partition_change(topic_id: UUID, index: int, *tagged: tuple[int, bytes]) -> bytes:
    return frame(5, 1, INT32.pack(index) + topic_id.bytes, tagged)


def config_record(topic: str, name: str, text: str | None, resource_type: int = 2) -> bytes:
    body = bytes([resource_type]) + nullable_string(topic, True) + nullable_string(name, True)
    return frame(4, 0, body + nullable_string(text, True))


def remove_topic(topic_id: UUID) -> bytes:
    return frame(9, 0, topic_id.bytes)


def producer_ids(next_producer_id: int) -> bytes:
    return frame(15, 0, INT32.pack(NODE_ID) + INT64.pack(-1) + INT64.pack(next_producer_id))


def int32s(numbers: Sequence[int]) -> bytes:
    return unsigned_varint(len(numbers) + 1) + b"".join(map(INT32.pack, numbers))


def uuids(identifiers: Sequence[UUID]) -> bytes:
    return unsigned_varint(len(identifiers) + 1) + b"".join(one.bytes for one in identifiers)


def batch(values: Sequence[bytes], base_offset: int = 0) -> bytes:
    builder = BatchBuilder(base_offset=base_offset)
    for value in values:
        builder.append(1_000, None, value)
    return bytes(builder.build())


def write_segment(directory: Path, values: Sequence[bytes], base_offset: int = 0) -> Path:
    """One batch for each record, as Kafka's controller writes them."""
    log = directory / METADATA_LOG
    log.mkdir(exist_ok=True)
    path = log / f"{base_offset:020}.log"
    path.write_bytes(b"".join(batch([value], base_offset + number) for number, value in enumerate(values)))
    return path


def write_snapshot(directory: Path, values: Sequence[bytes], end_offset: int, *, is_whole: bool = True) -> Path:
    log = directory / METADATA_LOG
    log.mkdir(exist_ok=True)
    content = _control_batch(_SNAPSHOT_HEADER, 0) + batch(values, 1)
    if is_whole:
        content += _control_batch(_SNAPSHOT_FOOTER, 1 + len(values))
    path = log / f"{end_offset:020}-{1:010}.checkpoint"
    path.write_bytes(content)
    return path


def _control_batch(kind: int, base_offset: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, is_control=True)
    builder.append(1_000, _CONTROL_KEY.pack(0, kind), b"\0\0")
    return bytes(builder.build())


def write_logs(
    directories: Sequence[Path], topics: dict[str, tuple[UUID, int]], records: int = 2, node_id: int = NODE_ID
) -> None:
    """Partitions with records, spread over the directories; clean, and without a metadata file of ours."""
    config = LogManagerConfig(log_dirs=tuple(map(str, directories)))
    manager = LogManager(
        LocalFileSystem(), ManualClock(1_000), random.Random(1), config, cluster_id=CLUSTER_ID, node_id=node_id
    )
    manager.open(lambda topic: LogConfig())
    for topic, (topic_id, count) in topics.items():
        for index in range(count):
            log = manager.create(TopicPartition(topic, index), topic_id, LogConfig())
            for number in range(records):
                builder = BatchBuilder()
                builder.append(1_000 + number, b"key", b"%d" % number)
                log.append(builder.build(), leader_epoch=0)
                log.write()
            log.advance_high_watermark(log.end_offset)
    manager.close()
    for directory in directories:
        (directory / ".lock").unlink()  # Kafka removes it when it stops

"""Reads back what is stored in a topic, without a client: what the broker has, not what somebody fetched."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.base.ids import Offset, TimestampMs
from barnabas.records.batch import Codec, split_batches
from barnabas.records.reader import read_records
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas

_READ_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class StoredRecord:
    topic: str
    partition: int
    offset: Offset
    timestamp_ms: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    compression: str
    """Of the batch that it came in: none, gzip, snappy, lz4 or zstd."""


def stored_records(partition: Partition) -> Iterator[StoredRecord]:
    """The committed records that a partition holds now, in order; markers of transactions are left out."""
    offset = partition.log.log_start_offset
    end_offset = partition.log.high_watermark
    while offset < end_offset:
        found = partition.read(offset, _READ_BYTES, is_committed_only=False, at_least_one=True).records
        if found is None:
            return
        if isinstance(found, bytes):
            batches = found
        else:
            batches = found.read()
            found.release()
        for header, batch in split_batches(batches):
            if not header.is_control:
                codec = Codec(header.codec_number).name.lower()
                for one in read_records(batch):
                    if one.offset >= offset:
                        yield StoredRecord(
                            partition.name.topic,
                            partition.name.partition,
                            one.offset,
                            one.timestamp,
                            one.key,
                            one.value,
                            tuple([(name, value) for name, value in one.headers]),
                            codec,
                        )
            offset = max(offset, header.next_offset)


async def wait_for_records(replicas: Replicas, topic: str, partition: int | None, count: int) -> list[StoredRecord]:
    """All records of a topic, or of one of its partitions, as soon as there are at least `count`."""
    while True:
        await replicas.wait_for(lambda image: topic in image.topics)
        partitions = [one for one in replicas if one.name.topic == topic and partition in (None, one.name.partition)]
        records = [record for one in partitions for record in stored_records(one)]
        if len(records) >= count:
            return records
        await _next_change(partitions)


async def _next_change(partitions: list[Partition]) -> None:
    changed = asyncio.Event()

    def note(_: Partition) -> None:
        changed.set()

    for one in partitions:
        one.watchers[note] = None
    try:
        await changed.wait()
    finally:
        for one in partitions:
            one.watchers.pop(note, None)

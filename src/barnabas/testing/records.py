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
    offset = partition.log_start_offset
    end_offset = partition.high_watermark
    while offset < end_offset:
        found = partition.read(offset, _READ_BYTES, is_committed_only=False, at_least_one=True).records
        if found is None:
            return
        if isinstance(found, bytes):
            batches = found
        else:
            batches = bytes(found.read())
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


async def wait_for_records(
    replicas: Replicas, topic: str, partition: int | None, count: int, timeout_seconds: float
) -> list[StoredRecord]:
    """All records of a topic, or of one of its partitions, as soon as there are at least `count`.

    TimeoutError, with how many there were, when there are not enough in time.
    """
    records: list[StoredRecord] = []
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                await replicas.wait_for(lambda image: topic in image.topics)
                partitions = _served(replicas, topic, partition)
                records = [record for one in partitions for record in stored_records(one)]
                if len(records) >= count:
                    return records
                await _next_change(replicas, partitions)
    except TimeoutError:
        waited_for = f"waited for {_counted(count)}"
        name = topic if partition is None else f"{topic}-{partition}"
        if topic not in replicas.image.topics:
            problem = f"there is no topic {topic}"
        elif not _served(replicas, topic, partition):
            problem = f"{topic} has no partition {partition}, it has {len(_served(replicas, topic, None))}"
        else:
            problem = f"{name} has {_counted(len(records))}"
        raise TimeoutError(f"after {timeout_seconds:g} s {problem}; {waited_for}") from None


def _served(replicas: Replicas, topic: str, partition: int | None) -> list[Partition]:
    return [one for one in replicas if one.name.topic == topic and partition in (None, one.name.partition)]


def _counted(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


async def _next_change(replicas: Replicas, partitions: list[Partition]) -> None:
    """Until something is written to one of them, or there are other topics or partitions."""
    changed = asyncio.Event()
    image = replicas.image

    def note(_: object) -> None:
        changed.set()

    new_image = asyncio.ensure_future(replicas.wait_for(lambda served: served is not image))
    new_image.add_done_callback(note)
    for one in partitions:
        one.watchers[note] = None
    try:
        await changed.wait()
    finally:
        new_image.cancel()
        for one in partitions:
            one.watchers.pop(note, None)

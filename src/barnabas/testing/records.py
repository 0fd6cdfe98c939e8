"""Reads back what is stored in a topic, without a client: what the broker has, not what somebody fetched."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from barnabas.base.ids import Offset, TimestampMs
from barnabas.broker import app
from barnabas.metadata.image import Topic
from barnabas.records.batch import Codec, split_batches
from barnabas.records.reader import read_records
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas

Brokers: TypeAlias = Callable[[], Sequence[app.Broker]]
"""Those that run now."""

_READ_BYTES: Final = 8 << 20
_LOOK_AGAIN_SECONDS: Final = 0.1


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
    brokers: Brokers, topic: str, partition: int | None, count: int, timeout_seconds: float
) -> list[StoredRecord]:
    """All records of a topic, or of one of its partitions, as soon as there are at least `count`.

    TimeoutError, with how many there were, when there are not enough in time.
    """
    records: list[StoredRecord] = []
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                holders = [broker.replicas for broker in brokers()]
                partitions = _served(holders, topic, partition)
                records = [record for one in partitions for record in stored_records(one)]
                if len(records) >= count and (not count or _topic(holders, topic) is not None):
                    return records
                await _next_change(holders, partitions)
    except TimeoutError:
        problem = _problem_with([broker.replicas for broker in brokers()], topic, partition, len(records))
        raise TimeoutError(f"after {timeout_seconds:g} s {problem}; waited for {_counted(count)}") from None


def _problem_with(holders: Sequence[Replicas], topic: str, partition: int | None, record_count: int) -> str:
    known = _topic(holders, topic)
    if known is None:
        return f"there is no topic {topic}"
    if partition is not None and known.partition(partition) is None:
        return f"{topic} has no partition {partition}, it has {len(known.partitions)}"
    return f"{topic if partition is None else f'{topic}-{partition}'} has {_counted(record_count)}"


def _topic(holders: Sequence[Replicas], topic: str) -> Topic | None:
    return next((known for one in holders if (known := one.image.topics.get(topic)) is not None), None)


def _served(holders: Sequence[Replicas], topic: str, partition: int | None) -> list[Partition]:
    found = [one for replicas in holders for one in replicas if one.name.topic == topic]
    return sorted([one for one in found if partition in (None, one.name.partition)], key=lambda one: one.name.partition)


def _counted(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


async def _next_change(holders: Sequence[Replicas], partitions: Sequence[Partition]) -> None:
    """Until something is written to one of them, there are other topics or partitions, or it is time to look again:
    a broker may have been started."""
    changed = asyncio.Event()

    def note(_: object) -> None:
        changed.set()

    new_images = [asyncio.ensure_future(_new_image(one)) for one in holders]
    for new_image in new_images:
        new_image.add_done_callback(note)
    for one in partitions:
        one.watchers[note] = None
    try:
        async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
            await changed.wait()
    except TimeoutError:
        pass
    finally:
        for new_image in new_images:
            new_image.cancel()
        for one in partitions:
            one.watchers.pop(note, None)


async def _new_image(replicas: Replicas) -> None:
    image = replicas.image
    await replicas.wait_for(lambda served: served is not image)

"""ProduceRequest, versions 3 to 13, as a client writes it; `produce` has the format, and how a broker reads it.

A topic has its name and its id, and the version decides which of them goes out. The records are pieces of their own,
not copied. The classes are not frozen, because that takes longer to make.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final
from uuid import UUID

from barnabas.base.buffers import Buffer
from barnabas.wire.primitives import INT32, NO_TAGGED_FIELDS, array_count, nullable_string
from barnabas.wire.produce import FLEXIBLE_FROM, TOPIC_ID_FROM

_ACKS_AND_TIMEOUT: Final = Struct(">hi")


@dataclass(slots=True)
class ProducePartition:
    index: int
    records: Buffer | None


@dataclass(slots=True)
class ProduceTopic:
    name: str
    topic_id: UUID
    partitions: Sequence[ProducePartition]


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Sequence[ProduceTopic]


def encode_produce_request(version: int, request: ProduceRequest) -> list[Buffer]:
    """The body in pieces, to be sent one after the other: the records are pieces of their own, not copied."""
    is_flexible = version >= FLEXIBLE_FROM
    pieces: list[Buffer] = []
    written = bytearray(nullable_string(request.transactional_id, is_flexible))
    written += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms)
    written += array_count(len(request.topics), is_flexible)
    for topic in request.topics:
        written += topic.topic_id.bytes if version >= TOPIC_ID_FROM else nullable_string(topic.name, is_flexible)
        written += array_count(len(topic.partitions), is_flexible)
        for partition in topic.partitions:
            records = partition.records
            written += INT32.pack(partition.index)
            written += array_count(-1 if records is None else len(records), is_flexible)
            if records:
                pieces += (written, records)
                written = bytearray()
            if is_flexible:
                written += NO_TAGGED_FIELDS
        if is_flexible:
            written += NO_TAGGED_FIELDS
    if is_flexible:
        written += NO_TAGGED_FIELDS
    pieces.append(written)
    return pieces

"""The `.snapshot` file: what a partition knew of its producers at an offset, in Kafka's format, version 1.

```
position  bytes  field
       0      2  version                         1
       2      4  CRC-32C                         of everything that follows it
       6      4  entry count
      10     46  each entry:
              8    producer id
              2    epoch
              4    last sequence                 -1 when the producer has no batch in this epoch
              8    last offset                   of the newest batch, -1 when there is none
              4    offset delta                  of the newest batch
              8    timestamp                     of the newest batch or marker
              4    coordinator epoch             of the newest marker, -1 when there was none
              8    transaction's first offset    -1 when no transaction is open
```

Only the newest batch of a producer is kept, so after a restart a retry of an older one is refused as out of
sequence. The file's name is the offset up to which (exclusively) it tells the truth. It is derived from the
log: whatever is wrong with it, the file may be deleted, and replaying the log restores what it said.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import FileSystem, read_file, replace_file
from barnabas.base.ids import NO_SEQUENCE
from barnabas.records import kernel
from barnabas.storage.producers.producer_state import ProducedBatch, ProducerState

VERSION: Final = 1
SNAPSHOT_SUFFIX: Final = ".snapshot"

_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END: Final = 6
_NONE: Final = -1


class CorruptSnapshot(BarnabasError):  # noqa: N818 - a fact about bytes, named as one
    """Bytes that are not a producer snapshot. The log deletes the file and replays."""


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    entries = [_encode_entry(state) for state in states]
    content = bytearray(_HEADER.pack(VERSION, 0, len(entries)))
    content += b"".join(entries)
    _HEADER.pack_into(content, 0, VERSION, kernel.crc32c(memoryview(content)[_CRC_END:]), len(entries))
    return bytes(content)


def decode_snapshot(content: bytes) -> list[ProducerState]:
    """Every entry of a snapshot; `CorruptSnapshot` when a single bit of it is wrong."""
    if len(content) < _HEADER.size:
        raise CorruptSnapshot(f"{len(content)} bytes, less than a header")
    version, crc, count = _HEADER.unpack_from(content)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version}, not {VERSION}")
    computed = kernel.crc32c(memoryview(content)[_CRC_END:])
    if computed != crc:
        raise CorruptSnapshot(f"CRC {crc:#010x} in the header, but {computed:#010x} computed")
    if count < 0 or len(content) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries do not make {len(content)} bytes")
    return [_decode_entry(*fields) for fields in _ENTRY.iter_unpack(memoryview(content)[_HEADER.size :])]


def write_snapshot(files: FileSystem, path: str, states: Iterable[ProducerState]) -> None:
    """A crash leaves no snapshot of this name, or a whole one. Syncs: not on the event loop."""
    replace_file(files, path, encode_snapshot(states))


def read_snapshot(files: FileSystem, path: str) -> list[ProducerState]:
    try:
        return decode_snapshot(read_file(files, path))
    except CorruptSnapshot as error:
        raise CorruptSnapshot(f"{path}: {error}") from None


def _encode_entry(state: ProducerState) -> bytes:
    if state.batches:
        batch = state.batches[-1]
        last_sequence, last_offset, offset_delta = batch.last_sequence, batch.last_offset, batch.offset_delta
    else:
        last_sequence, last_offset, offset_delta = NO_SEQUENCE, _NONE, 0
    first_offset = state.transaction_first_offset
    return _ENTRY.pack(
        state.producer_id,
        state.epoch,
        last_sequence,
        last_offset,
        offset_delta,
        state.last_timestamp,
        state.coordinator_epoch,
        _NONE if first_offset is None else first_offset,
    )


def _decode_entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    first_offset: int,
) -> ProducerState:
    batches: tuple[ProducedBatch, ...] = ()
    if last_offset >= 0:
        batches = (ProducedBatch(last_sequence, last_offset, offset_delta, timestamp),)
    return ProducerState(
        producer_id,
        epoch,
        coordinator_epoch,
        timestamp,
        first_offset if first_offset >= 0 else None,
        batches,
    )

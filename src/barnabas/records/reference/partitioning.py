"""Which partition each row of a column goes to, and the rows in the order of their partitions."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from barnabas.base.buffers import Buffer
from barnabas.records.reference.columns import BinaryView, check_room
from barnabas.records.results import Columns, NoSuchPartition, PartitionedRows

_WORD: Final = Struct("<I")
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_MASK: Final = 0xFFFFFFFF
_ROWS_MAX: Final = 2**31 - 1


def murmur2(data: Buffer) -> int:
    """The 32-bit hash of Kafka's default partitioner, as an unsigned number."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(memoryview(data)[:whole]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_rows(
    columns: Columns, partition_count: int, chosen: Buffer | None, keyless: Sequence[int], keyless_run_rows: int
) -> PartitionedRows:
    """The rows by partition, in their own order within each.

    A row goes to its partition in `chosen` (int32 each) unless that is -1 or nothing was chosen; else by its key, as
    Kafka's clients do it; a row without a key to the next of `keyless`, which `keyless_run_rows` rows get each in turn.
    A partition that is not there raises `NoSuchPartition` for its row.
    """
    count = columns.count
    if not 0 < partition_count <= _ROWS_MAX or keyless_run_rows < 1 or not keyless:
        raise ValueError("there must be partitions, also for rows without a key, and rows in a run")
    if not all(0 <= partition < partition_count for partition in keyless):
        raise ValueError(f"rows without a key cannot go to {list(keyless)} of {partition_count} partitions")
    if count > _ROWS_MAX:
        raise ValueError(f"{count} rows are more than int32 counts")
    keys = BinaryView(columns.key_offsets, columns.key_data, columns.key_validity, count)
    choices = None
    if chosen is not None:
        check_room(chosen, count * 4)
        choices = memoryview(chosen).cast("B")[: count * 4].cast("i")
    by_partition: dict[int, list[int]] = {}
    dealt = 0
    for row in range(count):
        partition = -1 if choices is None else choices[row]
        if not -1 <= partition < partition_count:
            raise NoSuchPartition(row, partition, partition_count)
        if partition < 0:
            key = keys[row]
            if key is None:
                partition = keyless[dealt // keyless_run_rows % len(keyless)]
                dealt += 1
            else:
                partition = (murmur2(key) & 0x7FFFFFFF) % partition_count
        by_partition.setdefault(partition, []).append(row)
    rows = bytearray()
    bounds = [0]
    for partition in range(partition_count):
        rows += b"".join(row.to_bytes(4, "little") for row in by_partition.get(partition, ()))
        bounds.append(len(rows) // 4)
    return PartitionedRows(bytes(rows), bounds, dealt)

"""What the record kernel answers with, shared by its compiled form and by its Python reference.

`Columns` is the layout of Apache Arrow in plain buffers (anything with the buffer protocol), so that
`arrow.py` wraps it without a copy and everything else does without pyarrow. All numbers are little-endian, as
Arrow has them:

```
offsets, timestamps     int64 x count                        timestamps in milliseconds
*_offsets               int32 x (rows + 1)                   row i is data[offsets[i]:offsets[i + 1]]
*_validity              bitmap, least significant bit first  None when no row is null
header_list_offsets     int32 x (count + 1)                  row i has headers [offsets[i], offsets[i + 1])
header_key_*, header_value_*                                 one row per header
```

The first entry of an offsets buffer need not be 0 (a slice of a larger column).
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.base.buffers import Buffer
from barnabas.records.batch import BatchHeader

REPORTED_INDEXES_MAX = 1000
"""How many faulty records an `InvalidRecords` names at most, so that a hostile batch cannot grow it."""

RECORD_BYTES_MIN = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each."""

COLUMN_BYTES_MAX = 2**31 - 1
"""Arrow's int32 offsets reach no further."""


AdmittedBatch: TypeAlias = tuple[int, int, int, BatchHeader | None]
"""Last offset, largest timestamp and count of records of a batch that a log takes as it came; its header if it is an
idempotent producer's. A plain tuple: there is one for each append."""


class RecordSummary(NamedTuple):
    """What walking the records of a batch finds out."""

    count: int  # type: ignore[assignment]  # hides a method of tuple that nobody needs here
    max_timestamp: int
    """-1 when there is no record."""
    max_timestamp_delta: int
    """Offset delta of the first record that has the largest timestamp; -1 when there is no record."""
    min_timestamp: int
    """Of the records that have one; -1 when none has."""


class BatchScan(NamedTuple):
    """A run of batches, as far as it is good."""

    headers: list[BatchHeader]
    valid_bytes: int
    """Bytes of the good batches, from where the scan began."""
    needed_bytes: int
    """Bytes that the incomplete batch after them has in all (of its header, when even that is incomplete),
    else 0.
    """
    problem: str | None
    """Why the batch after the good ones is bad; None when it is incomplete, or when there is none."""


class FilteredRecords(NamedTuple):
    """The records of a batch that survive compaction."""

    records: bytes | None
    """None when nothing was dropped and no timestamp delta had to change: the old bytes still serve."""
    count: int  # type: ignore[assignment]  # hides a method of tuple that nobody needs here
    max_timestamp: int
    max_timestamp_delta: int
    has_tombstones: bool
    last_delta: int
    """Offset delta of the last survivor. It and the two timestamp fields are -1 when nothing survived."""


class PartitionedRows(NamedTuple):
    """The rows of columns by the partition they go to."""

    rows: bytes
    """int32 each: partition by partition, in their own order within each."""
    bounds: list[int]
    """Partition p has rows[bounds[p]:bounds[p + 1]]."""
    dealt_rows: int
    """How many had neither a partition nor a key."""


class NoSuchPartition(ValueError):  # noqa: N818 - named as the fact that it is
    """A row asks for a partition that its topic does not have."""

    def __init__(self, row: int, partition: int, partition_count: int) -> None:
        super().__init__(f"row {row}: there is no partition {partition} among {partition_count}")
        self.row = row
        self.partition = partition


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as Arrow columns in plain buffers; the layout is at the top of this module."""

    count: int
    offsets: Buffer
    timestamps: Buffer
    key_offsets: Buffer
    key_data: Buffer
    key_validity: Buffer | None
    value_offsets: Buffer
    value_data: Buffer
    value_validity: Buffer | None
    header_list_offsets: Buffer
    header_key_offsets: Buffer
    header_key_data: Buffer
    header_value_offsets: Buffer
    header_value_data: Buffer
    header_value_validity: Buffer | None

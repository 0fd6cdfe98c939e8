"""The record kernel in plain Python: the specification of the compiled one, and what runs where no compiler
was.

`barnabas.records.kernel` chooses between the two; tests run both through one suite and against each other.
"""

from barnabas.records.reference.columns import ColumnDecoder, encode_records
from barnabas.records.reference.compaction import KeyOffsets, filter_records
from barnabas.records.reference.partitioning import murmur2, partition_rows
from barnabas.records.reference.walk import (
    RecordWalker,
    admit_batch,
    crc32c,
    find_timestamp,
    floor_entry,
    inspect_batch,
    scan_batches,
    seek_offset,
    walk_records,
)
from barnabas.records.results import BatchScan, Columns, FilteredRecords, PartitionedRows, RecordSummary

__all__ = [
    "BatchScan",
    "ColumnDecoder",
    "Columns",
    "FilteredRecords",
    "KeyOffsets",
    "PartitionedRows",
    "RecordSummary",
    "RecordWalker",
    "admit_batch",
    "crc32c",
    "encode_records",
    "filter_records",
    "find_timestamp",
    "floor_entry",
    "inspect_batch",
    "murmur2",
    "partition_rows",
    "scan_batches",
    "seek_offset",
    "walk_records",
]

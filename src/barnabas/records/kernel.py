"""The record kernel: compiled where it could be built, else its Python reference, under the same names."""

try:
    from barnabas.records._kernel import (
        ColumnDecoder,
        KeyOffsets,
        RecordWalker,
        admit_batch,
        crc32c,
        encode_records,
        filter_records,
        find_timestamp,
        floor_entry,
        inspect_batch,
        murmur2,
        partition_rows,
        scan_batches,
        seek_offset,
        walk_records,
    )

    IS_COMPILED = True
except ImportError:
    from barnabas.records.reference import (  # type: ignore[assignment]
        ColumnDecoder,
        KeyOffsets,
        RecordWalker,
        admit_batch,
        crc32c,
        encode_records,
        filter_records,
        find_timestamp,
        floor_entry,
        inspect_batch,
        murmur2,
        partition_rows,
        scan_batches,
        seek_offset,
        walk_records,
    )

    IS_COMPILED = False

from barnabas.records.results import BatchScan, Columns, FilteredRecords, PartitionedRows, RecordSummary

__all__ = [
    "IS_COMPILED",
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

from collections.abc import Iterable, Sequence

from barnabas.base.buffers import Buffer
from barnabas.records.batch import BatchHeader
from barnabas.records.results import AdmittedBatch, BatchScan, Columns, FilteredRecords, PartitionedRows, RecordSummary

def crc32c(data: Buffer, initial: int = 0, *, portable: bool = False) -> int: ...

class RecordWalker:
    def __init__(
        self,
        count: int,
        base_timestamp: int,
        require_keys: bool = False,
        *,
        consecutive: bool = True,
        last_offset_delta: int | None = None,
    ) -> None: ...
    def feed(self, chunk: Buffer) -> None: ...
    def finish(self) -> RecordSummary: ...

def walk_records(
    records: Buffer,
    count: int,
    base_timestamp: int,
    require_keys: bool = False,
    *,
    consecutive: bool = True,
    last_offset_delta: int | None = None,
) -> RecordSummary: ...
def scan_batches(buffer: Buffer, position: int = 0, *, verify: bool = True, limit: int = 2147483647) -> BatchScan: ...
def inspect_batch(batch: Buffer, require_keys: bool = False) -> tuple[BatchHeader, RecordSummary | None]: ...
def admit_batch(
    batch: Buffer,
    base_offset: int,
    leader_epoch: int,
    require_keys: bool,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
) -> AdmittedBatch | None: ...
def seek_offset(buffer: Buffer, target_offset: int) -> tuple[int, bool]: ...
def floor_entry(entries: Buffer, entry_bytes: int, column: int, is_wide: bool, target: int) -> int: ...
def find_timestamp(
    records: Buffer, count: int, base_timestamp: int, target_timestamp: int, first_delta: int = 0
) -> tuple[int, int] | None: ...

class ColumnDecoder:
    def __init__(
        self,
        first_offset: int = 0,
        end_offset: int = 9223372036854775807,
        with_headers: bool = True,
        *,
        verify: bool = True,
        column_bytes_max: int = 2147483647,
    ) -> None: ...
    def __len__(self) -> int: ...
    def append_run(self, run: Buffer, aborted: Iterable[tuple[int, int, int]] = ()) -> int: ...
    def append_records(self, records: Buffer, header: BatchHeader) -> bool: ...
    def finish(self) -> Columns: ...

def encode_records(
    columns: Columns, start: int, stop: int, base_timestamp: int, max_bytes: int, rows: Buffer | None = None
) -> tuple[bytes, int, int]: ...
def murmur2(data: Buffer) -> int: ...
def partition_rows(
    columns: Columns, partition_count: int, chosen: Buffer | None, keyless: Sequence[int], keyless_run_rows: int
) -> PartitionedRows: ...

class KeyOffsets:
    capacity: int
    def __init__(self, memory_bytes: int, secret: bytes) -> None: ...
    def __len__(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    def clear(self) -> None: ...
    def add_records(self, records: Buffer, count: int, base_offset: int) -> int: ...
    def latest(self, key: bytes) -> int: ...

def filter_records(
    records: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    newest: KeyOffsets,
    *,
    drop_tombstones: bool,
    new_base_timestamp: int,
) -> FilteredRecords: ...

"""Reads any file of a log and yields it line by line, for `barnabas log dump`.

| file | one line for each |
|---|---|
| `OFFSET.log` | batch; with `--records` also each record, in `__consumer_offsets` with what it says |
| `OFFSET.index`, `.timeindex`, `.txnindex` | entry |
| `OFFSET.snapshot` | producer |
| `*-offset-checkpoint` | partition |
| `leader-epoch-checkpoint` | epoch |
| `partition.metadata`, `meta.properties`, `.kafka_cleanshutdown` | file |

A name may end in `.deleted`, `.cleaned` or `.swap`. Everything is streamed. Damage ends a dump with `DamagedFile`,
after all that comes before it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from barnabas.base.errors import BarnabasError, CorruptBatch
from barnabas.base.filesystem import FileSystem, read_file
from barnabas.base.ids import Offset, Position
from barnabas.base.uuid import uuid_text
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader, Codec
from barnabas.records.builder import Record
from barnabas.records.control import read_batch_marker
from barnabas.records.reader import read_records
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    decode_clean_shutdown,
    decode_leader_epochs,
    decode_offsets,
    decode_partition_metadata,
)
from barnabas.storage.directories.directory import parse_partition
from barnabas.storage.directories.meta_properties import META_PROPERTIES, decode_meta_properties
from barnabas.storage.directories.names import parse_segment_file_name
from barnabas.storage.producers.producer_snapshot import SNAPSHOT_SUFFIX, read_snapshot
from barnabas.storage.segment.index import OffsetIndex, TimeIndex
from barnabas.storage.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from barnabas.storage.segment.transaction_index import TransactionIndex
from barnabas.storage.tools.batch_stream import Damage, StreamedBatch, stream_batches
from barnabas.storage.tools.verify_directory import OFFSET_CHECKPOINTS
from barnabas.storage.tools.verify_index import IndexEntry, measure_index, read_index

Line: TypeAlias = dict[str, Any]
"""Names and values of one line; `type` says what it is. `dump_text` writes it for people or as JSON."""
Decoder: TypeAlias = Callable[[bytes | None, bytes | None], Line | None]
"""Says what a record means by its key and value; None when it cannot."""

_OFFSETS_TOPIC: Final = "__consumer_offsets"


class DamagedFile(BarnabasError):  # noqa: N818 - a fact about bytes, named as one
    """Where a dump had to stop, and why."""

    def __init__(self, path: str, problem: str, position: Position | None = None) -> None:
        place = path if position is None else f"{path}, position {position}"
        super().__init__(f"{place}: {problem}")


class UnknownFile(BarnabasError):  # noqa: N818
    """A file whose name is none that a log has."""


@dataclass(frozen=True, slots=True)
class DumpOptions:
    with_records: bool = False
    first_offset: Offset = 0


def dump_file(files: FileSystem, path: str, options: DumpOptions) -> Iterator[Line]:
    """The lines of one file, by what its name says it is."""
    name = os.path.basename(path)
    parsed = parse_segment_file_name(name)
    kind = parsed.kind if parsed is not None else os.path.splitext(name)[1]
    if kind == LOG_SUFFIX:
        return _dump_log(files, path, options)
    if parsed is not None and kind in _BY_KIND:
        return _BY_KIND[kind](files, path, parsed.base_offset, options)
    if name in _BY_NAME:
        return _BY_NAME[name](files, path, options)
    if kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
        raise UnknownFile(
            f"{path}: the name of an index must begin with the 20 digits of its segment's offset, because the "
            "offsets in it are relative to that; give the file its original name"
        )
    raise UnknownFile(
        f"{path} does not have the name of a log file; those are OFFSET.log, .index, .timeindex, .txnindex and "
        f".snapshot, the checkpoints, {PARTITION_METADATA} and {META_PROPERTIES}"
    )


# Batches and records


def _dump_log(files: FileSystem, path: str, options: DumpOptions) -> Iterator[Line]:
    decode = _decoder_of(path) if options.with_records else None
    with closing(files.open(path)) as file:
        for item in stream_batches(file, verify=False):
            if isinstance(item, Damage):
                raise DamagedFile(path, item.problem, item.position)
            if item.header.last_offset < options.first_offset:
                continue
            # Batches that are not shown need not be sound.
            if problem := kernel.scan_batches(item.batch).problem:
                raise DamagedFile(path, problem, item.position)
            try:
                yield _batch_line(item)
                if options.with_records:
                    yield from _record_lines(item.batch, options.first_offset, decode)
            except CorruptBatch as problem:
                raise DamagedFile(path, str(problem), item.position) from None


def _batch_line(item: StreamedBatch) -> Line:
    header = item.header
    codec = header.codec_number
    line: Line = {
        "type": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "position": item.position,
        "size_bytes": header.size_bytes,
        "records": header.count,
        "codec": Codec(codec).name.lower() if codec in tuple(Codec) else str(codec),
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "log_append_time": header.is_log_append_time,
        "crc": f"{header.crc:08x}",
    }
    if header.delete_horizon_ms is not None:
        line["delete_horizon"] = header.delete_horizon_ms
    if header.is_control:
        line |= _marker_fields(header, item.batch)
    return line


def _marker_fields(header: BatchHeader, batch: memoryview) -> Line:
    marker = read_batch_marker(batch) if header.count else None
    if marker is None:
        return {}
    return {"marker": "commit" if marker.is_commit else "abort", "coordinator_epoch": marker.coordinator_epoch}


def _decoder_of(path: str) -> Decoder | None:
    """What tells the meaning of the records of an internal topic, known by the name of the partition's directory."""
    partition = parse_partition(os.path.basename(os.path.dirname(os.path.abspath(path))))
    if partition is None or partition.topic != _OFFSETS_TOPIC:
        return None
    from barnabas.cli.log.dump_groups import group_fields  # which needs much that other dumps do not

    return group_fields


def _record_lines(batch: memoryview, first_offset: Offset, decode: Decoder | None) -> Iterator[Line]:
    for record in read_records(batch):
        if record.offset >= first_offset:
            line = _record_line(record)
            if decode is not None and (fields := decode(record.key, record.value)) is not None:
                line["decoded"] = fields
            yield line


def _record_line(record: Record) -> Line:
    return {
        "type": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        # A key that is not UTF-8 comes as text with lone surrogates; as bytes it is written like any value.
        "headers": [(header.key.encode("utf-8", "surrogateescape"), header.value) for header in record.headers],
    }


# Indexes and snapshots


def _dump_index(files: FileSystem, path: str, base_offset: Offset, options: DumpOptions) -> Iterator[Line]:
    for entry in _index_entries(files, path, is_time=False):
        offset = base_offset + entry.first
        if offset >= options.first_offset:
            yield {"type": "index_entry", "offset": offset, "position": entry.second}


def _dump_time_index(files: FileSystem, path: str, base_offset: Offset, options: DumpOptions) -> Iterator[Line]:
    for entry in _index_entries(files, path, is_time=True):
        offset = base_offset + entry.second
        if offset >= options.first_offset:
            yield {"type": "time_index_entry", "timestamp": entry.first, "offset": offset}


def _index_entries(files: FileSystem, path: str, *, is_time: bool) -> Iterator[IndexEntry]:
    """Every entry, as long as they increase; zeros that Kafka left at the end are no entries."""
    struct = TimeIndex.ENTRY if is_time else OffsetIndex.ENTRY
    with closing(files.open(path)) as file:
        extent = measure_index(file, struct)
        previous: IndexEntry | None = None
        for entry in read_index(file, struct, extent):
            if previous is not None and not (entry.first > previous.first and entry.second > previous.second):
                problem = f"({entry.first}, {entry.second}) does not come after ({previous.first}, {previous.second})"
                raise DamagedFile(path, problem, entry.position)
            yield entry
            previous = entry
    if extent.stray_bytes:
        whole_bytes = (extent.entries + extent.padding_entries) * struct.size
        raise DamagedFile(path, f"{extent.stray_bytes} bytes after the last entry", whole_bytes)


def _dump_transaction_index(files: FileSystem, path: str, base_offset: Offset, options: DumpOptions) -> Iterator[Line]:
    index = TransactionIndex(files, path, base_offset)
    for transaction in index:
        if transaction.last_offset >= options.first_offset:
            yield {"type": "aborted_transaction", **transaction._asdict()}
    index.check()


def _dump_snapshot(files: FileSystem, path: str, base_offset: Offset, options: DumpOptions) -> Iterator[Line]:
    for state in read_snapshot(files, path):
        newest = state.batches[-1] if state.batches else None
        yield {
            "type": "producer",
            "producer_id": state.producer_id,
            "producer_epoch": state.epoch,
            "last_sequence": state.last_sequence,
            "last_offset": newest.last_offset if newest is not None else -1,
            "offset_delta": newest.offset_delta if newest is not None else 0,
            "timestamp": state.last_timestamp,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_first_offset": state.transaction_first_offset,
        }


# Checkpoints


def _dump_offsets(files: FileSystem, path: str, options: DumpOptions) -> Iterator[Line]:
    for (topic, partition), offset in decode_offsets(read_file(files, path), path).offsets.items():
        yield {"type": "checkpoint", "topic": topic, "partition": partition, "offset": offset}


def _dump_leader_epochs(files: FileSystem, path: str, options: DumpOptions) -> Iterator[Line]:
    for epoch, start_offset in decode_leader_epochs(read_file(files, path), path):
        yield {"type": "leader_epoch", "epoch": epoch, "start_offset": start_offset}


def _dump_partition_metadata(files: FileSystem, path: str, options: DumpOptions) -> Iterator[Line]:
    yield {"type": "partition_metadata", "topic_id": uuid_text(decode_partition_metadata(read_file(files, path), path))}


def _dump_meta_properties(files: FileSystem, path: str, options: DumpOptions) -> Iterator[Line]:
    meta = decode_meta_properties(read_file(files, path), path)
    yield {
        "type": "meta_properties",
        "cluster_id": meta.cluster_id,
        "node_id": meta.node_id,
        "directory_id": None if meta.directory_id is None else uuid_text(meta.directory_id),
    }


def _dump_clean_shutdown(files: FileSystem, path: str, options: DumpOptions) -> Iterator[Line]:
    yield {"type": "clean_shutdown", "broker_epoch": decode_clean_shutdown(read_file(files, path)).broker_epoch}


_BY_KIND: Final[Mapping[str, Callable[[FileSystem, str, Offset, DumpOptions], Iterator[Line]]]] = {
    INDEX_SUFFIX: _dump_index,
    TIME_INDEX_SUFFIX: _dump_time_index,
    TRANSACTION_INDEX_SUFFIX: _dump_transaction_index,
    SNAPSHOT_SUFFIX: _dump_snapshot,
}
_BY_NAME: Final[Mapping[str, Callable[[FileSystem, str, DumpOptions], Iterator[Line]]]] = {
    **dict.fromkeys(OFFSET_CHECKPOINTS, _dump_offsets),
    LEADER_EPOCHS: _dump_leader_epochs,
    PARTITION_METADATA: _dump_partition_metadata,
    META_PROPERTIES: _dump_meta_properties,
    CLEAN_SHUTDOWN: _dump_clean_shutdown,
}

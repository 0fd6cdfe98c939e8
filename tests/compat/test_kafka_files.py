"""Apache Kafka's own files are read by Barnabas's codecs, and mean what Kafka's consumers read from them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.base.errors import CorruptBatch
from barnabas.base.filesystem import LocalFileSystem
from barnabas.records.batch import BatchHeader, Codec, split_batches
from barnabas.records.builder import Record
from barnabas.records.checksum import compute_crc
from barnabas.records.control import read_batch_marker
from barnabas.records.reader import read_records
from barnabas.storage import checkpoints
from barnabas.storage.directories.meta_properties import read_meta_properties
from barnabas.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from barnabas.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from barnabas.storage.tools.batch_stream import walk_batch
from tests.support.kafka import run_tools
from tests.support.kafka_directory import (
    COMPACTED_TOPICS,
    TOPICS,
    KafkaDirectories,
    WrittenDirectory,
    copy_data_directory,
)
from tests.support.kafka_dump import (
    DUMP_LOG_SEGMENTS,
    dump_complaints,
    dump_log_segments,
    dumpable_files,
)
from tests.support.kafka_truth import ConsumedRecord, PartitionTruth

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = sorted(
    f"{topic}-{partition}"
    for topic, (partitions, _) in TOPICS.items()
    if topic != "removed"
    for partition in range(partitions)
)
INTERNAL_PARTITIONS = ["__consumer_offsets-0", "__transaction_state-0"]
COMPACTED_PARTITIONS = [f"{topic}-0" for topic in sorted(COMPACTED_TOPICS)]


class Batch(NamedTuple):
    header: BatchHeader
    content: memoryview


class Transaction(NamedTuple):
    """One that has ended, as its marker and the batches before it tell."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_commit: bool


def batches_of(directory: Path) -> Iterator[Batch]:
    """Every batch of a partition with a right checksum, segment after segment; a torn tail ends the last one."""
    segments = sorted(directory.glob("*.log"))
    for segment in segments:
        try:
            for header, content in split_batches(segment.read_bytes()):
                assert compute_crc(content) == header.crc, f"{segment} at offset {header.base_offset}"
                yield Batch(header, content)
        except CorruptBatch:
            assert segment == segments[-1], f"{segment} is torn, and it is not the last one"


def as_consumed(header: BatchHeader, record: Record) -> ConsumedRecord:
    return ConsumedRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp,
        is_append_time=header.is_log_append_time,
        key=record.key,
        value=record.value,
        headers=tuple((header.key, header.value) for header in record.headers),
    )


def uncommitted_records(directory: Path, truth: PartitionTruth) -> list[ConsumedRecord]:
    return [
        as_consumed(header, record)
        for header, content in batches_of(directory)
        if not header.is_control
        for record in read_records(content)
        if record.offset >= truth.log_start_offset
    ]


def transactions_of(directory: Path) -> tuple[list[Transaction], dict[int, int]]:
    """The transactions that have ended, in the order of their ends, and where those still open began."""
    ended: list[Transaction] = []
    begun: dict[int, int] = {}
    for header, content in batches_of(directory):
        marker = read_batch_marker(content)
        if marker is not None:
            first_offset = begun.pop(header.producer_id, header.base_offset)
            ended.append(Transaction(header.producer_id, first_offset, header.last_offset, marker.is_commit))
        elif header.is_transactional and not header.is_control:
            begun.setdefault(header.producer_id, header.base_offset)
    return ended, begun


def committed_records(directory: Path, truth: PartitionTruth) -> list[ConsumedRecord]:
    """What `read_committed` shows: all below the first open transaction, without what was aborted."""
    ended, begun = transactions_of(directory)
    stable_end = min(begun.values(), default=None)
    hidden = {
        record.offset
        for header, content in batches_of(directory)
        if header.is_transactional and not header.is_control
        for transaction in ended
        if not transaction.is_commit and transaction.producer_id == header.producer_id
        if transaction.first_offset <= header.base_offset < transaction.last_offset
        for record in read_records(content)
    }
    return [
        record
        for record in uncommitted_records(directory, truth)
        if record.offset not in hidden and (stable_end is None or record.offset < stable_end)
    ]


@pytest.mark.parametrize("partition", PARTITIONS + INTERNAL_PARTITIONS)
def test_log_files_after_clean_stop_hold_what_consumers_read(kafka_directory: KafkaDirectories, partition: str) -> None:
    written = kafka_directory.clean
    truth = written.partitions[partition]
    assert uncommitted_records(written.path / partition, truth) == list(truth.uncommitted)
    assert committed_records(written.path / partition, truth) == list(truth.committed)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_log_files_after_kill_hold_what_kafka_recovered(kafka_directory: KafkaDirectories, partition: str) -> None:
    written = kafka_directory.killed
    if any((written.path / partition).glob("*.swap")):
        pytest.skip("killed while compaction replaced a segment, which is for recovery to finish")
    truth = written.partitions[partition]
    assert uncommitted_records(written.path / partition, truth) == list(truth.uncommitted)
    committed = committed_records(written.path / partition, truth)
    assert committed == list(truth.committed)[: len(committed)]


@pytest.mark.parametrize("partition", sorted({*PARTITIONS, *INTERNAL_PARTITIONS} - {*COMPACTED_PARTITIONS}))
def test_batches_of_kafka_pass_the_kernel_walk(kafka_directory: KafkaDirectories, partition: str) -> None:
    for header, content in batches_of(kafka_directory.clean.path / partition):
        summary = walk_batch(header, content).summary
        assert summary.count == header.count
        if not header.is_log_append_time:
            assert summary.max_timestamp == header.max_timestamp


@pytest.mark.parametrize("codec", Codec)
def test_directory_of_kafka_has_every_codec_from_client_and_from_broker(
    kafka_directory: KafkaDirectories, codec: Codec
) -> None:
    name = codec.name.lower()
    for kind in ("produced", "stored") if codec else ("produced",):
        codecs = {header.codec_number for header, _ in batches_of(kafka_directory.clean.path / f"{kind}-{name}-0")}
        assert codec in codecs


def test_compacted_directory_of_kafka_has_horizons_emptied_batches_and_gaps(
    kafka_directory: KafkaDirectories,
) -> None:
    horizons, emptied, gaps = 0, 0, 0
    for partition in COMPACTED_PARTITIONS:
        for header, _ in batches_of(kafka_directory.clean.path / partition):
            horizons += header.delete_horizon_ms is not None
            emptied += header.count == 0
            gaps += 0 < header.count <= header.last_offset_delta
    assert min(horizons, emptied, gaps) > 0


def test_transaction_index_of_kafka_tells_the_aborted_transactions(kafka_directory: KafkaDirectories) -> None:
    for partition in ("transactions-0", "transactions-1"):
        directory = kafka_directory.clean.path / partition
        indexed = [entry for path in sorted(directory.glob("*.txnindex")) for entry in read_index(path)]
        ended, _ = transactions_of(directory)
        aborted = [transaction for transaction in ended if not transaction.is_commit]
        assert aborted
        assert [entry[:3] for entry in indexed] == [transaction[:3] for transaction in aborted]


def read_index(path: Path) -> list[AbortedTransaction]:
    return list(TransactionIndex(LocalFileSystem(), str(path), int(path.stem)))


CODECS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("*/*.snapshot", lambda content: encode_snapshot(decode_snapshot(content))),
    (
        "*/leader-epoch-checkpoint",
        lambda content: checkpoints.encode_leader_epochs(checkpoints.decode_leader_epochs(content, "")),
    ),
    (
        "*/partition.metadata",
        lambda content: checkpoints.encode_partition_metadata(checkpoints.decode_partition_metadata(content, "")),
    ),
    (
        ".kafka_cleanshutdown",
        lambda content: checkpoints.encode_clean_shutdown(checkpoints.decode_clean_shutdown(content)),
    ),
]


@pytest.mark.parametrize(("pattern", "recode"), CODECS, ids=[pattern for pattern, _ in CODECS])
def test_small_file_of_kafka_decoded_and_encoded_gives_the_same_bytes(
    kafka_directory: KafkaDirectories, pattern: str, recode: Callable[[bytes], bytes]
) -> None:
    contents = [path.read_bytes() for path in sorted(kafka_directory.clean.path.glob(pattern))]
    assert contents
    assert [recode(content) for content in contents] == contents


def test_offset_checkpoint_of_kafka_decoded_and_encoded_gives_the_same_lines(
    kafka_directory: KafkaDirectories,
) -> None:
    paths = sorted(kafka_directory.clean.path.glob("*-offset-checkpoint"))
    assert len(paths) == 4
    for path in paths:
        content = path.read_bytes()
        encoded = checkpoints.encode_offsets(checkpoints.decode_offsets(content, str(path)).offsets)
        version, _, *entries = content.splitlines()
        own_version, count, *own_entries, checksum = encoded.splitlines()
        assert (own_version, int(count)) == (version, len(entries) + 1)
        assert sorted(own_entries) == sorted(entries)
        assert checksum.startswith(b"__barnabas_checksum 0 ")


def test_meta_properties_of_kafka_are_read(kafka_directory: KafkaDirectories) -> None:
    meta = read_meta_properties(LocalFileSystem(), str(kafka_directory.clean.path / "meta.properties"))
    assert meta is not None
    assert meta.node_id == 1
    assert meta.cluster_id
    assert meta.directory_id is not None


def test_dump_of_kafkas_own_directory_has_no_complaints(kafka_directory: KafkaDirectories) -> None:
    plain, compacted = split_by_compaction(kafka_directory.clean)
    assert dump_complaints(dump_log_segments(plain)) == []
    assert dump_complaints(dump_log_segments(compacted), compacted=True) == []


def split_by_compaction(written: WrittenDirectory) -> tuple[list[Path], list[Path]]:
    plain = [path for partition in PARTITIONS for path in dumpable_files(written.path / partition)]
    compacted = [path for path in plain if path.parent.name in COMPACTED_PARTITIONS]
    return [path for path in plain if path not in compacted], compacted


def test_dump_of_internal_topics_with_decoders_has_no_complaints(kafka_directory: KafkaDirectories) -> None:
    decoders = ("--offsets-decoder", "--transaction-log-decoder")
    invocations = [
        (DUMP_LOG_SEGMENTS, decoder, "--files", str(kafka_directory.clean.path / partition / f"{0:020}.log"))
        for decoder, partition in zip(decoders, INTERNAL_PARTITIONS, strict=True)
    ]
    outputs = run_tools(invocations)
    assert [dump_complaints(output) for output in outputs] == [[], []]
    assert '"group":"readers"' in outputs[0]
    assert '"transactionalId":"left-open"' in outputs[1]


DAMAGES = {
    # kind of file: (bytes from the end, their new value, what the tool says)
    "log": (1, b"\xff", "isvalid: false"),
    "index": (8, b"\x00\x00\x00\x01", "Index offset: 1, log offset"),
    "timeindex": (12, b"\x00\x00\x00\x00\x00\x00\x00\x07", "Index timestamp: 7, log timestamp"),
    "txnindex": (16, b"\xff\xff\xff\xff\xff\xff\xff\xff", "lastOffset: -1"),
    "snapshot": (1, b"\x55", "Snapshot is corrupt"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_dump_of_a_damaged_file_has_complaints(kafka_directory: KafkaDirectories, tmp_path: Path, kind: str) -> None:
    from_end, damage, expected = DAMAGES[kind]
    directory = copy_data_directory(kafka_directory.clean.path / "transactions-1", tmp_path / "transactions-1")
    path = sorted(directory.glob(f"*.{kind}"))[0]
    content = bytearray(path.read_bytes())
    start = len(content) - from_end
    content[start : start + len(damage)] = damage
    path.write_bytes(content)
    complaints = dump_complaints(dump_log_segments([path]))
    assert any(expected in complaint for complaint in complaints), complaints


def test_dump_of_a_torn_log_has_complaints(kafka_directory: KafkaDirectories, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes((kafka_directory.clean.path / "defaults-0" / path.name).read_bytes()[:-5])
    complaints = dump_complaints(dump_log_segments([path]))
    assert any("invalid bytes at the end" in complaint for complaint in complaints), complaints


def test_dump_of_a_log_with_a_gap_has_complaints(kafka_directory: KafkaDirectories, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    batches = list(batches_of(kafka_directory.clean.path / "defaults-0"))
    path.write_bytes(b"".join(bytes(batch.content) for batch in batches[:1] + batches[2:]))
    output = dump_log_segments([path])
    gap = f"{batches[0].header.last_offset} is followed by {batches[2].header.base_offset}"
    assert [complaint.split(": ")[1] for complaint in dump_complaints(output)] == [gap]
    assert dump_complaints(output, compacted=True) == []


def test_dump_of_an_unknown_file_has_complaints(kafka_directory: KafkaDirectories) -> None:
    complaints = dump_complaints(dump_log_segments([kafka_directory.clean.path / "meta.properties"]))
    assert len(complaints) == 1
    assert complaints[0].startswith("Ignoring unknown file")

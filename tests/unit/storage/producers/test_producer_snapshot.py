import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.storage.producers.producer_snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)
from barnabas.storage.producers.producer_state import ProducedBatch, ProducerState

IDEMPOTENT = ProducerState(1, 0, -1, 0x1A1E12CD694, None, (ProducedBatch(32, 32, 0, 0x1A1E12CD694),))
OPEN = ProducerState(2, 3, 5, 77, 126, (ProducedBatch(120, 126, 2, 77),))
ONLY_MARKER = ProducerState(3, 4, 5, 78, None, ())

BY_KAFKA = bytes.fromhex(
    "0001 511c84a7 00000001"
    "0000000000000001 0000 00000020 0000000000000020 00000000 000001a1e12cd694 ffffffff ffffffffffffffff"
)


def test_snapshot_bytes_equal_what_kafka_writes():
    assert encode_snapshot([IDEMPOTENT]) == BY_KAFKA
    assert encode_snapshot([]) == bytes.fromhex("0001 48674bc7 00000000")


def test_snapshot_of_kafka_is_read():
    assert decode_snapshot(BY_KAFKA) == [IDEMPOTENT]


def test_snapshot_round_trip_keeps_entries_in_order(tmp_path):
    path = str(tmp_path / "00000000000000000127.snapshot")
    write_snapshot(LocalFileSystem(), path, [OPEN, ONLY_MARKER, IDEMPOTENT])
    assert read_snapshot(LocalFileSystem(), path) == [OPEN, ONLY_MARKER, IDEMPOTENT]


def test_snapshot_keeps_only_the_newest_batch():
    older = ProducedBatch(29, 29, 1, 5)
    state = IDEMPOTENT._replace(batches=(older, *IDEMPOTENT.batches))
    assert decode_snapshot(encode_snapshot([state])) == [IDEMPOTENT]


def test_snapshot_with_any_bit_flipped_is_corrupt():
    content = encode_snapshot([OPEN, IDEMPOTENT])
    for position in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(bytes(damaged))


def test_snapshot_of_any_other_length_is_corrupt():
    content = encode_snapshot([OPEN, IDEMPOTENT])
    for length in range(len(content)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(content[:length])
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(content + b"\0")


def test_damaged_snapshot_file_is_named(tmp_path):
    path = tmp_path / "00000000000000000001.snapshot"
    path.write_bytes(b"\0\2" + BY_KAFKA[2:])
    with pytest.raises(CorruptSnapshot, match=r"00000000000000000001\.snapshot: version 2"):
        read_snapshot(LocalFileSystem(), str(path))

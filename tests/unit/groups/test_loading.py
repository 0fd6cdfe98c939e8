"""Records read back from a partition that gives as many bytes as it is asked for, wherever that ends."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain

import pytest

from barnabas.base.buffers import Buffer
from barnabas.groups import loading
from barnabas.groups.loading import Damage, read_records
from barnabas.groups.partitions import WhenCommitted
from barnabas.records.batch import Codec, read_header
from barnabas.records.builder import BatchBuilder
from tests.support.inline_executor import InlineExecutor

Pair = tuple[bytes, bytes | None]


class StoredPartition:
    """A `LedPartition` that is only read: the batch that holds an offset whole, and what follows cut at the limit."""

    workers = InlineExecutor()
    index = 0
    leader_epoch = 0
    start_offset = 0
    batch_bytes_max = 1 << 20

    def __init__(self, batches: Sequence[bytearray]) -> None:
        self.batches = batches
        self.is_led = True
        self.end_offset = read_header(memoryview(batches[-1])).next_offset if batches else 0
        self.high_watermark = self.end_offset
        self.reads = 0

    async def read(self, offset: int, max_bytes: int) -> Buffer:
        self.reads += 1
        first, *others = [one for one in self.batches if read_header(memoryview(one)).next_offset > offset]
        return bytes(first) + b"".join(others)[: max(0, max_bytes - len(first))]

    def append(self, batch: bytearray) -> int:
        raise AssertionError("nobody writes")

    def when_committed(self, last_offset: int, deadline: float, callback: WhenCommitted) -> None:
        raise AssertionError("nobody writes")

    def watch(self, on_end: Callable[[], None]) -> None: ...

    def unwatch(self, on_end: Callable[[], None]) -> None: ...


def log_of(*records: Sequence[tuple[bytes | None, bytes | None]], codec: Codec = Codec.NONE) -> list[bytearray]:
    """A batch of each."""
    batches, offset = [], 0
    for together in records:
        builder = BatchBuilder(base_offset=offset, codec=codec)
        for key, value in together:
            offset = builder.append(1000, key, value) + 1
        batches.append(builder.build())
    return batches


def read_all(partition: StoredPartition, buffer_bytes: int = 1 << 20, damage: Damage | None = None) -> list[Pair]:
    """What is handed over."""
    found: list[Pair] = []

    def take(keys: Sequence[bytes], values: Sequence[bytes | None], offsets: Sequence[int]) -> None:
        found.extend(zip(keys, values, strict=True))
        places.extend(offsets)

    places: list[int] = []
    expected_damage = damage or Damage()
    count = asyncio.run(read_records(partition, buffer_bytes, take, expected_damage))
    assert count >= len(found) == len(places)
    assert damage is not None or expected_damage.first_offset is None
    return found


def commits(batches: int, records_each: int, value: bytes = b"value") -> list[list[Pair]]:
    return [
        [(b"key %d" % (batch * records_each + one), value) for one in range(records_each)] for batch in range(batches)
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("buffer_bytes", [1, 300, 1 << 20])
def test_records_come_whole_and_in_order_however_reads_are_cut(codec: Codec, buffer_bytes: int) -> None:
    written = commits(30, 7)

    assert read_all(StoredPartition(log_of(*written, codec=codec)), buffer_bytes) == list(chain(*written))


def test_pieces_end_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "PIECE_BYTES", 500)
    monkeypatch.setattr(loading, "SLICE_ROWS", 3)
    written = [*commits(10, 5), *commits(1, 100), *commits(10, 5)]
    partition = StoredPartition(log_of(*written))

    assert read_all(partition) == list(chain(*written))
    assert partition.reads == 1


def test_texts_of_different_lengths_and_nulls_are_kept_apart() -> None:
    written: list[tuple[bytes | None, bytes | None]] = [
        (b"a", b"1"),
        (b"bb", None),
        (None, b"without a key"),
        (b"c", b""),
        (b"", b"22"),
    ]

    assert read_all(StoredPartition(log_of(written))) == [pair for pair in written if pair[0] is not None]


def test_texts_of_one_length_that_are_all_empty_are_read() -> None:
    written: list[Pair] = [(b"", b"")] * 5

    assert read_all(StoredPartition(log_of(written))) == written


def test_batches_without_rows_are_passed_over() -> None:
    control = BatchBuilder(base_offset=2, is_control=True)
    control.append(1000, b"\0\0\0\1", b"")
    [after] = log_of([(b"b", b"2")])
    after[:8] = (3).to_bytes(8, "big")
    partition = StoredPartition([*log_of([(b"a", b"1"), (b"a", b"2")]), control.build(), after])

    assert read_all(partition) == [(b"a", b"1"), (b"a", b"2"), (b"b", b"2")]


def test_nothing_is_read_of_a_partition_that_is_lost() -> None:
    partition = StoredPartition(log_of(*commits(1, 1)))
    partition.is_led = False

    assert read_all(partition) == []
    assert partition.reads == 0


def test_offsets_are_those_of_the_records() -> None:
    places: list[int] = []
    records: list[tuple[bytes | None, bytes | None]] = [(b"a", b"1"), (None, b"2"), (b"b", None)]
    partition = StoredPartition(log_of(records, [(b"c", b"3")]))
    asyncio.run(read_records(partition, 1, lambda keys, values, offsets: places.extend(offsets), Damage()))
    assert places == [0, 2, 3]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("buffer_bytes", [1, 1 << 20])
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_damaged_batch_is_passed_over_and_noted(bad: int, buffer_bytes: int, codec: Codec) -> None:
    written = commits(3, 5)
    batches = log_of(*written, codec=codec)
    batches[bad][-1] ^= 1
    damage = Damage()

    found = read_all(StoredPartition(batches), buffer_bytes, damage)

    assert found == [pair for number, pairs in enumerate(written) if number != bad for pair in pairs]
    assert (damage.batches, damage.records, damage.first_offset) == (1, 0, 5 * bad)
    assert damage.first_problem

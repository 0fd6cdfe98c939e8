"""Batches of `__consumer_offsets` and the partition that a group belongs to."""

import pytest

from barnabas.groups.batches import build_batch
from barnabas.groups.effects import DurableRecord
from barnabas.groups.partitions import partition_of
from barnabas.groups.records import GroupChange
from barnabas.records.batch import Codec
from barnabas.records.builder import BatchBuilder

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
@pytest.mark.parametrize("count", [1, 2, 200])
def test_batch_equals_the_builders(codec: Codec, count: int) -> None:
    builder = BatchBuilder(codec=codec)
    records = []
    for number in range(count):
        value = None if number % 5 == 4 else b"v" * (number * 60)
        records.append(DurableRecord(b"key-%d" % number, value, GroupChange("g", None)))
        builder.append(NOW_MS, records[-1].key, value)

    assert build_batch(records, NOW_MS, codec) == builder.build()


@pytest.mark.parametrize(
    ("group_id", "expected"),
    [
        ("", 0),
        ("a", 97 % 50),
        ("hello", 99_162_322 % 50),
        ("polygenelubricants", 0),  # its hash is the one that has no absolute value in Java
        ("Grüße", 69_215_351 % 50),
        ("🙂", 1_772_965 % 50),  # two of Java's characters
    ],
)
def test_group_belongs_to_the_partition_that_javas_hash_says(group_id: str, expected: int) -> None:
    assert partition_of(group_id, 50) == expected

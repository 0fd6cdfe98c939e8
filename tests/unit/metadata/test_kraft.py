"""The records of Kafka's metadata log: what they make of a cluster, and that bad ones are told."""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.metadata.kraft import UNASSIGNED_DIRECTORY, KraftMetadata, KraftPartition, UnreadableKraftRecord
from tests.support import kraft
from tests.support.kraft import config_record, partition_change, partition_record, topic_record

FIRST, SECOND, DISK = UUID(int=11), UUID(int=12), UUID(int=99)


def replayed(*records: bytes) -> KraftMetadata:
    metadata = KraftMetadata()
    for record in records:
        metadata.replay(record)
    return metadata


def test_topics_have_their_ids_partitions_and_settings() -> None:
    metadata = replayed(
        topic_record("orders", FIRST),
        partition_record(FIRST, 0, leader_epoch=3),
        partition_record(FIRST, 1, replicas=(7, 8), directories=(DISK, UUID(int=0))),
        config_record("orders", "retention.ms", "5"),
        config_record("orders", "retention.bytes", "6"),
        config_record("orders", "retention.bytes", None),
        config_record("7", "log.retention.ms", "1", resource_type=4),
        kraft.producer_ids(5_000),
        kraft.NO_OP,
    )

    (orders,) = metadata.topics.values()
    assert (orders.name, orders.id, orders.configs) == ("orders", FIRST, {"retention.ms": "5"})
    assert orders.partitions == {0: KraftPartition((7,), 3, ()), 1: KraftPartition((7, 8), 0, (DISK, UUID(int=0)))}
    assert orders.partitions[1].directory_of(7) == DISK
    assert orders.partitions[0].directory_of(7) == UNASSIGNED_DIRECTORY
    assert metadata.next_producer_id == 5_000


def test_changes_of_a_partition_count() -> None:
    metadata = replayed(
        topic_record("orders", FIRST),
        partition_record(FIRST, leader_epoch=3),
        partition_change(FIRST, 0, (0, kraft.int32s((7,)))),
        partition_change(FIRST, 0, (1, kraft.INT32.pack(-1))),
        partition_change(FIRST, 0, (1, kraft.INT32.pack(-2)), (2, kraft.int32s((8, 7)))),
        partition_change(FIRST, 0, (1, kraft.INT32.pack(8)), (8, kraft.uuids((DISK, DISK)))),
    )
    assert metadata.topics["orders"].partitions == {0: KraftPartition((8, 7), 5, (DISK, DISK))}


def test_removed_topic_is_forgotten_with_its_settings() -> None:
    metadata = replayed(
        topic_record("orders", FIRST),
        config_record("orders", "retention.ms", "5"),
        kraft.remove_topic(FIRST),
        topic_record("orders", SECOND),
    )
    assert (metadata.topics["orders"].id, metadata.topics["orders"].configs) == (SECOND, {})


def test_transaction_counts_when_it_ends_and_not_when_it_is_aborted() -> None:
    metadata = replayed(
        kraft.BEGIN, topic_record("orders", FIRST), kraft.ABORT, kraft.BEGIN, topic_record("letters", SECOND)
    )
    assert metadata.topics == {}
    metadata.replay(kraft.END)
    assert list(metadata.topics) == ["letters"]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (b"", "cannot be read"),
        (b"\x02" + kraft.NO_OP[1:], "frames of version 2"),
        (kraft.frame(3, 3, b""), "the metadata log was written by a newer Kafka: records of kind 3 have version 3"),
        (kraft.frame(2, 1, b""), "written by a newer Kafka"),
        (partition_record(FIRST), "cannot be read"),
        (kraft.remove_topic(FIRST), "cannot be read"),
    ],
)
def test_record_that_cannot_be_read_is_told(record: bytes, said: str) -> None:
    with pytest.raises(UnreadableKraftRecord, match=said):
        replayed(record)


@given(st.data())
def test_damaged_records_are_read_or_told(data: st.DataObject) -> None:
    whole = data.draw(
        st.sampled_from(
            [
                topic_record("orders", SECOND),
                partition_record(FIRST, directories=(DISK,)),
                partition_change(FIRST, 0, (1, kraft.INT32.pack(8)), (8, kraft.uuids((DISK,)))),
                config_record("orders", "retention.ms", "5"),
                kraft.producer_ids(1),
            ]
        )
    )
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    metadata = replayed(topic_record("orders", FIRST), partition_record(FIRST))
    with contextlib.suppress(UnreadableKraftRecord):
        metadata.replay(bytes(damaged))

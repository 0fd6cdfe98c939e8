"""Offsets as Spark keeps them, limits, splitting, losses: pure, without Spark."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import TopicPartition
from barnabas.spark.offsets import (
    OffsetRange,
    describe_losses,
    from_tree,
    limited,
    new_rows,
    parse_assignment,
    parse_offsets,
    split_ranges,
    to_tree,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

_PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-e"]), st.integers(0, 12))
_RANGES = st.lists(
    st.builds(
        lambda index, start, size: OffsetRange(TopicPartition("a", index), start, start + size),
        st.integers(0, 5),
        st.integers(0, 1000),
        st.integers(-3, 500),
    ),
    max_size=6,
    unique_by=lambda one: one.partition,
)


def test_tree_is_the_connectors_json_in_the_order_of_numbers() -> None:
    offsets = {TopicPartition("a", 10): 7, TopicPartition("a", 2): 5, B0: 1}
    assert json.dumps(to_tree(offsets), separators=(",", ":")) == '{"a":{"2":5,"10":7},"b":{"0":1}}'


@given(st.dictionaries(_PARTITIONS, st.integers(0, 2**62)))
def test_tree_of_any_offsets_reads_back(offsets: dict[TopicPartition, int]) -> None:
    assert from_tree(json.loads(json.dumps(to_tree(offsets)))) == offsets


@pytest.mark.parametrize("text", ["", "[]", '{"a":3}', '{"a":{"x":1}}', '{"a":{"0":"1"}}', '{"a":{"0":true}}', "{"])
def test_offsets_of_a_wrong_form_are_refused_with_the_options_name(text: str) -> None:
    with pytest.raises(InvalidSetting, match="startingOffsets"):
        parse_offsets("startingOffsets", text)


def test_offsets_keep_the_signs_for_earliest_and_latest() -> None:
    assert parse_offsets("startingOffsets", '{"a":{"0":-2,"1":-1}}') == {A0: -2, A1: -1}


@pytest.mark.parametrize("text", ["a", "[0]", '{"a":0}', '{"a":["0"]}', '{"a":[-1]}', '{"a":[true]}'])
def test_assignment_of_a_wrong_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="assign"):
        parse_assignment("assign", text)


def test_assignment_is_sorted_without_repetitions() -> None:
    assert parse_assignment("assign", '{"b":[0],"a":[1,0,1]}') == (A0, A1, B0)


def test_limit_shares_out_by_what_each_partition_has() -> None:
    assert limited({A0: 0, A1: 0}, {A0: 900, A1: 100}, 100) == {A0: 90, A1: 10}


def test_limit_leaves_at_least_one_for_a_small_partition() -> None:
    assert limited({A0: 0, A1: 5}, {A0: 1_000_000, A1: 6}, 10)[A1] == 6


def test_limit_above_what_is_there_changes_nothing() -> None:
    assert limited({A0: 3}, {A0: 10, A1: 4}, 11) == {A0: 10, A1: 4}


@given(_RANGES, st.integers(1, 200))
def test_limit_never_passes_the_end_and_always_goes_on(ranges: list[OffsetRange], rows_max: int) -> None:
    start = {one.partition: one.start for one in ranges}
    latest = {one.partition: one.end for one in ranges}
    ends = limited(start, latest, rows_max)
    assert all(ends[one] <= latest[one] for one in latest)
    assert new_rows(start, ends) <= max(rows_max, len(ranges) + rows_max)
    assert (new_rows(start, ends) > 0) == (new_rows(start, latest) > 0)


@given(_RANGES, st.none() | st.integers(1, 20), st.none() | st.integers(1, 100))
def test_split_covers_every_offset_once_in_order(
    ranges: list[OffsetRange], partitions_min: int | None, records_max: int | None
) -> None:
    pieces = split_ranges(ranges, partitions_min, records_max)
    covered = [(one.partition, offset) for one in pieces for offset in range(one.start, one.end)]
    assert covered == [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]
    assert all(piece.size > 0 for piece in pieces)
    assert records_max is None or all(piece.size <= records_max for piece in pieces)
    if partitions_min is not None:
        assert len(pieces) >= min(partitions_min, len(covered))


def test_split_gives_the_large_partition_most_of_the_tasks() -> None:
    pieces = split_ranges([OffsetRange(A0, 0, 900), OffsetRange(A1, 0, 100)], 10, None)
    assert [one.partition for one in pieces].count(A0) == 9


def test_losses_name_partitions_that_went_and_logs_that_shrank() -> None:
    losses = describe_losses({A0: 5, A1: 9, B0: 3}, {A0: 5, A1: 2})
    assert len(losses) == 2
    assert losses[0].startswith("a-1 ends at offset 2, but was read up to 9")
    assert losses[1].startswith("b-0 does not exist any more")


def test_losses_are_none_when_partitions_were_added() -> None:
    assert describe_losses({A0: 5}, {A0: 6, A1: 0}) == []

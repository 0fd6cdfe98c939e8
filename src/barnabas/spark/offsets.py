"""Offsets of a query: as Spark keeps them in a checkpoint, what a batch may take of them, and what was lost. Pure.

The JSON is that of Spark's Kafka connector, so that a checkpoint can be carried from one to the other:

```
{"orders": {"0": 23, "1": 40}}        the next offset of each partition
{"orders": {"0": -2, "1": -1}}        in options only: -2 is the earliest, -1 the latest
{"orders": [0, 1]}                    partitions, for the option `assign`
```
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import Offset, TopicPartition

PartitionOffsets: TypeAlias = dict[TopicPartition, Offset]
OffsetTree: TypeAlias = dict[str, dict[str, int]]
"""What Spark keeps as JSON."""

OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
ASSIGNMENT_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'


class OffsetRange(NamedTuple):
    """The records of a partition with offsets in [start, end)."""

    partition: TopicPartition
    start: Offset
    end: Offset

    @property
    def size(self) -> int:
        return self.end - self.start


# --- JSON -------------------------------------------------------------------------------------------------------


def to_tree(offsets: Mapping[TopicPartition, Offset]) -> OffsetTree:
    """In the order of topics and partition numbers, so that equal offsets are equal texts."""
    tree: OffsetTree = {}
    for partition in sorted(offsets):
        tree.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return tree


def from_tree(tree: Any) -> PartitionOffsets:
    """InvalidSetting when it is not of the form above."""
    offsets: PartitionOffsets = {}
    if not isinstance(tree, dict):
        raise InvalidSetting(f"offsets must look like {OFFSETS_EXAMPLE}")
    for topic, members in tree.items():
        if not isinstance(members, dict):
            raise InvalidSetting(f"offsets must look like {OFFSETS_EXAMPLE}; topic '{topic}' has no partitions")
        for index, offset in members.items():
            if not index.isdecimal() or not isinstance(offset, int) or isinstance(offset, bool):
                raise InvalidSetting(f"offsets must look like {OFFSETS_EXAMPLE}; see partition '{index}' of '{topic}'")
            offsets[TopicPartition(topic, int(index))] = offset
    return offsets


def parse_offsets(option: str, text: str) -> PartitionOffsets:
    """The offsets, or times, that an option gives for single partitions."""
    try:
        return from_tree(json.loads(text))
    except json.JSONDecodeError:
        raise InvalidSetting(f"option '{option}' must be JSON like {OFFSETS_EXAMPLE}") from None
    except InvalidSetting as error:
        raise InvalidSetting(f"option '{option}': {error}") from None


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    refusal = InvalidSetting(f"option '{option}' must be JSON like {ASSIGNMENT_EXAMPLE}")
    try:
        tree = json.loads(text)
    except json.JSONDecodeError:
        raise refusal from None
    if not isinstance(tree, dict):
        raise refusal
    partitions: set[TopicPartition] = set()
    for topic, indexes in tree.items():
        if not isinstance(indexes, list) or not all(type(index) is int and index >= 0 for index in indexes):
            raise refusal
        partitions.update(TopicPartition(topic, index) for index in indexes)
    return tuple(sorted(partitions))


# --- what a batch takes -----------------------------------------------------------------------------------------


def new_rows(start: Mapping[TopicPartition, Offset], end: Mapping[TopicPartition, Offset]) -> int:
    """How many offsets lie between; a partition that is new counts from 0."""
    return sum(max(0, offset - start.get(partition, 0)) for partition, offset in end.items())


def limited(start: Mapping[TopicPartition, Offset], latest: PartitionOffsets, rows_max: int) -> PartitionOffsets:
    """Ends with at most about `rows_max` offsets in all, shared out by how much each partition has.

    A partition that has any gets at least one, so that none starves beside large ones.
    """
    total = new_rows(start, latest)
    if total <= rows_max:
        return latest
    ends: PartitionOffsets = {}
    for partition, end in latest.items():
        begin = start.get(partition, 0)
        share = rows_max * max(0, end - begin) // total
        ends[partition] = end if end <= begin else min(end, begin + max(1, share))
    return ends


def split_ranges(
    ranges: Sequence[OffsetRange], partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """The ranges that have something, cut so that none has more than `records_max`, and that there are enough."""
    pieces = [one for one in ranges if one.size > 0]
    if records_max is not None:
        pieces = [piece for one in pieces for piece in _cut(one, -(-one.size // records_max))]
    if partitions_min is None or not pieces or len(pieces) >= partitions_min:
        return pieces
    total = sum(one.size for one in pieces)
    counts = [max(1, one.size * partitions_min // total) for one in pieces]
    # What rounding down left over goes to those whose pieces are the largest.
    while sum(counts) < partitions_min:
        index = max(range(len(pieces)), key=lambda slot: pieces[slot].size / counts[slot])
        if pieces[index].size <= counts[index]:
            break
        counts[index] += 1
    return [piece for one, count in zip(pieces, counts, strict=True) for piece in _cut(one, count)]


def _cut(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    count = min(count, whole.size)
    for index in range(count):
        start = whole.start + whole.size * index // count
        yield OffsetRange(whole.partition, start, whole.start + whole.size * (index + 1) // count)


# --- what was lost ----------------------------------------------------------------------------------------------


def describe_losses(start: Mapping[TopicPartition, Offset], end: Mapping[TopicPartition, Offset]) -> list[str]:
    """What cannot be read any more, as far as the ends tell: partitions that went, and logs that are shorter now."""
    losses = []
    for partition in sorted(start):
        if partition not in end:
            losses.append(
                f"{partition} does not exist any more: it was read up to offset {start[partition]}, and the records "
                "after that are lost"
            )
        elif end[partition] < start[partition]:
            losses.append(
                f"{partition} ends at offset {end[partition]}, but was read up to {start[partition]}: the topic was "
                "deleted and recreated, or its log was truncated"
            )
    return losses

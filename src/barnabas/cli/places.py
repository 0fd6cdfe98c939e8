"""Places in a topic, asked from a cluster: which partitions are meant, and which offsets a `StartPoint` has there."""

from collections.abc import Mapping, Sequence

from barnabas.base.ids import Offset, TopicPartition
from barnabas.cli.records.start_point import StartKind, StartPoint
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import list_offsets, start_offsets


async def partitions_of(cluster: Cluster, topic: str, chosen: Sequence[int] | None) -> list[TopicPartition]:
    """Some partitions of a topic, or all; UnknownTopic for what is not there."""
    metadata = await cluster.topic(topic)
    indexes = [one.index for one in metadata.partitions] if chosen is None else sorted(set(chosen))
    partitions = [TopicPartition(topic, index) for index in indexes]
    for one in partitions:
        cluster.view.partition(one)
    return partitions


async def offsets_at(
    cluster: Cluster, ends: Mapping[TopicPartition, Offset], point: StartPoint
) -> dict[TopicPartition, Offset]:
    """The offset that a place has in each partition, whose ends are known; never outside of the log."""
    match point.kind:
        case StartKind.END:
            return dict(ends)
        case StartKind.TIME:
            listed = await list_offsets(cluster, dict.fromkeys(ends, point.number))
            return {one: ends[one] if found is None else found.offset for one, found in listed.items()}
    starts = await start_offsets(cluster, list(ends))
    if point.kind is StartKind.BEGINNING:
        return starts
    if point.number < 0:
        return {one: max(starts[one], ends[one] + point.number) for one in ends}
    return {one: min(max(starts[one], point.number), ends[one]) for one in ends}

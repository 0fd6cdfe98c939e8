"""Where a member starts reading its assigned partitions: at the committed offset, or as `auto_offset_reset` says."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.group.group_offsets import OffsetAndMetadata, committed_offsets
from barnabas.client.group.member_options import GroupOptions
from barnabas.client.offsets import list_offsets


@dataclass(frozen=True, slots=True)
class Places:
    positions: Mapping[TopicPartition, Offset]
    """Where to start; a partition without a position is missing here."""
    committed: Mapping[TopicPartition, OffsetAndMetadata]


async def find_places(cluster: Cluster, options: GroupOptions, partitions: Collection[TopicPartition]) -> Places:
    if not partitions:
        return Places({}, {})
    committed = await committed_offsets(cluster, options.group, partitions, require_stable=True)
    positions = {one: offset.offset for one, offset in committed.items()}
    missing = sorted(one for one in partitions if one not in committed)
    place = options.auto_offset_reset.value
    if missing and place is not None:
        listed = await list_offsets(cluster, dict.fromkeys(missing, place), options.consumer.isolation)
        positions |= {one: 0 if found is None else found.offset for one, found in listed.items()}
    return Places(positions, committed)

"""What a group has committed, and every commit that it ever made, as its broker has them."""

from barnabas.groups.records import OffsetChange, decode_offset, decode_record
from barnabas.testing import Broker


def committed(broker: Broker, group: str) -> dict[int, int]:
    """The offset of each partition, of a group that reads one topic."""
    return {one.partition: offset for one, offset in broker.committed(group).items()}


def all_commits(broker: Broker, group: str) -> list[dict[int, int]]:
    """Every commit of a group that reads one topic, in their order: the offset of each partition."""
    commits: list[dict[int, int]] = []
    for record in broker.records("__consumer_offsets"):
        change = decode_record(record.key or b"", record.value)
        if isinstance(change, OffsetChange) and change.group_id == group and change.value is not None:
            if not commits or change.partition in commits[-1]:
                commits.append({})
            commits[-1][change.partition] = decode_offset(change.value).offset
    return commits

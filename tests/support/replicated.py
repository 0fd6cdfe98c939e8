"""Followers for a partition that a broker leads alone, as far as the broker knows."""

from collections.abc import Iterable

from barnabas.replication.leader import Grant
from barnabas.replication.partition import Partition

FOLLOWERS = (2, 3)
EPOCH = 70
"""Of the followers' registrations."""


def replicated(partition: Partition, in_sync: Iterable[int] = FOLLOWERS) -> None:
    """Followers come to a partition that had none."""
    state = partition.state
    grant = Grant(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr={**state.isr, **dict.fromkeys(in_sync, EPOCH)},
        replicas=(partition.leader, *FOLLOWERS),
        partition_epoch=state.partition_epoch + 1,
        minimum=1,
    )
    partition.lead(grant)

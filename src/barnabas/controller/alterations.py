"""What leaders ask of the controller, and what became of it: the ISR of a partition (AlterPartition)."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from barnabas.metadata.image import Partition
from barnabas.wire.errors import ErrorCode


class AskedIsr(NamedTuple):
    """What a leader proposes for one partition."""

    topic_id: UUID
    index: int  # type: ignore[assignment] # a tuple's method, which nobody needs here
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    """The broker epoch in which each member is in sync."""


class AlteredPartition(NamedTuple):
    """What became of a partition that somebody wanted to change."""

    error_code: ErrorCode
    partition: Partition | None = None
    """As it is now written, unless there is an error."""

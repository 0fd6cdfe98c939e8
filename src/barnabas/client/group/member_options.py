"""What the caller of a `GroupConsumer` decides: its options, and what it does when partitions come and go."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from barnabas.base.ids import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.client.reading.consumer import ConsumerOptions
from barnabas.wire.errors import ErrorCode, KafkaError


class OffsetReset(Enum):
    """Where a partition is begun that the group has no offset of, or one that is not in the log any more."""

    EARLIEST = EARLIEST
    LATEST = LATEST
    NONE = None


@dataclass(frozen=True, slots=True)
class GroupOptions:
    group: str
    instance_id: str | None = None
    """Makes it a static member: it may go and come back within the session timeout, and nobody notices."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """By preference; all members must have one in common. Rebalances are cooperative when all of them are."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    auto_commit_interval_ms: int | None = 5_000
    """None: only `commit` commits."""
    auto_offset_reset: OffsetReset = OffsetReset.LATEST
    metadata_interval_ms: int = 300_000
    """How often to look for new topics and partitions."""
    rack: str | None = None
    consumer: ConsumerOptions = field(default_factory=ConsumerOptions)
    """Its `out_of_range` does not count: `auto_offset_reset` does."""


class NoCommittedOffset(KafkaError):  # noqa: N818 - named as the fact that it is
    """A partition has no committed offset, and `auto_offset_reset` allows no default: call `seek`."""

    def __init__(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(sorted(partitions))
        names = ", ".join(map(str, self.partitions))
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"group '{group}' has no committed offset of {names}")


class RebalanceListener:
    """Does nothing, unless a subclass says otherwise. Its methods are called within `poll` and `close`."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """These are new. `seek` is possible here."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """These are ours for the last time: finish, and commit."""

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """These are others' already: a commit would be refused."""

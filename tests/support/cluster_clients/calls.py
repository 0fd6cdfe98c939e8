"""What every client is asked to do, and what it tells. What one broker was told, another may know a moment later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

TIMEOUT_SECONDS = 180
SESSION_TIMEOUT_MS = 30_000
"""No member dies in these tests, so that a slow machine need not be suspected."""
PARTITIONS = 12
"""Of every topic, if need be after it was grown."""
PARTITIONS_BEFORE = 6
REPLICAS = 3
RETENTION_MS = "1234"


class Consumed(NamedTuple):
    partition: int
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Overview:
    """What a client sees of the cluster."""

    addresses: frozenset[str]
    controller_id: int | None
    """None when it does not tell."""


@dataclass(frozen=True, slots=True)
class Described:
    """A topic."""

    leaders: tuple[int, ...]
    """Of its partitions."""
    retention_ms: str


class Client(Protocol):
    """`bootstrap` is the address of one broker."""

    def overview(self, bootstrap: str) -> Overview: ...

    def produce(self, bootstrap: str, topic: str, records: Mapping[str, str]) -> None:
        """Values by their keys, into the partitions that Kafka's Java clients choose. It may create the topic."""
        ...

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        """All partitions, from the beginning."""
        ...

    def member(self, bootstrap: str, group: str, topic: str) -> Sequence[str]:
        """The command of a process that consumes in a group, and tells what `tests.support.group_worker` does."""
        ...


class AdminClient(Client, Protocol):
    def create(self, bootstrap: str, topic: str) -> str:
        """Is refused with nine replicas, then creates, grows and configures the topic. Returns the refusal."""
        ...

    def describe_and_delete(self, bootstrap: str, topic: str) -> Described: ...

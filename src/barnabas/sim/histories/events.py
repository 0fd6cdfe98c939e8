"""What happened in a history, as clients and the director saw it: the material of the checkers.

A call and its answer are two events with the same number; a call without an answer may or may not have taken effect.
All events have the virtual time at which they happened, and stand in that order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from barnabas.base.ids import Offset, TopicPartition

_Event = TypeVar("_Event", bound="Event")


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    client: str
    """Who saw it: an actor's name, a node's name, or "director"."""


# Producers


@dataclass(frozen=True, slots=True)
class Sent(Event):
    """A record was handed to a producer. Values are unique in a history."""

    partition: TopicPartition
    key: bytes | None
    value: bytes | None
    acks: int
    is_idempotent: bool
    number: int


@dataclass(frozen=True, slots=True)
class Acked(Event):
    partition: TopicPartition
    offset: Offset
    """-1 with acks=0."""
    number: int


@dataclass(frozen=True, slots=True)
class SendFailed(Event):
    """The producer gave up; the record may be in the log nevertheless."""

    number: int
    error: str


# Brokers


@dataclass(frozen=True, slots=True)
class ImageSeen(Event):
    """A broker has an image of the cluster: how far it has come, who is the controller in it, and what it holds."""

    controller_epoch: int
    position: int
    controller_id: int | None
    checksum: int


@dataclass(frozen=True, slots=True)
class Registered(Event):
    """A broker has registered itself, in an epoch of its own."""

    broker_id: int
    broker_epoch: int

    @property
    def sentence(self) -> str:
        return f"broker {self.broker_id} is registered in epoch {self.broker_epoch}"


@dataclass(frozen=True, slots=True)
class StateWritten(Event):
    """Somebody wrote who leads a partition, and who is in sync."""

    partition: TopicPartition
    leader: int
    """-1: nobody."""
    leader_epoch: int
    isr: tuple[tuple[int, int], ...]
    """Brokers, each with the epoch of the registration in which it is in sync."""
    elr: tuple[tuple[int, int], ...] = ()
    """Those that left when too few were in sync, in the same way."""
    is_recovering: bool = False
    """The leader was not in sync, nor eligible."""

    @property
    def sentence(self) -> str:
        who = "nobody" if self.leader < 0 else f"broker {self.leader}"
        members = [("in sync", self.isr), *([("eligible", self.elr)] if self.elr else [])]
        told = "; ".join(
            f"{what} {', '.join(f'{one} ({epoch})' for one, epoch in ones) or 'nobody'}" for what, ones in members
        )
        how = ", perhaps with losses" if self.is_recovering else ""
        return f"{who} leads {self.partition} in epoch {self.leader_epoch}{how}; {told}"


@dataclass(frozen=True, slots=True)
class Led(Event):
    """A broker began to serve a partition as its leader."""

    partition: TopicPartition
    leader_epoch: int
    life: int
    """Of the broker: how often it was started."""

    @property
    def sentence(self) -> str:
        return f"serves {self.partition} in epoch {self.leader_epoch}"


@dataclass(frozen=True, slots=True)
class NotHealed(Event):
    """A partition does not have a leader and all its replicas in sync, long after everything was healed."""

    partition: TopicPartition
    details: str


# Consumers


@dataclass(frozen=True, slots=True)
class ShownRecord:
    offset: Offset
    leader_epoch: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Positioned(Event):
    """A reader chose where to go on: by an assignment, a seek, or a committed offset."""

    partition: TopicPartition
    offset: Offset


@dataclass(frozen=True, slots=True)
class Shown(Event):
    """A reader got a run of records."""

    partition: TopicPartition
    first_offset: Offset
    """The one that it asked for."""
    next_offset: Offset
    high_watermark: Offset
    records: tuple[ShownRecord, ...]


@dataclass(frozen=True, slots=True)
class ReadFailed(Event):
    error: str


# Groups


@dataclass(frozen=True, slots=True)
class Owned(Event):
    """A member's assignment in a generation, told whenever it changed."""

    group: str
    member_id: str
    generation: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CommitCalled(Event):
    group: str
    offsets: tuple[tuple[TopicPartition, Offset], ...]
    number: int


@dataclass(frozen=True, slots=True)
class CommitDone(Event):
    number: int


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    number: int
    error: str


@dataclass(frozen=True, slots=True)
class CommittedAsked(Event):
    group: str
    number: int


@dataclass(frozen=True, slots=True)
class CommittedSeen(Event):
    """What the coordinator said a group has committed."""

    group: str
    offsets: tuple[tuple[TopicPartition, Offset], ...]
    number: int


# Administration


@dataclass(frozen=True, slots=True)
class AdminCalled(Event):
    """`action` is the operation's name, `arguments` what it was called with."""

    action: str
    arguments: tuple[tuple[str, object], ...]
    number: int

    def argument(self, name: str) -> object:
        return dict(self.arguments)[name]


@dataclass(frozen=True, slots=True)
class AdminDone(Event):
    number: int
    result: object = None


@dataclass(frozen=True, slots=True)
class AdminFailed(Event):
    number: int
    error: str


# The world


@dataclass(frozen=True, slots=True)
class Happened(Event):
    """A fault, or a step in a node's life: start, stop, kill, power loss, exit, cut, heal, …"""

    what: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class OperationEnded(Event):
    """An actor finished an operation of the plan."""

    operation: str
    seconds: float


# The end


@dataclass(frozen=True, slots=True)
class FinalLog:
    """What a partition holds when everything is healed: all that a reader can read, from the start to the end."""

    start_offset: Offset
    end_offset: Offset
    records: tuple[ShownRecord, ...]


@dataclass(frozen=True, slots=True)
class FinalReplica:
    """What a broker has of a partition on its disk, after the last clean stop."""

    broker: str
    records: tuple[ShownRecord, ...]


@dataclass(frozen=True, slots=True)
class FinalTopic:
    """A topic that is there when everything is healed, with the settings that it was given."""

    partitions: int
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(slots=True)
class History:
    """All of it. `final` is empty when the history did not come to its end."""

    events: list[Event] = field(default_factory=list)
    final: dict[TopicPartition, FinalLog] = field(default_factory=dict)
    final_topics: dict[str, FinalTopic] = field(default_factory=dict)
    final_watermarks: dict[TopicPartition, Offset] = field(default_factory=dict)
    """Of the partitions of a cluster, internal ones too, when everything is healed."""
    final_replicas: dict[TopicPartition, list[FinalReplica]] = field(default_factory=dict)
    """And what is on the disks after that."""
    verify_findings: list[str] = field(default_factory=list)
    """What `log verify` said of the disks after the last clean stop."""
    violations: list[str] = field(default_factory=list)
    """What was seen to be wrong while it happened."""
    is_complete: bool = False

    def of(self, kind: type[_Event]) -> Iterator[_Event]:
        """The events of one kind, in order."""
        return (event for event in self.events if isinstance(event, kind))

    def topic_settings(self) -> dict[str, dict[str, str]]:
        """Every setting that a topic was given at any time, the values of one setting separated by "|"."""
        settings: dict[str, dict[str, str]] = {}
        for call in self.of(AdminCalled):
            if call.action in ("create_topic", "set_config"):
                known = settings.setdefault(str(call.argument("topic")), {})
                given = dict(call.arguments)["configs"]
                assert isinstance(given, tuple)
                for name, value in given:
                    known[name] = f"{known[name]}|{value}" if name in known else value
        return settings

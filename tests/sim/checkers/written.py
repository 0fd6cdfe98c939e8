"""Histories written by hand: short names for what happens, on a clock that goes on by a second with each event."""

from barnabas.base.ids import TopicPartition
from barnabas.sim.histories.events import (
    Acked,
    AdminCalled,
    AdminDone,
    AdminFailed,
    CommitCalled,
    CommitDone,
    CommitFailed,
    CommittedAsked,
    CommittedSeen,
    Event,
    FinalLog,
    FinalReplica,
    FinalTopic,
    Happened,
    History,
    Led,
    Owned,
    Positioned,
    Registered,
    SendFailed,
    Sent,
    Shown,
    ShownRecord,
    StateWritten,
)

PLACE = TopicPartition("plain", 0)
FLUSHED = TopicPartition("flushed", 0)
COMPACTED = TopicPartition("compacted", 0)
EXPIRING = TopicPartition("expiring", 0)
SETTINGS = {
    "plain": {},
    "flushed": {"flush.messages": "1"},
    "compacted": {"cleanup.policy": "compact"},
    "expiring": {"retention.ms": "3000"},
}

Line = tuple[int, str | None] | tuple[int, str | None, str]
"""A record: its offset, its value, and perhaps its key."""


def records(*lines: Line, epoch: int = 1) -> tuple[ShownRecord, ...]:
    return tuple(
        ShownRecord(line[0], epoch, _bytes(line[2]) if len(line) == 3 else None, _bytes(line[1])) for line in lines
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class Written:
    """Each event happens a second after the one before it; `at` is the time of the last one."""

    def __init__(self, *topics: str) -> None:
        self.history = History(is_complete=True)
        self.at = 0.0
        self._number = 0
        self._sent: dict[tuple[TopicPartition, str | None, str | None], int] = {}
        for topic in topics or SETTINGS:
            self.admin("create_topic", 1, topic=topic, partitions=1, configs=tuple(SETTINGS[topic].items()))

    # Producers

    def sent(
        self,
        place: TopicPartition,
        value: str | None,
        *,
        key: str | None = None,
        by: str = "producer-1",
        acks: int = -1,
        is_idempotent: bool = True,
    ) -> int:
        number = self.number()
        self._sent[place, key, value] = number
        self._add(Sent(self._tick(), by, place, _bytes(key), _bytes(value), acks, is_idempotent, number))
        return number

    def acked(
        self, place: TopicPartition, value: str | None, offset: int, *, key: str | None = None, by: str = "producer-1"
    ) -> None:
        self._add(Acked(self._tick(), by, place, offset, self._sent[place, key, value]))

    def failed(self, place: TopicPartition, value: str, error: str = "too late") -> None:
        self._add(SendFailed(self._tick(), "producer-1", self._sent[place, None, value], error))

    def stored(self, place: TopicPartition, value: str, offset: int, *, key: str | None = None) -> None:
        """Sent and acknowledged."""
        self.sent(place, value, key=key)
        self.acked(place, value, offset, key=key)

    # Readers

    def positioned(self, place: TopicPartition, offset: int, *, by: str = "reader-1") -> None:
        self._add(Positioned(self._tick(), by, place, offset))

    def shown(
        self,
        place: TopicPartition,
        first: int,
        next_offset: int,
        *lines: Line,
        by: str = "reader-1",
        epoch: int = 1,
        high_watermark: int | None = None,
    ) -> None:
        shown = records(*lines, epoch=epoch)
        watermark = next_offset if high_watermark is None else high_watermark
        self._add(Shown(self._tick(), by, place, first, next_offset, watermark, shown))

    # Groups

    def owned(self, member: str, generation: int, *places: TopicPartition) -> None:
        self._add(Owned(self._tick(), member, "group-1", f"id of {member}", generation, places))

    def commit(self, offset: int, *, place: TopicPartition = PLACE, answer: str = "done", seconds: float = 1.0) -> int:
        """`answer`: done, failed, none."""
        number = self.number()
        self._add(CommitCalled(self._tick(), "member-1", "group-1", ((place, offset),), number))
        if answer != "none":
            at = self._tick(seconds)
            done, failed = CommitDone(at, "member-1", number), CommitFailed(at, "member-1", number, "no")
            self._add(done if answer == "done" else failed)
        return number

    def commit_answered(self, number: int) -> None:
        self._add(CommitDone(self._tick(), "member-1", number))

    def committed(self, *offsets: tuple[TopicPartition, int]) -> None:
        number = self.number()
        self._add(CommittedAsked(self._tick(), "admin", "group-1", number))
        self._add(CommittedSeen(self._tick(), "admin", "group-1", offsets, number))

    # The rest

    def admin(
        self, action: str, result: object = None, *, answer: str = "done", seconds: float = 1.0, **arguments: object
    ) -> None:
        number = self.number()
        self._add(AdminCalled(self._tick(), "admin", action, tuple(arguments.items()), number))
        if answer != "none":
            at = self._tick(seconds)
            done, failed = AdminDone(at, "admin", number, result), AdminFailed(at, "admin", number, "no")
            self._add(done if answer == "done" else failed)

    def happened(self, what: str, details: str = "", *, to: str = "broker-1") -> None:
        self._add(Happened(self._tick(), to, what, details))

    def power_loss(self, *, to: str = "broker-1") -> None:
        self.happened("power loss", to=to)

    # Clusters

    def registered(self, broker_id: int, broker_epoch: int) -> None:
        self._add(Registered(self._tick(), "zookeeper", broker_id, broker_epoch))

    def state(
        self, place: TopicPartition, leader: int, epoch: int, isr: dict[int, int], elr: dict[int, int] | None = None
    ) -> None:
        """`isr` and `elr` have the broker epoch of each member."""
        members = tuple(isr.items()), tuple((elr or {}).items())
        self._add(StateWritten(self._tick(), "zookeeper", place, leader, epoch, *members))

    def led(self, broker: str, place: TopicPartition, epoch: int, *, life: int = 1) -> None:
        self._add(Led(self._tick(), broker, place, epoch, life))

    def replica(self, broker: str, place: TopicPartition, *lines: Line, epoch: int = 1) -> None:
        """What its disk holds in the end."""
        replicas = self.history.final_replicas.setdefault(place, [])
        replicas.append(FinalReplica(broker, records(*lines, epoch=epoch)))

    # The end

    def final(
        self,
        place: TopicPartition,
        *lines: Line,
        start: int = 0,
        end: int | None = None,
        later: tuple[ShownRecord, ...] = (),
    ) -> None:
        """`later`: records of another epoch, which follow."""
        stored = (*records(*lines), *later)
        end_offset = end if end is not None else max((record.offset + 1 for record in stored), default=start)
        self.history.final[place] = FinalLog(start, end_offset, stored)

    def final_topic(self, topic: str, partitions: int = 1, **configs: str) -> None:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        self.history.final_topics[topic] = FinalTopic(partitions, tuple({**SETTINGS.get(topic, {}), **given}.items()))

    def number(self) -> int:
        self._number += 1
        return self._number

    def _tick(self, seconds: float = 1.0) -> float:
        self.at += seconds
        return self.at

    def _add(self, event: Event) -> None:
        self.history.events.append(event)

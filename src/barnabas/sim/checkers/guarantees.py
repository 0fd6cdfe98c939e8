"""What a broker promised in a history, and what excuses a loss.

| topic | kept through a kill | kept through a loss of power |
|---|---|---|
| `flush.messages=1` | yes | yes |
| any other | yes | what was not flushed yet may be lost, from some offset on |

In a cluster this is true of one broker's disk; what is lost there is with others (`custody`). What the leader alone has
acknowledged (acks=1) is promised nothing.

Retention, DeleteRecords and compaction remove records that were kept. A bit that changed at rest excuses everything of
its partition but showing wrong records. One in an index excuses nothing: records are found, and kept, without it. A
disk that was replaced with an empty one (`wipe`) excuses whatever was on it.
"""

from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.sim.histories.events import AdminCalled, Happened, History, StateWritten

ALL_ACKS: Final = -1
OFFSETS_TOPIC: Final = "__consumer_offsets"


def damaged_paths(history: History) -> list[str]:
    """The directories of partitions in whose files a bit was changed."""
    return [event.details.rpartition("/")[0] for event in history.of(Happened) if event.what == "flip"]


def damaged_indexes(history: History) -> list[str]:
    """The indexes in which a bit was changed. One that nobody has read since may still be wrong at the end."""
    return [event.details for event in history.of(Happened) if event.what == "flip index"]


def damaged_partitions(history: History) -> set[TopicPartition]:
    found = [partition_of_path(event.details) for event in history.of(Happened) if event.what == "flip"]
    return {partition for partition in found if partition is not None}


def partition_of_path(path: str) -> TopicPartition | None:
    """Of a file of a log; None for one that was set aside."""
    topic, _, index = path.rpartition("/")[0].rpartition("/")[2].rpartition("-")
    return TopicPartition(topic, int(index)) if index.isdigit() else None


def are_groups_damaged(history: History) -> bool:
    """Whether a bit was changed in what the groups have written."""
    return any(partition.topic == OFFSETS_TOPIC for partition in damaged_partitions(history))


def power_losses(history: History) -> list[float]:
    """When a host lost power, or its disk."""
    return [event.at for event in history.of(Happened) if event.what in ("power loss", "wipe")]


def wipes(history: History) -> list[float]:
    """When a host lost its disk."""
    return [event.at for event in history.of(Happened) if event.what == "wipe"]


def clock_ahead_ms(history: History) -> int:
    """How far clocks of brokers went ahead of those of their clients, at most."""
    jumps = [event.details.partition(" ")[0] for event in history.of(Happened) if event.what == "clock jump"]
    return sum(max(0, int(jump)) for jump in jumps)


def replicated_partitions(history: History) -> set[TopicPartition]:
    """Those that other brokers than the leader have, too: what it acknowledged alone (acks=1) may be lost there."""
    return {event.partition for event in history.of(StateWritten) if len(event.isr) > 1}


def is_flushed(settings: dict[str, str]) -> bool:
    """Whether every acknowledged record was durable, at all times."""
    return settings.get("flush.messages") == "1"


def is_compacted(settings: dict[str, str]) -> bool:
    return "compact" in settings.get("cleanup.policy", "")


def may_expire(settings: dict[str, str]) -> bool:
    """Whether retention may have removed records from the start of the log."""
    return "retention.ms" in settings or "retention.bytes" in settings


def deleted_topics(history: History) -> set[str]:
    """Those that somebody asked to delete, whether or not it was answered."""
    return {str(call.argument("topic")) for call in history.of(AdminCalled) if call.action == "delete_topic"}


def trimmed_topics(history: History) -> set[str]:
    """Those of which DeleteRecords was asked."""
    return {str(call.argument("topic")) for call in history.of(AdminCalled) if call.action == "delete_records"}

"""What a broker promised in a history, and what excuses a loss.

| topic | kept through a kill | kept through a loss of power |
|---|---|---|
| `flush.messages=1` | yes | yes |
| any other | yes | what was not flushed yet may be lost, from some offset on |

Retention, DeleteRecords and compaction remove records that were kept. A bit that changed at rest excuses everything of
its partition but showing wrong records.
"""

from barnabas.base.ids import TopicPartition
from barnabas.sim.histories.events import AdminCalled, Happened, History


def damaged_paths(history: History) -> list[str]:
    """The directories of partitions in whose files a bit was changed."""
    return [event.details.rpartition("/")[0] for event in history.of(Happened) if event.what == "flip"]


def damaged_partitions(history: History) -> set[TopicPartition]:
    places = [path.rpartition("/")[2].rpartition("-") for path in damaged_paths(history)]
    return {TopicPartition(topic, int(index)) for topic, _, index in places}


def power_losses(history: History) -> list[float]:
    """When a host lost power."""
    return [event.at for event in history.of(Happened) if event.what == "power loss"]


def is_flushed(settings: dict[str, str]) -> bool:
    """Whether every acknowledged record was durable, at all times."""
    return settings.get("flush.messages") == "1"


def may_delete(settings: dict[str, str]) -> bool:
    """Whether retention or compaction may have removed records."""
    return (
        "retention.ms" in settings or "retention.bytes" in settings or "compact" in settings.get("cleanup.policy", "")
    )


def deleted_topics(history: History) -> set[str]:
    """Those that somebody asked to delete, whether or not it was answered."""
    return {str(call.argument("topic")) for call in history.of(AdminCalled) if call.action == "delete_topic"}


def trimmed_topics(history: History) -> set[str]:
    """Those of which DeleteRecords was asked."""
    return {str(call.argument("topic")) for call in history.of(AdminCalled) if call.action == "delete_records"}

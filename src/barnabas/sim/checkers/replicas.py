"""All replicas of a partition hold the same records below the high watermark, when everything is healed.

They are read from the disks, after the last clean stop. Retention and compaction are each broker's own: a replica may
lack what they remove, at the start of its log or, in compacted topics, anywhere; but what it has is the same.
"""

from collections.abc import Iterator

from barnabas.base.ids import Offset, TopicPartition
from barnabas.sim.checkers.guarantees import damaged_partitions, deleted_topics, is_compacted, may_expire
from barnabas.sim.histories.events import FinalReplica, History, ShownRecord


def check_replicas(history: History) -> Iterator[str]:
    settings, damaged, deleted = history.topic_settings(), damaged_partitions(history), deleted_topics(history)
    for partition, high_watermark in sorted(history.final_watermarks.items()):
        if partition in damaged or partition.topic in deleted:
            continue
        replicas = history.final_replicas.get(partition, [])
        yield from _different(partition, high_watermark, replicas)
        of_topic = settings.get(partition.topic)
        if of_topic is not None and not is_compacted(of_topic):
            yield from _missing(partition, high_watermark, replicas, has_retention=may_expire(of_topic))


def _different(partition: TopicPartition, high_watermark: Offset, replicas: list[FinalReplica]) -> Iterator[str]:
    known: dict[Offset, tuple[str, ShownRecord]] = {}
    for replica in replicas:
        for record in replica.records:
            broker, other = known.setdefault(record.offset, (replica.broker, record))
            if record != other and record.offset < high_watermark:
                yield (
                    f"offset {record.offset} of {partition}, below the high watermark {high_watermark}, is "
                    f"{other.value!r} in epoch {other.leader_epoch} on {broker}, and {record.value!r} in epoch "
                    f"{record.leader_epoch} on {replica.broker}"
                )
                break


def _missing(
    partition: TopicPartition, high_watermark: Offset, replicas: list[FinalReplica], *, has_retention: bool
) -> Iterator[str]:
    for replica in replicas:
        offsets = [record.offset for record in replica.records]
        if has_retention and not offsets:
            continue
        expected = offsets[0] if has_retention else 0
        for offset in offsets:
            if offset != expected:
                break
            expected += 1
        if expected < high_watermark:
            yield (
                f"{replica.broker} lacks offset {expected} of {partition}, which is below the high watermark "
                f"{high_watermark}"
            )

"""What `/readyz` tells: whether this broker could be stopped now without harm to any partition.

| a partition with a replica here that is in sync | when the broker stops, it is |
|---|---|
| nobody else is in sync | *offline*: nobody could lead. So is every partition that this broker alone has |
| fewer others are in sync than the minimum in force | *below its minimum*: `acks=all` is refused |
| enough others are in sync | served as before |

Where the replica here is not in sync, stopping it changes nothing: a broker with a failed log directory may well be
stopped. It is 503 also when nobody could tell: while the broker starts or stops, while there is a problem with the
metadata store, and while the broker follows no controller, which would have others lead.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.base.pausing import in_slices
from barnabas.controller.in_sync import Registered, minimum_of
from barnabas.metadata.image import ClusterImage, Partition

_LOOKED_AT_TOGETHER: Final = 500
"""Partitions: a fraction of a millisecond."""
_NAMED_MAX: Final = 10


class Harm(Enum):
    """What becomes of a partition when a broker stops."""

    OFFLINE = "would be offline"
    BELOW_MINIMUM = "would be below its minimum in sync"


@dataclass(frozen=True, slots=True)
class Readiness:
    """`counts` are of all partitions, `named` the first of them with the reason."""

    problems: tuple[str, ...] = ()
    counts: Mapping[Harm, int] | None = None
    """None where it was not looked."""
    named: tuple[tuple[TopicPartition, str], ...] = ()

    @property
    def is_safe_to_stop(self) -> bool:
        return not self.problems and self.counts is not None and not any(self.counts.values())


def harm_to(partition: Partition, broker_id: int, registered: Registered) -> Harm | None:
    """What stopping this broker does to a partition."""
    if broker_id not in partition.isr:
        return None
    others = _others(partition, broker_id, registered)
    if not others:
        return Harm.OFFLINE
    return Harm.BELOW_MINIMUM if len(others) < minimum_of(partition) else None


def reason_of(harm: Harm, partition: Partition, broker_id: int, registered: Registered) -> str:
    """For people."""
    if partition.replicas == (broker_id,):
        return f"{harm.value}: no other broker has it"
    if harm is Harm.OFFLINE:
        return f"{harm.value}: no other replica is in sync"
    others = len(_others(partition, broker_id, registered))
    return f"{harm.value}: {others} other replica{'s are' if others > 1 else ' is'} in sync of {minimum_of(partition)}"


def _others(partition: Partition, broker_id: int, registered: Registered) -> list[int]:
    return [one for one in partition.isr if one != broker_id and one in registered]


async def readiness_of(image: ClusterImage, broker_id: int, problems: Iterable[str] = ()) -> Readiness:
    """By an image, whose partitions are looked at with pauses."""
    counts = dict.fromkeys(Harm, 0)
    named: list[tuple[TopicPartition, str]] = []
    partitions = ((topic.name, one) for topic in image.topics.values() for one in topic.partitions)
    async for together in in_slices(partitions, _LOOKED_AT_TOGETHER):
        for topic_name, one in together:
            harm = harm_to(one, broker_id, image.brokers)
            if harm is None:
                continue
            counts[harm] += 1
            if len(named) < _NAMED_MAX:
                reason = reason_of(harm, one, broker_id, image.brokers)
                named.append((TopicPartition(topic_name, one.index), reason))
    return Readiness(tuple(problems), counts, tuple(named))

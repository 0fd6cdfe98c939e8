"""Which brokers hold a partition: placed by rule, or as somebody asked for. Pure.

The rule is Kafka's: first replicas go round the brokers, and the followers of partition p start at a distance from its
first replica that grows by one with each round, so that no two brokers share all of their partitions. With brokers
0 to 4, start 0 and shift 0:

```
partition     0        1        2        3        4        5        6
replicas    0 1 2    1 2 3    2 3 4    3 4 0    4 0 1    0 2 3    1 3 4
```

What a client asks for wrongly raises `KafkaError`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from barnabas.wire.errors import ErrorCode, KafkaError

Replicas: TypeAlias = tuple[int, ...]

PARTITIONS_TOGETHER_MAX: Final = 10_000
"""As many as one call may place: Kafka's limit for a request that creates topics."""


def check_count(partition_count: int) -> None:
    """Refuses more than can be placed at once."""
    if partition_count > PARTITIONS_TOGETHER_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"at most {PARTITIONS_TOGETHER_MAX} partitions can be added at once"
        )


def place_replicas(
    broker_ids: Sequence[int],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> list[Replicas]:
    """Replicas of `partition_count` partitions from `first_partition` on; the first replica is the preferred leader."""
    if replication_factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"the replication factor must be at least 1, not {replication_factor}"
        )
    if partition_count < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic must have at least 1 partition, not {partition_count}")
    check_count(partition_count)
    count = len(broker_ids)
    if replication_factor > count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs as many brokers; registered: {count}",
        )
    placed = []
    alike: dict[tuple[int, int], Replicas] = {}
    for partition in range(first_partition, first_partition + partition_count):
        first = (partition + start) % count
        distance = (shift + partition // count) % max(1, count - 1)
        replicas = alike.get((first, distance))
        if replicas is None:
            followers = [first + 1 + (distance + number) % (count - 1) for number in range(replication_factor - 1)]
            replicas = alike[first, distance] = tuple([broker_ids[slot % count] for slot in (first, *followers)])
        placed.append(replicas)
    return placed


def place_more(
    placed: Sequence[Replicas], racks: Mapping[int, str | None], replication_factor: int, held: Mapping[int, int]
) -> list[Replicas]:
    """Further replicas for partitions that have some, behind those: up to this number of them.

    Each goes where the partition has no rack yet, then to the broker with the fewest replicas, then round the brokers.
    `racks` has all live brokers, `held` how many replicas they have now.
    """
    count = len(racks)
    if replication_factor > count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs as many brokers; registered: {count}",
        )
    brokers, held_now = sorted(racks), dict(held)
    grown = []
    for number, replicas in enumerate(placed):
        has = list(replicas)
        while len(has) < replication_factor:
            taken = {racks[one] for one in has if racks.get(one) is not None}
            others = [one for one in brokers if one not in has]
            _, _, _, chosen = min(
                (racks[one] in taken, held_now.get(one, 0), (place - number) % len(others), one)
                for place, one in enumerate(others)
            )
            has.append(chosen)
            held_now[chosen] = held_now.get(chosen, 0) + 1
        grown.append(tuple(has))
    return grown


def assigned_replicas(
    assignments: Mapping[int, Sequence[int]],
    broker_ids: Sequence[int],
    *,
    first_partition: int = 0,
    replication_factor: int | None = None,
) -> list[Replicas]:
    """What somebody asked for, checked: partitions without a gap, known brokers, each once, equally many everywhere."""
    check_count(len(assignments))
    partitions = range(first_partition, first_partition + len(assignments))
    if not assignments or any(partition not in assignments for partition in partitions):
        raise _invalid(f"the partitions assigned must be numbered from {first_partition} without a gap")
    registered = set(broker_ids)
    factor = len(assignments[first_partition]) if replication_factor is None else replication_factor
    for partition in partitions:
        _check_replicas(partition, assignments[partition], registered, factor)
    return [tuple(assignments[partition]) for partition in partitions]


def _check_replicas(partition: int, replicas: Sequence[int], registered: set[int], factor: int) -> None:
    if not replicas:
        raise _invalid(f"partition {partition} is assigned to no broker")
    if len(replicas) > len(registered):
        raise _invalid(f"partition {partition} is assigned to {len(replicas)} brokers; registered: {len(registered)}")
    if len(set(replicas)) != len(replicas):
        raise _invalid(f"partition {partition} is assigned twice to the same broker: {list(replicas)}")
    if unknown := [broker_id for broker_id in replicas if broker_id not in registered]:
        raise _invalid(f"partition {partition} is assigned to broker {unknown[0]}, which is not registered")
    if len(replicas) != factor:
        raise _invalid(f"partition {partition} has replication factor {len(replicas)}, the others {factor}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

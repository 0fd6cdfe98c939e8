"""How far a producer is and what holds it up, for callers that wait for it and want to know why.

`Producer.status` takes a snapshot. Errors from brokers that are retried are visible only here: a record fails with the
last of them only when its time is over.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.base.ids import TopicPartition
from barnabas.net.errors import NetworkFailed
from barnabas.wire.errors import KafkaError, MalformedMessage
from barnabas.wire.leaders import NodeEndpoint

Problem: TypeAlias = KafkaError | NetworkFailed | MalformedMessage


class Obstacle(NamedTuple):
    """Why the oldest batch of a partition is not delivered yet."""

    partition: TopicPartition
    leader: NodeEndpoint | None
    """The broker that must take it; None while no leader is known."""
    problem: Problem | None
    """What the last try met; None when it was not tried before, or is not answered yet."""


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    delivered_records: int
    failed_records: int
    """Given up: refused for good, or not delivered in time."""
    pending_records: int
    """Neither delivered nor given up. What was sent and not answered may be in the log all the same."""
    obstacles: tuple[Obstacle, ...]
    """One for each partition that has pending records."""

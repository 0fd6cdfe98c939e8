"""How topics, partitions and brokers look from outside, for Metadata and its younger relatives.

A partition that this broker should lead and whose directory is offline is shown without a leader: there is nobody to
send a request to. So is one whose leader has just died, as far as this broker sees.
"""

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from barnabas.broker.dispatch import Values
from barnabas.broker.services import Services
from barnabas.controller.in_sync import is_offline
from barnabas.metadata.image import Partition, Topic
from barnabas.metadata.znodes import NO_LEADER, Endpoint
from barnabas.wire.errors import ErrorCode


class BrokerAddress(NamedTuple):
    id: int
    endpoint: Endpoint
    rack: str | None


def broker_addresses(services: Services, listener: str) -> list[BrokerAddress]:
    """The live brokers that have this listener."""
    found = []
    for broker in sorted(services.image.brokers.values(), key=lambda one: one.id):
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            found.append(BrokerAddress(broker.id, endpoint, broker.rack))
    return found


def controller_id(services: Services) -> int:
    known = services.image.controller_id
    return NO_LEADER if known is None else known


class PartitionViews:
    """Shows partitions to the clients of one listener."""

    def __init__(self, services: Services, listener: str) -> None:
        self._services = services
        self._alive = services.image.brokers
        self._lost: Container[int] = services.replicas.lost_leaders or ()
        self._reachable = {address.id for address in broker_addresses(services, listener)}

    def of(self, topic: Topic, partitions: Iterable[Partition]) -> Iterator[Values]:
        return (self._view(topic, partition) for partition in partitions)

    def _view(self, topic: Topic, partition: Partition) -> Values:
        offline = [
            one for one in partition.replicas if one not in self._alive or is_offline(partition, one, self._alive)
        ]
        leader = partition.leader
        own_id = self._services.broker_id
        if leader == own_id and self._services.replicas.get(topic.name, partition.index) is None:
            offline.append(own_id)
            leader = NO_LEADER
        error = ErrorCode.NONE
        if leader not in self._alive or leader in self._lost:
            error, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
        elif leader not in self._reachable:
            error, leader = ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
        return {
            "error_code": error,
            "partition_index": partition.index,
            "leader_id": leader,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "eligible_leader_replicas": partition.elr,
            "last_known_elr": [],
            "offline_replicas": offline,
        }

"""What the handlers of a broker work with, created once when the broker is assembled."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.texts import shortened
from barnabas.broker.authorizer import Authorizer, Operation, Resource
from barnabas.broker.auto_creation import AutoCreation
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.groups import Groups
from barnabas.broker.replica_sessions import ReplicaSessions
from barnabas.broker.request import Request
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.slices import Slices
from barnabas.controller.controller import Controller
from barnabas.controller.seat import ControllerSeat
from barnabas.controller.suspecting import Suspecting
from barnabas.metadata.identity import ProducerIds
from barnabas.metadata.image import ClusterImage
from barnabas.replication.admission import Admission
from barnabas.replication.log_starts import LogStarts
from barnabas.replication.replicas import Replicas
from barnabas.storage.directories.manager import LogManager
from barnabas.wire.codecs import Codecs
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_SERVED_SECONDS_MIN: Final = 5.0


@dataclass(frozen=True, slots=True)
class Services:
    broker_id: int
    cluster_id: str
    settings: BrokerSettings
    seat: ControllerSeat
    suspecting: Suspecting
    producer_ids: ProducerIds
    replicas: Replicas
    logs: LogManager
    log_starts: LogStarts
    auto_creation: AutoCreation
    groups: Groups
    admission: Admission
    """For batches that take long to check."""
    fetch_sessions: FetchSessions
    replica_sessions: ReplicaSessions
    codecs: Codecs
    authorizer: Authorizer
    slices: Slices
    """For what may take long on the event loop."""
    clock: Clock
    random: Random
    loop: asyncio.AbstractEventLoop
    workers: Executor
    """For what may block."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as it is served here: what it lists can be used."""
        return self.replicas.image

    @property
    def controller(self) -> Controller:
        """For requests that only the controller serves; NOT_CONTROLLER on any other broker."""
        return self.seat.require_controller()

    def allows_topic(self, request: Request, operation: Operation, name: str) -> bool:
        return self.authorizer.allows(request.caller, operation, Resource.TOPIC, name)

    def allows_group(self, request: Request, operation: Operation, group_id: str) -> bool:
        return self.authorizer.allows(request.caller, operation, Resource.GROUP, group_id)

    def allows_cluster(self, request: Request, operation: Operation) -> bool:
        return self.authorizer.allows(request.caller, operation, Resource.CLUSTER, "kafka-cluster")

    def check_topic(self, request: Request, operation: Operation, name: str) -> None:
        if not self.allows_topic(request, operation, name):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{operation.value} is not allowed on '{shortened(name)}'"
            )

    def check_cluster(self, request: Request, operation: Operation) -> None:
        if not self.allows_cluster(request, operation):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{operation.value} is not allowed on the cluster")

    async def until_served(self, is_served: Callable[[ClusterImage], bool], timeout_ms: int = 0) -> None:
        """Waits for a change that is written to be in use here, so that a client can build on the answer.

        It is true already when this is called, so that running out of time is not an error.
        """
        try:
            async with asyncio.timeout(max(_SERVED_SECONDS_MIN, timeout_ms / 1000)):
                await self.replicas.wait_for(is_served)
        except TimeoutError:
            logger.warning("a change of the cluster is written, but not yet in use on this broker")

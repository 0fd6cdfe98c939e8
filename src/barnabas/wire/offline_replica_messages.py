"""ReportOfflineReplicas, by which a broker tells the controller which of its replicas lie in a log directory that has
failed: our own message, between brokers only.

Kafka's BrokerHeartbeat names the directories, but the controller does not know what lies in them. The report counts in
the registration that it names. Its classes have the form of kio's, so that `reader` and `values` read and write them.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final
from uuid import UUID

from barnabas.wire.own_messages import OwnMessage, number_field, numbers_field


class _Version0(OwnMessage):
    __slots__ = ()
    __api_key__: ClassVar[int] = 10_004


@dataclass(frozen=True, kw_only=True)
class OfflineTopicV0(_Version0):
    topic_id: UUID | None = field(default=None, metadata={"kafka_type": "uuid"})
    partitions: tuple[int, ...] = numbers_field("int32")


@dataclass(frozen=True, kw_only=True)
class ReportOfflineReplicasRequestV0(_Version0):
    broker_id: int = number_field("int32", -1)
    broker_epoch: int = number_field("int64", -1)
    topics: tuple[OfflineTopicV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReportOfflineReplicasResponseV0(_Version0):
    error_code: int = number_field("error_code", 0)


OFFLINE_REPLICA_REQUESTS: Final = (ReportOfflineReplicasRequestV0,)
OFFLINE_REPLICA_RESPONSES: Final = (ReportOfflineReplicasResponseV0,)
"""By version."""

"""ReportOfflineReplicas, by which a broker tells the controller which of its replicas lie in a log directory that has
failed: our own message, between brokers only.

Kafka's BrokerHeartbeat names the directories, but the controller does not know what lies in them. The report counts in
the registration that it names. Its classes have the form of kio's, so that `reader` and `values` read and write them.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import UUID

_KEY: Final = 10_004


def _number(kafka_type: str, default: int) -> Any:
    return field(default=default, metadata={"kafka_type": kafka_type})


class _Version0:
    __slots__ = ()
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = _KEY


@dataclass(frozen=True, kw_only=True)
class OfflineTopicV0(_Version0):
    topic_id: UUID | None = field(default=None, metadata={"kafka_type": "uuid"})
    partitions: tuple[int, ...] = field(default=(), metadata={"kafka_type": "int32"})


@dataclass(frozen=True, kw_only=True)
class ReportOfflineReplicasRequestV0(_Version0):
    broker_id: int = _number("int32", -1)
    broker_epoch: int = _number("int64", -1)
    topics: tuple[OfflineTopicV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReportOfflineReplicasResponseV0(_Version0):
    error_code: int = _number("error_code", 0)


OFFLINE_REPLICA_REQUESTS: Final = (ReportOfflineReplicasRequestV0,)
OFFLINE_REPLICA_RESPONSES: Final = (ReportOfflineReplicasResponseV0,)
"""By version."""

"""ReplicaLogInfo, by which the controller asks replicas where their logs end: our own message, between brokers only.

It is asked when the state of a partition names nobody who could lead: then the longest log of all replicas does. The
answer counts in the registration that it names. Its classes have the form of kio's, so that `reader` and `values` read
and write them.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final
from uuid import UUID

from barnabas.wire.own_messages import OwnMessage, number_field, numbers_field


class _Version0(OwnMessage):
    __slots__ = ()
    __api_key__: ClassVar[int] = 10_002


@dataclass(frozen=True, kw_only=True)
class LogInfoTopicV0(_Version0):
    topic_id: UUID | None = field(default=None, metadata={"kafka_type": "uuid"})
    partitions: tuple[int, ...] = numbers_field("int32")


@dataclass(frozen=True, kw_only=True)
class ReplicaLogInfoRequestV0(_Version0):
    topics: tuple[LogInfoTopicV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LogInfoPartitionV0(_Version0):
    partition_index: int = number_field("int32", 0)
    error_code: int = number_field("error_code", 0)
    last_epoch: int = number_field("int32", -1)
    """Of the last record; -1 in a log that never had one."""
    end_offset: int = number_field("int64", -1)


@dataclass(frozen=True, kw_only=True)
class LogInfoAnswerV0(_Version0):
    topic_id: UUID | None = field(default=None, metadata={"kafka_type": "uuid"})
    partitions: tuple[LogInfoPartitionV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReplicaLogInfoResponseV0(_Version0):
    error_code: int = number_field("error_code", 0)
    broker_epoch: int = number_field("int64", -1)
    """Of the registration in which this is so."""
    topics: tuple[LogInfoAnswerV0, ...] = ()


LOG_INFO_REQUESTS: Final = (ReplicaLogInfoRequestV0,)
LOG_INFO_RESPONSES: Final = (ReplicaLogInfoResponseV0,)
"""By version."""

"""FetchImage, by which brokers follow the controller's image of the cluster: our own message, between brokers only.

Its classes have the form of kio's, one for each version, so that `reader` and `values` read and write them.

| version | |
|---|---|
| 0 | brokers, topics, configs; each partition is a message of its own |
| 1 | besides: the past of brokers, eligible replicas, the minimum in force; partitions in columns |
| 2 | besides: replicas whose log directories have failed |

An answer holds what comes behind the place that the broker asked with, or everything (`is_whole`), and the place that
it leads to. Within each array the order counts, and the last entry about a thing holds; brokers, topics and configs do
not depend on each other.

- A broker with epoch -1, a topic without an id, configs without an entry: the thing is gone.
- `is_whole` of a topic is false when only the partitions that are named have changed.
- From version 1 the partitions of all topics follow each other in `blocks`, in the order of the topics: each topic says
  how many of them are its own. A block has few arrays: a message for each partition takes ten times as long to read.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import UUID

from barnabas.wire.own_messages import OwnMessage, flag_field, number_field, numbers_field, text_field


def _int32(default: int = 0) -> Any:
    return number_field("int32", default)


def _int64(default: int = 0) -> Any:
    return number_field("int64", default)


class _Version0(OwnMessage):
    __slots__ = ()
    __api_key__: ClassVar[int] = 10_001


class _Version1(_Version0):
    __slots__ = ()
    __version__: ClassVar[int] = 1


class _Version2(_Version1):
    __slots__ = ()
    __version__: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class FetchImageRequestV0(_Version0):
    broker_id: int = _int32()
    broker_epoch: int = _int64(-1)
    """-1: not registered yet."""
    controller_epoch: int = _int32(-1)
    """Whose positions these are; -1: the broker has no image."""
    position: int = _int64(-1)
    """The last change that it has."""
    max_wait_ms: int = _int32()


@dataclass(frozen=True, kw_only=True)
class ImageEndpointV0(_Version0):
    listener: str = text_field()
    protocol: str = text_field()
    host: str = text_field()
    port: int = _int32()


@dataclass(frozen=True, kw_only=True)
class ImageBrokerV0(_Version0):
    broker_id: int = _int32()
    epoch: int = _int64(-1)
    rack: str | None = field(default=None, metadata={"kafka_type": "string"})
    endpoints: tuple[ImageEndpointV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImagePartitionV0(_Version0):
    index: int = _int32()
    leader: int = _int32(-1)
    leader_epoch: int = _int32(-1)
    partition_epoch: int = _int32(-1)
    is_recovering: bool = flag_field()
    replicas: tuple[int, ...] = numbers_field("int32")
    adding: tuple[int, ...] = numbers_field("int32")
    removing: tuple[int, ...] = numbers_field("int32")
    isr: tuple[int, ...] = numbers_field("int32")
    isr_epochs: tuple[int, ...] = numbers_field("int64")
    """The broker epoch of each member of the ISR; empty where none was written."""


@dataclass(frozen=True, kw_only=True)
class ImageTopicV0(_Version0):
    name: str = text_field()
    topic_id: UUID | None = field(default=None, metadata={"kafka_type": "uuid"})
    is_whole: bool = flag_field()
    partitions: tuple[ImagePartitionV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImageConfigV0(_Version0):
    name: str = text_field()
    value: str = text_field()


@dataclass(frozen=True, kw_only=True)
class ImageTopicConfigsV0(_Version0):
    name: str = text_field()
    configs: tuple[ImageConfigV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImageBrokerConfigsV0(_Version0):
    broker_id: int = _int32(-1)
    """-1: for every broker."""
    configs: tuple[ImageConfigV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FetchImageResponseV0(_Version0):
    error_code: int = number_field("error_code", 0)
    controller_id: int = _int32(-1)
    controller_epoch: int = _int32(-1)
    position: int = _int64(-1)
    is_whole: bool = flag_field()
    brokers: tuple[ImageBrokerV0, ...] = ()
    topics: tuple[ImageTopicV0, ...] = ()
    topic_configs: tuple[ImageTopicConfigsV0, ...] = ()
    broker_configs: tuple[ImageBrokerConfigsV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FetchImageRequestV1(FetchImageRequestV0, _Version1):
    pass


@dataclass(frozen=True, kw_only=True)
class ImageBrokerV1(ImageBrokerV0, _Version1):
    previous_epoch: int = _int64(-1)
    intact_since: int = _int64(-1)


@dataclass(frozen=True, kw_only=True)
class ImageTopicV1(_Version1):
    name: str = text_field()
    topic_id: UUID | None = field(default=None, metadata={"kafka_type": "uuid"})
    is_whole: bool = flag_field()
    partition_count: int = _int32()


@dataclass(frozen=True, kw_only=True)
class ImageBlockV1(_Version1):
    """Partitions by columns, one column after another: a value of each partition, in their order.

    Fields that are lists stand in `brokers` and `epochs`, with their lengths in `counts`.
    """

    numbers: tuple[int, ...] = numbers_field("int32")
    """index, leader, leader epoch, partition epoch, is recovering, minimum of replicas in sync (-1: not known)"""
    counts: tuple[int, ...] = numbers_field("int16")
    """The lengths of each column of lists; one for each of them when the lists of no column differ in length."""
    brokers: tuple[int, ...] = numbers_field("int32")
    """replicas, adding, removing, isr, elr"""
    epochs: tuple[int, ...] = numbers_field("int64")
    """those of isr, of elr"""


@dataclass(frozen=True, kw_only=True)
class ImageBlockV2(ImageBlockV1, _Version2):
    """Replicas are seldom offline: each of them is named by its place in all three lists."""

    offline_places: tuple[int, ...] = numbers_field("int32")
    """Which partition of the block has it."""
    offline_brokers: tuple[int, ...] = numbers_field("int32")
    offline_epochs: tuple[int, ...] = numbers_field("int64")


@dataclass(frozen=True, kw_only=True)
class FetchImageResponseV1(_Version1):
    error_code: int = number_field("error_code", 0)
    controller_id: int = _int32(-1)
    controller_epoch: int = _int32(-1)
    position: int = _int64(-1)
    is_whole: bool = flag_field()
    brokers: tuple[ImageBrokerV1, ...] = ()
    topics: tuple[ImageTopicV1, ...] = ()
    blocks: tuple[ImageBlockV1, ...] = ()
    topic_configs: tuple[ImageTopicConfigsV0, ...] = ()
    broker_configs: tuple[ImageBrokerConfigsV0, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FetchImageRequestV2(FetchImageRequestV0, _Version2):
    pass


@dataclass(frozen=True, kw_only=True)
class FetchImageResponseV2(_Version2):
    error_code: int = number_field("error_code", 0)
    controller_id: int = _int32(-1)
    controller_epoch: int = _int32(-1)
    position: int = _int64(-1)
    is_whole: bool = flag_field()
    brokers: tuple[ImageBrokerV1, ...] = ()
    topics: tuple[ImageTopicV1, ...] = ()
    blocks: tuple[ImageBlockV2, ...] = ()
    topic_configs: tuple[ImageTopicConfigsV0, ...] = ()
    broker_configs: tuple[ImageBrokerConfigsV0, ...] = ()


FETCH_IMAGE_REQUESTS: Final = (FetchImageRequestV0, FetchImageRequestV1, FetchImageRequestV2)
FETCH_IMAGE_RESPONSES: Final = (FetchImageResponseV0, FetchImageResponseV1, FetchImageResponseV2)
"""By version."""

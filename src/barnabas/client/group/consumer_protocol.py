"""What consumers tell each other through a group: the bytes that a coordinator carries without looking into them. Pure.

A member joins with a *subscription* (what it wants, and what it holds now) and gets an *assignment* (what it
must hold). Both are a version (int16) and a message of Kafka's ConsumerProtocol schemas:

| version | subscription | assignment |
|---|---|---|
| 0 | topics, user data | partitions, user data |
| 1 | and the partitions that the member holds | the same |
| 2 | and the generation that it got them in | the same |
| 3 | and its rack | the same |

Every version only adds at the end, so an unknown newer one is read as the newest known version.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from barnabas.base.ids import TopicPartition
from barnabas.wire.errors import MalformedResponse
from barnabas.wire.messages import Message
from barnabas.wire.primitives import INT16, UNREADABLE
from barnabas.wire.reader import message_reader
from barnabas.wire.values import Values, write_values

PROTOCOL_TYPE: Final = "consumer"
"""What groups of consumers call themselves, in contrast to those of Kafka Connect and others."""
NO_GENERATION: Final = -1

_VERSION_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    topics: tuple[str, ...]
    user_data: bytes | None = None
    """Of the assignor; what is in it is its own affair."""
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    """The one in which the owned partitions were assigned."""
    rack: str | None = None


def encode_subscription(subscription: MemberSubscription) -> bytes:
    values = {
        "topics": sorted(subscription.topics),
        "user_data": subscription.user_data,
        "owned_partitions": topic_partitions(subscription.owned),
        "generation_id": subscription.generation,
        "rack_id": subscription.rack,
    }
    return _encode("Subscription", values)


def decode_subscription(data: bytes) -> MemberSubscription:
    """MalformedResponse when it is none."""
    message = _decode("Subscription", data)
    return MemberSubscription(
        tuple(message.topics),
        message.user_data,
        _flat(getattr(message, "owned_partitions", ())),
        getattr(message, "generation_id", NO_GENERATION),
        getattr(message, "rack_id", None),
    )


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    return _encode("Assignment", {"assigned_partitions": topic_partitions(partitions), "user_data": user_data})


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Nothing for no bytes, which is what a member gets whom the leader forgot. MalformedResponse when it is none."""
    return _flat(_decode("Assignment", data).assigned_partitions) if data else ()


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """The partitions of each topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def topic_partitions(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": indexes} for topic, indexes in by_topic(partitions).items()]


def _flat(topics: Iterable[Message]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(str(topic.topic), index) for topic in topics for index in topic.partitions)


def _encode(kind: str, values: Values) -> bytes:
    return INT16.pack(_VERSION_MAX) + write_values(_schema(kind, _VERSION_MAX), values)


def _decode(kind: str, data: bytes) -> Message:
    try:
        (version,) = INT16.unpack_from(data)
        if version < 0:
            raise ValueError(f"there is no version {version}")
        return message_reader(_schema(kind, min(version, _VERSION_MAX)))(data, INT16.size)[0]
    except UNREADABLE as problem:
        raise MalformedResponse(f"a member's {kind.lower()} cannot be read: {problem}") from None


@cache
def _schema(kind: str, version: int) -> Any:
    name = f"ConsumerProtocol{kind}"
    return getattr(import_module(f"kio.schema.consumer_protocol_{kind.lower()}.v{version}.data"), name)

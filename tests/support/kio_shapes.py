"""From kio's Produce and Fetch to ours; and damaged bytes.

A client writes requests and reads answers as trees of topics, which is kio's shape. A broker has flat lists of
partitions (`barnabas.wire.produce`, `fetch`), so a topic without partitions vanishes there, and entries of one topic
that follow each other become one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint
from barnabas.wire.primitives import TopicKey

EXAMPLES = 25


def outcome_of(decode: Callable[[], Any], *refusals: type[Exception]) -> Any:
    """What was decoded, or None when it was refused."""
    try:
        return decode()
    except refusals:
        return None


@st.composite
def damaged_bytes(draw: st.DrawFn, encoded: bytes) -> memoryview:
    damaged = bytearray(encoded)
    for position in draw(st.lists(st.integers(0, len(encoded) - 1), max_size=4)):
        damaged[position] = draw(st.integers(0, 255))
    return memoryview(bytes(damaged[: draw(st.integers(len(encoded) // 2, len(encoded)))]))


def milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def name_and_id(topic: Any) -> tuple[str, UUID]:
    name = getattr(topic, "name", None) or getattr(topic, "topic", "")
    return name, getattr(topic, "topic_id", None) or ZERO_UUID


def topic_key(topic: Any) -> TopicKey:
    """How a broker names the topic."""
    name, topic_id = name_and_id(topic)
    return topic_id.bytes if hasattr(topic, "topic_id") else name


def answered_partitions(topics: Any, partitions: str) -> Iterator[tuple[TopicKey, Any]]:
    """The partitions of an answer, each with its topic, as a broker has them."""
    for topic in topics:
        for partition in getattr(topic, partitions):
            yield topic_key(topic), partition


def merged_answer(message: Any, partitions: str) -> Any:
    """The answer as a broker writes it."""
    topics: list[Any] = []
    for topic in message.responses:
        if topics and topic_key(topics[-1]) == topic_key(topic):
            before = topics.pop()
            topic = replace(before, **{partitions: getattr(before, partitions) + getattr(topic, partitions)})
        if getattr(topic, partitions):
            topics.append(topic)
    return replace(message, responses=tuple(topics))


def leader_of(partition: Any) -> LeaderAndEpoch:
    leader = getattr(partition, "current_leader", None)
    return LeaderAndEpoch(leader.leader_id, leader.leader_epoch) if leader else LeaderAndEpoch()


def endpoints_of(message: Any) -> tuple[NodeEndpoint, ...]:
    return tuple(
        NodeEndpoint(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
        for endpoint in getattr(message, "node_endpoints", ())
    )


def empty_field(message: Any, name: str) -> Any:
    """What stands for no elements: a list that was read, or the default where the version has no such field."""
    return [] if hasattr(message, name) else ()

"""Names for the numbers that travel everywhere, so that a signature says which one it means."""

import re
from typing import NamedTuple, TypeAlias

Offset: TypeAlias = int
"""Logical place of a record in its partition."""

Position: TypeAlias = int
"""Byte place in a file."""

LeaderEpoch: TypeAlias = int
ProducerId: TypeAlias = int
ProducerEpoch: TypeAlias = int
TimestampMs: TypeAlias = int
"""By the wall clock, which may be set back or ahead."""
SteadyMs: TypeAlias = int
"""By the clock that never jumps (`barnabas.base.clock`)."""

NO_EPOCH: LeaderEpoch = -1
NO_PRODUCER: ProducerId = -1
NO_SEQUENCE = -1
NO_TIMESTAMP: TimestampMs = -1

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_name_problem(name: str) -> str | None:
    """Why Kafka would refuse this topic name, or None when it is a good one."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return f"a topic cannot be named '{name}'"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"a topic name can have at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}"
    if not _TOPIC_NAME.fullmatch(name):
        return f"a topic name can contain only letters, digits, '.', '_' and '-': {name!r}"
    return None

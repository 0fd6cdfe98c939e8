"""The OffsetCommit request that clients send most, and its answer: offsets of one topic, in a flexible version.

What `barnabas.wire.sole_produce` is for Produce. `read_sole_commit` takes versions 8 to 10, one topic with 1 to 126
partitions whose metadata is empty or null, names of fewer than 127 bytes, and no tagged fields; it says None to all
else, which the general decoder then looks at. In C (`_sole_commit.pyx`) or, where that could not be built, not at all.
"""

from typing import TypeAlias

from barnabas.wire.errors import ErrorCode
from barnabas.wire.primitives import Buffer

SoleCommit: TypeAlias = tuple[int, int, str, int, str, str | None, str | bytes, list[tuple[int, int, int]]]
"""Version, correlation id, group id, generation, member id, instance id, topic (its id's bytes from version 10 on), and
of each partition its number, the offset and the leader epoch."""

try:
    from barnabas.wire._sole_commit import read_sole_commit, write_commit_reply
except ImportError:

    def read_sole_commit(frame: Buffer) -> SoleCommit | None:
        return None

    def write_commit_reply(
        version: int,
        correlation_id: int,
        topic: str | bytes,
        partitions: list[tuple[int, int, int]],
        errors: list[ErrorCode],
    ) -> bytes:
        raise AssertionError("nothing was taken that could be answered")


__all__ = ["SoleCommit", "read_sole_commit", "write_commit_reply"]

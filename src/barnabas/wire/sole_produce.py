"""The Produce request that clients send most, and its answer: one batch for one partition, to be acknowledged.

A broker of small messages reads hardly anything else, so this one shape has a way of its own: `read_sole_produce` takes
the frame apart in one call, or says None, whatever the reason; the general decoders and the handler then look at it and
decide. What it takes is whole: null transactional id, acks 1 or all, one batch of magic 2 that begins at offset 0, is
not transactional, and fills the records to the last byte. `write_sole_reply` makes the answer to one that succeeded.

Both are in C (`_sole_produce.pyx`) or, where that could not be built, nothing is taken and everything goes the general
way. Tests hold them to what the general codecs read and write.
"""

from typing import TypeAlias

from barnabas.wire.primitives import Buffer

SoleProduce: TypeAlias = tuple[int, int, str, int, str | bytes, int, int, int]
"""Version, correlation id, client id, acks, topic (its id's bytes from version 13 on), partition, and where the batch
begins and ends in the frame."""

try:
    from barnabas.wire._sole_produce import read_sole_produce, write_sole_reply
except ImportError:

    def read_sole_produce(frame: Buffer) -> SoleProduce | None:
        return None

    def write_sole_reply(
        version: int,
        correlation_id: int,
        topic: str | bytes,
        index: int,
        base_offset: int,
        append_time_ms: int,
        log_start_offset: int,
    ) -> bytes:
        raise AssertionError("nothing was taken that could be answered")


__all__ = ["SoleProduce", "read_sole_produce", "write_sole_reply"]

"""The Fetch request that readers of one partition send, and its answer.

What `barnabas.wire.sole_produce` is for Produce. `read_sole_fetch` takes versions 12 to 18, one partition of one topic,
no replica's request, nothing to forget, no last fetched epoch and no tagged fields; it says None to all else, which the
general decoder then looks at. In C (`_sole_fetch.pyx`) or, where that could not be built, not at all.
"""

from typing import Final, Protocol

from barnabas.wire.primitives import NO_TAGGED_FIELDS, Buffer


class SoleFetch(Protocol):
    """Such a request."""

    version: int
    correlation_id: int
    client_id: str
    wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topic: str | bytes
    """From version 13 on the bytes of its id."""
    index: int
    leader_epoch: int
    offset: int
    partition_bytes_max: int


FETCH_REPLY_END: Final = 3 * NO_TAGGED_FIELDS
"""What follows the records: tagged fields of the partition, of the topic and of the answer."""

try:
    from barnabas.wire._sole_fetch import read_sole_fetch, write_fetch_reply
except ImportError:

    def read_sole_fetch(frame: Buffer) -> SoleFetch | None:
        return None

    def write_fetch_reply(
        version: int,
        correlation_id: int,
        session_id: int,
        topic: str | bytes,
        index: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        has_aborted: bool,
        records: bytes | None,
        records_bytes: int,
    ) -> bytes:
        raise AssertionError("nothing was taken that could be answered")


__all__ = ["FETCH_REPLY_END", "SoleFetch", "read_sole_fetch", "write_fetch_reply"]

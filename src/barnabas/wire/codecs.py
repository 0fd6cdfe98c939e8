"""Which codec reads the requests that come most, and writes their answers: the compiled one, or the reference alone.

Produce, Fetch and OffsetCommit have two codecs. The reference (`produce`, `fetch`, `commit`) reads every version and
shape. The compiled one (`_produce.pyx`, `_fetch.pyx`, `_commit.pyx`) reads whole frames of the usual shapes into the
same request objects and writes the same bytes from the same results; it declines everything else, with a reason, and
the reference does it then. So what is read never depends on the codec: tests hold the two to each other, byte by byte.

A `Codecs` is one such choice. `BARNABAS_CODECS=reference` in the environment chooses the reference for a process.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Final, TypeAlias

from barnabas.wire.apis import ApiKey
from barnabas.wire.commit import FLEXIBLE_FROM as COMMIT_FLEXIBLE_FROM
from barnabas.wire.commit import CommitResult, encode_committed
from barnabas.wire.fetch import FLEXIBLE_FROM as FETCH_FLEXIBLE_FROM
from barnabas.wire.fetch import EncodedFetch, Piece, Results, encode_fetched
from barnabas.wire.framing import response_start
from barnabas.wire.leaders import NodeEndpoint
from barnabas.wire.primitives import NO_TAGGED_FIELDS, Buffer
from barnabas.wire.produce import ProduceBatch, ProduceResult, encode_produced

COMPILED_APIS: Final = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT)
CODECS_VARIABLE: Final = "BARNABAS_CODECS"
_FETCH_FRAME_END: Final = 3 * NO_TAGGED_FIELDS
"""What follows the records of a fetched partition: tagged fields of the partition, of the topic and of the answer."""


class Declined(IntEnum):
    """Why the compiled codec leaves a frame to the reference."""

    VERSION = 1
    """An old version."""
    FIELD = 2
    """A field that nearly nobody sends: tagged ones, a transactional id, topics to forget."""
    LENGTH = 3
    """Longer than what is read at once."""
    MALFORMED = 4
    """It cannot be read; the reference says why."""


DecodedFrame: TypeAlias = tuple[int, int, str, Any]
"""Version, correlation id, client id, and the request object of the API."""
DecodeFrame: TypeAlias = Callable[[Buffer], DecodedFrame | int]
"""An int is a `Declined`."""


class Codecs:
    """The reference."""

    name = "reference"
    frame_decoders: ClassVar[Mapping[ApiKey, DecodeFrame]] = {}

    def produced(
        self,
        version: int,
        correlation_id: int,
        throttle_ms: int,
        batches: list[ProduceBatch],
        results: list[ProduceResult],
        endpoints: Sequence[NodeEndpoint] = (),
    ) -> bytes:
        """The frame that answers a Produce request."""
        body = encode_produced(version, batches, results, throttle_ms, endpoints)
        return response_start(ApiKey.PRODUCE, version, correlation_id, len(body)) + body

    def fetched(
        self,
        version: int,
        correlation_id: int,
        throttle_ms: int,
        session_id: int,
        results: Results,
        endpoints: Sequence[NodeEndpoint] = (),
        error_code: int = 0,
    ) -> bytes | list[Piece]:
        """The frame that answers a Fetch request, whole or in pieces."""
        encoded = encode_fetched(
            version,
            results,
            error_code=error_code,
            session_id=session_id,
            throttle_ms=throttle_ms,
            endpoints=endpoints,
        )
        return fetch_frame(version, correlation_id, encoded)

    def committed(self, version: int, correlation_id: int, throttle_ms: int, results: list[CommitResult]) -> bytes:
        """The frame that answers an OffsetCommit request."""
        body = encode_committed(version, results, throttle_ms)
        return response_start(ApiKey.OFFSET_COMMIT, version, correlation_id, len(body)) + body


def fetch_frame(version: int, correlation_id: int, encoded: EncodedFetch) -> bytes | list[Piece]:
    first, *others = encoded.pieces
    assert isinstance(first, bytes), "an answer begins with bytes"
    first = response_start(ApiKey.FETCH, version, correlation_id, encoded.length) + first  # one piece less to send
    return [first, *others] if others else first


REFERENCE: Final = Codecs()

try:
    from barnabas.wire._commit import decode_commit_frame, encode_committed_frame
    from barnabas.wire._fetch import decode_fetch_frame, encode_empty_fetch_frame, encode_fetched_frame
    from barnabas.wire._produce import decode_produce_frame, encode_produced_frame
except ImportError:
    COMPILED: Codecs | None = None
else:

    class _CompiledCodecs(Codecs):
        name = "compiled"
        frame_decoders: ClassVar[Mapping[ApiKey, DecodeFrame]] = {
            ApiKey.PRODUCE: decode_produce_frame,
            ApiKey.FETCH: decode_fetch_frame,
            ApiKey.OFFSET_COMMIT: decode_commit_frame,
        }

        def produced(
            self,
            version: int,
            correlation_id: int,
            throttle_ms: int,
            batches: list[ProduceBatch],
            results: list[ProduceResult],
            endpoints: Sequence[NodeEndpoint] = (),
        ) -> bytes:
            if not endpoints:
                frame = encode_produced_frame(version, correlation_id, throttle_ms, batches, results)
                if frame is not None:
                    return frame
            return super().produced(version, correlation_id, throttle_ms, batches, results, endpoints)

        def fetched(
            self,
            version: int,
            correlation_id: int,
            throttle_ms: int,
            session_id: int,
            results: Results,
            endpoints: Sequence[NodeEndpoint] = (),
            error_code: int = 0,
        ) -> bytes | list[Piece]:
            if version >= FETCH_FLEXIBLE_FROM and not (endpoints or error_code or len(results) > 1):
                if not results:
                    return encode_empty_fetch_frame(correlation_id, throttle_ms, session_id)
                ((key, result),) = results
                frame = encode_fetched_frame(version, correlation_id, throttle_ms, session_id, key, result)
                if frame is not None:
                    records = result.records
                    if records is None or isinstance(records, bytes):
                        return frame
                    return [frame, records, _FETCH_FRAME_END]
            return super().fetched(version, correlation_id, throttle_ms, session_id, results, endpoints, error_code)

        def committed(self, version: int, correlation_id: int, throttle_ms: int, results: list[CommitResult]) -> bytes:
            if version >= COMMIT_FLEXIBLE_FROM:
                frame = encode_committed_frame(correlation_id, throttle_ms, results)
                if frame is not None:
                    return frame
            return super().committed(version, correlation_id, throttle_ms, results)

    COMPILED = _CompiledCodecs()


def default_codecs() -> Codecs:
    """The compiled ones where they could be built, unless the environment says otherwise."""
    if COMPILED is None or os.environ.get(CODECS_VARIABLE) == REFERENCE.name:
        return REFERENCE
    return COMPILED

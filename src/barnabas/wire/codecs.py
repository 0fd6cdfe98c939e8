"""Which codec reads the requests that come most, and writes their answers: the compiled one, or the reference alone.

Produce, Fetch and OffsetCommit have two codecs. The reference (`produce`, `fetch`, `commit`) reads every version and
shape. The compiled one (`_produce.pyx`, `_fetch.pyx`, `_commit.pyx`) reads whole frames of the usual shapes into the
same request objects and writes the same bytes from the same results; it declines everything else, with a reason, and
the reference does it then. So what is read never depends on the codec: tests hold the two to each other, byte by byte.

A `Codecs` is one such choice. `BARNABAS_CODECS=reference` in the environment chooses the reference for a process.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Protocol, TypeAlias

from barnabas.base.buffers import Buffer
from barnabas.wire.apis import ApiKey
from barnabas.wire.commit import CommitResult, committed_frame
from barnabas.wire.fetch import FetchPiece, Results, fetched_frame
from barnabas.wire.leaders import NodeEndpoint
from barnabas.wire.produce import ProduceBatch, ProduceResult, produced_frame

COMPILED_APIS: Final = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT)
CODECS_VARIABLE: Final = "BARNABAS_CODECS"


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


class EncodeProduced(Protocol):
    """Makes the frame that answers a Produce request."""

    def __call__(
        self,
        version: int,
        correlation_id: int,
        throttle_ms: int,
        batches: list[ProduceBatch],
        results: list[ProduceResult],
        endpoints: Sequence[NodeEndpoint] = (),
    ) -> bytes: ...


class EncodeFetched(Protocol):
    """Makes the frame that answers a Fetch request, whole or in pieces."""

    def __call__(
        self,
        version: int,
        correlation_id: int,
        throttle_ms: int,
        session_id: int,
        results: Results,
        endpoints: Sequence[NodeEndpoint] = (),
        error_code: int = 0,
    ) -> bytes | list[FetchPiece]: ...


class EncodeCommitted(Protocol):
    """Makes the frame that answers an OffsetCommit request."""

    def __call__(self, version: int, correlation_id: int, throttle_ms: int, results: list[CommitResult]) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Codecs:
    """Those of a broker. The encoders of the compiled one leave to the reference what they do not know."""

    name: str
    frame_decoders: Mapping[ApiKey, DecodeFrame]
    produced: EncodeProduced
    fetched: EncodeFetched
    committed: EncodeCommitted


REFERENCE: Final = Codecs("reference", {}, produced_frame, fetched_frame, committed_frame)

try:
    from barnabas.wire._commit import decode_commit_frame, encode_committed_frame
    from barnabas.wire._fetch import decode_fetch_frame, encode_fetched_frame
    from barnabas.wire._produce import decode_produce_frame, encode_produced_frame
except ImportError:
    COMPILED: Codecs | None = None
else:
    COMPILED = Codecs(
        "compiled",
        {
            ApiKey.PRODUCE: decode_produce_frame,
            ApiKey.FETCH: decode_fetch_frame,
            ApiKey.OFFSET_COMMIT: decode_commit_frame,
        },
        encode_produced_frame,
        encode_fetched_frame,
        encode_committed_frame,
    )


def default_codecs() -> Codecs:
    """The compiled ones where they could be built, unless the environment says otherwise."""
    if COMPILED is None or os.environ.get(CODECS_VARIABLE) == REFERENCE.name:
        return REFERENCE
    return COMPILED

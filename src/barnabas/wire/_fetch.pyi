from collections.abc import Sequence

from barnabas.base.buffers import Buffer
from barnabas.wire.fetch import Fetch, FetchPiece, Results
from barnabas.wire.leaders import NodeEndpoint

def decode_fetch_frame(frame: Buffer) -> tuple[int, int, str, Fetch] | int: ...
def encode_fetched_frame(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    session_id: int,
    results: Results,
    endpoints: Sequence[NodeEndpoint] = (),
    error_code: int = 0,
) -> bytes | list[FetchPiece]: ...

from collections.abc import Sequence

from barnabas.wire.fetch import Fetch, Piece, Results
from barnabas.wire.leaders import NodeEndpoint
from barnabas.wire.primitives import Buffer

def decode_fetch_frame(frame: Buffer) -> tuple[int, int, str, Fetch] | int: ...
def encode_fetched_frame(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    session_id: int,
    results: Results,
    endpoints: Sequence[NodeEndpoint] = (),
    error_code: int = 0,
) -> bytes | list[Piece]: ...

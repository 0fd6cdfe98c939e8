from collections.abc import Sequence

from barnabas.base.buffers import Buffer
from barnabas.wire.leaders import NodeEndpoint
from barnabas.wire.produce import Produce, ProduceBatch, ProduceResult

def decode_produce_frame(frame: Buffer) -> tuple[int, int, str, Produce] | int: ...
def encode_produced_frame(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    batches: list[ProduceBatch],
    results: list[ProduceResult],
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes: ...

from barnabas.wire.primitives import Buffer

def read_sole_produce(frame: Buffer) -> tuple[int, int, str, int, str | bytes, int, int, int] | None: ...
def write_sole_reply(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    index: int,
    base_offset: int,
    append_time_ms: int,
    log_start_offset: int,
) -> bytes: ...

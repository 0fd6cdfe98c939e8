from barnabas.wire.primitives import Buffer
from barnabas.wire.sole_fetch import SoleFetch

def read_sole_fetch(frame: Buffer) -> SoleFetch | None: ...
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
) -> bytes: ...

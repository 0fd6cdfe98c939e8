from barnabas.wire.errors import ErrorCode
from barnabas.wire.primitives import Buffer

def read_sole_commit(
    frame: Buffer,
) -> tuple[int, int, str, int, str, str | None, str | bytes, list[tuple[int, int, int]]] | None: ...
def write_commit_reply(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    partitions: list[tuple[int, int, int]],
    errors: list[ErrorCode],
) -> bytes: ...

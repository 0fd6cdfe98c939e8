from barnabas.base.buffers import Buffer
from barnabas.wire.commit import CommitResult, OffsetCommit

def decode_commit_frame(frame: Buffer) -> tuple[int, int, str, OffsetCommit] | int: ...
def encode_committed_frame(
    version: int, correlation_id: int, throttle_ms: int, results: list[CommitResult]
) -> bytes: ...

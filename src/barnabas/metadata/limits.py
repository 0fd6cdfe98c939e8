"""How large a write may be, in every store, so that what works on one broker works in a cluster. Pure.

ZooKeeper reads at most `WRITE_BYTES_MAX` of a request and drops the connection that sent more (`jute.maxbuffer`).
A request holds, for each operation, its path and data, and what `OPERATION_BYTES` allows for: lengths, flags, access
list, and the chroot in front of the path, which has at most `CHROOT_BYTES_MAX`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from barnabas.metadata.errors import WriteTooLarge
from barnabas.metadata.store import Create, Operation, SetData

WRITE_BYTES_MAX: Final = 0xF_FFFF
OPERATION_BYTES: Final = 256
CHROOT_BYTES_MAX: Final = 128


def check_size(operations: Sequence[Operation]) -> None:
    """Raises `WriteTooLarge`, with the path of the largest operation."""
    total_bytes = sum(map(_size_bytes, operations))
    if total_bytes > WRITE_BYTES_MAX:
        raise WriteTooLarge(max(operations, key=_size_bytes).path, total_bytes, WRITE_BYTES_MAX)


def in_batches(operations: Iterable[Operation], count_max: int) -> Iterator[list[Operation]]:
    """Splits operations, in their order, into batches of at most `count_max` that fit into one write."""
    batch: list[Operation] = []
    batch_bytes = 0
    for operation in operations:
        size_bytes = _size_bytes(operation)
        if batch and (len(batch) == count_max or batch_bytes + size_bytes > WRITE_BYTES_MAX):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(operation)
        batch_bytes += size_bytes
    if batch:
        yield batch


def _size_bytes(operation: Operation) -> int:
    path = operation.path
    path_bytes = len(path) if path.isascii() else len(path.encode(errors="surrogatepass"))
    data_bytes = len(operation.data) if isinstance(operation, Create | SetData) else 0
    return path_bytes + data_bytes + OPERATION_BYTES

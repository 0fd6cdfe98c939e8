"""The checksum of a batch, and the changes to a batch that require a new one.

CRC-32C comes from the compiled kernel or, where that could not be built, from the `crc32c` package, whose import takes
a twentieth of a broker's start.
"""

from struct import Struct
from typing import Final

from barnabas.base.buffers import Buffer
from barnabas.records.batch import CRC_START, HEADER_BYTES, PREFIX_BYTES, BatchHeader

try:
    from barnabas.records._kernel import crc32c
except ImportError:
    from crc32c import crc32c  # type: ignore[assignment] # without `portable`, which nobody asks for here

_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")


def compute_crc(batch: Buffer) -> int:
    """The checksum that belongs into the header of this batch."""
    return crc32c(memoryview(batch)[CRC_START:])


def rewrite(batch: memoryview, attributes: int, max_timestamp: int) -> None:
    """Changes attributes and largest timestamp in place, and renews the checksum that covers them."""
    _ATTRIBUTES.pack_into(batch, 21, attributes)
    _MAX_TIMESTAMP.pack_into(batch, 35, max_timestamp)
    _CRC.pack_into(batch, 17, compute_crc(batch))


def with_records(header: BatchHeader, records: Buffer) -> bytearray:
    """A new batch with this header's fields and these (possibly compressed) records; length and checksum are set."""
    batch = bytearray(HEADER_BYTES + len(records))
    batch[HEADER_BYTES:] = records
    batch[:HEADER_BYTES] = header._replace(length=len(batch) - PREFIX_BYTES).pack()
    _CRC.pack_into(batch, 17, compute_crc(batch))
    return batch

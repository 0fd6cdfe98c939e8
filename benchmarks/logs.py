"""What the log benchmarks share: batches of 100-byte records, and logs in a temporary directory."""

import array
from random import Random

from barnabas.base.clock import SystemClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import Codec
from barnabas.records.columns import encode_batches
from barnabas.records.results import Columns
from barnabas.storage.log.log import Log
from barnabas.storage.log.recovery import RecoveryReport, open_log
from barnabas.storage.segment.handles import Handles
from barnabas.storage.settings import LogConfig

VALUE_BYTES = 100


def make_columns(count: int, now_ms: int) -> Columns:
    """`count` rows without key and headers, with values of 100 bytes."""
    values = Random(7).randbytes(VALUE_BYTES * 997)
    data = bytearray()
    while len(data) < count * VALUE_BYTES:
        data += values
    return Columns(
        count=count,
        offsets=array.array("q", range(count)),
        timestamps=array.array("q", [now_ms] * count),
        key_offsets=array.array("i", [0] * (count + 1)),
        key_data=b"",
        key_validity=bytes((count + 7) // 8),
        value_offsets=array.array("i", range(0, (count + 1) * VALUE_BYTES, VALUE_BYTES)),
        value_data=bytes(data[: count * VALUE_BYTES]),
        value_validity=None,
        header_list_offsets=array.array("i", [0] * (count + 1)),
        header_key_offsets=array.array("i", [0]),
        header_key_data=b"",
        header_value_offsets=array.array("i", [0]),
        header_value_data=b"",
        header_value_validity=None,
    )


def make_batch(batch_bytes: int, codec: Codec = Codec.NONE) -> bytearray:
    """One batch of about `batch_bytes`, full of 100-byte records."""
    columns = make_columns(batch_bytes // VALUE_BYTES + 1, SystemClock().now_ms())
    return next(encode_batches(columns, codec=codec, max_batch_bytes=batch_bytes))


def open_at(directory: str, config: LogConfig, **options: object) -> tuple[Log, RecoveryReport]:
    return open_log(
        LocalFileSystem(),
        Handles(),
        SystemClock(),
        Random(1),
        directory,
        TopicPartition("bench", 0),
        config,
        **options,  # type: ignore[arg-type]
    )

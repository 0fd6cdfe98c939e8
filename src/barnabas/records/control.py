"""Control records: what the brokers write between the records of the clients.

```
key    version int16 (0), type int16
value  of an end-transaction marker: version int16 (0), coordinator epoch int32
```

A batch with the control attribute holds one such record. Only the two markers that end a transaction mean
something to the log; the types of KRaft's metadata log are known by name and otherwise left alone. Later
versions may add fields at the end, which are ignored.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from barnabas.base.buffers import Buffer
from barnabas.base.errors import InvalidRecords
from barnabas.base.ids import NO_EPOCH
from barnabas.records.batch import read_header
from barnabas.records.builder import BatchBuilder, Record
from barnabas.records.reader import read_records

_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of one producer's transaction in a partition."""

    is_commit: bool
    coordinator_epoch: int

    def encode_key(self) -> bytes:
        return _KEY.pack(_VERSION, ControlType.COMMIT if self.is_commit else ControlType.ABORT)

    def encode_value(self) -> bytes:
        return _MARKER_VALUE.pack(_VERSION, self.coordinator_epoch)


def read_control_type(key: bytes | None) -> ControlType:
    """What kind of control record has this key; a type that is not known yet is `UNKNOWN`, not an error."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecords(f"a control record with a key of {0 if key is None else len(key)} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecords(f"a control record of version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def read_marker(record: Record) -> EndTransactionMarker | None:
    """The marker that a control record is, or None when it is of another type."""
    kind = read_control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise InvalidRecords("an end-transaction marker without a coordinator epoch")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    if version < 0:
        raise InvalidRecords(f"an end-transaction marker of version {version}")
    return EndTransactionMarker(kind is ControlType.COMMIT, coordinator_epoch)


def read_batch_marker(batch: Buffer) -> EndTransactionMarker | None:
    """The marker in a batch, or None in a data batch, another control type or one emptied by compaction."""
    if not read_header(batch).is_control:
        return None
    record = next(read_records(batch), None)
    return None if record is None else read_marker(record)


def build_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
) -> bytearray:
    """The batch that ends a transaction, as a coordinator has it written to each partition."""
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    builder.append(timestamp, marker.encode_key(), marker.encode_value())
    return builder.build()

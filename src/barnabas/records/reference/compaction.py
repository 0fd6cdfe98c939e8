"""The two halves of compaction: remember the newest offset of every key, then drop what is older."""

from hashlib import blake2b

from barnabas.base.buffers import Buffer
from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.base.ids import NO_TIMESTAMP
from barnabas.records.builder import encode_varint
from barnabas.records.reference.parse import ParsedRecord, parse_records, wrap_int64
from barnabas.records.results import FilteredRecords

SLOT_BYTES = 24
"""A hash of 128 bits and an offset of 64, as the compiled map lays them out."""
SECRET_BYTES = 16
OFFSET_MAX = 2**63 - 2


class KeyOffsets:
    """A bounded map from keyed hashes of keys to their newest offsets.

    A key is known by 128 bits of a hash under a secret, so that two keys practically never meet in one slot
    and nobody without the secret can make them. The map never leaves memory: the compiled one hashes
    otherwise.
    """

    def __init__(self, memory_bytes: int, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret has {len(secret)} bytes, not {SECRET_BYTES}")
        if memory_bytes < 2 * SLOT_BYTES:
            raise ValueError(f"{memory_bytes} bytes hold no map")
        self._secret = secret
        self.capacity = memory_bytes // SLOT_BYTES * 9 // 10
        self._offsets: dict[bytes, int] = {}
        self._last_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_offset(self) -> int:
        """The largest offset of a record that was taken, with a key or without; -1 at first."""
        return self._last_offset

    def clear(self) -> None:
        self._offsets.clear()
        self._last_offset = -1

    def add_records(self, records: Buffer, count: int, base_offset: int) -> int:
        """Takes the records of a batch in order and returns how many: fewer than `count` when the map is
        full.

        Records without a key are taken and not remembered.
        """
        if base_offset < 0:
            raise CorruptBatch("the offsets are impossible")
        taken = 0
        for record in parse_records(memoryview(records), count):
            if record.offset_delta < 0 or base_offset + record.offset_delta > OFFSET_MAX:
                raise CorruptBatch("the offsets are impossible")
            offset = base_offset + record.offset_delta
            if record.key is not None:
                hashed = self._hash(record.key)
                known = self._offsets.get(hashed)
                if known is None and len(self._offsets) == self.capacity:
                    return taken
                self._offsets[hashed] = offset if known is None else max(offset, known)
            self._last_offset = max(self._last_offset, offset)
            taken += 1
        return taken

    def latest(self, key: bytes) -> int:
        """The newest offset of the key, -1 when it is not in the map."""
        return self._offsets.get(self._hash(key), -1)

    def _hash(self, key: Buffer) -> bytes:
        return blake2b(key, digest_size=16, key=self._secret).digest()


def filter_records(
    records: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    newest: KeyOffsets,
    *,
    drop_tombstones: bool,
    new_base_timestamp: int,
) -> FilteredRecords:
    """The records that compaction keeps: those with a key of which `newest` knows no newer offset.

    Tombstones (null values) go too when `drop_tombstones` says so. Offset deltas stay; timestamp deltas are
    counted from `new_base_timestamp`, which is how a delete horizon takes the place of the base timestamp.
    """
    if base_offset < 0:
        raise CorruptBatch("the offsets are impossible")
    kept: list[tuple[int, ParsedRecord]] = []
    previous_delta = -1
    for record in parse_records(memoryview(records), count):
        if record.offset_delta <= previous_delta:
            raise InvalidRecords("the offset deltas do not increase")
        if base_offset + record.offset_delta > OFFSET_MAX:
            raise CorruptBatch("the offsets are impossible")
        previous_delta = record.offset_delta
        is_dropped_tombstone = drop_tombstones and record.value is None
        if record.key is None or is_dropped_tombstone:
            continue
        if base_offset + record.offset_delta >= newest.latest(bytes(record.key)):
            kept.append((wrap_int64(base_timestamp + record.timestamp_delta), record))
    has_changed = len(kept) < count or base_timestamp != new_base_timestamp
    max_timestamp = max((timestamp for timestamp, _ in kept), default=NO_TIMESTAMP)
    return FilteredRecords(
        b"".join(_rebase(record, timestamp, base_timestamp, new_base_timestamp) for timestamp, record in kept)
        if has_changed
        else None,
        len(kept),
        max_timestamp,
        next((record.offset_delta for timestamp, record in kept if timestamp == max_timestamp), -1),
        any(record.value is None for _, record in kept),
        kept[-1][1].offset_delta if kept else -1,
    )


def _rebase(record: ParsedRecord, timestamp: int, base_timestamp: int, new_base_timestamp: int) -> bytes:
    if base_timestamp == new_base_timestamp:
        return bytes(record.whole)
    delta = encode_varint(wrap_int64(timestamp - new_base_timestamp))
    body = b"".join((bytes((record.attributes,)), delta, record.after_timestamp))
    if len(body) > 2**31 - 1:
        raise InvalidRecords("a length reaches beyond what contains it")
    return encode_varint(len(body)) + body

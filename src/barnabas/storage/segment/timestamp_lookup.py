"""The record for a time within the one batch that holds it: the part of a search that may take long.

A compressed batch has to be expanded, and may hold millions of records in little space, so an event loop leaves it to a
worker thread. For a batch that expands to more than the limit, which an older version took, the answer is its first
record: a reader that starts there misses nothing.
"""

from typing import Final, NamedTuple

from barnabas.base.errors import ExpandsTooFar
from barnabas.base.ids import LeaderEpoch, Offset, TimestampMs
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader, Codec
from barnabas.records.compression import expanded_records

_ANY_TIME: Final = -(2**63)


class FoundTimestamp(NamedTuple):
    """The record that a search by time ended at."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch


class TimestampLookup(NamedTuple):
    """Touches nothing but its batch."""

    header: BatchHeader
    batch: bytes
    target: TimestampMs
    first_offset: Offset

    @property
    def is_long(self) -> bool:
        return self.header.codec_number != Codec.NONE

    def run(self) -> FoundTimestamp | None:
        """The first record at or after `first_offset` whose timestamp is at least `target`."""
        header = self.header
        first_delta = max(0, self.first_offset - header.base_offset)
        try:
            records = expanded_records(header, memoryview(self.batch))
        except ExpandsTooFar:
            return FoundTimestamp(header.max_timestamp, header.base_offset + first_delta, header.leader_epoch)
        # With log-append time every record has that of the batch, whatever it says itself.
        target = _ANY_TIME if header.is_log_append_time else self.target
        found = kernel.find_timestamp(records, header.count, header.base_timestamp, target, first_delta)
        if found is None:
            return None
        delta, timestamp = found
        if header.is_log_append_time:
            timestamp = header.max_timestamp
        return FoundTimestamp(timestamp, header.base_offset + delta, header.leader_epoch)

"""Which names of a log's segments survive a power loss.

A file system may keep any of the directory operations since the last sync and lose the others. A segment therefore
leaves a log only when the name of one that stays is durable (`barnabas.storage.log.expiry`): else recovery could find
none at all, and the log would begin again at offset 0. `Flushing` syncs the directory and notes here what that covered.
"""

from barnabas.base.ids import Offset
from barnabas.storage.segment.segments import Segments


class DurableNames:
    """Of one log, as far as it is known. Owner: the log."""

    __slots__ = ("first_offset", "last_offset")

    def __init__(self, first_offset: Offset = 0, last_offset: Offset = -1) -> None:
        self.first_offset = first_offset
        """Every segment below has left, and no power loss brings it back."""
        self.last_offset = last_offset
        """The base offset of the newest segment with a durable name; -1 when none is known."""

    @classmethod
    def after_clean_stop(cls, segments: Segments) -> "DurableNames":
        return cls(segments[0].base_offset, segments.active.base_offset)

    @classmethod
    def after_crash(cls, segments: Segments, recovery_point: Offset) -> "DurableNames":
        """A segment that begins at the recovery point may have been made after that was reached."""
        slot = segments.slot_of(recovery_point - 1)
        return cls(0, segments[slot].base_offset if slot >= 0 else -1)

    def has_unsynced_departures(self, segments: Segments) -> bool:
        """Whether a segment may have left since the directory was synced."""
        return self.first_offset != segments[0].base_offset

    def cut(self, segments: Segments) -> None:
        """The log was truncated: these segments are left, if any."""
        self.last_offset = min(self.last_offset, segments.active.base_offset if len(segments) else -1)

    def restart(self, offset: Offset) -> None:
        """The log has one segment, here, and its directory is synced."""
        self.first_offset = self.last_offset = offset

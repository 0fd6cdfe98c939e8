"""How full the disk of a log directory is: sampled now and then, and learned from writes that were refused.

```
            a write is refused for lack of space
   (room) ───────────────────────────────────────▶ full ──┐ refused again: said once a minute
      ▲                                              │  ◀─┘
      └──────────────────────────────────────────────┘
        no refusal for some seconds, and the log that was refused has been written, or space was freed
```

Free space alone does not tell: quotas, reserved blocks and preallocated files refuse before it is zero. A directory
that is full takes small records and refuses large ones, so a single write that succeeds does not end it.

Owner: the log manager's thread.
"""

import logging
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFull
from barnabas.base.ids import Offset, TimestampMs
from barnabas.base.logs import RepeatedWarning
from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)

SAMPLE_INTERVAL_MS: Final = 10_000
SAMPLE_INTERVAL_WHEN_FULL_MS: Final = 1_000

_QUIET_MS: Final = 3_000
_FREED_BYTES_MIN: Final = 1 << 20
_REPEAT_SECONDS: Final = 60.0


class DirectorySpace:
    def __init__(self, path: str) -> None:
        self._path = path
        self._warning: RepeatedWarning | None = None
        self._refused_ms: TimestampMs = 0
        self._refused_log: tuple[Log, Offset] | None = None
        """The log that was refused last, and where it ended."""
        self._lowest_bytes: int | None = None
        """The least that was free since the directory is full."""
        self._sample_ms: TimestampMs = 0
        self._is_sampling = False
        self.free_bytes: int | None = None
        """By the last sample."""
        self.refusal: DiskFull | None = None
        """The last write that was refused, while the directory counts as full."""

    def refused(self, refusal: DiskFull, log: Log | None, clock: Clock) -> None:
        """There was no room for a write: to this log, or to a file of the directory's own."""
        if self.refusal is None or self._warning is None:
            self._warning = RepeatedWarning(logger, clock.monotonic, _REPEAT_SECONDS)
            self._lowest_bytes = None
        self.refusal = refusal
        self._refused_ms = clock.steady_ms()
        if log is not None:
            self._refused_log = log, log.end_offset
        self._warning.warn("%s is full, writes are refused until there is space: %s", self._path, refusal)

    def must_sample(self, now_ms: TimestampMs) -> bool:
        """Whether it is time to look; then `sampled` or `sample_failed` follows."""
        if self._is_sampling or now_ms < self._sample_ms:
            return False
        self._is_sampling = True
        return True

    def sample_failed(self) -> None:
        self._is_sampling = False

    def sampled(self, free_bytes: int, now_ms: TimestampMs) -> None:
        self._is_sampling = False
        self.free_bytes = free_bytes
        if self.refusal is not None and self._has_room(free_bytes, now_ms):
            self.refusal = self._refused_log = None
            logger.info("%s has room again: %d bytes are free", self._path, free_bytes)
        self._sample_ms = now_ms + (SAMPLE_INTERVAL_WHEN_FULL_MS if self.refusal else SAMPLE_INTERVAL_MS)

    def _has_room(self, free_bytes: int, now_ms: TimestampMs) -> bool:
        lowest = free_bytes if self._lowest_bytes is None else min(free_bytes, self._lowest_bytes)
        self._lowest_bytes = lowest
        if now_ms - self._refused_ms < _QUIET_MS:
            return False
        has_written = self._refused_log is not None and self._refused_log[0].end_offset > self._refused_log[1]
        return has_written or free_bytes - lowest >= _FREED_BYTES_MIN

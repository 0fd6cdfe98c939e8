"""When a process that has died is started again, and when that is given up. Pure.

The first time at once, then after longer and longer pauses. A process that dies `DEATHS_MAX` times within
`WINDOW_SECONDS`, or as often in a row without becoming ready, is in a crash loop, and is not started again.
"""

import math
from dataclasses import dataclass
from typing import Final

DEATHS_MAX: Final = 5
WINDOW_SECONDS: Final = 30.0
PAUSES_SECONDS: Final = (0.0, 0.5, 1.0, 2.0)
"""After the first death that counts, the second, and so on."""

assert len(PAUSES_SECONDS) == DEATHS_MAX - 1


@dataclass(frozen=True, slots=True)
class Deaths:
    """When a process died, as far as it still counts."""

    times: tuple[float, ...] = ()

    def and_at(self, now: float, *, was_ready: bool) -> "Deaths":
        """With one more death. When the process was ready before it, earlier deaths than the window are forgotten."""
        since = now - WINDOW_SECONDS if was_ready else -math.inf
        return Deaths((*(time for time in self.times if time > since), now))

    @property
    def is_crash_loop(self) -> bool:
        return len(self.times) >= DEATHS_MAX

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next start."""
        assert self.times, "nobody starts again what did not die"
        assert not self.is_crash_loop, "it is not started again"
        return PAUSES_SECONDS[len(self.times) - 1]

"""The replies that a tick sends, for a test that has no connections."""

from collections.abc import Callable


class PlayedReplies:
    def __init__(self, on_flush: Callable[[], None] = lambda: None) -> None:
        self.is_expected = False
        self._on_flush = on_flush

    def flush(self) -> None:
        self.is_expected = False
        self._on_flush()

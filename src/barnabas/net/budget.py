"""How much memory the requests of all connections may take together (`queued.max.request.bytes`).

A request counts from the moment its length is known until it is answered. When the budget is spent, connections stop
reading and wait in line; a frame that began within the budget is always received to its end, so the last one may
exceed it, as in Kafka.
"""

from collections.abc import Callable


class FrameBudget:
    __slots__ = ("_bytes_max", "_waiting", "bytes_in_use")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[Callable[[], None], None] = {}
        self.bytes_in_use = 0

    @property
    def is_spent(self) -> bool:
        return self.bytes_in_use >= self._bytes_max

    def take(self, count: int) -> None:
        self.bytes_in_use += count

    def give_back(self, count: int) -> None:
        self.bytes_in_use -= count
        assert self.bytes_in_use >= 0, "more was given back than taken"
        while self._waiting and not self.is_spent:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()

    def wait(self, resume: Callable[[], None]) -> None:
        """`resume` is called once, when there is room again."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        self._waiting.pop(resume, None)

"""Leaders that seem to be gone: what clients are told in the moments in which the next ones are elected.

A process that dies closes its connections at once, before the controller knows. What a fetcher sees counts here:

```
the leader's end of the connection closes ──▶ lost ──▶ a connect succeeds, fails in another way than by a refusal,
                                                       the broker registers again, or the time is over ──▶ not lost
```

It decides nothing: who leads is what the image says. A cut network closes no connection, and is no sign. But a client
that is sent to a dead leader once more may not ask again for a second (librdkafka). So partitions of a lost leader are
told to have none; in the first moment an answer about them waits, because the next leader is mostly a matter of
milliseconds; and the broker stays listed for a while when its registration is gone: librdkafka 2.10 and later forgets
at once which partitions it has just moved away from a broker that is not listed any more.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from barnabas.base.clock import Clock
from barnabas.metadata.image import RegisteredBroker

_MOMENT_SECONDS: Final = 0.25
_LISTED_SECONDS: Final = 0.5


class _Loss(NamedTuple):
    broker: RegisteredBroker
    at: float


class LostLeaders:
    """Owner: the broker's event loop."""

    def __init__(self, clock: Clock, broker_of: Callable[[int], RegisteredBroker | None], seconds_max: float) -> None:
        """`broker_of` is a broker as the image has it; a dead one stays registered for `seconds_max` at most."""
        self._clock = clock
        self._broker_of = broker_of
        self._seconds_max = seconds_max
        self._losses: dict[int, _Loss] = {}

    def lost(self, broker_id: int) -> None:
        broker = self._broker_of(broker_id)
        if broker is not None:
            self._losses[broker_id] = _Loss(broker, self._clock.monotonic())

    def found(self, broker_id: int) -> None:
        self._losses.pop(broker_id, None)

    def __contains__(self, broker_id: object) -> bool:
        return any(loss.broker.id == broker_id for loss in self._known(self._seconds_max, is_registered=True))

    @property
    def moment_seconds(self) -> float:
        """What is left of the first moment after a loss; 0 mostly."""
        now = self._clock.monotonic()
        return max((loss.at + _MOMENT_SECONDS - now for loss in self._losses.values()), default=0.0)

    def still_listed(self) -> Iterator[RegisteredBroker]:
        """Those whose registrations have just gone."""
        return (loss.broker for loss in self._known(_LISTED_SECONDS, is_registered=False))

    def _known(self, seconds: float, *, is_registered: bool) -> Iterator[_Loss]:
        """Losses that are not older than that, of registrations that are there, or are gone without another one."""
        now = self._clock.monotonic()
        for loss in self._losses.values():
            broker = self._broker_of(loss.broker.id)
            is_there = broker is not None and broker.epoch == loss.broker.epoch
            if now < loss.at + seconds and (is_there if is_registered else broker is None):
                yield loss

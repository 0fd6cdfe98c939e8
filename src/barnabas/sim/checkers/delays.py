"""How long an answer may have been on its way: a client notes an answer when it gets it, not when the broker gave it.

Usually that takes a millisecond. A cut or slow link holds an answer back, and a client that is paused does not look at
it: then it may be as old as the fault that held it back, and the broker may have lost power in between.
"""

import re
from collections.abc import Iterable
from typing import Final

from barnabas.sim.histories.events import Happened, History

USUAL_SECONDS: Final = 0.05
AFTER_SECONDS: Final = 8.0
"""How long a fault is felt after its end. A client waits no longer for an answer."""
_HOLDING: Final = frozenset({"cut", "slow link", "pause"})
_SECONDS: Final = re.compile(r"([0-9.]+) s$")


class Delays:
    def __init__(self, history: History) -> None:
        self._spans: dict[str, list[tuple[float, float]]] = {}
        for event in history.of(Happened):
            lasts = _SECONDS.search(event.details)
            if event.what in _HOLDING and lasts is not None:
                span = (event.at, event.at + float(lasts[1]) + AFTER_SECONDS)
                self._spans.setdefault(event.client, []).append(span)

    def given_after(self, client: str, at: float) -> float:
        """The earliest moment at which the broker may have given an answer that the client noted at this time."""
        earliest = at - USUAL_SECONDS
        for start, end in sorted(self._spans.get(client, ()), reverse=True):
            if start <= earliest <= end:
                earliest = start - USUAL_SECONDS
        return earliest

    def is_any_late(self, hosts: Iterable[str], at: float) -> bool:
        """Whether one of these may not have heard of what others did before this time."""
        return any(start <= at <= end for host in hosts for start, end in self._spans.get(host, ()))

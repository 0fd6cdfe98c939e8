"""When a broker is taken for dead, so that its session is ended before it times out. Pure.

A process that dies leaves two signs: its connections close, and nobody listens at its address, which its host says at
once. A host that is gone, a cut network and a process that hangs show neither, and are never suspected.

```
a connection closed ──▶ PROBE ──two refusals in a row──▶ own vote is a majority? ── yes ──────────▶ END
                         │  ▲                                └─ no ──▶ ASK the others ── enough ──▶ END
                         └──┘ any other outcome, up to `PROBES_MAX`          └── too few ──▶ DISMISS
                         └── that often ──▶ DISMISS
```

Of a broker the controller alone decides. Of the controller its peers do, all other registered brokers: a majority of
them must be refused. A live broker that is taken for dead loses its session, which every broker survives at any moment;
it costs its followers a moment, so it happens `ENDS_MAX` times an hour to one broker at most.
"""

import enum
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

PROBES_MAX: Final = 4
ENDS_MAX: Final = 5
"""Sessions of one broker that are ended in an hour."""
_HOUR_SECONDS: Final = 3600.0
_QUIET_SECONDS: Final = 1.0
"""After an inquiry that came to nothing, if there is no new sign."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """One registration of a broker: its next one is another matter."""

    broker_id: int
    broker_epoch: int


def voters_about(
    broker_id: int, own_id: int, controller_id: int | None, registered: Collection[int]
) -> tuple[int, ...]:
    """Who decides about a broker, sorted; nobody where this broker has no say."""
    if broker_id == own_id or controller_id is None:
        return ()
    if controller_id == own_id:
        return (own_id,)
    voters = tuple(sorted(voter for voter in registered if voter != broker_id))
    return voters if broker_id == controller_id and own_id in voters else ()


class Step(enum.Enum):
    PROBE = "try to connect"
    ASK = "ask the other voters"
    END = "end its session"
    DISMISS = "it may live"


class Inquiry:
    """About one suspect: does `step` and reports what came of it, until that is END or DISMISS."""

    def __init__(self, own_id: int, voters: Collection[int]) -> None:
        assert own_id in voters, "who has no say does not ask"
        self.step = Step.PROBE
        self.others = tuple(voter for voter in voters if voter != own_id)
        self.votes_needed = len(voters) // 2
        """Of the others."""
        self._probes = 0
        self._refusals = 0

    def probed(self, *, is_refused: bool) -> None:
        assert self.step is Step.PROBE, "it was asked for"
        self._probes += 1
        self._refusals = self._refusals + 1 if is_refused else 0
        if self._refusals == 2:
            self.step = Step.ASK if self.votes_needed else Step.END
        elif self._probes == PROBES_MAX:
            self.step = Step.DISMISS

    def answered(self, votes: int) -> None:
        """So many of the others are refused, too."""
        assert self.step is Step.ASK, "it was asked for"
        self.step = Step.END if votes >= self.votes_needed else Step.DISMISS


@dataclass(slots=True)
class _Case:
    suspect: Suspect
    """The last one of this broker whose connection closed."""
    is_open: bool = False
    """Whether an inquiry is under way."""
    is_renewed: bool = False
    """Whether another connection closed meanwhile."""
    quiet_until: float = 0.0


class Suspicions:
    """What this broker has seen of the others, and what it has done about it. Bounded by the number of brokers."""

    def __init__(self) -> None:
        self._cases: dict[int, _Case] = {}
        self._ends: dict[int, deque[float]] = {}

    def connection_closed(self, suspect: Suspect) -> bool:
        """Whether an inquiry begins now."""
        case = self._cases.get(suspect.broker_id)
        if case is None or case.suspect.broker_epoch < suspect.broker_epoch:
            is_open = case is not None and case.is_open
            case = self._cases[suspect.broker_id] = _Case(suspect, is_open=is_open)
        if case.suspect != suspect:
            return False
        case.is_renewed = case.is_open
        return self._begin(case)

    def connect_failed(self, suspect: Suspect, now: float) -> bool:
        """The same; where no connection had been there before, that is no sign of a death."""
        case = self._cases.get(suspect.broker_id)
        return case is not None and case.suspect == suspect and now >= case.quiet_until and self._begin(case)

    def _begin(self, case: _Case) -> bool:
        is_new, case.is_open = not case.is_open, True
        return is_new

    def closed(self, broker_id: int, now: float) -> Suspect | None:
        """An inquiry is over. Whom the next one is about, that begins now."""
        case = self._cases[broker_id]
        case.is_open, case.quiet_until = case.is_renewed, now + _QUIET_SECONDS
        case.is_renewed = False
        return case.suspect if case.is_open else None

    def may_end(self, broker_id: int, now: float) -> bool:
        ends = self._ends.get(broker_id)
        while ends and ends[0] <= now - _HOUR_SECONDS:
            ends.popleft()
        return not ends or len(ends) < ENDS_MAX

    def ended(self, broker_id: int, now: float) -> None:
        self._ends.setdefault(broker_id, deque()).append(now)

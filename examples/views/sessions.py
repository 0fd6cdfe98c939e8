"""Makes sessions of page views: those of one user that are less than `GAP_MS` apart.

State, for each user: the sessions that are still open, in order of time and at least a gap apart. Most users have one;
there are several when views come out of order, and a view between two of them makes them one. So the result does not
depend on the order in which views come.

A session is closed by a timer when the watermark has passed its last view by a gap. Spark drops views that are older
than the watermark before they come here, so nothing can belong to a closed session any more: each is given once.

Times are milliseconds since 1970, as timers want them.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

GAP_MS: Final = 30 * 60 * 1000


class Session(NamedTuple):
    """The first and the last page are by time, and by name where two views have the same time."""

    started_ms: int
    ended_ms: int
    views: int
    first_page: str
    last_page: str
    plan: str | None
    """That of the last view."""


STATE_DDL: Final = "started_ms bigint, ended_ms bigint, views bigint, first_page string, last_page string, plan string"


def merged(sessions: Iterable[Session], gap_ms: int = GAP_MS) -> list[Session]:
    """The same views as sessions that are at least a gap apart."""
    result: list[Session] = []
    for session in sorted(sessions, key=lambda one: (one.started_ms, one.first_page)):
        if not result or session.started_ms - result[-1].ended_ms >= gap_ms:
            result.append(session)
            continue
        before = result[-1]
        last = max(before, session, key=lambda one: (one.ended_ms, one.last_page))
        result[-1] = Session(
            before.started_ms,
            last.ended_ms,
            before.views + session.views,
            before.first_page,
            last.last_page,
            last.plan,
        )
    return result


class SessionProcessor(StatefulProcessor):
    """Takes rows with `at_ms`, `page` and `plan`, by user; gives sessions when they are over."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getListState("open", STATE_DDL)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        before = self._sessions()
        views = [
            Session(int(at_ms), int(at_ms), 1, page, page, None if pd.isna(plan) else plan)
            for part in rows
            for at_ms, page, plan in zip(part["at_ms"], part["page"], part["plan"], strict=True)
        ]
        now = merged([*before, *views])
        self._keep(now)
        self._move_timers(before, now)
        yield _as_frame(key[0], [])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        due_ms = expiredTimerInfo.getExpiryTimeInMs()
        sessions = self._sessions()
        over = [session for session in sessions if session.ended_ms + GAP_MS <= due_ms]
        self._keep([session for session in sessions if session not in over])
        yield _as_frame(key[0], over)

    def close(self) -> None:
        """Nothing to end."""

    def _sessions(self) -> list[Session]:
        return [Session(*row) for row in self._open.get()] if self._open.exists() else []

    def _keep(self, sessions: list[Session]) -> None:
        if sessions:
            self._open.put([tuple(session) for session in sessions])
        else:
            self._open.clear()

    def _move_timers(self, before: list[Session], now: list[Session]) -> None:
        """Each open session has one timer, at the end of the gap after it. Spark removes those that fired."""
        timers_before = {session.ended_ms + GAP_MS for session in before}
        timers_now = {session.ended_ms + GAP_MS for session in now}
        for due_ms in sorted(timers_before - timers_now):
            self._handle.deleteTimer(due_ms)
        for due_ms in sorted(timers_now - timers_before):
            self._handle.registerTimer(due_ms)


def _as_frame(user: str, sessions: list[Session]) -> pd.DataFrame:
    frame = pd.DataFrame(sessions, columns=list(Session._fields))
    frame.insert(0, "user", user)
    return frame

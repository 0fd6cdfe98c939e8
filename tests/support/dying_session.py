"""Sessions of a store in memory whose owner is killed at one of its writes."""

from collections.abc import Awaitable, Callable, Sequence

from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.errors import OutcomeUnknown, SessionLost
from barnabas.metadata.store import Operation, Result

OpenSession = Callable[[], Awaitable[EmbeddedSession]]


class DyingSession(EmbeddedSession):
    """Ends with its N-th write, which happened or not."""

    writes_left = 0
    is_last_done = False

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.writes_left == 0:
            raise SessionLost("killed")
        self.writes_left -= 1
        if self.writes_left == 0 and not self.is_last_done:
            raise OutcomeUnknown(operations[0].path if operations else "/", "killed")
        results = await super().multi(operations)
        if self.writes_left == 0:
            raise OutcomeUnknown(operations[0].path if operations else "/", "killed")
        return results


def dying_sessions(
    open_session: OpenSession, writes: int, is_last_done: bool, sessions: list[DyingSession] | None = None
) -> OpenSession:
    """Opens sessions that end with this write. They are added to `sessions`."""

    async def open_dying() -> EmbeddedSession:
        session = await open_session()
        session.__class__ = DyingSession
        assert isinstance(session, DyingSession)
        session.writes_left, session.is_last_done = writes, is_last_done
        if sessions is not None:
            sessions.append(session)
        return session

    return open_dying

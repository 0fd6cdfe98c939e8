"""What the sessions of every store have in common: their state, who is told of it, their watches, and single writes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from barnabas.metadata.errors import SessionLost
from barnabas.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    Operation,
    Result,
    SessionListener,
    SessionState,
    SetData,
    Stat,
)
from barnabas.metadata.watches import Watches


class Session(ABC):
    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._listeners: list[SessionListener] = []
        self.watches = Watches()

    @property
    def state(self) -> SessionState:
        return self._state

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        self._listeners.remove(listener)

    def change_state(self, state: SessionState) -> None:
        """Tells the listeners. A lost session stays lost."""
        if self._state in (state, SessionState.LOST):
            return
        self._state = state
        if state is not SessionState.CONNECTED:
            self.watches.clear()
        self._state_changed(state)
        for listener in list(self._listeners):
            listener(state)

    def _state_changed(self, state: SessionState) -> None:  # noqa: B027 - few need it
        """Before the listeners are told."""

    def _require_connected(self) -> None:
        if self._state is not SessionState.CONNECTED:
            raise self._refusal()

    @abstractmethod
    def _refusal(self) -> SessionLost:
        """Why nothing can be asked now."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Result]: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        [created] = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        [stat] = await self.multi([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

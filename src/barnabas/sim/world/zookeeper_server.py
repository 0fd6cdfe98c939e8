"""The servers of a simulated ZooKeeper: how far each has applied the leader's writes, and what it tells its clients.

A server applies the leader's commits in order, each a little later. It sends the events of a commit before anything
that sees the commit, and answers the requests of a connection in their order:

| request | done | answered |
|---|---|---|
| `Read` | in its turn, on what this server has applied | at once |
| `Write`, `End` | when it reaches the leader | when this server has applied it, too |
| `Sync` | | when this server has applied what the leader had when the request reached it |
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from barnabas.metadata.store import WatchEvent
from barnabas.metadata.watches import Watches
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey
from barnabas.sim.world.zookeeper_messages import (
    Answer,
    Aspect,
    Channel,
    End,
    Expired,
    Fired,
    Hello,
    Ping,
    Pong,
    Read,
    Request,
    Welcome,
    add_watch,
)
from barnabas.sim.world.zookeeper_tree import Commit, View


class Server:
    def __init__(self, position: int, large_lag_chance: float) -> None:
        self.large_lag_chance = large_lag_chance
        self.position = position
        """The last commit that it has applied."""
        self.connections: list[ServerConnection] = []
        self.last_apply_at = 0.0
        """When it applies the last commit that there is."""

    def apply(self, commit: Commit) -> None:
        self.position = commit.zxid
        for event in commit.events:
            for connection in self.connections:
                connection.watches.fire(event)
        for connection in list(self.connections):  # one that is closed leaves
            connection.answer()


@dataclass(slots=True, eq=False)
class ServerSession:
    """A session, as the ensemble knows it."""

    key: SessionKey
    timeout_seconds: float
    heard_at: float
    connection: "ServerConnection | None" = None
    """The one whose requests the leader accepts, even if it has ended since. None: no requests are accepted."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request that waits for its turn."""

    request: Request
    position: int | None = None
    """A server can answer it once it has applied this commit. None: it has not reached the leader yet."""
    value: Any = None


class Ensemble(Protocol):
    """What a connection needs of all servers together."""

    def welcome(self, connection: "ServerConnection", hello: Hello) -> Welcome | Expired | None:
        """Gives the connection its session and server; None when no server accepts it."""
        ...

    def heard(self, session: ServerSession) -> None:
        """The session lives."""
        ...

    def lead(self, connection: "ServerConnection", asked: Asked) -> None:
        """Hands a request over to the leader, behind those of this connection that came before it."""
        ...

    def connection_ended(self, connection: "ServerConnection") -> None:
        """By its client, or by a fault."""
        ...

    def view(self, position: int) -> View: ...


class ServerConnection:
    server: Server
    session: ServerSession
    """Both from its `Hello` on."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.channel = Channel(self._received, self._ended)
        self.watches = Watches()
        self.last_lead_at = 0.0
        """When the last of its requests reaches the leader."""
        self._ensemble = ensemble
        self._is_attached = False
        self._asked: deque[Asked] = deque()

    def close(self) -> None:
        """What was sent still arrives."""
        self.channel.close()
        self._leave()

    def answer(self) -> None:
        """Sends every answer whose turn has come."""
        server = self.server
        while self._asked:
            asked = self._asked[0]
            if asked.position is None or asked.position > server.position:
                return
            self._asked.popleft()
            if isinstance(asked.request, Read):
                asked.value = self._read(asked.request)
            self.channel.send(Answer(server.position, asked.value))
            if isinstance(asked.request, End):
                self.close()
                return

    def _received(self, message: Any) -> None:
        match message:
            case Hello():
                self._greet(message)
            case Ping():
                self._ensemble.heard(self.session)
                self.channel.send(Pong())
            case _:
                self._ensemble.heard(self.session)
                asked = Asked(message)
                self._asked.append(asked)
                if isinstance(message, Read):
                    asked.position = 0
                    self.answer()
                else:
                    self._ensemble.lead(self, asked)

    def _greet(self, hello: Hello) -> None:
        welcome = self._ensemble.welcome(self, hello)
        if welcome is None:
            self.channel.close()
            return
        self.channel.send(welcome)
        if isinstance(welcome, Welcome):
            self._is_attached = True
            self.server.connections.append(self)

    def _ended(self) -> None:
        if self._is_attached:
            self._leave()
            self._ensemble.connection_ended(self)

    def _leave(self) -> None:
        if self._is_attached:
            self._is_attached = False
            self.server.connections.remove(self)

    def _read(self, read: Read) -> list[Any]:
        view = self._ensemble.view(self.server.position)
        readers = {Aspect.DATA: view.node, Aspect.EXISTENCE: view.stat, Aspect.CHILDREN: view.children}
        found: list[Any] = [readers[read.aspect](path) for path in read.paths]
        if read.is_watched:
            add_watch(self.watches, read, found, self._fire)
        return found

    def _fire(self, event: WatchEvent) -> None:
        self.channel.send(Fired(event))

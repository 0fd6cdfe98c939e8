"""A simulated ZooKeeper ensemble: many sessions on one tree, over the simulated network.

```
process on broker-1        host "zookeeper"
SimulatedSession ──link──▶ server ─┐ requests        ┌─▶ server, applied up to 17
SimulatedSession ──link──▶ server ─┼──▶ leader ──────┼─▶ server, applied up to 19
                                   ┘    one Tree     └─▶ …
                                        commits 1, 2, … 19
```
The ensemble is the host `zookeeper`, with one process for all of its servers. Sessions reach it over connections of the
world's network, so cuts, resets and slow links, and whatever holds or kills a process, act on them as on any other:

- A session lives as long as its requests and pings arrive. When its process is cut off, held or dead, the ensemble ends
  the session at the first tick after its timeout, and removes its ephemerals in one write.
- A client that hears nothing for a third to two thirds of its timeout drops the connection. A write that was under way
  then has an unknown outcome: its request was lost, or its answer. A request that arrives when a cut is healed may
  still be done, unless the session has expired or continues on another connection.
- Servers lag behind the leader, so a session may read an older state than another session has written, but never an
  older one than it has seen itself, even after it moves to another server. `sync` catches up with the leader.
- `stop` kills all servers; `start` restarts them with everything that was committed. No session expires while they are
  down, and each gets its full timeout again from the start.
- `wipe` and `restore` return to an empty or an earlier state, as after the loss of disks. A session that has seen later
  positions is turned away, as real servers do: it stays suspended until the ensemble reaches that position again, and
  only then continues, or learns that it has expired.

The world's seed decides everything random. Not simulated: servers that fail one by one, elections, access lists.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.metadata.errors import StoreError
from barnabas.metadata.store import NO_OWNER, Delete, Operation
from barnabas.metadata.tree import Draft, Tree, TreeNode, WriteContext
from barnabas.metadata.zookeeper.zookeeper_options import SESSION_TIMEOUT_MS, SessionKey
from barnabas.net.stream import ListenAddress
from barnabas.sim.world.process import Process
from barnabas.sim.world.world import World
from barnabas.sim.world.zookeeper_messages import HOST, PORT, Channel, End, Expired, Hello, Refused, Welcome, Write
from barnabas.sim.world.zookeeper_server import Asked, Server, ServerConnection, ServerSession
from barnabas.sim.world.zookeeper_session import SimulatedSession, end_session
from barnabas.sim.world.zookeeper_tree import Commit, CommittedTree, View

_TICK_SECONDS: Final = 0.5
"""ZooKeeper looks for expired sessions once in each tick."""
_LEAD_SECONDS: Final = (0.0002, 0.003)
"""From a server to the leader, and until a majority has written it."""
_SMALL_LAG_SECONDS: Final = 0.002
_LARGE_LAG_CHANCE_MAX: Final = 0.5
"""Of a commit; each server has its own chance, from its start on."""
_LOSS_CHANCE: Final = 0.5
_STEP_SECONDS: Final = 1e-6
"""Between two things that keep their order: timers of one moment come in any."""
_PASSWORD_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an ensemble has on its disks."""

    zxid: int
    nodes: tuple[tuple[str, TreeNode], ...]
    sessions: tuple[tuple[SessionKey, float], ...]
    """With their timeouts, in seconds."""


class SimulatedZooKeeper:
    """Runs from the moment it is made."""

    def __init__(self, world: World, *, servers: int = 3, lag_seconds_max: float = 0.2) -> None:
        """With a single server every session sees every write that was acknowledged."""
        self.process: Process | None = None
        """None while it is down."""
        self.keeps_secrets = False
        """Whether brokers have an identity, and so leave the keys of their sessions for each other."""
        self._world = world
        self._loop = world.loop
        self._clock = world.clock()
        self._random = world.random(HOST)
        self._lag_seconds_max = lag_seconds_max
        self._servers_count = servers
        self._servers: list[Server] = []
        """The first one is the leader's own."""
        self._committed = CommittedTree()
        self._sessions: dict[int, ServerSession] = {}
        self._session_number = 0
        self._clients = 0
        self._lives = 0
        self.on_write: Callable[[Mapping[str, TreeNode | None]], None] = lambda nodes: None
        """Called with the nodes of every committed write, None for those that are gone."""
        self.start()

    @property
    def tree(self) -> Tree:
        """The committed state, for checkers and tests."""
        return self._committed.tree

    # Called in a node's process

    async def session(self, node_name: str, timeout_ms: int = SESSION_TIMEOUT_MS) -> SimulatedSession:
        """Opens a session for the calling process, on this host. `StoreUnreachable` when no server answers in time."""
        self._clients += 1
        random = self._world.random(f"{HOST}/{node_name}/{self._clients}")
        return await SimulatedSession.open(self._world.network.at(node_name), random, timeout_ms)

    async def end_session(self, key: SessionKey, node_name: str = HOST) -> bool:
        """Closes the session of a dead process; False when it had ended. `StoreUnreachable` when no server answers."""
        self._clients += 1
        random = self._world.random(f"{HOST}/{node_name}/{self._clients}")
        return await end_session(self._world.network.at(node_name), random, key)

    # Its life

    def start(self) -> None:
        assert self.process is None, "it runs"
        self._lives += 1
        self._world.note(HOST, "start")
        self.process = self._world.process(f"{HOST}/{self._lives}")
        chances = [self._random.uniform(0, _LARGE_LAG_CHANCE_MAX) for _ in range(self._servers_count)]
        self._servers = [Server(self.tree.zxid, chance) for chance in chances]
        self._committed.forget(self.tree.zxid)
        self.process.context().run(self._serve)

    def stop(self) -> None:
        """Kills all servers at once. What was committed is on their disks."""
        assert self.process is not None, "it is down"
        self._world.note(HOST, "stop")
        self._world.network.process_ended(self.process)
        self.process.die()
        self.process = None
        self._servers = []

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.tree.zxid,
            tuple(self.tree.nodes.items()),
            tuple((session.key, session.timeout_seconds) for session in self._sessions.values()),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Returns to an earlier state. Only while it is down."""
        assert self.process is None, "it runs"
        self._world.note(HOST, "restore", snapshot.zxid)
        self._committed = CommittedTree(snapshot.zxid, snapshot.nodes)
        self._sessions = {key.session_id: ServerSession(key, seconds, 0.0) for key, seconds in snapshot.sessions}

    def wipe(self) -> None:
        """Forgets everything. Only while it is down."""
        self.restore(Snapshot(0, (), ()))

    def check_invariants(self) -> None:
        self.tree.check_invariants()
        assert all(server.position <= self.tree.zxid for server in self._servers)
        assert self.process is None or self._servers[0].position == self.tree.zxid
        for path, node in self.tree.nodes.items():
            assert node.owner == NO_OWNER or node.owner in self._sessions, path

    def _serve(self) -> None:
        """In the new process."""
        self._world.network.listen(HOST, ListenAddress(HOST, PORT)).accept(self)
        for session in self._sessions.values():
            session.heard_at, session.connection = self._loop.time(), None
            self._expire_later(session)

    def admit(self, peer: tuple[str, int]) -> Channel:
        return ServerConnection(self).channel

    def abandon(self, protocol: object) -> None:
        raise AssertionError("there are no handshakes")

    # Sessions

    def welcome(self, connection: ServerConnection, hello: Hello) -> Welcome | Expired | None:
        servers = [server for server in self._servers if server.position >= hello.seen_zxid]
        if not servers:
            return None
        session = self._new_session(hello.timeout_ms) if hello.key is None else self._known_session(hello.key)
        if session is None:
            return Expired()
        if session.connection is not None:
            session.connection.close()
        connection.session, connection.server = session, self._random.choice(servers)
        session.connection = connection
        self.heard(session)
        return Welcome(session.key)

    def _new_session(self, timeout_ms: int) -> ServerSession:
        self._session_number += 1
        key = SessionKey(self._session_number, self._random.randbytes(_PASSWORD_BYTES))
        session = ServerSession(key, timeout_ms / 1000, self._loop.time())
        self._sessions[key.session_id] = session
        self._expire_later(session)
        return session

    def _known_session(self, key: SessionKey) -> ServerSession | None:
        session = self._sessions.get(key.session_id)
        return session if session is not None and session.key == key else None

    def connection_ended(self, connection: ServerConnection) -> None:
        """Requests that have not reached the leader may be lost with the connection, or not."""
        session = connection.session
        if session.connection is connection and self._random.random() < _LOSS_CHANCE:
            session.connection = None

    def heard(self, session: ServerSession) -> None:
        session.heard_at = self._loop.time()

    def _expire_later(self, session: ServerSession) -> None:
        self._loop.call_at(_expires_at(session), self._expire, session)

    def _expire(self, session: ServerSession) -> None:
        if self._sessions.get(session.key.session_id) is not session:
            return
        if _expires_at(session) > self._loop.time() + _STEP_SECONDS:  # it was heard of since
            self._expire_later(session)
            return
        self._expire_now(session)

    def _expire_now(self, session: ServerSession) -> None:
        connection = session.connection
        self._end(session, "expired")
        if connection is not None:
            connection.close()

    def expire_owner(self, path: str) -> bool:
        """Ends the session to which an ephemeral node belongs, whatever its process does; False when there is none."""
        node = self.tree.node(path)
        session = None if node is None else self._sessions.get(node.owner)
        if self.process is None or session is None:
            return False
        self.process.context().run(self._expire_now, session)
        return True

    def _end(self, session: ServerSession, how: str) -> None:
        session_id = session.key.session_id
        self._world.note(HOST, how, session_id)
        del self._sessions[session_id]
        session.connection = None
        self._write(session_id, [Delete(path) for path in self.tree.owned_by(session_id)])

    # Writes

    def lead(self, connection: ServerConnection, asked: Asked) -> None:
        at = self._loop.time() + self._random.uniform(*_LEAD_SECONDS)
        connection.last_lead_at = max(connection.last_lead_at + _STEP_SECONDS, at)
        self._loop.call_at(connection.last_lead_at, self._lead, connection, asked)

    def _lead(self, connection: ServerConnection, asked: Asked) -> None:
        session = connection.session
        if session.connection is not connection:
            return
        match asked.request:
            case Write(operations):
                try:
                    asked.value = self._write(session.key.session_id, operations)
                except StoreError as error:
                    asked.value = Refused.by(error)
            case End():
                self._end(session, "closed")
        asked.position = self.tree.zxid
        connection.answer()

    def _write(self, session_id: int, operations: Sequence[Operation]) -> list[object]:
        draft = Draft(self.tree)
        results = draft.run(operations, WriteContext(self.tree.zxid + 1, self._clock.now_ms(), session_id))
        if draft.nodes:
            commit = self._committed.commit(draft)
            self._world.note(HOST, "commit", commit.zxid, session_id)
            for server in self._servers:
                self._apply_later(server, commit)
            self.on_write(draft.nodes)
        return list(results)

    def _apply_later(self, server: Server, commit: Commit) -> None:
        if server is self._servers[0]:
            self._apply(server, commit)
            return
        is_large = self._random.random() < server.large_lag_chance
        lag = self._random.random() * (self._lag_seconds_max if is_large else _SMALL_LAG_SECONDS)
        server.last_apply_at = max(server.last_apply_at + _STEP_SECONDS, self._loop.time() + lag)
        self._loop.call_at(server.last_apply_at, self._apply, server, commit)

    def _apply(self, server: Server, commit: Commit) -> None:
        server.apply(commit)
        self._committed.forget(min(server.position for server in self._servers))

    def view(self, position: int) -> View:
        return self._committed.view(position)


def _expires_at(session: ServerSession) -> float:
    """The first tick after its timeout."""
    return math.ceil((session.heard_at + session.timeout_seconds) / _TICK_SECONDS) * _TICK_SECONDS

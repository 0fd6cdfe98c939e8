"""A broker's place in its cluster: its session with the metadata store, its registration, and who is the controller.

```
join ─▶ load ─▶ (logs are opened, ports listen) ─▶ register ─▶ run ─┬─ suspended: everything goes on
                                                        ▲           └─ lost: leaderships are resigned
                                                        └── another session ◀──┘
```

A session that is lost has ended the registration: others may lead by now what this broker led. So it gives everything
up before it registers again, and leads only what is granted to the new registration.

The controller is claimed after the registration, when this broker can be asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Final

from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.broker.metadata_source import MetadataSource
from barnabas.broker.session_file import SessionKeeper
from barnabas.controller.history import NOWHERE
from barnabas.controller.seat import ControllerSeat
from barnabas.controller.watcher import MetadataWatcher
from barnabas.metadata.construction import CONSTRUCTION
from barnabas.metadata.current_session import CurrentSession
from barnabas.metadata.errors import SessionLost, StoreError, StoreUnreachable
from barnabas.metadata.foreign_brokers import refuse_foreign_brokers
from barnabas.metadata.identity import (
    BrokerIdTaken,
    ensure_cluster_id,
    ensure_layout,
    register_broker,
    require_free_id,
)
from barnabas.metadata.session_keys import session_key_path
from barnabas.metadata.store import MetadataStore, SessionState
from barnabas.metadata.znodes import CLUSTER_ID, BrokerRegistration, ClusterId
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey

logger = logging.getLogger(__name__)

_RETRY_SECONDS_MAX: Final = 5.0
_RETRY_SECONDS_MIN: Final = 0.1
_TAKE_BACK_SECONDS_MAX: Final = 1.0


class WrongCluster(BarnabasError):  # noqa: N818 - a fact about a store, named as one
    """The metadata store is not that of the cluster that this broker belongs to; the message says what to do."""


async def _remember_nothing(epoch: int) -> None:
    """Until there are log directories."""


class Membership:
    """Owner: the broker's event loop."""

    def __init__(
        self,
        source: MetadataSource,
        seat: ControllerSeat,
        random: Random,
        keeper: SessionKeeper,
        *,
        leaves_key: bool = False,
    ) -> None:
        """`leaves_key`: the other brokers may end a session of this one when its process is dead."""
        self.store = CurrentSession()
        self.seat = seat
        self.cluster_id = ""
        self.remember: Callable[[int], Awaitable[None]] = _remember_nothing
        """Has the log directories remember the broker epoch of a registration, before anything is led in it."""
        self.on_registered: Callable[[int], None] = lambda epoch: None
        """Called with the broker epoch of each registration."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when a session, and the registration with it, is lost."""
        self._source = source
        self._random = random
        self._keeper = keeper
        self._leaves_key = leaves_key
        self._session: MetadataStore | None = None
        self._lost = asyncio.Event()
        self._is_leaving = False
        self._has_kept_key = False
        """Whether the key in the log directory is that of a session of this life."""

    # -- at the start --------------------------------------------------------------------------------------------

    async def join(self, known_cluster_id: str | None) -> None:
        """Opens the first session. A shared store must be that of the cluster that the log directories belong to.

        Another broker with the same id is noticed here, before anything is written to the log directories.
        """
        session = await self._open()
        if self._source.is_shared:
            await self._require_cluster(session, known_cluster_id)
        earlier = await self._earlier_key()
        await require_free_id(session, self.seat.broker_id, None if earlier is None else earlier.session_id)
        await ensure_layout(session)
        self.cluster_id = await ensure_cluster_id(session, self._random)

    async def load(self) -> None:
        """The image of the cluster: that of the controller, else what the store has."""
        assert self._session is not None, "joined before"
        if not await self.seat.load_from(self._session):
            await self._session.sync()  # a server that lags behind would have us take topics for deleted
            image = await MetadataWatcher(self._session).load()
            self.seat.history.restart(NOWHERE, image)

    async def register(self, registration: BrokerRegistration) -> None:
        assert self._session is not None, "joined before"
        await refuse_foreign_brokers(self._session)
        earlier = await self._earlier_key()
        if earlier is not None:  # this life has the lock of its directories
            with suppress(StoreUnreachable):
                await self._source.end_session(earlier)
        await self._register(self._session, registration)

    async def _earlier_key(self) -> SessionKey | None:
        """Of the session of a life that was killed."""
        return await self._keeper.read() if self._source.is_shared else None

    async def _open(self) -> MetadataStore:
        session = self._session = await self._source.session()
        self._lost = asyncio.Event()
        session.add_session_listener(self._session_changed)
        self.store.take(session)
        return session

    async def _require_cluster(self, session: MetadataStore, cluster_id: str | None) -> None:
        """A broker without an id is new, and takes the cluster that is there, or makes one."""
        node, construction = await session.get_many([CLUSTER_ID, CONSTRUCTION])
        if construction is not None:
            raise WrongCluster(
                "the metadata store is being filled: finish 'barnabas cluster rebuild', or run it again if it was "
                "interrupted"
            )
        if cluster_id is None:
            return
        found = None if node is None else ClusterId.decode(node.data)
        if found is None:
            raise WrongCluster(
                f"the metadata store knows no cluster, but the log directories belong to cluster {cluster_id}: correct "
                "zookeeper.connect, restore ZooKeeper's data, or restore the topics from the logs of all brokers with "
                "'barnabas cluster rebuild', which takes the options of this broker, or the --data-dir of 'barnabas up "
                "--brokers'"
            )
        if found != cluster_id:
            raise WrongCluster(
                f"the metadata store is that of cluster {found}, but the log directories belong to cluster "
                f"{cluster_id}: correct zookeeper.connect or log.dirs; if ZooKeeper has lost that cluster, see "
                "'barnabas cluster rebuild --help'"
            )

    async def _register(self, session: MetadataStore, registration: BrokerRegistration) -> None:
        key = self._source.session_key()
        if key is not None:
            await self._keeper.write(key)
            self._has_kept_key = True
        epoch = await register_broker(session, registration, key if self._leaves_key else None)
        await self.remember(epoch)
        self.seat.broker_epoch = epoch
        self.on_registered(epoch)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._lost.set()

    # -- while it runs -------------------------------------------------------------------------------------------

    async def run(self, registration_of: Callable[[], BrokerRegistration]) -> None:
        """From the registration on, session after session."""
        while True:
            assert self._session is not None, "registered before"
            await self._run_session(self._session)
            if self._is_leaving:
                return
            logger.warning("the session with the metadata store is lost: this broker gives up what it led")
            self.on_lost()
            await self._come_back(registration_of)

    async def _run_session(self, session: MetadataStore) -> None:
        seat = asyncio.create_task(self.seat.run(session))
        lost = asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait([seat, lost], return_when=asyncio.FIRST_COMPLETED)
            if seat.done():
                seat.result()
        finally:
            for task in (seat, lost):
                task.cancel()
            await asyncio.gather(seat, lost, return_exceptions=True)

    async def _come_back(self, registration_of: Callable[[], BrokerRegistration]) -> None:
        pause = _RETRY_SECONDS_MIN
        while True:
            try:
                session = await self._open()
                await self._require_cluster(session, self.cluster_id)
                await self._register(session, registration_of())
                logger.info("registered again, with a new session")
                return
            except WrongCluster:
                raise
            except (SessionLost, StoreUnreachable, BrokerIdTaken) as error:
                logger.warning("not registered yet, trying again: %s", error)
                if self._session is not None:
                    with suppress(SessionLost):
                        await self._session.close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _RETRY_SECONDS_MAX)

    async def take_key_back(self) -> None:
        """Before an orderly stop: a broker that closes its ports by itself is not to be taken for a dead one."""
        if self._session is None or not self._leaves_key:
            return
        with suppress(TimeoutError, StoreError, SessionLost):
            async with asyncio.timeout(_TAKE_BACK_SECONDS_MAX):
                await self._session.delete(session_key_path(self.seat.broker_id))

    async def leave(self) -> None:
        """Ends the session: the controller hears at once that this broker is gone."""
        self._is_leaving = True
        if self._session is not None:
            can_be_ended = self._session.state is SessionState.CONNECTED
            await self._session.close()
            if can_be_ended and self._has_kept_key:  # else the next start needs it, or another process
                with suppress(DiskFailed):  # a key that is left ends a session that is over
                    await self._keeper.remove()

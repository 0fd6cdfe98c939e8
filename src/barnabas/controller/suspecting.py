"""Ends the sessions of brokers whose processes are dead, by what `barnabas.controller.suspicion` decides.

```
the controller:   a broker's connection, by which it follows the image, has closed ─┐
any other broker: the controller's connection has closed, or cannot be opened again ┴▶ probe, ask, end the session
```

The session is ended by the key that the registration left for brokers alone (`barnabas.metadata.session_keys`), right
after a look whether the registration is still the one that was suspected. A process that was started again has another
session, which that key does not end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.logs import fields
from barnabas.base.tasks import Tasks
from barnabas.controller.seat import ControllerSeat
from barnabas.controller.suspicion import Inquiry, Step, Suspect, Suspicions, voters_about
from barnabas.metadata.errors import SessionLost, StoreError, StoreUnreachable
from barnabas.metadata.session_keys import KeyMissing, key_of_registration, session_key_path
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.znodes import BROKER_IDS
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey
from barnabas.net.channel import Channel
from barnabas.net.errors import ConnectRefused, NetworkFailed
from barnabas.net.stream import Network
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedResponse

logger = logging.getLogger(__name__)

_VERSION: Final = ALL_APIS[ApiKey.PROBE_BROKER].version_max
_PAUSE_SECONDS: Final = 0.05
"""Before each probe: of a process that ends, connections may close a moment before its ports do."""
_PROBE_SECONDS_MAX: Final = 1.0
_ANSWER_SECONDS_MAX: Final = 3.0
_TURN_SECONDS: Final = 0.1
_TURNS_MAX: Final = 10
"""All peers see at once that the controller is dead. They ask one after the other, so that the first ones decide."""


class Suspecting:
    """Owner: the event loop of one broker."""

    def __init__(
        self,
        seat: ControllerSeat,
        store: MetadataStore,
        network: Network,
        listener: str,
        clock: Clock,
        tasks: Tasks,
        end_session: Callable[[SessionKey], Awaitable[None]] | None,
    ) -> None:
        """`listener` is the one by which brokers find each other. Without `end_session` nobody is suspected."""
        self.sessions_ended = 0
        self._seat = seat
        self._store = store
        self._network = network
        self._listener = listener
        self._clock = clock
        self._tasks = tasks
        self._end_session = end_session
        self._suspicions = Suspicions()
        self._said: tuple[Suspect, str] | None = None

    # -- signs ---------------------------------------------------------------------------------------------------

    def poll_closed(self, suspect: Suspect) -> None:
        """A broker followed this one's image by a connection that has ended."""
        if self._end_session is None or self._seat.controller is None or not self._is_registered(suspect):
            return
        if self._suspicions.connection_closed(suspect):
            self._tasks.start(self._inquire(suspect))

    def link_failed(self, controller_id: int, was_open: bool) -> None:
        """The controller cannot be followed."""
        known = self._seat.history.image.brokers.get(controller_id)
        if self._end_session is None or known is None:
            return
        suspect = Suspect(controller_id, known.epoch)
        if was_open:
            begins = self._suspicions.connection_closed(suspect)
        else:
            begins = self._suspicions.connect_failed(suspect, self._clock.monotonic())
        if begins:
            self._tasks.start(self._inquire(suspect))

    def _is_registered(self, suspect: Suspect) -> bool:
        known = self._seat.history.image.brokers.get(suspect.broker_id)
        return known is not None and known.epoch == suspect.broker_epoch

    # -- what others ask -----------------------------------------------------------------------------------------

    async def is_refused(self, suspect: Suspect) -> bool:
        """Whether nobody listens where this registration says."""
        endpoint = self._seat.history.image.endpoint(suspect.broker_id, self._listener)
        if self._end_session is None or endpoint is None or not self._is_registered(suspect):
            return False
        try:
            channel = await Channel.connect(
                self._network, endpoint.host, endpoint.port, timeout_seconds=_PROBE_SECONDS_MAX
            )
        except ConnectRefused:
            return True
        except NetworkFailed:
            return False
        await channel.close()
        return False

    # -- inquiries -----------------------------------------------------------------------------------------------

    async def _inquire(self, first: Suspect) -> None:
        suspect: Suspect | None = first
        while suspect is not None:
            try:
                await self._inquire_once(suspect)
            except KeyMissing as error:
                self._say(f"seems to be dead, but its session cannot be ended: {error}", suspect)
            except (SessionLost, StoreError, StoreUnreachable) as error:
                self._say(f"may be dead, but ZooKeeper cannot be asked: {error}", suspect)
            suspect = self._suspicions.closed(suspect.broker_id, self._clock.monotonic())

    async def _inquire_once(self, suspect: Suspect) -> None:
        voters = await self._voters(suspect)
        if not voters:
            return
        inquiry = Inquiry(self._seat.broker_id, voters)
        while True:
            match inquiry.step:
                case Step.PROBE:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    inquiry.probed(is_refused=await self.is_refused(suspect))
                case Step.ASK:
                    await asyncio.sleep(min(voters.index(self._seat.broker_id), _TURNS_MAX) * _TURN_SECONDS)
                    if await self._key(suspect) is None:  # another peer has ended the session already
                        return
                    inquiry.answered(await self._votes(suspect, inquiry.others, inquiry.votes_needed))
                case Step.END:
                    await self._end(suspect)
                    return
                case Step.DISMISS:
                    logger.debug("broker %d is not taken for dead", suspect.broker_id)
                    return

    async def _voters(self, suspect: Suspect) -> tuple[int, ...]:
        seat = self._seat
        controller_id = seat.controller_id
        registered = [int(name) for name in await self._store.children(BROKER_IDS)]
        return voters_about(suspect.broker_id, seat.broker_id, controller_id, registered)

    async def _votes(self, suspect: Suspect, others: Sequence[int], needed: int) -> int:
        """How many others are refused, too; no more than are needed."""
        votes = 0
        asking = [asyncio.ensure_future(self._ask(suspect, other)) for other in others]
        try:
            for answer in asyncio.as_completed(asking):
                votes += await answer
                if votes == needed:
                    break
        finally:
            for one in asking:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return votes

    async def _ask(self, suspect: Suspect, other: int) -> bool:
        link = self._seat.link_to(self._seat.history.image, other)
        if link is None:
            return False
        values = {"broker_id": suspect.broker_id, "broker_epoch": suspect.broker_epoch}
        try:
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                answer = await link.ask(ApiKey.PROBE_BROKER, _VERSION, values, _ANSWER_SECONDS_MAX)
        except (NetworkFailed, MalformedResponse, TimeoutError):  # an older broker closes the connection
            return False
        finally:
            await link.close()
        return ErrorCode.of(answer.error_code) is ErrorCode.NONE and bool(answer.is_refused)

    async def _key(self, suspect: Suspect) -> SessionKey | None:
        """None when the suspected registration is gone."""
        broker_id = suspect.broker_id
        await self._store.sync()
        paths = [f"{BROKER_IDS}/{broker_id}", session_key_path(broker_id)]
        registration, left = await self._store.get_many(paths)
        return key_of_registration(broker_id, suspect.broker_epoch, registration, left)

    async def _end(self, suspect: Suspect) -> None:
        now = self._clock.monotonic()
        if not self._suspicions.may_end(suspect.broker_id, now):
            self._say("seems to be dead once more; this time its session is left to its timeout", suspect)
            return
        key = await self._key(suspect)
        if key is None or not await self._voters(suspect):  # or another broker is the controller by now
            return
        assert self._end_session is not None, "else nobody is suspected"
        self._suspicions.ended(suspect.broker_id, now)
        await self._end_session(key)
        self.sessions_ended += 1
        self._say("is dead: its connections closed, and new ones are refused; its session was ended", suspect)

    def _say(self, text: str, suspect: Suspect) -> None:
        """Once, however often it is found out."""
        if self._said != (suspect, text):
            self._said = suspect, text
            ids = fields(broker=suspect.broker_id, broker_epoch=suspect.broker_epoch)
            logger.warning("broker %d %s", suspect.broker_id, text, extra=ids)

"""Who is the controller: this broker, or one that it follows.

```
/controller is free     claim it ── won ──▶ serve as the controller, until somebody else is
                                 └─ lost ─┐
/controller is taken    ──────────────────┴▶ follow that broker's image, until the node changes
```

`run` belongs to one session, and is cancelled when that is lost. While the session is merely suspended the image is
still followed: the controller may be reachable though ZooKeeper is not.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError
from barnabas.base.tasks import Tasks
from barnabas.controller.broker_link import BrokerLink
from barnabas.controller.controller import Controller
from barnabas.controller.controller_options import DEFAULT_OPTIONS, ControllerOptions
from barnabas.controller.controllership import Controllership, claim_controller
from barnabas.controller.following import POLL_SECONDS, fetch_image
from barnabas.controller.history import NEWEST_VERSION, NOWHERE, ImageHistory
from barnabas.controller.image_answers import ImageAnswers
from barnabas.metadata.errors import CorruptNode, NoNode, SessionLost
from barnabas.metadata.image import ClusterImage, RegisteredBroker
from barnabas.metadata.store import MetadataStore, SessionState
from barnabas.metadata.znodes import BARNABAS, BROKER_IDS, CONTROLLER, BrokerRegistration, ControllerNode, Endpoint
from barnabas.net.errors import ChannelClosed, NetworkFailed
from barnabas.net.stream import Network
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedResponse

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.1
_LOAD_SECONDS: Final = 5.0
_FAILURES_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class _Claim:
    """One election: who won it, and the transaction that says so."""

    broker_id: int
    czxid: int


class ControllerSeat:
    """Owner: the broker's event loop."""

    def __init__(
        self,
        broker_id: int,
        history: ImageHistory,
        network: Network,
        listener: str,
        clock: Clock,
        random: Random,
        options: ControllerOptions = DEFAULT_OPTIONS,
    ) -> None:
        """`listener` is the one by which brokers find each other."""
        self.broker_id = broker_id
        self.broker_epoch = -1
        """Of the registration that there is now."""
        self.history = history
        self.controller: Controller | None = None
        """While this broker is the controller."""
        self.controller_id: int | None = None
        """As the session saw it last; None while there is none."""
        self.answers: ImageAnswers | None = None
        """Of this broker, while it is the controller."""
        self.link: BrokerLink | None = None
        """To the broker that is the controller, while this one follows it."""
        self.control_link: BrokerLink | None = None
        """The same, for what brokers ask for themselves: it never waits for the answer to a client's request."""
        self.trouble = asyncio.Event()
        """Set when the controller here could not write leaders down."""
        self.on_problem: Callable[[BarnabasError], None] = lambda problem: None
        """Called each time that this happens."""
        self.on_link_failed: Callable[[int, bool], None] = lambda broker_id, was_open: None
        """Called each time that this broker, the controller, cannot be followed; whether it was connected before."""
        self._network = network
        self._listener = listener
        self._clock = clock
        self._random = random
        self._options = options
        self._client_id = f"broker-{broker_id}"
        self.image_version = 0
        """The newest version of FetchImage that this broker and the controller that it follows understand."""
        self._image_versions: dict[int, int] = {}
        """By broker, as the last registrations said."""
        self._tasks = Tasks(asyncio.get_running_loop())
        self._changed = asyncio.Event()

    # -- for those who ask ---------------------------------------------------------------------------------------

    def require_controller(self) -> Controller:
        if self.controller is None or not self.controller.is_whole.is_set():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return self.controller

    async def wait_for_change(self) -> None:
        """Until somebody else is the controller, or the same one can be reached in another way."""
        await self._changed.wait()

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # -- one session ---------------------------------------------------------------------------------------------

    async def run(self, store: MetadataStore) -> None:
        """Claims and follows, as long as it is not cancelled."""
        news = asyncio.Event()
        followed: _Claim | None = None
        following: asyncio.Task[None] | None = None

        def session_changed(state: SessionState) -> None:
            if state is SessionState.CONNECTED:  # its watches are gone
                news.set()

        store.add_session_listener(session_changed)
        try:
            while True:
                news.clear()
                try:
                    claim = await self._read_claim(store, news)
                    self.controller_id = None if claim is None else claim.broker_id
                    if claim != followed:
                        await _end(following)
                        following = followed = None
                    if claim is None:
                        await self._stand_for_election(store)
                        continue
                    if following is None and claim.broker_id != self.broker_id:
                        followed = claim
                        following = self._tasks.start(self._follow(store, claim.broker_id))
                except SessionLost:
                    pass  # the next state of the session is news
                await news.wait()
        finally:
            store.remove_session_listener(session_changed)
            await _end(following)

    async def _read_claim(self, store: MetadataStore, news: asyncio.Event) -> _Claim | None:
        if await store.exists(CONTROLLER, lambda _: news.set()) is None:
            return None
        try:
            node = await store.get(CONTROLLER)
            return _Claim(ControllerNode.decode(node.data).broker_id, node.stat.czxid)
        except (NoNode, CorruptNode):
            return None

    # -- as the controller ---------------------------------------------------------------------------------------

    async def _stand_for_election(self, store: MetadataStore) -> None:
        controllership = await claim_controller(store, self.broker_id, self._clock.now_ms())
        if controllership is not None:
            await self._serve(controllership)

    async def _serve(self, controllership: Controllership) -> None:
        is_alone = len(self.history.image.brokers) <= 1
        level = logging.DEBUG if is_alone else logging.INFO
        logger.log(level, "broker %d is the controller, in epoch %d", self.broker_id, controllership.epoch)
        controller = Controller(controllership, self.history, self._random, self._options, self.link_to)
        controller.on_problem = self._say
        answers = ImageAnswers(controller)
        self.controller, self.answers, self.controller_id = controller, answers, self.broker_id
        self._change()
        try:
            await controller.run()
        except* KafkaError as errors:
            others = errors.split(lambda error: isinstance(error, KafkaError) and _is_deposed(error))[1]
            if others is not None:
                raise others from None
            logger.warning("broker %d is not the controller any more", self.broker_id)
        finally:
            answers.close()
            self.controller = self.answers = self.controller_id = None
            self._change()

    def link_to(self, image: ClusterImage, broker_id: int) -> BrokerLink | None:
        """For one conversation with a broker."""
        endpoint = image.endpoint(broker_id, self._listener)
        return None if endpoint is None else BrokerLink(self._network, endpoint.host, endpoint.port, self._client_id)

    def _say(self, problem: BarnabasError) -> None:
        self.trouble.set()
        self.on_problem(problem)

    # -- as a follower -------------------------------------------------------------------------------------------

    async def _follow(self, store: MetadataStore, controller_id: int) -> None:
        """Until it is cancelled. What goes wrong is tried again: another controller is somebody else's news."""
        failures = 0
        while True:
            try:
                await self._follow_link(store, controller_id)
            except (NetworkFailed, KafkaError, MalformedResponse, SessionLost, CorruptNode) as error:
                if isinstance(error, NetworkFailed):
                    self.on_link_failed(controller_id, isinstance(error, ChannelClosed))
                failures += 1
                if failures == _FAILURES_TOLD:  # before, it may have stopped in order, and have a successor soon
                    logger.warning("the image of the controller, broker %d, is not followed: %s", controller_id, error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow_link(self, store: MetadataStore, controller_id: int) -> None:
        endpoint, version = await self._endpoint_of(store, controller_id)
        self.image_version = version
        images, calls, control = (
            BrokerLink(self._network, endpoint.host, endpoint.port, self._client_id) for _ in range(3)
        )
        self.link, self.control_link = calls, control
        self._change()
        async with AsyncExitStack() as stack:  # closes all of them, even when it is cancelled once more meanwhile
            for link in (images, calls, control):
                stack.push_async_callback(link.close)
            try:
                while True:
                    await fetch_image(images, version, self.history, self.broker_id, self.broker_epoch, POLL_SECONDS)
            finally:
                self.link = self.control_link = None
                self._change()

    async def catch_up(self) -> None:
        """Has the image as far as the controller has it now."""
        if self.link is not None:
            await fetch_image(self.link, self.image_version, self.history, self.broker_id, self.broker_epoch, 0)

    async def _endpoint_of(self, store: MetadataStore, broker_id: int) -> tuple[Endpoint, int]:
        """By its registration, or by the image while the store cannot be asked: then the version is the last one read.

        A broker that never was asked has the newest one: an older version would leave out what others know.
        """
        known = self.history.image.brokers.get(broker_id)
        version = self._image_versions.get(broker_id, NEWEST_VERSION)
        with suppress(SessionLost):
            [node] = await store.get_many([f"{BROKER_IDS}/{broker_id}"])
            if node is not None:
                registration = BrokerRegistration.decode(broker_id, node.data)
                known = RegisteredBroker.of(registration, node.stat.czxid)
                version = self._image_versions[broker_id] = _image_version_of(registration)
        endpoint = known.endpoint(self._listener) if known is not None else None
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"its listener {self._listener} is not known")
        return endpoint, version

    async def load_from(self, store: MetadataStore) -> bool:
        """The whole image of the controller, at the start; False when there is none that answers.

        One that hangs is not waited for once it has a successor.
        """
        while True:
            news = asyncio.Event()
            claim = await self._read_claim(store, news)
            if claim is None or claim.broker_id == self.broker_id:
                return False
            loading = asyncio.ensure_future(self._load(store, claim.broker_id))
            changed = asyncio.ensure_future(news.wait())
            try:
                await asyncio.wait([loading, changed], return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    return loading.result()
            finally:
                await _end(loading)
                await _end(changed)

    async def _load(self, store: MetadataStore, controller_id: int) -> bool:
        try:
            endpoint, version = await self._endpoint_of(store, controller_id)
            link = BrokerLink(self._network, endpoint.host, endpoint.port, self._client_id)
            try:
                await fetch_image(link, version, self.history, self.broker_id, self.broker_epoch, _LOAD_SECONDS)
            finally:
                await link.close()
        except (NetworkFailed, KafkaError, MalformedResponse) as error:
            logger.info("the controller does not tell the image of the cluster; it is read from the store: %s", error)
            return False
        return self.history.place != NOWHERE  # a new controller has nothing to tell before it has read the tree


def _image_version_of(registration: BrokerRegistration) -> int:
    """The newest version of FetchImage that this broker and that one understand."""
    versions = registration.features.get(BARNABAS)
    if versions is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "it is not a broker of Barnabas")
    return min(NEWEST_VERSION, versions.max_version)


def _is_deposed(error: KafkaError) -> bool:
    return error.code is ErrorCode.NOT_CONTROLLER


async def _end(task: asyncio.Future[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

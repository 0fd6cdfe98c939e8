"""A broker's life: how it starts, how it is stopped, and how a bug of its own ends it.

```
start   what Kafka left > metadata store > identity > logs (recovery, in threads) > image > served partitions >
        ports > registration > accepting
stop    listeners (requests in flight finish) > what is being written > logs (flushed, marked clean) > metadata store
```

`barnabas.broker.assembly` makes the stages, out of the settings and of what comes in as `BrokerParts`: files, network,
clock, randomness, threads. Many brokers may live on one event loop; each stops what is its own.

An exception that no request owns (in a callback, a tick, a timer, a task) ends the broker that it belongs to
(`barnabas.base.supervision`): it is reported once, every connection is closed so that no client waits for ever, and
`wait_stopped` raises it to the owner of the broker, who leaves the `async with`.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from barnabas.base.addresses import address_text
from barnabas.base.errors import BarnabasError
from barnabas.base.metric_table import FLUSH_SECONDS
from barnabas.base.metrics import Metrics
from barnabas.base.supervision import supervised
from barnabas.broker.adoption import choose_node_id
from barnabas.broker.assembly import (
    Cluster,
    Core,
    Site,
    make_dispatcher,
    make_services,
    new_node_id,
    open_cluster,
    open_logs,
    start_core,
)
from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.group_lag import GroupLags
from barnabas.broker.groups import Groups
from barnabas.broker.health import BrokerState, Health, health_of
from barnabas.broker.measures import measure_broker, measure_lags, measure_suspicion
from barnabas.broker.membership import Membership
from barnabas.broker.parts import BrokerParts, system_parts
from barnabas.broker.readiness import Readiness, readiness_of
from barnabas.broker.services import Services
from barnabas.broker.settings import BrokerSettings
from barnabas.controller.controlled_shutdown import hand_over
from barnabas.groups.measures import measure_group_states
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.znodes import BARNABAS, BARNABAS_VERSIONS, BrokerRegistration, Endpoint
from barnabas.net.server import Listener, ServerOptions
from barnabas.replication.replicas import Replicas
from barnabas.replication.tick import AppendTick
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.opening import OpeningProgress, OpeningReport

logger = logging.getLogger(__name__)

HAND_OVER_SECONDS: Final = 3.0
"""A broker that stops does not wait longer for the controller."""
STOP_GRACE_SECONDS: Final = 5.0
ADMISSION_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """All that a broker is made of, once it serves."""

    node_id: int
    cluster: Cluster
    logs: LogManager
    opening: OpeningReport
    core: Core
    services: Services
    dispatcher: Dispatcher
    group_lags: GroupLags
    listeners: tuple[Listener, ...]
    metrics_port: int | None


@dataclass(frozen=True, slots=True)
class _Life:
    """From the beginning of the start to the end of the stop."""

    loop: asyncio.AbstractEventLoop
    context: Context
    stack: AsyncExitStack

    async def end(self) -> None:
        await self.loop.create_task(self.stack.aclose(), context=self.context)


class Broker:
    """`async with Broker(settings):` serves until the block ends; what the start has made is there from then on."""

    def __init__(
        self,
        settings: BrokerSettings,
        parts: BrokerParts | None = None,
        *,
        on_progress: Callable[[OpeningProgress], None] | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.failure: BaseException | None = None
        """What ended it, where it was not its owner."""
        self._failed = asyncio.Event()
        self._parts = parts or system_parts()
        self._on_progress = on_progress
        self._life: _Life | None = None
        self._running: Running | None = None
        self._is_stopping = False

    async def __aenter__(self) -> Self:
        assert self._life is None, "a broker has one life"
        loop, stack = asyncio.get_running_loop(), AsyncExitStack()
        self._life = _Life(loop, stack.enter_context(supervised(loop, self._fail)), stack)
        try:
            self._running = await self._start_unless_failed(self._life)
        except BaseException:
            await self._life.end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._life is not None, "entered before"
        try:
            await self._life.end()
        except Exception as error:
            if self.failure is None:
                raise
            logger.error("a part of the failed broker did not stop cleanly: %r", error)

    # -- what there is -------------------------------------------------------------------------------------------

    @property
    def running(self) -> Running:
        assert self._running is not None, "the broker has not started"
        return self._running

    @property
    def node_id(self) -> int:
        return self.running.node_id

    @property
    def logs(self) -> LogManager:
        return self.running.logs

    @property
    def opening(self) -> OpeningReport:
        return self.running.opening

    @property
    def replicas(self) -> Replicas:
        return self.running.core.replicas

    @property
    def tick(self) -> AppendTick:
        return self.running.core.tick

    @property
    def groups(self) -> Groups:
        return self.running.core.groups

    @property
    def services(self) -> Services:
        return self.running.services

    @property
    def dispatcher(self) -> Dispatcher:
        return self.running.dispatcher

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return self.running.listeners

    @property
    def metrics_port(self) -> int | None:
        return self.running.metrics_port

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return ",".join(address_text(one.advertised_host, one.advertised_port) for one in self.listeners)

    @property
    def server_options(self) -> ServerOptions:
        """The limits of its listeners that hold now."""
        return self.running.core.server.options

    @property
    def health(self) -> Health:
        if self.failure is not None:
            return Health(BrokerState.STOPPING, (f"{type(self.failure).__name__}: {self.failure}",))
        if self._is_stopping:
            return Health(BrokerState.STOPPING)
        if self._running is None:
            return Health(BrokerState.STARTING)
        metadata = self._running.cluster.metadata
        return health_of(self._running.logs.directories, metadata.problem, is_metadata_lost=metadata.is_lost)

    async def readiness(self) -> Readiness:
        """Whether it could be stopped now without harm to any partition."""
        health, running = self.health, self._running
        if running is None or health.state is BrokerState.STARTING or health.state is BrokerState.STOPPING:
            return Readiness((f"the broker is {health.state.value}", *health.problems))
        seat, image = running.cluster.seat, running.cluster.history.image
        metadata_problem = running.cluster.metadata.problem
        problems = [] if metadata_problem is None else [f"the metadata store: {metadata_problem}"]
        own = image.brokers.get(running.node_id)
        if own is None or own.epoch != seat.broker_epoch or (seat.controller is None and seat.control_link is None):
            problems.append("the broker follows no controller: what it knows of other replicas may be out of date")
        return await readiness_of(image, running.node_id, problems)

    # -- starting ------------------------------------------------------------------------------------------------

    async def _start_unless_failed(self, life: _Life) -> Running:
        """The start may wait for a part that a bug has ended."""
        starting = life.loop.create_task(self._start(life), context=life.context)
        failing = life.loop.create_task(self._failed.wait())
        try:
            await asyncio.wait([starting, failing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            failing.cancel()
            if not starting.done():
                starting.cancel()
                await asyncio.wait([starting])
        if self.failure is None:
            return starting.result()
        starting.cancelled() or starting.exception()  # looked at, whatever it is: there is one report
        raise self.failure

    async def _start(self, life: _Life) -> Running:
        parts, settings, metrics, stack = self._parts, self.settings, self.metrics, life.stack
        executor = parts.make_executor(settings.config.background_threads)
        stack.callback(executor.shutdown)
        metrics_port = await self._listen_for_metrics(stack, executor)
        node_id = choose_node_id(parts.files, settings.log_manager_config.log_dirs, settings.config.node_id)
        if node_id is None:
            node_id = await new_node_id(settings)
        flush_seconds = metrics.histogram(FLUSH_SECONDS)
        site = Site(life.loop, parts, settings, node_id, executor, metrics, flush_seconds, stack)
        cluster = await open_cluster(site)
        logs, opening = await open_logs(site, cluster, self._on_progress)
        core = await start_core(site, cluster, logs)
        services = make_services(site, cluster, logs, core)
        dispatcher = make_dispatcher(site, services)
        group_lags = GroupLags(core.groups.coordinator, core.replicas, executor)
        stack.push_async_callback(group_lags.close)
        measure_broker(metrics, core.server.counters, core.replicas, logs, cluster.seat, parts.clock)
        measure_suspicion(metrics, services.suspecting)
        measure_group_states(metrics, core.groups.coordinator.counts)
        measure_lags(metrics, group_lags, parts.clock)

        async def stop_serving() -> None:
            await self._stop_serving(core, services, dispatcher, cluster.membership)

        stack.push_async_callback(stop_serving)  # last to start, first to stop
        listeners = tuple([await core.server.listen(spec) for spec in settings.config.listeners])
        registration_of = partial(self._registration, node_id, listeners, logs)
        await cluster.membership.register(registration_of())
        membership_tasks = site.tasks()
        membership_tasks.start(cluster.membership.run(registration_of))
        stack.push_async_callback(self._hand_over, cluster, core)
        stack.push_async_callback(cluster.membership.take_key_back)
        await _until_admitted(cluster, core, node_id)
        core.server.accept(dispatcher.connect)  # not before: a client's first question is who the brokers are
        return Running(node_id, cluster, logs, opening, core, services, dispatcher, group_lags, listeners, metrics_port)

    async def _listen_for_metrics(self, stack: AsyncExitStack, executor: Executor) -> int | None:
        """Opened first and closed last: it tells of the start and the stop, too."""
        address = self.settings.config.metrics_listen
        if address is None:
            return None
        from barnabas.broker.http import http_port  # only a broker with this port pays for it

        async def prepare() -> None:
            if self._running is not None:
                await self._running.group_lags.refresh()

        network = self._parts.network
        listening = await stack.enter_async_context(
            http_port(network, address, self.metrics, lambda: self.health, self.readiness, prepare, executor)
        )
        return listening.port

    def _registration(self, node_id: int, listeners: tuple[Listener, ...], logs: LogManager) -> BrokerRegistration:
        past = logs.registrations.past
        endpoints = [Endpoint(one.name, "PLAINTEXT", one.advertised_host, one.advertised_port) for one in listeners]
        return BrokerRegistration(
            node_id,
            tuple(endpoints),
            rack=self.settings.config.broker_rack,
            timestamp_ms=self._parts.clock.now_ms(),
            features={BARNABAS: BARNABAS_VERSIONS},
            previous_epoch=past.previous_epoch,
            intact_since=past.intact_since,
            directory_ids=logs.directories.online_ids,
        )

    # -- ending --------------------------------------------------------------------------------------------------

    async def wait_stopped(self) -> None:
        """Never returns; raises the bug that ended the broker, or the failure of its environment."""
        await self._failed.wait()
        assert self.failure is not None
        raise self.failure

    def _fail(self, failure: BaseException) -> None:
        """Something went wrong that no request owns."""
        if self.failure is not None:
            logger.debug("after what ended the broker", exc_info=failure)
            return
        self.failure = failure
        if isinstance(failure, BarnabasError):
            logger.critical("the broker cannot continue: %s", failure)
        else:
            logger.critical("the broker stops because of a bug", exc_info=failure)
        if self._running is not None:
            self._running.core.server.turn_away()
        self._failed.set()

    async def _hand_over(self, cluster: Cluster, core: Core) -> None:
        """Others lead this broker's partitions before it stops, if somebody sees to that in time."""
        is_alone = len(cluster.history.image.brokers) <= 1
        if is_alone or self.failure is not None or not self.settings.config.controlled_shutdown_enable:
            return
        core.replicas.expect_stop()
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                await hand_over(cluster.seat, HAND_OVER_SECONDS)
                await core.replicas.wait_for(lambda image: image is core.replicas.coming)
        except (TimeoutError, BarnabasError) as error:
            logger.info("stopping without handing partitions over: %s", str(error) or "nobody answers in time")

    async def _stop_serving(
        self, core: Core, services: Services, dispatcher: Dispatcher, membership: Membership
    ) -> None:
        self._is_stopping = True
        try:
            core.groups.close()  # members that wait for others are told to look for another coordinator
            core.tick.write()  # what was taken before is in the log, and its producers are told so
            core.replicas.resign_all()  # a fetch that waits for records is answered now
            services.replica_sessions.close()
        finally:  # whatever failed there, no port and no connection is left
            await core.server.stop(STOP_GRACE_SECONDS if self.failure is None else 0)
            await dispatcher.stop()
            await membership.leave()  # now, so that another broker takes over what this one did for all

    def drop_connections(self) -> None:
        """Ends every connection at once; answers that are on their way are lost."""
        self.running.core.server.drop_connections()


async def _until_admitted(cluster: Cluster, core: Core, node_id: int) -> None:
    """Until the controller has granted this broker what it leads, or cannot; clients that come early only ask twice."""

    def is_admitted(image: ClusterImage) -> bool:
        broker = image.brokers.get(node_id)
        is_registered = broker is not None and broker.epoch == cluster.seat.broker_epoch
        return is_registered and core.replicas.is_granted_all(image)

    waits: list[asyncio.Future[object]] = [
        asyncio.ensure_future(core.replicas.wait_for(is_admitted)),
        asyncio.ensure_future(cluster.seat.trouble.wait()),
    ]
    try:
        done, _ = await asyncio.wait(waits, timeout=ADMISSION_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            logger.warning("no controller has granted this broker its partitions yet: they are not served until then")
    finally:
        for wait in waits:
            wait.cancel()

"""How a broker finds out that another one is dead, on a store in memory: what it does, and what it never does."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.tasks import Tasks
from barnabas.controller.broker_link import BrokerLink
from barnabas.controller.seat import ControllerSeat
from barnabas.controller.suspecting import Suspecting
from barnabas.controller.suspicion import ENDS_MAX, Suspect
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.identity import ensure_layout, register_broker
from barnabas.metadata.image import ClusterImage, RegisteredBroker
from barnabas.metadata.session_keys import session_key_path
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.znodes import BROKER_IDS, BrokerRegistration, Endpoint
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey
from barnabas.net.errors import ConnectFailed
from barnabas.net.stream import Network
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.network import run

LISTENER = "PLAINTEXT"
OWN_ID = 1


class Ports:
    """A network without connections: who is dead refuses, who is cut off does not answer, all others accept."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.cut_off: set[str] = set()

    async def connect(
        self, host: str, port: int, protocol: asyncio.BufferedProtocol, tls: ssl.SSLContext | None = None
    ) -> None:
        if host in self.dead:
            raise ConnectionRefusedError(111, "Connection refused")
        if host in self.cut_off:
            raise TimeoutError


Answer: TypeAlias = bool | Callable[[], Awaitable[bool]] | None
"""Whether a broker says that it is refused, too; None where it does not answer."""


class Peer:
    """The way to another broker, for ProbeBroker alone."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def ask(self, api_key: ApiKey, version: int, values: Any, seconds: float) -> Any:
        assert api_key is ApiKey.PROBE_BROKER
        if self._answer is None:
            raise ConnectFailed("gone")
        is_refused = self._answer if isinstance(self._answer, bool) else await self._answer()
        return SimpleNamespace(error_code=ErrorCode.NONE, is_refused=is_refused)

    async def close(self) -> None: ...


@dataclass
class Scene:
    suspecting: Suspecting
    tasks: Tasks
    ports: Ports
    seat: Any
    metadata: EmbeddedMetadata
    own: MetadataStore
    sessions: dict[int, MetadataStore]
    ended: list[int] = field(default_factory=list)
    """Whose sessions, by broker."""
    answers: dict[int, Answer] = field(default_factory=dict)

    def suspect(self, broker_id: int) -> Suspect:
        return Suspect(broker_id, self.seat.history.image.brokers[broker_id].epoch)

    def loses(self, broker_id: int) -> None:
        """The connection by which a broker followed this one."""
        self.suspecting.poll_closed(self.suspect(broker_id))

    async def is_registered(self, broker_id: int) -> bool:
        return await self.own.exists(f"{BROKER_IDS}/{broker_id}") is not None


async def register(metadata: EmbeddedMetadata, broker_id: int) -> tuple[MetadataStore, RegisteredBroker]:
    session = metadata.session()
    await ensure_layout(session)
    registration = BrokerRegistration(broker_id, (Endpoint(LISTENER, "PLAINTEXT", f"host-{broker_id}", 9092),))
    epoch = await register_broker(session, registration, SessionKey(session.session_id, b"secret"))
    return session, RegisteredBroker.of(registration, epoch)


def play(story: Callable[[Scene], Coroutine[Any, Any, None]], *, controller: int = OWN_ID, is_on: bool = True) -> None:
    """Of brokers 1 to 4, each with a key; 1 is the one that suspects."""

    async def main() -> None:
        clock, ports = ManualClock(), Ports()
        metadata = EmbeddedMetadata.in_memory(clock, MemoryTable())
        registered = {number: await register(metadata, number) for number in (1, 2, 3, 4)}
        sessions = {number: session for number, (session, _) in registered.items()}
        image = ClusterImage(brokers={number: broker for number, (_, broker) in registered.items()})
        tasks, answers, ended = Tasks(asyncio.get_running_loop()), dict[int, Answer](), list[int]()

        async def end_session(key: SessionKey) -> None:
            [number] = [number for number, session in sessions.items() if session.session_id == key.session_id]
            assert key.password == b"secret"
            ended.append(number)
            await sessions[number].close()

        seat = SimpleNamespace(
            broker_id=OWN_ID,
            controller_id=controller,
            controller=object() if controller == OWN_ID else None,
            history=SimpleNamespace(image=image),
            link_to=lambda image, broker_id: cast(BrokerLink, Peer(answers.get(broker_id))),
        )
        suspecting = Suspecting(
            cast(ControllerSeat, seat),
            sessions[OWN_ID],
            cast(Network, ports),
            LISTENER,
            clock,
            tasks,
            end_session if is_on else None,
        )
        await story(Scene(suspecting, tasks, ports, seat, metadata, sessions[OWN_ID], sessions, ended, answers))
        await tasks.drain()
        await metadata.close()

    run(main())


def test_controller_ends_the_session_of_a_broker_whose_connection_closed_and_whose_port_refuses() -> None:
    async def story(scene: Scene) -> None:
        scene.ports.dead.add("host-2")
        scene.loses(2)
        scene.loses(2)  # by its other connection
        await scene.tasks.drain()
        assert scene.ended == [2]
        assert not await scene.is_registered(2)
        assert scene.suspecting.sessions_ended == 1

    play(story)


@pytest.mark.parametrize("how", ["it accepts", "nobody answers", "it is switched off"])
def test_who_does_not_refuse_is_left_alone(how: str) -> None:
    async def story(scene: Scene) -> None:
        if how == "nobody answers":
            scene.ports.cut_off.add("host-2")
        elif how == "it is switched off":
            scene.ports.dead.add("host-2")
        scene.loses(2)
        await scene.tasks.drain()
        assert scene.ended == []
        assert await scene.is_registered(2)

    play(story, is_on=how != "it is switched off")


def test_broker_that_is_not_the_controller_ends_nobody_but_the_controller() -> None:
    async def story(scene: Scene) -> None:
        scene.ports.dead |= {"host-2", "host-3"}
        scene.loses(2)
        await scene.tasks.drain()
        assert scene.ended == []
        scene.answers.update({2: True, 4: True})
        scene.suspecting.link_failed(3, True)
        await scene.tasks.drain()
        assert scene.ended == [3]

    play(story, controller=3)


@pytest.mark.parametrize(
    ("answers", "ended"),
    [({2: True, 4: None}, [3]), ({2: False, 4: True}, [3]), ({2: False, 4: False}, []), ({2: None, 4: None}, [])],
    ids=["one is gone", "one may be cut off", "only this one is refused", "nobody else answers"],
)
def test_majority_of_its_peers_must_be_refused_by_the_controller(
    answers: dict[int, bool | None], ended: list[int]
) -> None:
    async def story(scene: Scene) -> None:
        scene.answers.update(answers)
        scene.ports.dead.add("host-3")
        scene.suspecting.link_failed(3, True)
        await scene.tasks.drain()
        assert scene.ended == ended

    play(story, controller=3)


def test_controller_that_was_never_reached_is_not_suspected() -> None:
    async def story(scene: Scene) -> None:
        scene.answers.update({2: True, 4: True})
        scene.ports.dead.add("host-3")
        scene.suspecting.link_failed(3, False)
        await scene.tasks.drain()
        assert scene.ended == []

    play(story, controller=3)


@pytest.mark.parametrize("when", ["before it is looked at", "while others are asked"])
def test_session_of_a_broker_that_registered_again_is_never_ended(when: str) -> None:
    async def story(scene: Scene) -> None:
        scene.answers.update({2: True, 4: True})
        scene.ports.dead.add("host-3")
        scene.suspecting.link_failed(3, True)

        async def come_back() -> bool:
            await scene.sessions[3].close()
            scene.sessions[3] = (await register(scene.metadata, 3))[0]
            return True

        if when == "before it is looked at":
            await come_back()
        else:
            scene.answers[2] = come_back
        await scene.tasks.drain()
        assert scene.ended == []
        assert await scene.is_registered(3)

    play(story, controller=3)


@pytest.mark.parametrize("left", ["nothing", "the key of another session"])
def test_without_its_very_key_a_session_is_left_to_its_timeout(left: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(scene: Scene) -> None:
        data = (await scene.own.get(session_key_path(3))).data
        await scene.own.delete(session_key_path(2))
        if left != "nothing":
            await scene.own.create(session_key_path(2), data, ephemeral=True)
        scene.ports.dead.add("host-2")
        for _ in range(2):
            scene.loses(2)
            await scene.tasks.drain()
        assert scene.ended == []

    play(story)
    assert len([one for one in caplog.messages if "its session cannot be ended" in one]) == 1


def test_session_that_was_ended_often_is_left_to_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    async def story(scene: Scene) -> None:
        scene.ports.dead.add("host-2")
        for count in range(ENDS_MAX + 1):
            scene.loses(2)
            await scene.tasks.drain()
            assert len(scene.ended) == min(count + 1, ENDS_MAX)
            await scene.sessions[2].close()
            scene.sessions[2], again = await register(scene.metadata, 2)
            scene.seat.history.image = ClusterImage(brokers={**scene.seat.history.image.brokers, 2: again})
        assert await scene.is_registered(2)

    play(story)
    assert "broker 2 seems to be dead once more; this time its session is left to its timeout" in caplog.messages


def test_broker_answers_only_for_the_registration_that_it_knows() -> None:
    async def story(scene: Scene) -> None:
        scene.ports.dead.add("host-2")
        known = scene.suspect(2)
        assert await scene.suspecting.is_refused(known)
        assert not await scene.suspecting.is_refused(Suspect(2, known.broker_epoch + 1))
        assert not await scene.suspecting.is_refused(Suspect(9, known.broker_epoch))
        assert not await scene.suspecting.is_refused(scene.suspect(3))

    play(story)

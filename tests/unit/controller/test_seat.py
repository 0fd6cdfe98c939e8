"""Who is the controller, as one broker finds it out."""

from random import Random

from barnabas.base.clock import SystemClock
from barnabas.controller.history import NOWHERE, ImageHistory
from barnabas.controller.seat import ControllerSeat
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.identity import ensure_layout
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.znodes import BROKER_IDS, CONTROLLER, BrokerRegistration, ControllerNode, Endpoint
from barnabas.net.sockets import SocketNetwork
from tests.support.network import run


def test_controller_that_is_no_broker_of_ours_is_not_asked_for_its_image() -> None:
    """A broker of Apache Kafka, which came into the chroot later."""

    async def scenario() -> None:
        clock = SystemClock()
        metadata = EmbeddedMetadata.in_memory(clock, MemoryTable())
        session = metadata.session()
        await ensure_layout(session)
        foreign = BrokerRegistration(9, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1),))
        await session.create(f"{BROKER_IDS}/9", foreign.encode(), ephemeral=True)
        await session.create(CONTROLLER, ControllerNode(9, 0).encode(), ephemeral=True)
        history = ImageHistory()
        seat = ControllerSeat(1, history, SocketNetwork(), "PLAINTEXT", clock, Random(1))
        assert not await seat.load_from(session)
        assert history.place == NOWHERE
        await metadata.close()

    run(scenario())

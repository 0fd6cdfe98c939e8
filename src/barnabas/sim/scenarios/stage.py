"""What every sentence of a scenario needs: the brokers and clients by name, and waiting in virtual time."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.metadata.znodes import PartitionState
from barnabas.sim.histories.director import Director
from barnabas.sim.histories.plan import Plan
from barnabas.sim.scenarios.clients import Client, MemberClient, Place, ProducingClient, ReadingClient, Sending
from barnabas.sim.world.node import BrokerNode
from barnabas.sim.world.zookeeper import SimulatedZooKeeper

PATIENCE_SECONDS: Final = 30.0
"""How long a line waits for what it wants."""
NOTHING: Final = "nothing"
_LOOK_SECONDS: Final = 0.005


class Unexpected(Exception):  # noqa: N818 - named as the fact that it is
    """What was seen instead."""


class Stage(Director):
    """A director without a plan: the page tells it what to do. Heals, reads and verifies in the end as any other."""

    def __init__(self, seed: int) -> None:
        super().__init__(Plan(seed, {}, 1, 0, (), (), (), ()))
        self._clients: dict[str, Client] = {}
        self._place = Place(self.world, self.recorder, lambda: ",".join(node.bootstrap for node in self._nodes))

    async def _until(self, is_so: Callable[[], bool], seconds: float | None, seen: Callable[[], str]) -> None:
        """Unexpected, with what is seen, when it is not so in time."""
        wanted = PATIENCE_SECONDS if seconds is None else seconds
        until = self.recorder.now + wanted
        while not is_so():
            if self.recorder.now >= until:
                raise Unexpected(f"after {wanted:g} s: {seen()}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _settled(self, sendings: Sequence[Sending], seconds: float | None) -> None:
        await self._until(
            lambda: all(one.is_settled for one in sendings), seconds, lambda: ", ".join(map(str, sendings))
        )

    @property
    def _ensemble(self) -> SimulatedZooKeeper:
        if self._zookeeper is None:
            raise Unexpected("there is no cluster")
        return self._zookeeper

    def _state(self, partition: TopicPartition) -> PartitionState:
        if partition not in self._watch.states:
            raise Unexpected(f"there is no {partition} in a cluster")
        return self._watch.states[partition]

    def _node(self, name: str) -> BrokerNode:
        return next(node for node in self._nodes if node.name == name)

    def _producer(self, name: str) -> ProducingClient:
        client = self._clients[name]
        assert isinstance(client, ProducingClient)
        return client

    def _reader(self, name: str) -> ReadingClient:
        client = self._clients[name]
        assert isinstance(client, ReadingClient)
        return client

    def _member(self, name: str) -> MemberClient:
        client = self._clients[name]
        assert isinstance(client, MemberClient)
        return client

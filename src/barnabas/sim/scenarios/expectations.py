"""What a page can expect: one method for each sentence that begins so, which raises `Unexpected` with what it saw."""

import asyncio
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.metadata.znodes import CONTROLLER, ControllerNode
from barnabas.sim.histories.actors import ask_committed
from barnabas.sim.histories.events import CommittedSeen, StateWritten
from barnabas.sim.histories.final_disks import records_on_disk
from barnabas.sim.scenarios.clients import Sending, decoded
from barnabas.sim.scenarios.slots import Item
from barnabas.sim.scenarios.stage import NOTHING, Stage, Unexpected

_DIRECTOR: Final = "director"


class Expectations(Stage):
    # Producers

    def _sendings(self, producer: str, values: tuple[Item, ...]) -> list[Sending]:
        sendings = self._producer(producer).sendings
        found = []
        for item in values:
            matching = [one for one in sendings if one.item == item]
            if not matching:
                raise Unexpected(f"{producer} has not sent {item}")
            found.append(matching[-1])
        return found

    async def do_expect_acked(
        self, producer: str, values: tuple[Item, ...], offset: Offset | None = None, seconds: float | None = None
    ) -> None:
        sendings = self._sendings(producer, values)
        await self._settled(sendings, seconds)
        if any(one.error is not None for one in sendings):
            raise Unexpected(", ".join(map(str, sendings)))
        wanted = None if offset is None else list(range(offset, offset + len(sendings)))
        if wanted is not None and [one.offset for one in sendings] != wanted:
            raise Unexpected(", ".join(map(str, sendings)))

    async def do_expect_failed(self, producer: str, values: tuple[Item, ...], error: str) -> None:
        sendings = self._sendings(producer, values)
        await self._settled(sendings, None)
        for one in sendings:
            if one.error is None or error not in one.error:
                raise Unexpected(f"{one}")
            one.is_failure_expected = True

    async def do_expect_waiting(self, producer: str, values: tuple[Item, ...]) -> None:
        sendings = self._sendings(producer, values)
        if any(one.is_settled for one in sendings):
            raise Unexpected(", ".join(map(str, sendings)))

    # Readers and members

    async def do_expect_read(self, reader: str, values: tuple[Item, ...], seconds: float | None = None) -> None:
        client = self._reader(reader)
        wanted = list(values)

        def read() -> list[Item]:
            return client.read[client.expected :]

        def seen() -> str:
            failures = f"; it failed: {client.failures[-1]}" if client.failures else ""
            return f"{reader} has read {listed(read())}{failures}"

        await self._until(lambda: read()[: len(wanted)] == wanted or len(read()) >= len(wanted), seconds, seen)
        if read() != wanted:
            raise Unexpected(seen())
        client.expected = len(client.read)

    async def do_expect_nothing_read(self, reader: str, seconds: float) -> None:
        client = self._reader(reader)
        failures = len(client.failures)
        await asyncio.sleep(seconds)
        read = client.read[client.expected :]
        if read or len(client.failures) > failures:
            raise Unexpected(f"{reader} has read {listed(read)}, and failed: {client.failures[failures:]}")

    async def do_expect_read_failed(self, reader: str, error: str, seconds: float | None = None) -> None:
        client = self._reader(reader)
        await self._until(
            lambda: any(error in one for one in client.failures),
            seconds,
            lambda: (
                f"{reader} has read {listed(client.read[client.expected :])}, and failed: {client.failures or 'never'}"
            ),
        )

    async def do_expect_owner(
        self,
        member: str,
        partitions: tuple[TopicPartition, ...],
        generation: int | None = None,
        seconds: float | None = None,
    ) -> None:
        client = self._member(member)

        def is_so() -> bool:
            return client.owned[1] == tuple(sorted(partitions)) and generation in (None, client.owned[0])

        def seen() -> str:
            return f"{member} owns {listed(client.owned[1])} in generation {client.owned[0]}"

        await self._until(is_so, seconds, seen)

    async def do_expect_committed(self, group: str, partition: TopicPartition, offset: str) -> None:
        await self._as_director(lambda cluster: ask_committed(cluster, self.recorder, _DIRECTOR, group))
        *_, answer = self.recorder.history.of(CommittedSeen)
        offsets = dict(answer.offsets)
        seen = str(offsets.get(partition, NOTHING))
        if seen != offset:
            raise Unexpected(f"committed is {seen}")

    # What the brokers hold

    async def _content(self, partition: TopicPartition) -> list[Item]:
        final = self.recorder.history.final
        final.clear()
        await self._as_director(self._read_all)
        if partition not in final:
            raise Unexpected(f"{partition} cannot be read")
        return [decoded(record.key, record.value) for record in final[partition].records]

    async def do_expect_content(self, partition: TopicPartition, values: tuple[Item, ...]) -> None:
        wanted = [] if values == (Item(None, NOTHING),) else list(values)
        content = await self._content(partition)
        if content != wanted:
            raise Unexpected(f"{partition} holds {listed(content)}")

    async def do_expect_content_maybe(
        self, partition: TopicPartition, values: tuple[Item, ...], more: tuple[Item, ...]
    ) -> None:
        sure = [] if values == (Item(None, NOTHING),) else list(values)
        content = await self._content(partition)
        if len(content) < len(sure) or content != [*sure, *more][: len(content)]:
            raise Unexpected(f"{partition} holds {listed(content)}")

    async def do_expect_offsets(self, partition: TopicPartition, start: Offset, end: Offset) -> None:
        await self._content(partition)
        log = self.recorder.history.final[partition]
        if (log.start_offset, log.end_offset) != (start, end):
            raise Unexpected(f"offsets of {partition} are {log.start_offset} to {log.end_offset}")

    async def do_expect_replica(
        self, broker: str, values: tuple[Item, ...], partition: TopicPartition, seconds: float | None = None
    ) -> None:
        wanted = [] if values == (Item(None, NOTHING),) else list(values)

        def has() -> list[Item]:
            return [decoded(one.key, one.value) for one in records_on_disk(self._node(broker), partition)]

        await self._until(lambda: has() == wanted, seconds, lambda: f"{broker} has {listed(has())}")

    async def do_expect_leader(
        self, brokers: tuple[int, ...], partition: TopicPartition, seconds: float | None = None
    ) -> None:
        def is_so() -> bool:
            state = self._state(partition)
            if state.leader not in brokers:
                return state.leader < 0 and not brokers
            broker = self._node(f"broker-{state.leader}").broker
            led = None if broker is None else broker.replicas.get(*partition)
            return led is not None and led.leader_epoch == state.leader_epoch

        await self._until(is_so, seconds, lambda: self._told(partition))

    async def do_expect_isr(
        self, brokers: tuple[int, ...], partition: TopicPartition, seconds: float | None = None
    ) -> None:
        await self._until(
            lambda: set(self._state(partition).isr) == set(brokers), seconds, lambda: self._told(partition)
        )

    async def do_expect_elr(
        self, brokers: tuple[int, ...], partition: TopicPartition, seconds: float | None = None
    ) -> None:
        await self._until(
            lambda: set(self._state(partition).elr) == set(brokers), seconds, lambda: self._told(partition)
        )

    def _told(self, partition: TopicPartition) -> str:
        *_, last = (one for one in self.recorder.history.of(StateWritten) if one.partition == partition)
        return last.sentence

    async def do_expect_controller(self, broker: str, seconds: float | None = None) -> None:
        node = self._node(broker)

        def controller() -> int | None:
            found = self._ensemble.tree.node(CONTROLLER)
            return None if found is None else ControllerNode.decode(found.data).broker_id

        await self._until(lambda: controller() == node.node_id, seconds, lambda: f"the controller is {controller()}")

    async def do_expect_no_topic(self, topic: str) -> None:
        names: list[str] = []

        async def ask(cluster: Cluster) -> None:
            names.extend(one.name for one in await Admin(cluster).topics())

        await self._as_director(ask)
        if topic in names:
            raise Unexpected(f"there are {', '.join(sorted(names))}")

    async def do_expect_no_files(self, pattern: str, broker: str, seconds: float | None = None) -> None:
        node = self._node(broker)

        def matching() -> list[str]:
            return [path for path, _ in node.disk.files() if fnmatchcase(path, pattern)]

        await self._until(lambda: not matching(), seconds, lambda: f"there are {', '.join(matching())}")

    async def do_expect_serving(self, broker: str, seconds: float | None = None) -> None:
        node = self._node(broker)
        await self._until(lambda: node.broker is not None, seconds, lambda: f"it is off: {node.exit_reason}")

    async def do_expect_off(self, broker: str, reason: str = "") -> None:
        node = self._node(broker)
        await self._until(lambda: node.is_off, None, lambda: f"{broker} runs")
        if reason not in f"{node.exit_reason}":
            raise Unexpected(f"it ended because: {node.exit_reason}")


def listed(items: Iterable[object]) -> str:
    return " ".join(map(str, items)) or NOTHING

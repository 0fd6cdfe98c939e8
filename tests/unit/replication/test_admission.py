"""Batches that take long to check, over real logs, with workers that the test lets go on."""

import asyncio
from dataclasses import replace

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError, CorruptBatch
from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import ZERO_UUID
from barnabas.records.batch import Codec
from barnabas.replication.admission import CHECKERS_MAX, TURN_COST_MAX, USUAL_BYTES_MAX, Admission
from barnabas.replication.leader import Grant
from barnabas.replication.partition import Partition
from barnabas.replication.tick import AppendTick
from barnabas.replication.waiting import ALL_ACKS, FOREVER
from barnabas.storage.log.log import Log
from barnabas.storage.log.staging import Appended
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.bombs import hollow, zstd_bomb
from tests.support.held_workers import HeldWorkers
from tests.support.network import run, until
from tests.support.played_replies import PlayedReplies
from tests.support.side_by_side_produce import batch
from tests.support.simulated_log import SimulatedLog

SMALL = batch()
COMPRESSED = batch(3, codec=Codec.ZSTD)
LONG = hollow(Codec.SNAPPY, 64 << 10)
"""One record."""


class Owner:
    """Keeps what it is told."""

    appended: Appended

    def __init__(self, partition: Partition, told: list["Owner"]) -> None:
        self._partition = partition
        self._told = told
        self.error: BarnabasError | None = None

    def staged(self, appended: Appended) -> None:
        self.appended = appended
        self._partition.when_committed(appended.last_offset, ALL_ACKS, FOREVER, self._settled)

    def _settled(self, error: BarnabasError | None) -> None:
        self.error = error
        self._told.append(self)

    def refuse(self, error: BarnabasError) -> None:
        self.error = error
        self._told.append(self)

    @property
    def outcome(self) -> int | ErrorCode | type[BarnabasError]:
        """The offset of its first record, or why there is none."""
        if self.error is None:
            return self.appended.base_offset
        return self.error.code if isinstance(self.error, KafkaError) else type(self.error)


class Scene:
    def __init__(self, partitions: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self.workers = HeldWorkers()
        self.tick = AppendTick(loop, SystemClock(), PlayedReplies())
        self.admission = Admission(loop, self.workers)
        self.logs: list[Log] = []
        self.partitions = [self._partition(index) for index in range(partitions)]
        self.told: list[Owner] = []

    def _partition(self, index: int) -> Partition:
        log = SimulatedLog(clock=SystemClock()).log  # type: ignore[arg-type] # the batches are of this time
        self.logs.append(log)
        partition = Partition(TopicPartition("orders", index), ZERO_UUID, log, self.tick)
        partition.lead(Grant(1, 0, {1: 0}, (1,)))
        return partition

    def send(self, content: bytes, index: int = 0) -> Owner:
        """As the handler of Produce does."""
        partition = self.partitions[index]
        owner = Owner(partition, self.told)
        appended = partition.append_usual(bytearray(content), ALL_ACKS)
        if appended is None:
            self.admission.admit(partition, bytearray(content), owner)
        else:
            owner.staged(appended)
        return owner

    async def until_told(self, count: int) -> list[int | ErrorCode | type[BarnabasError]]:
        await until(lambda: len(self.told) >= count)
        return [owner.outcome for owner in self.told]

    async def let_all_go_on(self, count: int) -> list[int | ErrorCode | type[BarnabasError]]:
        """The workers do whatever there is to do, until so many are told."""
        while len(self.told) < count:
            await asyncio.sleep(0)
            if self.workers.jobs:
                self.workers.run_one()
        return await self.until_told(count)


def test_ordinary_compressed_batch_needs_no_worker() -> None:
    async def scene() -> None:
        stage = Scene()
        stage.send(COMPRESSED)
        stage.send(SMALL)
        assert await stage.until_told(2) == [0, 3]
        assert not stage.workers.jobs

    run(scene())


def test_batches_behind_one_that_is_away_keep_their_order() -> None:
    async def scene() -> None:
        stage = Scene()
        stage.send(SMALL)
        stage.send(LONG)
        stage.send(SMALL)
        stage.send(COMPRESSED)
        stage.send(LONG)
        stage.send(SMALL)
        assert await stage.until_told(1) == [0]
        await until(lambda: len(stage.workers.jobs) == 1)
        stage.workers.run_one()
        assert await stage.until_told(4) == [0, 1, 2, 3]
        await until(lambda: len(stage.workers.jobs) == 1)
        stage.workers.run_one()
        assert await stage.until_told(6) == [0, 1, 2, 3, 6, 7]
        assert not stage.partitions[0].is_admitting
        await stage.admission.drain()

    run(scene())


@pytest.mark.parametrize("turns_between", range(6))
def test_batch_that_comes_just_when_all_checkers_end_is_checked(turns_between: int) -> None:
    async def scene() -> None:
        stage = Scene(partitions=3)
        for index in range(CHECKERS_MAX):
            stage.send(LONG, index)
        await until(lambda: len(stage.workers.jobs) == CHECKERS_MAX)
        for _ in range(CHECKERS_MAX):
            stage.workers.run_one()
        for _ in range(turns_between):
            await asyncio.sleep(0)
        stage.send(LONG, CHECKERS_MAX)
        assert await stage.let_all_go_on(CHECKERS_MAX + 1) == [0] * (CHECKERS_MAX + 1)

    run(scene())


def test_idempotent_producer_with_a_batch_away_gets_every_sequence_in() -> None:
    def of_producer(content: int, codec: Codec = Codec.NONE) -> bytes:
        return batch(1, producer_id=7, producer_epoch=0, base_sequence=content, codec=codec, value=bytes(2 << 20))

    async def scene() -> None:
        stage = Scene()
        stage.partitions[0].configure(replace(stage.logs[0].config, max_message_bytes=4 << 20))
        for sequence in range(4):
            stage.send(of_producer(sequence, Codec.LZ4 if sequence % 2 == 0 else Codec.NONE))
        assert await stage.let_all_go_on(4) == [0, 1, 2, 3]

    run(scene())


def test_other_partitions_do_not_wait_for_one_whose_batch_is_away() -> None:
    async def scene() -> None:
        stage = Scene(partitions=3)
        stage.send(LONG, 0)
        stage.send(SMALL, 1)
        stage.send(COMPRESSED, 2)
        assert await stage.until_told(2) == [0, 0]
        assert stage.partitions[0].is_admitting
        stage.workers.run_one()
        await stage.until_told(3)

    run(scene())


def test_batches_of_many_partitions_take_few_workers_at_a_time() -> None:
    async def scene() -> None:
        stage = Scene(partitions=6)
        for index in range(6):
            stage.send(LONG, index)
        for done in range(6):
            await until(lambda: bool(stage.workers.jobs))
            assert len(stage.workers.jobs) <= CHECKERS_MAX
            stage.workers.run_one()
            await stage.until_told(done + 1)
        await stage.admission.drain()

    run(scene())


def test_one_turn_of_the_loop_checks_so_much_and_leaves_the_rest() -> None:
    """Two hundred small batches that came together, each of which alone is nothing."""
    count = 200

    async def scene() -> None:
        stage = Scene(partitions=count)
        for index in range(count):
            stage.send(COMPRESSED, index)
        at_once = sum(log.staged_end_offset > 0 for log in stage.logs)
        assert 0 < at_once < count
        assert set(await stage.let_all_go_on(count)) == {0}

    run(scene())


def test_requests_for_many_partitions_stage_so_much_in_one_turn() -> None:
    async def scene() -> None:
        stage = Scene()
        taken = [stage.admission.takes_usual(100) for _ in range(1000)]
        assert taken == sorted(taken, reverse=True)
        assert 100 < sum(taken) < 500
        await asyncio.sleep(0.01)
        assert stage.admission.takes_usual(100)
        assert not stage.admission.takes_usual(USUAL_BYTES_MAX)

    run(scene())


def test_batch_that_comes_back_to_a_closed_partition_is_refused_with_those_behind_it() -> None:
    async def scene() -> None:
        stage = Scene()
        stage.send(LONG)
        stage.send(SMALL)
        await until(lambda: bool(stage.workers.jobs))
        stage.partitions[0].close()
        stage.workers.run_one()
        assert await stage.until_told(2) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        await stage.admission.drain()
        assert stage.logs[0].staged_end_offset == 0

    run(scene())


@pytest.mark.parametrize(
    ("content", "outcome"),
    [(zstd_bomb(1024), ErrorCode.MESSAGE_TOO_LARGE), (LONG[:-30] + bytes(30), CorruptBatch), (b"", CorruptBatch)],
    ids=["bomb", "damaged", "nothing"],
)
def test_batch_that_is_refused_leaves_the_way_to_those_behind_it(content: bytes, outcome: object) -> None:
    async def scene() -> None:
        stage = Scene()
        refused = stage.send(content)
        behind = stage.send(SMALL)
        await stage.let_all_go_on(2)
        assert behind.outcome == 0
        assert refused.outcome == outcome or issubclass(refused.outcome, CorruptBatch)  # type: ignore[arg-type]

    run(scene())


def test_large_uncompressed_batch_leaves_the_loop() -> None:
    async def scene() -> None:
        stage = Scene()
        stage.partitions[0].configure(replace(stage.logs[0].config, max_message_bytes=16 << 20))
        stage.send(batch(1, value=bytes(2 * TURN_COST_MAX)))
        stage.send(batch(1, value=bytes(2 * TURN_COST_MAX + 1)))
        assert stage.partitions[0].is_admitting
        assert await stage.let_all_go_on(2) == [0, 1]

    run(scene())

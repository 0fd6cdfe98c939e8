"""Who is asked for another ISR, and what becomes of answers that settle nothing."""

import asyncio
from collections.abc import Sequence

from barnabas.net.errors import ChannelClosed
from barnabas.replication.leader import Fetched
from barnabas.replication.partition import Partition
from barnabas.replication.proposals import Proposals, Proposed
from barnabas.wire.errors import ErrorCode
from tests.support.led_partition import BROKER, LedPartition, grant, scenario
from tests.support.network import until

REPLICAS = (BROKER, 2, 3)
LAG_MS = 1000


class Controller:
    """What it is asked, and what it answers next."""

    def __init__(self, *answers: ErrorCode | Exception) -> None:
        self.asked: list[dict[int, int]] = []
        self._answers = list(answers)

    async def alter(self, proposed: Sequence[Proposed]) -> Sequence[ErrorCode]:
        self.asked += [dict(one.proposal.isr) for one in proposed]
        answer = self._answers.pop(0) if self._answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        return [answer] * len(proposed)


def proposals_of(led: LedPartition, controller: Controller) -> Proposals:
    partitions: list[Partition] = [led.partition]
    return Proposals(led.clock, lambda: partitions, LAG_MS, controller.alter)


def caught_up(led: LedPartition, broker_id: int) -> None:
    end = led.partition.end_offset
    led.partition.fetched_by(Fetched(broker_id, 70, end, 0, led.clock.steady_ms()))


@scenario
async def test_follower_that_has_caught_up_is_proposed_once() -> None:
    led, controller = LedPartition((BROKER, 2), REPLICAS), Controller()
    proposals = proposals_of(led, controller)
    task = asyncio.create_task(proposals.run())
    caught_up(led, 2)
    caught_up(led, 3)
    proposals.add(led.partition)
    await until(lambda: bool(controller.asked))
    proposals.add(led.partition)
    await asyncio.sleep(0.01)
    assert controller.asked == [{BROKER: 0, 2: 0, 3: 70}]
    task.cancel()


@scenario
async def test_proposal_without_an_answer_is_sent_again_until_the_state_tells() -> None:
    led, controller = LedPartition((BROKER, 2), REPLICAS), Controller(ChannelClosed("gone"), ErrorCode.NOT_CONTROLLER)
    task = asyncio.create_task(proposals_of(led, controller).run())
    caught_up(led, 3)
    for count in range(1, 4):
        await until(lambda count=count: len(controller.asked) == count)  # type: ignore[misc]
        led.clock.advance(1000)
        caught_up(led, 2)  # does not lag meanwhile
    assert len(set(map(str, controller.asked))) == 1, "the same one"
    led.partition.lead(grant(REPLICAS, REPLICAS, 1))
    led.clock.advance(1000)
    await asyncio.sleep(0.01)
    assert len(controller.asked) <= 4
    task.cancel()


@scenario
async def test_refused_proposal_is_over() -> None:
    led, controller = LedPartition((BROKER, 2), REPLICAS), Controller(ErrorCode.INELIGIBLE_REPLICA)
    task = asyncio.create_task(proposals_of(led, controller).run())
    caught_up(led, 2)
    caught_up(led, 3)
    await until(lambda: bool(controller.asked))
    told = led.append()
    await asyncio.sleep(0)
    led.partition.fetched_by(Fetched(2, 70, 1, 0, led.clock.steady_ms()))
    assert told.outcome == "committed", "broker 3 does not count any more"
    task.cancel()


@scenario
async def test_after_a_refusal_the_next_proposal_waits_a_moment_however_often_the_follower_fetches() -> None:
    led, controller = LedPartition((BROKER, 2), REPLICAS), Controller(ErrorCode.INELIGIBLE_REPLICA)
    proposals = proposals_of(led, controller)
    task = asyncio.create_task(proposals.run())
    caught_up(led, 2)
    caught_up(led, 3)
    await until(lambda: bool(controller.asked))
    for _ in range(10):
        caught_up(led, 3)
        proposals.add(led.partition)
        await asyncio.sleep(0.001)
    assert len(controller.asked) == 1
    led.clock.advance(100)
    await until(lambda: len(controller.asked) == 2)
    assert controller.asked[0] == controller.asked[1]
    task.cancel()


@scenario
async def test_follower_that_lags_is_left_out() -> None:
    led, controller = LedPartition(REPLICAS, REPLICAS), Controller()
    task = asyncio.create_task(proposals_of(led, controller).run())
    await asyncio.sleep(0)
    led.append()
    await asyncio.sleep(0)
    led.clock.advance(LAG_MS + 1)
    caught_up(led, 2)
    await until(lambda: bool(controller.asked))
    assert controller.asked == [{BROKER: 0, 2: 0}]
    task.cancel()


@scenario
async def test_follower_that_the_controller_has_taken_out_is_not_proposed_at_once() -> None:
    """Its broker stops, mostly. Proposed, it would count until the controller answers, which may be what stops."""
    led, controller = LedPartition((BROKER, 2, 3), REPLICAS), Controller()
    proposals = proposals_of(led, controller)
    task = asyncio.create_task(proposals.run())
    caught_up(led, 2)
    caught_up(led, 3)
    proposals.taken_out(led.partition)
    led.partition.lead(grant((BROKER, 2), REPLICAS, 1))
    caught_up(led, 3)
    proposals.add(led.partition)
    await asyncio.sleep(0.01)
    assert controller.asked == []
    told = led.append()
    await asyncio.sleep(0)
    led.partition.fetched_by(Fetched(2, 70, 1, 0, led.clock.steady_ms()))
    assert told.outcome == "committed", "broker 3 does not count"
    task.cancel()


@scenario
async def test_partition_tells_of_members_that_were_taken_out_unasked() -> None:
    led = LedPartition((BROKER, 2, 3), REPLICAS)
    told: list[Partition] = []
    led.partition._on_taken_out = told.append
    led.partition.lead(grant((BROKER, 2), REPLICAS, 1))
    assert told == [led.partition]
    led.partition.lead(grant((BROKER, 2, 3), REPLICAS, 2))
    assert told == [led.partition], "members that join are no such news"

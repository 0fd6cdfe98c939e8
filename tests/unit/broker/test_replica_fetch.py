"""Fetches of followers: what they prove, what they are sent, and how their sessions go on."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers import replica_fetch
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.broker_parts import ServedBroker, ServedConnection, served_broker
from tests.support.network import run
from tests.support.replicated import EPOCH, FOLLOWERS, replicated
from tests.support.side_by_side_produce import batch

VERSION = 17


class Follower:
    """As another broker fetches: one session, one request after the other."""

    def __init__(self, served: ServedBroker, broker_id: int = 2, broker_epoch: int = EPOCH) -> None:
        self._connection: ServedConnection = served.connect()
        self._partition = served.partition("orders")
        self.broker_id, self.broker_epoch = broker_id, broker_epoch
        self.session_id = self.session_epoch = 0

    def send(self, *named: dict[str, int], wait_ms: int = 0, version: int = VERSION, **values: Any) -> Any:
        topic = {"topic_id": self._partition.topic_id, "partitions": list(named)}
        asked = {
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": self.session_id,
            "session_epoch": self.session_epoch,
            "topics": [topic] if named else [],
            "forgotten_topics_data": [],
            "rack_id": "",
            "replica_state": {"replica_id": self.broker_id, "replica_epoch": self.broker_epoch},
        }
        self.session_epoch += 1
        return self._connection.send(ApiKey.FETCH, version, {**asked, **values})

    def named(self, offset: int, last_epoch: int = -1, **values: int) -> dict[str, int]:
        one = {"partition": 0, "current_leader_epoch": self._partition.leader_epoch, "fetch_offset": offset}
        return {
            **one,
            "last_fetched_epoch": last_epoch,
            "log_start_offset": 0,
            "partition_max_bytes": 1 << 20,
            **values,
        }

    async def answered(self, answer: Any) -> list[Any]:
        """The partitions of an answer without an error of its own."""
        response = await answer
        assert response.error_code.value == 0, response
        self.session_id = response.session_id
        return [one for topic in response.responses for one in topic.partitions]

    async def ask(self, *named: dict[str, int], **values: Any) -> list[Any]:
        return await self.answered(self.send(*named, **values))


@asynccontextmanager
async def leading(directory: Path, in_sync: Iterable[int] = FOLLOWERS) -> AsyncIterator[ServedBroker]:
    async with served_broker(directory) as served:
        await served.create("orders")
        replicated(served.partition("orders"), in_sync)
        yield served


def append(served: ServedBroker) -> None:
    """One record with acks=1."""
    served.partition("orders").append(bytearray(batch()))
    served.broker.tick.write()


def test_record_is_committed_when_every_follower_has_named_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as served:
            partition = served.partition("orders")
            followers = [Follower(served, one) for one in FOLLOWERS]
            append(served)
            for follower in followers:
                [got] = await follower.ask(follower.named(0))
                assert got.records, "what is written is sent, committed or not"
                assert (got.high_watermark, partition.high_watermark) == (0, 0)
            for follower, watermark in zip(followers, (0, 1), strict=True):
                await follower.ask(follower.named(1, last_epoch=0))
                assert partition.high_watermark == watermark

    run(scenario())


def test_records_are_sent_once_until_the_follower_names_what_it_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as served:
            follower = Follower(served)
            append(served)
            assert await follower.ask(follower.named(0))
            append(served)
            assert not [one for one in await follower.ask() if one.records]
            [got] = await follower.ask(follower.named(1, last_epoch=0))
            assert got.records

    run(scenario())


def test_waiting_fetch_is_answered_when_the_log_grows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as served:
            follower = Follower(served)
            await follower.ask(follower.named(0))
            waiting = follower.send(wait_ms=600_000)
            await asyncio.sleep(0)
            assert not waiting.done()
            append(served)
            [got] = await follower.answered(waiting)
            assert got.records

    run(scenario())


def test_next_request_ends_the_waiting_of_the_one_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as served:
            follower = Follower(served)
            await follower.ask(follower.named(0))
            waiting = follower.send(wait_ms=600_000)
            behind = follower.send(wait_ms=600_000)
            assert await follower.answered(waiting) == []
            append(served)
            assert await follower.answered(behind)

    run(scenario())


def test_watermark_is_told_when_the_waiting_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path, in_sync=(2,)) as served:
            follower = Follower(served)
            append(served)
            await follower.ask(follower.named(0))
            [told] = await follower.ask(follower.named(1, last_epoch=0), wait_ms=1)
            assert (told.high_watermark, told.records) == (1, b"")
            assert await follower.ask(wait_ms=1) == [], "it is no news any more"

    run(scenario())


def test_follower_whose_log_has_parted_is_told_where(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as served:
            append(served)
            follower = Follower(served)
            [got] = await follower.ask(follower.named(5, last_epoch=0))
            assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (0, 1)
            assert served.partition("orders").high_watermark == 0, "it proves nothing"

    run(scenario())


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"current_leader_epoch": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"fetch_offset": 7}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partition_with_an_error_is_out_of_the_session(tmp_path: Path, named: dict[str, int], code: ErrorCode) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as served:
            follower = Follower(served)
            [got] = await follower.ask(follower.named(0, **named))
            assert got.error_code.value == code
            append(served)
            assert await follower.ask() == []
            [again] = await follower.ask(follower.named(0))
            assert again.records

    run(scenario())


def test_broker_without_a_replica_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as served:
            stranger = Follower(served, broker_id=9)
            [got] = await stranger.ask(stranger.named(0))
            assert got.error_code.value == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(scenario())


def test_request_that_does_not_fit_its_session_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as served:
            follower = Follower(served)
            await follower.ask(follower.named(0))
            wrong = {
                ErrorCode.INVALID_FETCH_SESSION_EPOCH: {"session_epoch": 7},
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND: {"session_id": follower.session_id + 1},
            }
            for code, values in wrong.items():
                assert (await follower.send(**values)).error_code.value == code
            earlier = Follower(served, broker_epoch=EPOCH - 1)
            assert (await earlier.send(earlier.named(0))).error_code.value == ErrorCode.STALE_BROKER_EPOCH

    run(scenario())


def test_version_without_a_broker_epoch_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as served:
            follower = Follower(served)
            answer = await follower.send(version=14, replica_id=2)
            assert answer.error_code.value == ErrorCode.UNSUPPORTED_VERSION

    run(scenario())


def test_very_many_partitions_are_named_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetch, "_LOOKED_AT_MAX", 2)

    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            await served.create("orders", 5)
            for index in range(5):
                replicated(served.partition("orders", index))
            follower = Follower(served)
            await follower.ask(*(follower.named(0, partition=index) for index in range(5)))
            served.append("orders", [1], index=4)
            got: list[Any] = []
            while not [one for one in got if one.records]:
                got = await follower.ask(wait_ms=1000)
            assert [one.partition_index for one in got if one.records] == [4]

    run(scenario())

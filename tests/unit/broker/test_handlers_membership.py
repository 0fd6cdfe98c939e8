"""Members of a group join, sync, beat and leave, and are refused with a reason."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from barnabas.wire.apis import ApiKey
from barnabas.wire.framing import request_start
from barnabas.wire.messages import write_request
from tests.support.broker_parts import served_broker
from tests.support.group_requests import JOIN_VALUES, JOIN_VERSION, ONE, beat, find, group_state, join, sync
from tests.support.network import run


def test_member_joins_syncs_beats_and_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            joined = await join(broker)
            assert (joined.error_code, joined.generation_id) == (ErrorCode.none, 1)
            assert joined.leader == joined.member_id
            assert [one.metadata for one in joined.members] == [b"subscription"]
            assert (await sync(broker, joined)).assignment == b"all"
            assert await group_state(broker) == "Stable"
            assert await beat(broker, joined) is ErrorCode.none
            assert await beat(broker, joined, generation_id=7) is ErrorCode.illegal_generation
            assert await beat(broker, joined, member_id="nobody") is ErrorCode.unknown_member_id
            assert await beat(broker, joined, group_id="") is ErrorCode.invalid_group_id

            left = await broker.ask(
                ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": joined.member_id, "reason": "done"}]
            )
            assert left.members[0].error_code is ErrorCode.none
            assert await group_state(broker) == "Empty"

    run(scenario())


def test_member_without_an_id_gets_one_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            first = await join(broker, version=9)
            assert first.error_code is ErrorCode.member_id_required
            second = await join(broker, first.member_id, version=9)
            assert (second.error_code, second.member_id) == (ErrorCode.none, first.member_id)

    run(scenario())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout_ms": 1}, ErrorCode.invalid_session_timeout),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_wrong_join_is_refused(tmp_path: Path, changes: dict[str, Any], expected: ErrorCode) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            for version in (0, 6, 9):
                assert (await join(broker, version=version, **changes)).error_code is expected

    run(scenario())


def test_waiting_join_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            await sync(broker, await join(broker))
            waiting = asyncio.ensure_future(join(broker))
            await asyncio.sleep(0)
            assert await group_state(broker) == "PreparingRebalance"
            broker.broker.groups.close()
            assert (await waiting).error_code is ErrorCode.not_coordinator

    run(scenario())


@pytest.mark.timeout(20)  # a task that never gives way ends by nothing else
def test_topic_that_comes_while_the_broker_stops_does_not_hold_the_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            broker.broker.groups.close()
            await broker.create("late")
            assert broker.broker.failure is None

    run(scenario())


def test_waiting_join_does_not_keep_the_buffer_that_it_arrived_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **ONE) as broker:
            await find(broker)
            await sync(broker, await join(broker))
            body = write_request(ApiKey.JOIN_GROUP, JOIN_VERSION, JOIN_VALUES)
            buffer = bytearray(request_start(ApiKey.JOIN_GROUP, JOIN_VERSION, 1, "test", len(body)) + body)
            waiting = broker.send(buffer)
            assert await group_state(broker) == "PreparingRebalance"
            buffer.clear()  # BufferError while somebody has a view of it
            broker.broker.groups.close()
            await waiting

    run(scenario())

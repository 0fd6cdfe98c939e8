"""Fetches of very many partitions are served in slices, by the same rules. Here a few count as very many."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.handlers import fetch
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.fetch import TOPIC_ID_FROM
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from tests.support.fetch_scene import TOPIC, Scene, scene_of
from tests.support.network import run

VERSIONS = (11, 13)
"""Topics by name, and by id."""


@asynccontextmanager
async def wide_scene(directory: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(fetch, "WIDE_BYTES", 0)
    async with scene_of(directory, version) as scene:
        scene.broker.broker.dispatcher.routes[ApiKey.FETCH].decode_frame = None  # it reads what is not wide
        yield scene


@pytest.mark.parametrize("version", VERSIONS)
def test_waiting_fetch_gets_what_is_written_next(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with wide_scene(tmp_path, version, monkeypatch) as scene:
            scene.reader.ask(1)
            await scene.until_waiting()
            await scene.append(3)
            news = await scene.reader.partition()
            assert news.error_code == 0
            assert news.records
            assert not scene.partition.watchers

    run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_fetch_whose_time_is_over_is_answered_without_records(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with wide_scene(tmp_path, version, monkeypatch) as scene:
            scene.reader.ask(1, wait_ms=1)
            answer = await scene.reader.partition()
            assert (answer.error_code, answer.high_watermark, bytes(answer.records or b"")) == (0, 1, b"")
            assert not scene.partition.watchers

    run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_fetch_of_a_topic_that_is_deleted_while_it_waits_is_told_so(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with wide_scene(tmp_path, version, monkeypatch) as scene:
            scene.reader.ask(1)
            await scene.until_waiting()
            await scene.broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[TOPIC], timeout_ms=1000)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_ID_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await scene.reader.partition()).error_code == unknown

    run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_session_is_told_only_what_is_new(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with wide_scene(tmp_path, version, monkeypatch) as scene:
            monkeypatch.setattr(fetch, "WIDE_PARTITIONS", 0)
            scene.reader.ask(1, wait_ms=0, session_epoch=0)
            session_id = (await scene.reader.answer()).session_id
            monkeypatch.setattr(fetch, "WIDE_BYTES", 1 << 20)  # a small request, and a session that is not
            scene.reader.ask(1, wait_ms=1, session_id=session_id, session_epoch=1)
            assert list((await scene.reader.answer()).topics) == []
            scene.reader.ask(1, session_id=session_id, session_epoch=2)
            await scene.until_waiting()
            await scene.append(2)
            assert (await scene.reader.partition()).high_watermark == 3

    run(scenario())


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
def test_fetch_of_thousands_of_partitions_is_answered_for_each(tmp_path: Path, version: int) -> None:
    count = 2000

    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            wanted = [FetchPartition(index, -1, 0, -1, -1, 1 << 20) for index in range(count)]
            topic = (TOPIC, ZERO_UUID) if version < TOPIC_ID_FROM else ("", scene.partition.topic_id)
            request = FetchRequest(60_000, 1, 1 << 20, topics=[FetchTopic(*topic, wanted)])
            scene.reader.send(encode_fetch_request(version, request))
            [answered] = (await scene.reader.answer()).topics
            assert [one.index for one in answered.partitions] == list(range(count))
            assert answered.partitions[0].records
            assert {one.error_code for one in answered.partitions[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(scenario())


def test_client_that_goes_while_its_fetch_waits_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with wide_scene(tmp_path, 13, monkeypatch) as scene:
            scene.reader.ask(1)
            await scene.until_waiting()
            await scene.reader.close()
            await scene.append(1)
            while scene.partition.watchers:  # noqa: ASYNC110 - nobody else wants to know
                await asyncio.sleep(0)

    run(scenario())


@pytest.mark.parametrize("wide_bytes", [0, 1 << 20], ids=["wide", "not wide"])
def test_isolation_level_that_there_is_not_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide_bytes: int
) -> None:
    async def scenario() -> None:
        async with wide_scene(tmp_path, 13, monkeypatch) as scene:
            monkeypatch.setattr(fetch, "WIDE_BYTES", wide_bytes)
            scene.reader.ask(1, isolation_level=7)
            answer = await scene.reader.answer()
            assert (answer.error_code, list(answer.topics)) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])

    run(scenario())

"""A fetch that waits at the end of a log gets what is written next: from memory when that is little, or the file."""

import asyncio
import errno
from pathlib import Path

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import disk_error
from barnabas.base.uuid import ZERO_UUID
from barnabas.records.batch import split_batches
from barnabas.storage.log.log import Log
from barnabas.wire.apis import ApiKey
from barnabas.wire.codecs import COMPILED, default_codecs
from barnabas.wire.errors import ErrorCode
from barnabas.wire.fetch import FLEXIBLE_FROM, LEADER_EPOCH_FROM, SESSION_FROM, TOPIC_ID_FROM
from barnabas.wire.fetch_request import FetchRequest, ForgottenTopic, encode_fetch_request
from tests.support.fetch_scene import TOPIC, Reader, scene_of
from tests.support.kernels import build_batch
from tests.support.network import run

FETCH_VERSIONS = (4, 11, 12, 13, 17)
SESSION_VERSIONS = [version for version in FETCH_VERSIONS if version >= SESSION_FROM]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("sizes", [[1], [3, 2], [2_000]], ids=["one batch", "two batches of a tick", "large"])
def test_waiting_fetch_is_answered_with_the_bytes_of_the_log(
    tmp_path: Path, version: int, isolation_level: int, sizes: list[int]
) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            scene.reader.ask(1, isolation_level=isolation_level)
            await scene.until_waiting()
            await scene.append(*sizes)
            news = await scene.reader.partition()
            scene.reader.ask(1, isolation_level=isolation_level, wait_ms=0)
            again = await scene.reader.partition()
            assert news.error_code == again.error_code == 0
            assert news.aborted_transactions == again.aborted_transactions
            assert news.records
            assert bytes(again.records or b"").startswith(bytes(news.records))
            first, _ = next(iter(split_batches(news.records)))
            assert (first.base_offset, first.count) == (1, sizes[0])

    run(scenario())


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_whose_time_is_over_is_answered_without_records(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            scene.reader.ask(1, wait_ms=1)
            answer = await scene.reader.partition()
            assert (answer.error_code, answer.high_watermark, bytes(answer.records or b"")) == (0, 1, b"")
            assert not scene.partition.watchers

    run(scenario())


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_session_of_one_partition_is_told_only_what_is_new(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            scene.reader.ask(1, wait_ms=0, session_epoch=0)
            session_id = (await scene.reader.answer()).session_id
            assert session_id
            scene.reader.ask(1, wait_ms=1, session_id=session_id, session_epoch=1)
            nothing = await scene.reader.answer()
            assert (nothing.error_code, nothing.session_id, list(nothing.topics)) == (0, session_id, [])
            scene.reader.ask(1, session_id=session_id, session_epoch=2)
            await scene.until_waiting()
            await scene.append(2)
            news = await scene.reader.partition()
            assert (news.error_code, news.high_watermark) == (0, 3)
            assert news.records
            scene.partition.delete_records_before(2)
            scene.reader.ask(3, wait_ms=0, session_id=session_id, session_epoch=3)
            assert (await scene.reader.partition()).log_start_offset == 2
            scene.reader.ask(3, wait_ms=0, session_id=session_id, session_epoch=3)
            assert (await scene.reader.answer()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    run(scenario())


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_session_that_forgets_the_partition_while_a_fetch_waits_does_no_harm(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            host, port = scene.broker.broker.bootstrap.split(":")
            other = Reader(*await asyncio.open_connection(host, port), ApiKey.FETCH, version)
            scene.reader.ask(1, wait_ms=0, session_epoch=0)
            session_id = (await scene.reader.answer()).session_id
            scene.reader.ask(1, wait_ms=500, session_id=session_id, session_epoch=1)
            await scene.until_waiting()
            topic = (TOPIC, ZERO_UUID) if version < TOPIC_ID_FROM else ("", scene.partition.topic_id)
            forgetting = FetchRequest(0, 1, 1 << 20, 0, session_id, 2, forgotten_topics=[ForgottenTopic(*topic, [0])])
            other.send(encode_fetch_request(version, forgetting))
            assert (await other.answer()).error_code == 0
            await scene.append(2)
            assert (await scene.reader.answer()).error_code == 0
            await other.close()

    run(scenario())


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_session_that_is_not_known_is_refused(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            scene.reader.ask(0, session_id=7, session_epoch=1)
            assert (await scene.reader.answer()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(scenario())


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("offset", [-1, 2])
def test_offset_outside_of_the_log_is_refused_at_once(tmp_path: Path, version: int, offset: int) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            scene.reader.ask(offset)
            assert (await scene.reader.partition()).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario())


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= LEADER_EPOCH_FROM])
def test_other_epoch_is_refused_at_once(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            scene.reader.ask(1, leader_epoch=scene.partition.leader_epoch + 1)
            assert (await scene.reader.partition()).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(scenario())


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_of_records_that_go_while_it_waits_is_refused(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            scene.reader.ask(1)
            await scene.until_waiting()
            log = scene.broker.log(TOPIC)
            log.append(build_batch(3), scene.partition.leader_epoch)
            log.write()
            log.high_watermark = 3
            scene.partition.delete_records_before(2)
            scene.partition.commit(log.end_offset)
            assert (await scene.reader.partition()).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario())


@pytest.mark.parametrize("version", SESSION_VERSIONS)
@pytest.mark.parametrize("has_session", [False, True])
def test_waiting_fetch_of_a_topic_that_is_deleted_is_told_so(tmp_path: Path, version: int, has_session: bool) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            if has_session:
                scene.reader.ask(1, wait_ms=0, session_epoch=0)
                session_id = (await scene.reader.answer()).session_id
                scene.reader.ask(1, session_id=session_id, session_epoch=1)
            else:
                scene.reader.ask(1)
            await scene.until_waiting()
            deleted = await scene.broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[TOPIC], timeout_ms=1000)
            assert deleted.responses[0].error_code.value == 0
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_ID_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await scene.reader.partition()).error_code == unknown

    run(scenario())


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= FLEXIBLE_FROM])
@pytest.mark.skipif(default_codecs() is not COMPILED, reason="the compiled codecs are not there, or not wanted")
def test_fetch_of_one_partition_is_read_by_the_compiled_codec(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            route = scene.broker.broker.dispatcher.routes[ApiKey.FETCH]
            scene.reader.ask(1)
            await scene.until_waiting()
            await scene.append(2)
            assert (await scene.reader.partition()).records
            assert (route.compiled.value, route.reference.value) == (1, 0)

    run(scenario())


@pytest.mark.parametrize("version", [4, 17])
def test_fetch_that_finds_a_failed_disk_when_it_reads_again_is_answered_once(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: Log, *_: object, **__: object) -> None:
        raise disk_error("read", "0.log", OSError(errno.EIO, "the disk"))

    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            scene.reader.ask(0, bytes_min=100_000)
            await scene.until_waiting()
            monkeypatch.setattr(Log, "read", fail)
            monkeypatch.setattr(Log, "read_written", fail)
            await scene.append(1)
            answer = await scene.reader.partition()
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert not scene.partition.watchers
            scene.reader.ask(0, wait_ms=0)  # the next answer is the next request's
            assert (await scene.reader.partition()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert scene.broker.broker.failure is None

    run(scenario())


def test_log_whose_directory_failed_is_not_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, 17) as scene:
            failure = disk_error("sync", "0.log", OSError(errno.EIO, "the disk"))
            scene.broker.broker.logs.on_log_failure(scene.partition.name, failure)
            with pytest.raises(DiskFailed):
                scene.partition.read(0, 1000, is_committed_only=False, at_least_one=True)

    run(scenario())

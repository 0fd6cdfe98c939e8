"""How far groups are behind, as a broker's metrics tell it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.base.clock import SystemClock
from barnabas.broker import group_lag
from barnabas.broker.group_lag import GroupLags
from barnabas.records.builder import BatchBuilder
from barnabas.storage.segment.batch_search import search_batch
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.network import run

SECOND = 1000
SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "2",
    "log_message_timestamp_before_max_ms": str(2**62),
}


class Scene:
    def __init__(self, served: ServedBroker, lags: GroupLags) -> None:
        self.served = served
        self.lags = lags

    async def commit(self, group: str, *offsets: int, topic: str = "orders") -> None:
        """For as many partitions as there are offsets."""
        await self.served.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": None}
            for index, offset in enumerate(offsets)
        ]
        answer = await self.served.ask(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": topic, "partitions": partitions}],
        )
        assert {one.error_code.value for one in answer.topics[0].partitions} == {0}

    async def measure(self) -> dict[tuple[str, ...], tuple[int | None, int | None]]:
        """By group, topic and partition: records, and the timestamp of the first that is not committed."""
        await self.lags.refresh()
        return {lag.labels: (lag.records, self.lags.unread_ms(lag)) for lag in self.lags.lags}


@asynccontextmanager
async def scene_of(directory: Path, partitions: int = 1, **configs: str) -> AsyncIterator[Scene]:
    async with served_broker(directory, **SETTINGS) as served:
        await served.create("orders", partitions, **configs)
        yield Scene(served, served.broker.running.group_lags)


def test_lag_is_counted_from_the_committed_offset_to_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, 3) as scene:
            for start in (0, 3, 6):
                scene.served.append("orders", [SECOND * (start + step) for step in range(3)])
            await scene.commit("slow", 3, 0)
            await scene.commit("quick", 9)
            await scene.commit("from before", 10)
            assert await scene.measure() == {
                ("slow", "orders", "0"): (6, 3 * SECOND),
                ("slow", "orders", "1"): (0, None),
                ("quick", "orders", "0"): (0, None),
                ("from before", "orders", "0"): (None, None),
            }

    run(scenario())


def test_lag_follows_the_group_and_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path) as scene:
            scene.served.append("orders", [5, 6])
            await scene.commit("readers", 0)
            assert await scene.measure() == {("readers", "orders", "0"): (2, 5)}
            scene.served.append("orders", [9])
            assert await scene.measure() == {("readers", "orders", "0"): (3, 5)}
            await scene.commit("readers", 2)
            assert await scene.measure() == {("readers", "orders", "0"): (1, 9)}
            await scene.commit("readers", 3)
            assert await scene.measure() == {("readers", "orders", "0"): (0, None)}

    run(scenario())


def test_time_within_a_batch_lies_between_those_of_its_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path) as scene:
            scene.served.append("orders", [1000, 1100, 1200, 1300])
            await scene.commit("readers", 2)
            ((_, unread_ms),) = (await scene.measure()).values()
            assert unread_ms is not None
            assert 1000 < unread_ms < 1300

    run(scenario())


def test_records_that_were_deleted_do_not_count(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path) as scene:
            for timestamp in range(5):
                scene.served.append("orders", [timestamp])
            await scene.commit("readers", 1)
            scene.served.partition("orders").delete_records_before(3)
            assert await scene.measure() == {("readers", "orders", "0"): (2, 3)}
            scene.served.partition("orders").delete_records_before(5)
            assert await scene.measure() == {("readers", "orders", "0"): (0, None)}

    run(scenario())


def test_time_of_a_topic_with_append_time_is_that_of_the_append(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, message_timestamp_type="LogAppendTime") as scene:
            before_ms = SystemClock().now_ms()
            scene.served.append("orders", [5])
            await scene.commit("readers", 0)
            ((_, unread_ms),) = (await scene.measure()).values()
            assert unread_ms is not None
            assert before_ms <= unread_ms <= SystemClock().now_ms()

    run(scenario())


def test_records_without_a_timestamp_have_no_age(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path) as scene:
            scene.served.append("orders", [-1])
            await scene.commit("readers", 0)
            assert await scene.measure() == {("readers", "orders", "0"): (1, None)}

    run(scenario())


def test_record_is_found_in_old_segments_and_behind_gaps(tmp_path: Path) -> None:
    """What compaction leaves: batches with gaps between them, perhaps none behind the offset in its own segment."""

    async def scenario() -> None:
        async with scene_of(tmp_path) as scene:
            log = scene.served.log("orders")
            for base_offset, timestamp in ((0, 10), (4, 20), (9, 30), (30, 40)):
                if base_offset in (9, 30):
                    log.roll(at_offset=base_offset - 1)
                batch = BatchBuilder(base_offset=base_offset)
                batch.append(timestamp, b"key", b"value")
                log.append_as_follower(batch.build())
                log.write()
            assert len(log.segments) == 3

            def timestamp_at(offset: int, upper: int) -> int | None:
                search = search_batch(log.segments, offset, upper)
                header = search.run()
                search.release()
                return None if header is None else header.base_timestamp

            found = [timestamp_at(offset, 31) for offset in (0, 1, 4, 5, 8, 9, 10, 30, 31)]
            assert found == [10, 20, 20, 30, 30, 30, 40, 40, None]
            assert timestamp_at(10, 30) is None
            assert not any(segment.slices for segment in log.segments)

    run(scenario())


def overwrite_log(directory: Path) -> None:
    (file,) = directory.glob("orders-0/*.log")
    file.write_bytes(bytes(file.stat().st_size))


def test_damaged_log_leaves_the_age_unknown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path) as scene:
            scene.served.append("orders", [5])
            await scene.commit("readers", 0)
            overwrite_log(tmp_path)
            assert await scene.measure() == {("readers", "orders", "0"): (1, None)}

    run(scenario())


def test_groups_beyond_the_limit_are_counted_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "MEASURED_MAX", 3)

    async def scenario() -> None:
        async with scene_of(tmp_path, 2) as scene:
            for group in ("a", "b", "c"):
                await scene.commit(group, 0, 0)
            lags = await scene.measure()
            assert len(lags) == 2
            assert len({group for group, _, _ in lags}) == 1
            assert scene.lags.unmeasured == 4

    run(scenario())


def test_disk_that_does_not_answer_leaves_the_lags_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "_REFRESH_SECONDS_MAX", 0.05)

    async def scenario(workers: ThreadPoolExecutor) -> None:
        async with scene_of(tmp_path) as scene:
            broker = scene.served.broker
            lags = GroupLags(broker.groups.coordinator, broker.replicas, workers)
            scene.lags = lags
            scene.served.append("orders", [5, 6])
            await scene.commit("readers", 2)
            before = await scene.measure()
            assert before == {("readers", "orders", "0"): (0, None)}

            is_answering = threading.Event()
            stuck = workers.submit(is_answering.wait)
            await scene.commit("readers", 0)
            assert await scene.measure() == before
            is_answering.set()
            await asyncio.wrap_future(stuck)
            assert await scene.measure() == {("readers", "orders", "0"): (2, 5)}

            is_answering.clear()
            workers.submit(is_answering.wait)
            await scene.commit("readers", 1)
            await scene.measure()
            closing = asyncio.create_task(lags.close())
            await closing  # without waiting for the disk
            is_answering.set()

    with ThreadPoolExecutor(1) as workers:
        run(scenario(workers))


def test_other_work_gets_its_turn_while_many_groups_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lag, "_LOOKED_AT_TOGETHER", 10)
    monkeypatch.setattr(group_lag, "_SEARCHED_TOGETHER", 10)

    async def scenario() -> None:
        async with scene_of(tmp_path, 50) as scene:
            for index in range(50):
                scene.served.append("orders", [5], index)
            for group in ("a", "b"):
                await scene.commit(group, *[0] * 50)
            turns = 0

            async def take_turns() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            other = asyncio.create_task(take_turns())
            lags = await scene.measure()
            other.cancel()
            assert set(lags.values()) == {(1, 5)}
            assert len(lags) == 100
            assert turns >= 100 // 10 + 50 // 10

    run(scenario())

"""One changed partition costs the same in a small cluster and in one with ten times as many partitions: counted.

Times depend on the machine; how many Python functions are called, and how many bytes are sent, does not. The clusters
are those of `benchmarks.cluster`, whose code runs here in small.
"""

import asyncio
import sys
from types import FrameType

import pytest
from benchmarks import cluster_follower
from benchmarks.cluster_stream import cost_of_change, cost_of_takeover, cost_of_whole_image, stream_scene

SMALL, LARGE = 300, 3_000
BROKERS = 100
COUNTED = 5
SLACK = 8
"""Frames: what runs in between, such as a timer, may come once more or less."""
FOLLOW = cluster_follower._follow


class FrameCount:
    """Of Python functions called, and generators resumed, in this thread."""

    def __init__(self) -> None:
        self.frames = 0

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.frames += event == "call"

    def start(self) -> None:
        self.frames = 0
        sys.setprofile(self._count)

    def stop(self) -> int:
        sys.setprofile(None)
        return self.frames


async def frames_of_controller(partitions: int) -> int:
    """Of a change that is noticed, read, published, and told to brokers that wait."""
    count, frames = FrameCount(), []
    async with stream_scene(BROKERS, partitions) as scene:
        for number in range(COUNTED):
            telling = asyncio.ensure_future(scene.tell(scene.stubs(3)))
            await asyncio.sleep(0)
            count.start()
            try:
                await scene.change_partition(number)
                await telling
            finally:
                frames.append(count.stop())
    return min(frames)


async def frames_of_follower(partitions: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of the same change in a broker that follows."""
    count, frames = FrameCount(), []

    async def counted(*arguments: object) -> cluster_follower.Following:
        count.start()
        try:
            return await FOLLOW(*arguments)  # type: ignore[arg-type]
        finally:
            frames.append(count.stop())

    monkeypatch.setattr(cluster_follower, "_follow", counted)
    await cluster_follower.cost_of_following(BROKERS, partitions, COUNTED)
    return min(frames)


def test_change_costs_the_controller_the_same_whatever_the_cluster_has() -> None:
    small, large = [asyncio.run(frames_of_controller(partitions)) for partitions in (SMALL, LARGE)]
    assert small > 100
    assert large <= small + SLACK


def test_change_costs_a_follower_the_same_whatever_the_cluster_has(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = [asyncio.run(frames_of_follower(partitions, monkeypatch)) for partitions in (SMALL, LARGE)]
    assert small > 100
    assert large <= small + SLACK


def test_change_is_told_in_as_many_bytes_and_a_takeover_by_changes_alone() -> None:
    async def told(partitions: int) -> tuple[int, int, int]:
        async with stream_scene(BROKERS, partitions) as scene:
            change = await cost_of_change(scene, 9, COUNTED)
            whole = cost_of_whole_image(scene.image, 1, 1)
            takeover = await cost_of_takeover(scene, 9)
            assert change.whole_images == takeover.whole_images == 0
            assert 0 < takeover.told_bytes < 9 * whole.length
            return change.told_bytes, whole.length, len(scene.image.topics)

    (small, small_whole, _), (large, large_whole, topics) = [asyncio.run(told(one)) for one in (SMALL, LARGE)]
    assert topics == LARGE // 10
    assert small == large
    assert large_whole > 5 * small_whole

"""The watchdog counts its looks, so that only a loop that is stuck itself counts as stuck."""

import asyncio
import threading

from barnabas.metadata.zookeeper.loop_watchdog import LoopWatchdog


def test_loop_is_stuck_when_it_has_not_ticked_for_many_looks() -> None:
    async def main() -> None:
        watchdog = LoopWatchdog(1000.0, lambda: None)
        for _ in range(3):
            watchdog.tick()
            assert [watchdog.look() for _ in range(4)] == [False] * 4
        assert watchdog.look()
        watchdog.stop()

    asyncio.run(main())


def test_stuck_loop_is_noticed_while_it_is_stuck() -> None:
    async def main() -> None:
        stuck = threading.Event()
        watchdog = LoopWatchdog(0.05, stuck.set)
        watchdog.start()
        await asyncio.sleep(0.01)
        assert stuck.wait(20), "the loop waits here, and does not tick"
        watchdog.stop()

    asyncio.run(main())

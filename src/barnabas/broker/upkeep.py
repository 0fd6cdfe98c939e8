"""Flushes, retention, checkpoints, compaction: what is due, each second, with its blocking part in a worker."""

import asyncio
from concurrent.futures import Executor
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.tasks import Tasks
from barnabas.replication.replicas import Replicas
from barnabas.replication.workers import perform
from barnabas.storage.directories.manager import LogManager

INTERVAL_SECONDS: Final = 1.0


async def keep_house(clock: Clock, replicas: Replicas, logs: LogManager, workers: Executor) -> None:
    """Until it is cancelled; then it returns when no job is under way any more."""
    jobs = Tasks(asyncio.get_running_loop())
    try:
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            now_ms = clock.steady_ms()
            replicas.retry(now_ms)
            for work in logs.due_in_slices(now_ms):
                clock.worked(1)
                if work is None:
                    await asyncio.sleep(0)
                else:
                    jobs.start(perform(work, workers))
    finally:
        logs.stop_cleaning()
        await jobs.drain()

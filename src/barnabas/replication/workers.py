"""Jobs of the storage layer, run by the event loop that owns the logs: the blocking part in a worker thread."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor

from barnabas.base.errors import DiskFailed
from barnabas.storage.work import Work


async def perform(work: Work, workers: Executor) -> None:
    """Runs a job in a worker and finishes it here, and so what follows it.

    A failure is told to the job, whose owner deals with it.
    """
    loop = asyncio.get_running_loop()
    due: Work | None = work
    while due is not None:
        try:
            await loop.run_in_executor(workers, due.run)
        except DiskFailed as error:
            due.failed(error)
            return
        due.finish()
        due = due.following()


async def perform_all(works: Iterable[Work], workers: Executor) -> None:
    """As many at once as there are workers."""
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(perform(work, workers))

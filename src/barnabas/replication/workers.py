"""Jobs of the storage layer, run by the event loop that owns the logs: the blocking part in a worker thread."""

import asyncio
from concurrent.futures import Executor

from barnabas.base.errors import DiskFailed
from barnabas.storage.work import Work


async def perform(work: Work, workers: Executor) -> None:
    """Runs a job in a worker and finishes it here; a failure is told to the job, whose owner deals with it."""
    try:
        await asyncio.get_running_loop().run_in_executor(workers, work.run)
    except DiskFailed as error:
        work.failed(error)
    else:
        work.finish()

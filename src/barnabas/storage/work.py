"""Jobs: what may block, cut into a part for a worker thread and a part for the thread that owns the logs.

```
 owner                       worker
 makes the job  -----------> run()        may block; touches no log, only what the job was given
 finish()       <-----------              changes logs, directories, timers
 or failed(error)                         when `run` raised `DiskFailed`
```

An event loop runs jobs in its executor and finishes them when they come back; synchronous code calls `perform`. Jobs
may run in any order and at the same time. The runner of a job runs what follows it at once. Any exception other than
`DiskFailed` is our bug and propagates to the runner.

`Workers` runs many jobs to their end, for opening and closing; `InlineWorkers` does so on a simulated disk, which takes
one thread at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from barnabas.base.errors import DiskFailed

_Result = TypeVar("_Result")


class Work(Protocol):
    def run(self) -> None:
        """The blocking part: for a worker thread."""
        ...

    def finish(self) -> None:
        """After `run`, in the owner's thread."""
        ...

    def failed(self, error: DiskFailed) -> None:
        """Instead of `finish`, in the owner's thread, when `run` raised this."""
        ...

    def following(self) -> "Work | None":
        """After `finish`, in the owner's thread: more of the same that need not wait."""
        ...


class Job(Generic[_Result]):
    """Work made of three functions; `finish` gets what `run` returned.

    A `DiskFailed` of `finish` itself is treated like one of `run`, so that every failure takes the same way.
    """

    __slots__ = ("_failed", "_finish", "_following", "_result", "_run", "error", "title")

    def __init__(
        self,
        title: str,
        *,
        run: Callable[[], _Result],
        finish: Callable[[_Result], None],
        failed: Callable[[DiskFailed], None],
        following: Callable[[], Work | None] | None = None,
    ) -> None:
        self.title = title
        self.error: DiskFailed | None = None
        """Why it failed, once it has."""
        self._run = run
        self._finish = finish
        self._failed = failed
        self._following = following
        self._result: _Result

    def run(self) -> None:
        self._result = self._run()

    def finish(self) -> None:
        try:
            self._finish(self._result)
        except DiskFailed as error:
            self.failed(error)

    def failed(self, error: DiskFailed) -> None:
        self.error = error
        self._failed(error)

    def following(self) -> Work | None:
        return None if self._following is None or self.error is not None else self._following()

    def complete(self) -> None:
        """The whole job here and now, for synchronous callers: raises what went wrong, after it was dealt with."""
        perform(self)
        if self.error is not None:
            raise self.error


def perform(work: Work) -> None:
    """Runs and finishes a job in this thread, and what follows it."""
    due: Work | None = work
    while due is not None:
        try:
            due.run()
        except DiskFailed as error:
            due.failed(error)
            return
        due.finish()
        due = due.following()


class Workers(Protocol):
    def run(self, queues: Sequence[Iterable[Work]], threads_each: int) -> None:
        """Runs all jobs to their end: the queues in parallel, each with `threads_each` threads.

        Jobs are taken from their queue one by one and finished in the calling thread, a few in advance of the threads.
        """
        ...


class InlineWorkers:
    """No threads: one job after the other."""

    def run(self, queues: Sequence[Iterable[Work]], threads_each: int) -> None:
        for queue in queues:
            for work in queue:
                perform(work)


class ThreadWorkers:
    """Threads that live as long as the call."""

    def run(self, queues: Sequence[Iterable[Work]], threads_each: int) -> None:
        finished: SimpleQueue[tuple[_Lane, Work, Future[None]]] = SimpleQueue()
        with ExitStack() as stack:
            lanes = [
                _Lane(iter(queue), stack.enter_context(ThreadPoolExecutor(threads_each)), finished) for queue in queues
            ]
            # Two for each thread, so that a thread need not wait for the owner; more would hold too many files open.
            running = sum(lane.start(2 * threads_each) for lane in lanes)
            while running:
                lane, work, future = finished.get()
                try:
                    future.result()
                except DiskFailed as error:
                    work.failed(error)
                else:
                    work.finish()
                running += lane.start_next() - 1


class _Lane:
    """One queue of jobs with its threads."""

    def __init__(
        self,
        queue: Iterator[Work],
        executor: ThreadPoolExecutor,
        finished: "SimpleQueue[tuple[_Lane, Work, Future[None]]]",
    ) -> None:
        self._queue = queue
        self._executor = executor
        self._finished = finished

    def start(self, count: int) -> int:
        """Starts up to `count` jobs; returns how many it started."""
        for started in range(count):
            if not self.start_next():
                return started
        return count

    def start_next(self) -> int:
        """How many jobs were started: one, or none when the queue is empty."""
        work = next(self._queue, None)
        if work is None:
            return 0
        future = self._executor.submit(work.run)
        future.add_done_callback(lambda done: self._finished.put((self, work, done)))
        return 1

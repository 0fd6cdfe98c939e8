"""What must be synced for a log to be durable up to an offset, gathered by its owner and run by a worker thread.

The plan opens its own descriptors, so that it shares nothing with the owner while it runs. Every dirty segment is
synced with its index files; entries that still wait in memory are not, and recovery makes them again. The leader epochs
are written before the recovery point may pass the records they name.

Two steps go by name, the leader epochs and the names in the directory. Their owner cancels them before it truncates,
moves or closes the log under a plan that still runs: a cancelled step is not taken, and never taken later.
"""

from collections.abc import Iterable
from threading import Lock

from barnabas.base.clock import Clock
from barnabas.base.filesystem import File, FileSystem
from barnabas.base.ids import Offset, SteadyMs
from barnabas.storage.checkpoints import write_leader_epochs
from barnabas.storage.epochs import EpochEntry
from barnabas.storage.settings import LogConfig


class FlushPlan:
    """Made by `Log.plan_flush`, run once anywhere, given back to `Log.finish_flush` or `Log.abandon_flush`."""

    __slots__ = (
        "_clock",
        "_files",
        "_lock",
        "_opened",
        "directory",
        "end_offset",
        "epochs",
        "epochs_path",
        "is_cancelled",
        "messages",
        "seconds",
        "snapshots",
        "truncations",
    )

    def __init__(self, files: FileSystem, clock: Clock, end_offset: Offset, truncations: int) -> None:
        self._files = files
        self._clock = clock
        self._opened: list[File] = []
        self._lock = Lock()
        self.is_cancelled = False
        self.end_offset = end_offset
        self.truncations = truncations
        self.messages = 0
        self.seconds = 0.0
        """How long it ran, once it has."""
        self.snapshots: tuple[Offset, ...] = ()
        self.epochs_path = ""
        self.epochs: tuple[EpochEntry, ...] | None = None
        self.directory: str | None = None

    def add_file(self, path: str) -> None:
        self._opened.append(self._files.open(path, write=True))

    def add_files(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.add_file(path)

    def write_epochs(self, path: str, entries: tuple[EpochEntry, ...]) -> None:
        self.epochs_path = path
        self.epochs = entries

    def run(self) -> None:
        """Blocks until the disk has everything."""
        began = self._clock.monotonic()
        try:
            for file in self._opened:
                file.sync()
            with self._lock:
                if not self.is_cancelled:
                    self._store_names()
        finally:
            self.close()
        self.seconds = self._clock.monotonic() - began

    def _store_names(self) -> None:
        if self.epochs is not None:
            write_leader_epochs(self._files, self.epochs_path, self.epochs)
        if self.directory is not None:
            self._files.sync_directory(self.directory)

    def cancel(self) -> None:
        """For the owner, at any time. Waits for a step that has begun, which is as long as one small file takes."""
        with self._lock:
            self.is_cancelled = True

    def close(self) -> None:
        """Gives back the descriptors, run or not."""
        opened, self._opened = self._opened, []
        for file in opened:
            file.close()


class Flushing:
    """What a log has not flushed yet, and the plan that is on its way. Owner: the log's."""

    __slots__ = ("_flushed_ms", "_plan", "has_new_names", "messages")

    def __init__(self, now_ms: SteadyMs) -> None:
        self.messages = 0
        """Written since the last flush."""
        self.has_new_names = True
        """Files were made since the last flush, whose names must become durable too."""
        self._flushed_ms = now_ms
        self._plan: FlushPlan | None = None

    @property
    def is_running(self) -> bool:
        return self._plan is not None

    def is_asked(self, config: LogConfig, now_ms: SteadyMs) -> bool:
        """Whether the topic's settings want a flush before anything more is acknowledged."""
        return self.messages >= config.flush_messages or now_ms - self._flushed_ms >= config.flush_ms

    def begin(self, plan: FlushPlan, directory: str, now_ms: SteadyMs, *, is_whole: bool) -> None:
        """This plan runs now. A whole one covers everything up to now, another only the segments that are complete."""
        if self.has_new_names:
            plan.directory = directory
        self.has_new_names = False
        if is_whole:
            plan.messages, self.messages = self.messages, 0
            self._flushed_ms = now_ms
        self._plan = plan

    def end(self, plan: FlushPlan) -> None:
        if self._plan is plan:
            self._plan = None

    def abandon(self, plan: FlushPlan) -> None:
        plan.close()
        self.end(plan)
        self.has_new_names = True
        self.messages += plan.messages

    def cancel(self) -> None:
        """A plan that still runs in a worker must not put anything back that the owner is about to change."""
        if self._plan is not None:
            self._plan.cancel()
            self.has_new_names = True

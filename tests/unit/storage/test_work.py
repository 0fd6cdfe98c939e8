"""Jobs, whoever runs them, and how many files they may open."""

import errno
import resource
import threading
from collections.abc import Iterator

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import disk_error
from barnabas.storage.directories.descriptors import handles_capacity, raise_descriptor_limit
from barnabas.storage.segment.handles import HANDLES_MAX
from barnabas.storage.work import InlineWorkers, Job, ThreadWorkers, Workers


class Diary:
    """Notes which job ran in which thread, and how it ended."""

    def __init__(self) -> None:
        self.ran_in_owner: list[bool] = []
        self.ended: list[tuple[str, object]] = []
        self._owner = threading.get_ident()

    def job(self, title: str, error: Exception | None = None) -> Job[str]:
        def run() -> str:
            self.ran_in_owner.append(threading.get_ident() == self._owner)
            if error:
                raise error
            return title

        def end(result: object) -> None:
            assert threading.get_ident() == self._owner
            self.ended.append((title, result))

        return Job(title, run=run, finish=end, failed=end)


def failure() -> DiskFailed:
    return disk_error("write", "/a/file", OSError(errno.EIO, "broken"))


@pytest.mark.parametrize("workers", [InlineWorkers(), ThreadWorkers()])
def test_workers_run_every_job_and_finish_it_in_the_calling_thread(workers: Workers) -> None:
    diary, error = Diary(), failure()
    queues = [[diary.job(f"{lane}.{number}") for number in range(20)] for lane in range(3)]
    workers.run([*queues, [diary.job("broken", error)], []], threads_each=2)
    titles = [job.title for queue in queues for job in queue]
    assert sorted(diary.ended, key=str) == sorted([(title, title) for title in titles] + [("broken", error)], key=str)
    assert set(diary.ran_in_owner) == {isinstance(workers, InlineWorkers)}


def test_thread_workers_take_few_jobs_in_advance() -> None:
    diary, made = Diary(), []

    def queue() -> Iterator[Job[str]]:
        for number in range(50):
            made.append(number)
            assert number - len(diary.ended) < 4, "two for each thread"
            yield diary.job(str(number))

    ThreadWorkers().run([queue()], threads_each=2)
    assert len(made) == len(diary.ended) == 50


def test_our_own_bug_goes_up_to_whoever_runs_the_jobs() -> None:
    with pytest.raises(ZeroDivisionError):
        ThreadWorkers().run([[Diary().job("bug", ZeroDivisionError())]], threads_each=1)


def test_complete_raises_after_the_failure_was_dealt_with() -> None:
    diary, error = Diary(), failure()
    with pytest.raises(DiskFailed, match="cannot write /a/file: broken"):
        diary.job("broken", error).complete()
    assert diary.ended == [("broken", error)]


def test_failure_while_finishing_takes_the_same_way() -> None:
    error, told = failure(), []

    def finish(_: None) -> None:
        raise error

    job = Job("finish", run=lambda: None, finish=finish, failed=told.append)
    with pytest.raises(DiskFailed):
        job.complete()
    assert told == [error]


def test_descriptor_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
        limit = raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert limit > 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("limit", "capacity"), [(64, 64), (1024, 512), (10**6, HANDLES_MAX)])
def test_handles_take_half_of_the_descriptors(limit: int, capacity: int) -> None:
    assert handles_capacity(limit) == capacity

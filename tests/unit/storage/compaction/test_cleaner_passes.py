"""The cleaner's passes: which log comes next, where a pass begins, how it is divided, and what it counts."""

from random import Random

from barnabas.base.ids import TopicPartition
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.settings import LogManagerConfig
from barnabas.storage.work import Job, perform
from tests.support.compaction import CHECKPOINT, PARTITION, CompactedLog, simulated


def test_cleaner_checkpoint_names_the_first_dirty_offset(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    accounts.compact()
    assert read_offsets(disk, CHECKPOINT) == {PARTITION: 2}
    accounts.open(recovery_point=2)
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 2
    accounts.cleaner.truncated(accounts.log, 1)
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 1


def test_cleaner_with_a_damaged_checkpoint_begins_at_the_log_start(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    file = disk.open(CHECKPOINT, write=True, create=True)
    file.write_at([b"nonsense"], 0)
    accounts.append((b"a", b"1"))
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 0


def test_cleaner_takes_the_dirtiest_log_first(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    accounts.compact()
    accounts.append((b"a", b"3"))
    accounts.roll()
    dirtier = CompactedLog(simulated())
    dirtier.log.partition = TopicPartition("dirtier", 0)
    dirtier.append((b"a", b"1"), (b"a", b"2"))
    dirtier.roll()
    work = accounts.cleaner.next_job([accounts.log, dirtier.log, accounts.log])
    assert isinstance(work, Job)
    assert work.title == "compact dirtier-0"


def test_piece_of_work_is_followed_by_the_next_until_nothing_is_due(accounts: CompactedLog) -> None:
    """Nobody has to ask again: only the throttle slows compaction down."""
    for number in range(40):
        accounts.append((b"k%d" % (number % 5), b"v" * 300))
        accounts.roll()
    assert len(accounts.log.segments) > 10
    work = accounts.cleaner.next_job([accounts.log])
    assert work is not None
    perform(work)
    assert [record.offset for record in accounts.records()] == [35, 36, 37, 38, 39]
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 40
    assert read_offsets(accounts.files, CHECKPOINT) == {PARTITION: 40}


def test_owner_of_the_logs_never_waits_for_a_sync(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    for number in range(40):
        accounts.append((b"k%d" % (number % 5), b"v" * 300))
        accounts.roll()
    calls: list[str] = []
    disk.before_call = lambda operation, path: calls.append(operation)
    while work := accounts.cleaner.next_job([accounts.log]):
        work.run()
        calls.clear()
        work.finish()
        assert not {"sync", "sync_directory"} & {*calls}
    assert [record.offset for record in accounts.records()] == [35, 36, 37, 38, 39]


def test_cleaner_that_is_told_to_end_begins_nothing_any_more(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"))
    accounts.roll()
    accounts.cleaner.cancel_all()
    assert accounts.cleaner.next_job([accounts.log]) is None


def test_log_that_is_not_served_any_more_when_its_turn_comes_is_left_alone(accounts: CompactedLog) -> None:
    served = [accounts.log]
    cleaner = LogCleaner(
        accounts.files, accounts.clock, Random(3), accounts.cleaner_config, lambda *_: None, served.__contains__
    )
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    list(cleaner.look(served))
    served.clear()
    assert cleaner.next_job() is None


def test_look_at_many_logs_pauses(disk: SimulatedDisk, accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    pauses = accounts.cleaner.look([accounts.log] * 1000)
    assert sum(1 for _ in pauses) >= 5
    assert accounts.cleaner.next_job() is not None


def test_cleaner_gives_no_log_to_two_jobs(disk: SimulatedDisk) -> None:
    accounts = CompactedLog(disk, cleaner_config=LogManagerConfig(log_cleaner_backoff_ms=0, log_cleaner_threads=2))
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    assert accounts.cleaner.next_job([accounts.log]) is not None
    assert accounts.cleaner.next_job([accounts.log]) is None


def test_cleaner_that_found_nothing_looks_again_after_the_backoff(disk: SimulatedDisk) -> None:
    accounts = CompactedLog(disk, cleaner_config=LogManagerConfig(log_cleaner_backoff_ms=1000))
    assert accounts.cleaner.next_job([accounts.log]) is None
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    assert accounts.cleaner.next_job([accounts.log]) is None
    accounts.clock.advance(1000)
    assert accounts.cleaner.next_job([accounts.log]) is not None


def test_cleaner_counts_what_it_does_while_it_does_it(accounts: CompactedLog) -> None:
    cleaner = accounts.cleaner
    assert (cleaner.running_count, cleaner.passes, cleaner.totals().read_bytes) == (0, 0, 0)
    for number in range(40):
        accounts.append((b"k%d" % (number % 5), b"v" * 50))
        accounts.roll()
    read_bytes = []
    while work := cleaner.next_job([accounts.log]):
        work.run()
        read_bytes.append(cleaner.totals().read_bytes)
        work.finish()
        if cleaner.running_count:
            assert cleaner.dirty_ratio_max == 1.0
    assert read_bytes == sorted(read_bytes)
    assert 0 < read_bytes[0] < read_bytes[-1]
    assert cleaner.running_count == 0
    assert cleaner.passes == 1
    totals = cleaner.totals()
    assert totals.read_bytes == read_bytes[-1]
    assert totals.written_bytes > 0
    assert totals.replaced_segments == 40
    accounts.clock.advance(60_000)  # it looks again after `log.cleaner.backoff.ms`
    assert cleaner.next_job([accounts.log]) is None
    assert cleaner.dirty_ratio_max == 0.0


def test_throttled_pass_takes_its_time(disk: SimulatedDisk) -> None:
    config = LogManagerConfig(log_cleaner_backoff_ms=0, log_cleaner_io_max_bytes_per_second=1000.0)
    accounts = CompactedLog(disk, cleaner_config=config)
    for number in range(20):
        accounts.append((b"k%d" % number, b"v" * 100))
    accounts.roll()
    size_bytes = sum(segment.size for segment in accounts.log.segments)
    begun_ms = accounts.clock.now_ms()
    accounts.compact()
    assert accounts.clock.now_ms() - begun_ms >= 3 * size_bytes - 200


def test_idle_log_is_rolled_once_its_records_are_overdue(accounts: CompactedLog) -> None:
    accounts.configure(max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0)
    accounts.append((b"a", b"1"), (b"a", b"2"))
    assert not accounts.cleaner.roll_overdue(accounts.log)
    accounts.clock.advance(5001)
    assert accounts.cleaner.roll_overdue(accounts.log)
    accounts.log.flush()
    accounts.compact()
    assert accounts.values() == [(1, b"a", b"2")]


def test_log_that_is_not_compacted_is_never_chosen(accounts: CompactedLog) -> None:
    accounts.configure(cleanup_policy=frozenset({"delete"}))
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    assert accounts.compact() == 0

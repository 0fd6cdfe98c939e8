"""Mistakes that nothing catches yet. `mutants` takes them up when there is a checker, or a fault, for each.

| mutant | what would catch it |
|---|---|
| waiting-fetch-not-woken | a reader that waits is shown new records at once |
| fetch-unanswered-at-resignation | no connection ends with a request that has waited for seconds |
| newest-batch-not-compared | a sequence is refused only after a loss of power |
| retention-by-oldest-record | a record is not deleted before it is as old as `retention.ms` |
| damaged-index-not-rebuilt | a fault that damages or removes index files while a broker is off |
"""

from typing import Any

from barnabas.broker.handlers.fetch_attempt import Attempt
from barnabas.replication.partition import Partition
from barnabas.storage.log import recovery
from barnabas.storage.producers import producer_state
from barnabas.storage.segment.segment import Segment
from tests.sim.mutants.planting import Mutants, loses_power, with_fault

mutants = Mutants()
_BROKEN = with_fault("break", "cut", "kill", "pause", "slow_link")


@mutants.plant(
    "waiting-fetch-not-woken",
    "New records do not wake the fetches that wait for them.",
    Partition,
    "commit",
    checkers=("wake-ups",),
)
def _(original: Any) -> Any:
    def commit(self: Partition, offset: int) -> None:
        watchers, self.watchers = self.watchers, {}
        original(self, offset)
        self.watchers = watchers

    return commit


@mutants.plant(
    "fetch-unanswered-at-resignation",
    "A fetch that waits when its partition is closed stops waiting, and is not answered.",
    Attempt,
    "_moved",
    checkers=("seen at once",),
    telling=with_fault("disk_error", "stop"),
)
def _(original: Any) -> Any:
    def moved(self: Attempt, partition: Partition) -> None:
        if partition.is_closed:
            self._end_waiting(self._handler.now())
        else:
            original(self, partition)

    return moved


@mutants.plant(
    "newest-batch-not-compared",
    "A batch that is sent again is compared with the last five batches of its producer but for the newest.",
    producer_state,
    "_find_duplicate",
    checkers=("refusals",),
    telling=_BROKEN,
)
def _(original: Any) -> Any:
    return lambda state, header: original(state._replace(batches=state.batches[:-1]), header)


@mutants.plant(
    "retention-by-oldest-record",
    "A segment expires when its oldest record is old enough, not when its newest one is.",
    Segment,
    "largest_timestamp_or_modified_ms",
    checkers=("early expiry",),
)
def _(original: Any) -> Any:
    return lambda self: self.first_timestamp if self.size else original(self)


@mutants.plant(
    "damaged-index-not-rebuilt",
    "A segment whose indexes cannot be read when the log is opened gets no new ones.",
    recovery.LogOpener,
    "_load_segments",
    checkers=("disks", "readable", "positions"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def load_segments(self: recovery.LogOpener, names: Any) -> list[Segment]:
        original(self, names)
        return []

    return load_segments

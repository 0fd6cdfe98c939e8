"""Mistakes in what a broker answers, when it does, and what it leaves behind; and in the metadata."""

from typing import Any

from barnabas.broker.handlers import config_changes
from barnabas.broker.handlers.fetch_attempt import Attempt
from barnabas.broker.handlers.produce import _PendingProduce
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.replication.partition import Partition
from tests.sim.mutants.planting import Mutants, with_fault

mutants = Mutants()
_CRASH = with_fault("kill", "power_loss", "crash_at_disk_call")


@mutants.plant(
    "waiting-fetch-left-behind",
    "A partition that is closed does not tell the fetches that wait for it: their timers outlive the broker.",
    Partition,
    "close",
    checkers=("seen at once",),
    telling=with_fault("stop"),
)
def _(original: Any) -> Any:
    def close(self: Partition, reason: Any = None) -> None:
        self.watchers.clear()
        original(self, reason)

    return close


@mutants.plant(
    "waiting-fetch-keeps-files",
    "A fetch that has read too little, and waits on, does not give back what it has read.",
    Attempt,
    "release",
    checkers=("seen at once",),
)
def _(original: Any) -> Any:
    def release(self: Attempt) -> None:
        self.found = []

    return release


@mutants.plant(
    "produce-answers-last-offset",
    "Produce answers with the offset of the last record of a batch.",
    _PendingProduce,
    "staged",
    checkers=("acked records",),
)
def _(original: Any) -> Any:
    def staged(self: _PendingProduce, place: int, partition: Partition, appended: Any) -> None:
        original(self, place, partition, appended._replace(base_offset=appended.last_offset))

    return staged


@mutants.plant(
    "metadata-committed-with-next",
    "A change of the metadata is answered at once, and stored together with the next one.",
    EmbeddedMetadata,
    "_commit",
    checkers=("topics",),
    telling=_CRASH,
)
def _(original: Any) -> Any:
    async def commit(self: EmbeddedMetadata, zxid: int, nodes: Any) -> None:
        await original(self, zxid, {})
        self._unsaved.update(nodes)

    return commit


@mutants.plant(
    "config-change-replaces-all",
    "A change of one setting of a topic takes all its other settings away.",
    config_changes,
    "update_topic_configs",
    checkers=("topics",),
)
def _(original: Any) -> Any:
    return lambda controllership, topic, update: original(controllership, topic, lambda before: update({}))


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

"""Writes a history while it happens: events with their time and number, also into the world's trace."""

from collections.abc import Iterator
from itertools import count

from barnabas.client.reading.fetched import FetchedRun
from barnabas.records.batch import split_batches
from barnabas.sim.histories.events import Event, Happened, History, Shown, ShownRecord
from barnabas.sim.world.world import World


class Recorder:
    def __init__(self, world: World) -> None:
        self.history = History(violations=world.violations)
        self._world = world
        self._numbers = count(1)

    @property
    def now(self) -> float:
        return self._world.loop.time()

    def number(self) -> int:
        """For a call and its answer."""
        return next(self._numbers)

    def add(self, event: Event) -> None:
        self.history.events.append(event)
        self._world.note("event", event.client, type(event).__name__)  # what it tells came over the network

    def happened(self, client: str, what: str, details: str = "") -> None:
        self.add(Happened(self.now, client, what, details))

    def shown(self, client: str, run: FetchedRun) -> None:
        records = tuple(shown_records(run))
        self.add(Shown(self.now, client, run.partition, run.first_offset, run.next_offset, run.high_watermark, records))


def shown_records(run: FetchedRun) -> Iterator[ShownRecord]:
    """CorruptBatch when the broker sent what is no batch."""
    headers = iter([header for header, _ in split_batches(run.batches)])
    header = next(headers)
    for record in run.records():
        while record.offset >= header.next_offset:
            header = next(headers)
        yield ShownRecord(record.offset, header.leader_epoch, record.key, record.value)

"""What was committed stays: no log ends below a high watermark that anybody was shown, unless a loss is excused."""

from collections.abc import Iterator

from barnabas.sim.checkers.guarantees import damaged_partitions, deleted_topics
from barnabas.sim.checkers.power_loss import PowerLosses
from barnabas.sim.checkers.readings import Readings
from barnabas.sim.histories.events import History, Shown


def check_watermarks(history: History) -> Iterator[str]:
    if not history.is_complete:
        return
    losses, readings = PowerLosses(history), Readings(history)
    damaged, deleted = damaged_partitions(history), deleted_topics(history)
    for event in history.of(Shown):
        partition = event.partition
        log = history.final.get(partition)
        if log is None or partition in damaged or partition.topic in deleted:
            continue
        if event.high_watermark > log.end_offset:
            since = readings.given_after(event)
            objection = losses.objection_between(since, event.at, partition, event.high_watermark - 1)
            if objection:
                yield (
                    f"{event.client} was shown {event.high_watermark} as the high watermark of {partition} at "
                    f"{event.at:.3f} s, and the log ends at {log.end_offset}; {objection}"
                )

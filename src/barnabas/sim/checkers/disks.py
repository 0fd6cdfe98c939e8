"""Every log directory passes `log verify` after the last clean stop, unless the history damaged it."""

from collections.abc import Iterator

from barnabas.sim.checkers.guarantees import damaged_indexes, damaged_paths
from barnabas.sim.histories.events import History


def check_disks(history: History) -> Iterator[str]:
    damaged = damaged_paths(history) + damaged_indexes(history)
    for finding in history.verify_findings:
        if not any(path in finding for path in damaged):
            yield finding

"""What a coordinator measures about itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.base import metric_table as table
from barnabas.base.metrics import Counter, Histogram, Metrics, Sample
from barnabas.groups.transitions import GroupState


@dataclass(frozen=True, slots=True)
class GroupMeasures:
    commits: Counter
    """Requests that committed offsets."""
    rebalances: Counter
    offsets_expired: Counter
    load_seconds: Histogram


def measure_groups(metrics: Metrics) -> GroupMeasures:
    return GroupMeasures(
        commits=metrics.counter(table.GROUP_OFFSET_COMMITS),
        rebalances=metrics.counter(table.GROUP_REBALANCES),
        offsets_expired=metrics.counter(table.GROUP_OFFSETS_EXPIRED),
        load_seconds=metrics.histogram(table.GROUP_LOAD_SECONDS),
    )


def measure_group_states(metrics: Metrics, counts: Callable[[], Mapping[GroupState, int]]) -> None:
    """How many groups there are, by state. A dead one is not there."""

    def read() -> list[Sample]:
        found = counts()
        return [Sample((state.value,), found.get(state, 0)) for state in GroupState if state is not GroupState.DEAD]

    metrics.readings(table.GROUPS, read)

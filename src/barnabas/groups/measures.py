"""What a coordinator measures about itself, under the names that people see."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.base.metrics import Counter, Histogram, Metrics, Sample
from barnabas.groups.transitions import GroupState

LOAD_SECONDS_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class GroupMeasures:
    commits: Counter
    """Requests that committed offsets."""
    rebalances: Counter
    offsets_expired: Counter
    load_seconds: Histogram


def measure_groups(metrics: Metrics) -> GroupMeasures:
    return GroupMeasures(
        commits=metrics.counter("barnabas_group_offset_commits", "Requests that committed offsets."),
        rebalances=metrics.counter("barnabas_group_rebalances", "Rebalances that ended, of all groups."),
        offsets_expired=metrics.counter("barnabas_group_offsets_expired", "Committed offsets removed because of age."),
        load_seconds=metrics.histogram(
            "barnabas_group_load_seconds", "Time to load the groups of one partition.", LOAD_SECONDS_BOUNDS
        ),
    )


def measure_group_states(metrics: Metrics, counts: Callable[[], Mapping[GroupState, int]]) -> None:
    """How many groups there are, by state."""

    def read() -> list[Sample]:
        found = counts()
        return [Sample((state.value,), found.get(state, 0)) for state in GroupState]

    metrics.gauges("barnabas_groups", "Groups by state.", ("state",), read)

"""What `/healthz` tells: whether the broker does its work, and what is wrong with it.

| state | HTTP status | when |
|---|---|---|
| `starting` | 503 | logs are being opened; no port is open yet |
| `ready` | 200 | clients are served; `problems` names what they have to do without |
| `unavailable` | 503 | it runs, but cannot do its work: no log directory is left, or the metadata store is lost |
| `stopping` | 503 | |

A directory that failed or is full is a problem, and the broker stays ready: the others go on, and restarting it would
heal nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from barnabas.storage.directories.directory import LogDirectory


class BrokerState(Enum):
    STARTING = "starting"
    READY = "ready"
    UNAVAILABLE = "unavailable"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Health:
    state: BrokerState
    problems: tuple[str, ...] = ()
    offline_directories: tuple[str, ...] = ()
    full_directories: tuple[str, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return self.state is BrokerState.READY


def health_of(directories: Iterable[LogDirectory], metadata_problem: str | None, *, is_metadata_lost: bool) -> Health:
    """The health of a broker that has started and does not stop."""
    all_directories = list(directories)
    offline = [one for one in all_directories if not one.is_online]
    full = [one for one in all_directories if one.is_online and one.space.refusal is not None]
    problems = [f"{one.path} is offline: {one.failure}" for one in offline]
    problems += [f"{one.path} is full: {one.space.refusal}" for one in full]
    if metadata_problem is not None:
        problems.append(f"the metadata store: {metadata_problem}")
    is_available = len(offline) < len(all_directories) and not is_metadata_lost
    return Health(
        BrokerState.READY if is_available else BrokerState.UNAVAILABLE,
        tuple(problems),
        tuple([one.path for one in offline]),
        tuple([one.path for one in full]),
    )

"""The checkers by name, and how to ask them all."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.sim.checkers.acked_records import check_acked_records
from barnabas.sim.checkers.commits import check_commits
from barnabas.sim.checkers.compaction import check_compaction
from barnabas.sim.checkers.disks import check_disks
from barnabas.sim.checkers.duplicates import check_duplicates
from barnabas.sim.checkers.early_expiry import check_early_expiry
from barnabas.sim.checkers.epoch_contents import check_epoch_contents
from barnabas.sim.checkers.healing import check_healing
from barnabas.sim.checkers.images import check_images
from barnabas.sim.checkers.leaders import check_leaders
from barnabas.sim.checkers.log_starts import check_log_starts
from barnabas.sim.checkers.origins import check_origins
from barnabas.sim.checkers.ownership import check_ownership
from barnabas.sim.checkers.positions import check_positions
from barnabas.sim.checkers.producer_order import check_producer_order
from barnabas.sim.checkers.readable import check_readable
from barnabas.sim.checkers.refusals import check_refusals
from barnabas.sim.checkers.replicas import check_replicas
from barnabas.sim.checkers.seen_at_once import check_seen_at_once
from barnabas.sim.checkers.seen_records import check_seen_records
from barnabas.sim.checkers.topics import check_topics
from barnabas.sim.checkers.wakeups import check_wakeups
from barnabas.sim.checkers.watermarks import check_watermarks
from barnabas.sim.histories.events import History

Checker = Callable[[History], Iterable[str]]

CHECKERS: Final[Mapping[str, Checker]] = {
    "seen at once": check_seen_at_once,
    "readable": check_readable,
    "acked records": check_acked_records,
    "seen records": check_seen_records,
    "watermarks": check_watermarks,
    "replicas": check_replicas,
    "leaders": check_leaders,
    "healing": check_healing,
    "origins": check_origins,
    "epoch contents": check_epoch_contents,
    "producer order": check_producer_order,
    "duplicates": check_duplicates,
    "refusals": check_refusals,
    "compaction": check_compaction,
    "log starts": check_log_starts,
    "early expiry": check_early_expiry,
    "positions": check_positions,
    "wake-ups": check_wakeups,
    "commits": check_commits,
    "ownership": check_ownership,
    "topics": check_topics,
    "images": check_images,
    "disks": check_disks,
}


@dataclass(frozen=True, slots=True)
class Problem:
    checker: str
    text: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.text}"


def check(history: History) -> list[Problem]:
    return [Problem(name, text) for name, checker in CHECKERS.items() for text in checker(history)]

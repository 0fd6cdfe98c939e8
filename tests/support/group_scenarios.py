"""What happens to a group of any client library, and what must hold whatever happens.

Every record is processed, no partition has two owners at a time, and where nobody is killed or stopped no record is
processed twice.
"""

from pathlib import Path

from confluent_kafka import Producer

from barnabas.testing import Broker
from tests.support.group_members import TIMEOUT_SECONDS, GroupMembers

SESSION_TIMEOUT_MS = 1_000
GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
}


class Work:
    """Records for the members, some more for every partition each time."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.values: set[str] = set()
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})

    def add(self, per_partition: int = 10) -> set[str]:
        """The new ones."""
        turn = len(self.values)
        new = {
            f"{turn}-{partition}-{number}" for partition in range(self._partitions) for number in range(per_partition)
        }
        for value in sorted(new):
            self._producer.produce(self._topic, value.encode(), partition=int(value.split("-")[1]))
        assert self._producer.flush(TIMEOUT_SECONDS) == 0
        self.values |= new
        return new


def make_group(
    broker: Broker, name: str, library: str, directory: Path, *, partitions: int, assignor: str = "range"
) -> tuple[GroupMembers, Work]:
    """A topic of that name, a group of that name for it, and its work."""
    broker.create_topic(name, partitions=partitions)
    members = GroupMembers(
        broker.bootstrap,
        name,
        name,
        library,
        partitions=partitions,
        directory=directory,
        assignor=assignor,
        session_timeout_ms=str(SESSION_TIMEOUT_MS),
    )
    return members, Work(broker.bootstrap, name, partitions)


def live_through(members: GroupMembers, work: Work) -> None:
    """Members come, are killed, are stopped for longer than their session and return, and go."""
    klamm = members.start("klamm")
    members.wait_settled("klamm")
    members.wait_records(work.add())
    frieda = members.start("frieda")
    members.wait_settled("klamm", "frieda")
    members.wait_records(work.add())
    frieda.kill()
    olga = members.start("olga")
    members.wait_records(work.add())
    members.wait_settled("klamm", "olga")
    klamm.pause()
    members.wait_records(work.add())
    members.wait_settled("olga")
    klamm.resume()
    members.wait_settled("klamm", "olga")
    members.wait_records(work.add())
    olga.close()
    members.wait_settled("klamm")
    members.wait_records(work.add())
    assert set(members.counts()) == work.values
    assert members.overlaps() == []


def share_work(members: GroupMembers, work: Work, *names: str) -> None:
    """A queue: each takes as much as the next, and nothing comes twice."""
    for name in names:
        members.start(name)
    members.wait_settled(*names)
    members.wait_records(work.add())
    assert set(members.counts().values()) == {1}
    assert {len(members.members[name].values()) for name in names} == {len(work.values) // len(names)}
    assert members.overlaps() == []


def take_over(members: GroupMembers, work: Work) -> None:
    """More members than partitions: those that have none wait, and one of them goes on when another goes."""
    for name in ("klamm", "frieda", "olga", "amalia"):
        members.start(name)
    members.wait_settled("klamm", "frieda", "olga", "amalia", idle=2)
    members.wait_records(work.add())
    busy = [member for member in members.members.values() if member.owned()]
    for member in busy:
        member.close()
    left = [member.name for member in members.members.values() if member not in busy]
    members.wait_settled(*left)
    members.wait_records(work.add())
    assert set(members.counts()) == work.values
    assert set(members.counts().values()) == {1}
    assert members.overlaps() == []

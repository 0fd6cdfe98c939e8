"""What followers fetch from this broker: one session for each of them, whose cost grows with what has changed.

A session is a fetch session as clients have it (KIP-227), with two differences that only replicas need:

- It watches its partitions. Of thousands that rest nobody looks at any when one has grown.
- A partition whose records were sent is not read again before the follower has named it, which proves how much of them
  it has. An error takes the partition out of the session: the follower names it again when it is worth it.

```
named by the follower ─▶ due ─▶ read ─┬─ records ─▶ answered ─▶ at rest until it is named
                          ▲           ├─ error ──▶ answered, and out of the session
          the log grew ───┘           └─ nothing ─▶ watched; its watermark is told when the fetch ends
```

Owner: the broker's event loop.
"""

from random import Random
from typing import Final, Protocol

from barnabas.base.ids import Offset, SteadyMs
from barnabas.replication.partition import Partition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch import PartitionKey, Wanted

_EPOCH_MAX: Final = 2**31 - 1
_ID_MAX: Final = 2**31 - 1
NEVER_TOLD: Final = -2


class WaitingFetch(Protocol):
    """A fetch that had nothing to answer."""

    def wake(self) -> None:
        """Something is due."""
        ...

    def give_way(self) -> None:
        """It is answered now: the follower asks for something else, or begins again."""
        ...


class ReplicaPartition:
    """One partition of a session."""

    __slots__ = ("partition", "told", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.partition: Partition | None = None
        """While it is watched."""
        self.told: tuple[Offset, Offset] = (NEVER_TOLD, NEVER_TOLD)
        """High watermark and log start."""


class ReplicaSession:
    """Of one follower, in one of its registrations."""

    def __init__(self, session_id: int, broker_id: int, broker_epoch: int) -> None:
        self.id = session_id
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.epoch = 1
        """Of the next request."""
        self.partitions: dict[PartitionKey, ReplicaPartition] = {}
        self.due: dict[PartitionKey, None] = {}
        """Those to look at, in this order."""
        self.untold: dict[PartitionKey, None] = {}
        """Those whose watermark the follower may not know."""
        self.watermarks_ms: SteadyMs = 0
        """When they were last told."""
        self.waiting: WaitingFetch | None = None
        """The request that waits for something to be due."""
        self._keys: dict[Partition, PartitionKey] = {}

    def name(self, wanted: Wanted) -> None:
        """The follower asks for a partition, from another offset or for the first time."""
        known = self.partitions.get(wanted.key)
        if known is None:
            self.partitions[wanted.key] = ReplicaPartition(wanted)
        else:
            known.wanted = wanted
        self.due.pop(wanted.key, None)
        self.due[wanted.key] = None

    def forget(self, key: PartitionKey) -> None:
        known = self.partitions.pop(key, None)
        if known is not None:
            self._unwatch(known)
        self.due.pop(key, None)
        self.untold.pop(key, None)

    def watch(self, known: ReplicaPartition, partition: Partition) -> None:
        """It has nothing for the follower now: it is due when it has grown, or is gone."""
        if known.partition is not partition:
            self._unwatch(known)
            known.partition = partition
        self._keys[partition] = known.wanted.key
        partition.replica_watchers[self._grown] = None

    def rest(self, known: ReplicaPartition) -> None:
        """Its records are on their way: the follower names it when it has them."""
        self._unwatch(known)

    def _unwatch(self, known: ReplicaPartition) -> None:
        if known.partition is not None:
            known.partition.replica_watchers.pop(self._grown, None)
            self._keys.pop(known.partition, None)
            known.partition = None

    def _grown(self, partition: Partition) -> None:
        key = self._keys.get(partition)
        if key is not None:
            self.due[key] = None
            if self.waiting is not None:
                self.waiting.wake()

    def end(self) -> None:
        """Nothing is watched any more."""
        for known in self.partitions.values():
            self._unwatch(known)
        self.partitions.clear()
        self.due.clear()
        self.untold.clear()
        if self.waiting is not None:
            self.waiting.give_way()


class ReplicaSessions:
    """One for each follower."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._sessions: dict[int, ReplicaSession] = {}
        self._is_closed = False

    def open(self, broker_id: int, broker_epoch: int) -> ReplicaSession:
        """The follower begins again; refused when a later registration of it has a session."""
        if self._is_closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker stops")
        known = self._sessions.get(broker_id)
        if known is not None:
            if known.broker_epoch > broker_epoch:
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is registered again")
            known.end()
        session = self._sessions[broker_id] = ReplicaSession(
            self._random.randrange(1, _ID_MAX), broker_id, broker_epoch
        )
        return session

    def find(self, broker_id: int, session_id: int, epoch: int) -> ReplicaSession:
        """The session that a request goes on with."""
        session = self._sessions.get(broker_id)
        if session is None or session.id != session_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session_id} of broker {broker_id}")
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"epoch {epoch}, but session {session_id} expects {session.epoch}",
            )
        if session.waiting is not None:  # answers come in order
            session.waiting.give_way()
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def close(self) -> None:
        """The broker stops: every fetch that waits is answered, and none waits any more."""
        self._is_closed = True
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()

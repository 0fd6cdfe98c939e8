"""One partition on three brokers, made of the production cores, for searches over everything that can happen to it.

What decides is production code: `LeaderState` (what is committed, who is proposed), `shared_end` and `diverges` (where
logs part), `next_state` and `altered` (who is in sync, who leads). The world around it is as small as it can be:
records are (leader epoch, number), a fetch takes two of them, and messages arrive late, twice or never.

- Each broker has seen its own beginning of the history of states: images come late, and in order.
- The controller has seen its own copy of the registrations: watches come late.
- Proposals lie in the network until they are looked at; they outlive those who sent them.
- A power loss takes any end of a log; a kill takes nothing; a session may end while its process lives.

Promised is: what a leader's watermark has passed was acknowledged and shown. From then on no leader may lack it, and no
offset may be shown with another content, as long as one of those lives who had it as a member of the ISR, and has not
lost it since. `Violation` says what was broken.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from barnabas.base.ids import NO_EPOCH
from barnabas.controller import in_sync
from barnabas.controller.in_sync import Alteration, LogEnd, isr_of, minimum_of
from barnabas.metadata.image import Partition, RegisteredBroker
from barnabas.metadata.znodes import PartitionState
from barnabas.replication.follower import Asked, diverges, shared_end
from barnabas.replication.leader import CommittedState, Fetched, LeaderState, Proposal
from barnabas.storage.log.epochs import EpochEnd, EpochEntry, LeaderEpochs
from barnabas.wire.errors import ErrorCode

REPLICAS = (0, 1, 2)
MINIMUM = 2
FETCHED_TOGETHER = 2

Record: TypeAlias = tuple[int, int]
Log: TypeAlias = tuple[Record, ...]
Action: TypeAlias = tuple[str | int, ...]


class Violation(Exception):  # noqa: N818 - a fact about a history
    """The promise is broken."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How often each may still happen."""

    record: int = 3
    kill: int = 1
    power: int = 2
    expire: int = 1
    propose: int = 2
    elect: int = 3
    resend: int = 0
    minimum: int = 0

    def spend(self, name: str) -> "Budget":
        return replace(self, **{name: getattr(self, name) - 1})


class Message(NamedTuple):
    """A proposal in the network."""

    sender: int
    alteration: Alteration
    proposal: Proposal


class Promise(NamedTuple):
    record: Record
    holders: frozenset[int]
    """Members that had it when it was acknowledged, and have not lost it since."""


@dataclass(slots=True)
class World:
    budget: Budget = field(default_factory=Budget)
    states: tuple[Partition, ...] = ()
    seen: list[int] = field(default_factory=lambda: [0] * len(REPLICAS))
    """How far in `states` each broker is."""
    registered: dict[int, RegisteredBroker] = field(default_factory=dict)
    known: dict[int, RegisteredBroker] = field(default_factory=dict)
    """The registrations as the controller has seen them."""
    up: list[bool] = field(default_factory=lambda: [True] * len(REPLICAS))
    epochs: list[int] = field(default_factory=lambda: [0] * len(REPLICAS))
    """The broker epoch of the last registration of each."""
    intact_since: list[int | None] = field(default_factory=lambda: [0] * len(REPLICAS))
    """As each would say if it registered now; None after a loss of power."""
    logs: list[Log] = field(default_factory=lambda: [()] * len(REPLICAS))
    watermarks: list[int] = field(default_factory=lambda: [0] * len(REPLICAS))
    leaders: list[LeaderState | None] = field(default_factory=lambda: [None] * len(REPLICAS))
    network: tuple[Message, ...] = ()
    promises: tuple[Promise, ...] = ()
    promised_below: int = 99
    """From here on nothing is promised any more: nobody is left who had it."""
    next_record: int = 0

    # -- copies --------------------------------------------------------------------------------------------------

    def copy(self) -> "World":
        other = copy.copy(self)
        for name in ("seen", "up", "epochs", "intact_since", "logs", "watermarks"):
            setattr(other, name, list(getattr(self, name)))
        other.registered, other.known = dict(self.registered), dict(self.known)
        other.leaders = [copy.deepcopy(one) for one in self.leaders]
        return other

    def key(self) -> int:
        """Equal for worlds in which the same can happen."""
        return hash(repr(self))

    # -- what can happen -----------------------------------------------------------------------------------------

    def actions(self) -> Iterator[Action]:
        for one in REPLICAS:
            yield from self._actions_of(one)
        yield from (("deliver", place) for place in range(len(self.network)))
        if self.budget.resend:
            yield from (("repeat", place) for place in range(len(self.network)))
        if self.budget.elect and self._decision() is not None:
            yield ("decide",)
        if self.budget.minimum and minimum_of(self.states[-1]) > 1:
            yield ("lower",)

    def _actions_of(self, one: int) -> Iterator[Action]:
        budget = self.budget
        if self.known.get(one) != self.registered.get(one):
            yield ("watch", one)
        if not self.up[one]:
            if one in self.registered:
                yield ("expire", one)
            yield ("restart", one)
            return
        if self.seen[one] < len(self.states) - 1:
            yield ("image", one)
        leader, view = self.leaders[one], self.states[self.seen[one]]
        if leader is not None:
            if budget.record:
                yield ("produce", one)
            if budget.propose and not leader.has_proposal:
                yield from (("shrink", one, other) for other in leader.state.isr if other != one)
                yield from (("expand", one, other) for other in REPLICAS if leader.may_join(other))
        elif view.leader not in (-1, one) and self._can_fetch(one, view):
            yield ("fetch", one, view.leader)
            yield ("prove", one, view.leader)
        if one in self.registered:
            if budget.expire:
                yield ("expire", one)
        else:
            yield ("register", one)
        if budget.kill:
            yield ("kill", one)
        if budget.power:
            yield from (("power", one, left) for left in range(len(self.logs[one]) + 1))

    def _can_fetch(self, one: int, view: Partition) -> bool:
        leader = self.leaders[view.leader]
        return self.up[view.leader] and leader is not None and leader.leader_epoch == view.leader_epoch

    def apply(self, action: Action) -> None:
        name, *arguments = action
        method: Callable[..., None] = getattr(self, f"_do_{name}")
        method(*arguments)
        behind = min(self.seen)
        self.states, self.seen = self.states[behind:], [one - behind for one in self.seen]
        now = self.states[-1]
        self.network = tuple(
            one
            for one in self.network
            if (one.alteration.leader_epoch, one.alteration.partition_epoch) == (now.leader_epoch, now.partition_epoch)
        )

    # -- brokers -------------------------------------------------------------------------------------------------

    def _do_image(self, one: int) -> None:
        self.seen[one] += 1
        view, leader = self.states[self.seen[one]], self.leaders[one]
        if leader is not None and view.leader_epoch > leader.leader_epoch:
            leader = self.leaders[one] = None
        if leader is not None:
            leader.told(_committed(view))
            self._acknowledge(one)
        else:
            self._lead_if_granted(one)

    def _lead_if_granted(self, one: int) -> None:
        view = self.states[self.seen[one]]
        if not view.is_granted_to(one, self.epochs[one]):
            return
        self.leaders[one] = LeaderState(
            one,
            self.epochs[one],
            view.leader_epoch,
            len(self.logs[one]),
            self.watermarks[one],
            _committed(view),
            0,
        )
        self._acknowledge(one)

    def _do_produce(self, one: int) -> None:
        self.budget = self.budget.spend("record")
        leader = self._leader(one)
        self.logs[one] += ((leader.leader_epoch, self.next_record),)
        self.next_record += 1
        leader.written(len(self.logs[one]), 0)
        self._acknowledge(one)

    def _do_shrink(self, one: int, other: int) -> None:
        leader = self._leader(one)
        self._propose(one, leader.propose({member: at for member, at in leader.state.isr.items() if member != other}))

    def _do_expand(self, one: int, other: int) -> None:
        leader = self._leader(one)
        self._propose(one, leader.propose({**leader.state.isr, other: leader.followers[other].broker_epoch}))

    def _propose(self, one: int, proposal: Proposal) -> None:
        self.budget = self.budget.spend("propose")
        leader = self._leader(one)
        alteration = Alteration(one, leader.broker_epoch, leader.leader_epoch, proposal.partition_epoch, proposal.isr)
        self.network += (Message(one, alteration, proposal),)
        self._acknowledge(one)

    def _do_repeat(self, place: int) -> None:
        """The sender waits no longer for an answer, and sends it again; both copies are under way."""
        self.budget = self.budget.spend("resend")
        message = self.network[place]
        sender = self.leaders[message.sender]
        if sender is not None:
            sender.sent_again(message.proposal)
        self.network += (message,)

    def _do_fetch(self, one: int, source: int) -> None:
        self._fetch(one, source, is_lost=False)

    def _do_prove(self, one: int, source: int) -> None:
        """A fetch whose answer is lost."""
        self._fetch(one, source, is_lost=True)

    def _fetch(self, one: int, source: int, *, is_lost: bool) -> None:
        leader, theirs, mine = self._leader(source), self.logs[source], self.logs[one]
        asked = Asked(leader.leader_epoch, len(mine), mine[-1][0] if mine else NO_EPOCH)
        if mine:
            ours = _end_of_epoch(theirs, asked.last_epoch, leader.leader_epoch)
            if diverges(asked, ours):
                self.logs[one] = mine[: shared_end(_history(mine), len(mine), ours)]
                self.watermarks[one] = min(self.watermarks[one], len(self.logs[one]))
                return
        leader.fetched(Fetched(one, self.epochs[one], len(mine), 0, 0))
        self._acknowledge(source)
        if is_lost:
            return
        self.logs[one] = mine + theirs[len(mine) : len(mine) + FETCHED_TOGETHER]
        self.watermarks[one] = max(self.watermarks[one], min(self.watermarks[source], len(self.logs[one])))

    def _do_expire(self, one: int) -> None:
        if self.up[one]:
            self.budget = self.budget.spend("expire")
        del self.registered[one]

    def _do_register(self, one: int) -> None:
        """Everything that it led is given up before."""
        self.leaders[one] = None
        previous, self.epochs[one] = self.epochs[one], self.epochs[one] + 1
        since = self.intact_since[one]
        self.registered[one] = RegisteredBroker(one, self.epochs[one], (), previous_epoch=previous, intact_since=since)
        if since is None:
            self.intact_since[one] = self.epochs[one]
        self._lead_if_granted(one)

    def _do_restart(self, one: int) -> None:
        self.up[one] = True
        self.watermarks[one] = 0
        self._do_register(one)

    def _do_kill(self, one: int) -> None:
        self.budget = self.budget.spend("kill")
        self.up[one], self.leaders[one] = False, None

    def _do_power(self, one: int, left: int) -> None:
        self.budget = self.budget.spend("power")
        self.up[one], self.leaders[one] = False, None
        self.intact_since[one] = None
        self.logs[one] = self.logs[one][:left]
        self.watermarks[one] = 0
        self._lost(one, left)

    def _do_watch(self, one: int) -> None:
        if one in self.registered:
            self.known[one] = self.registered[one]
        else:
            del self.known[one]

    def _leader(self, one: int) -> LeaderState:
        leader = self.leaders[one]
        assert leader is not None
        return leader

    # -- the controller ------------------------------------------------------------------------------------------

    def _decision(self) -> PartitionState | None:
        return in_sync.next_state(self.states[-1], self.known, 0, ends=self._ends())

    def _ends(self) -> dict[int, LogEnd]:
        """Of those who answer now."""
        return {
            one: LogEnd(self.epochs[one], self.logs[one][-1][0] if self.logs[one] else NO_EPOCH, len(self.logs[one]))
            for one in REPLICAS
            if self.up[one]
        }

    def _do_decide(self) -> None:
        self.budget = self.budget.spend("elect")
        state = self._decision()
        assert state is not None
        self._write(state)

    def _do_lower(self) -> None:
        """`min.insync.replicas` becomes 1."""
        self.budget = self.budget.spend("minimum")
        state = in_sync.with_minimum(self.states[-1], 1, 0)
        assert state is not None
        self._write(state)

    def _do_deliver(self, place: int) -> None:
        message = self.network[place]
        self.network = self.network[:place] + self.network[place + 1 :]
        outcome = in_sync.altered(self.states[-1], message.alteration, self.known, 0)
        if isinstance(outcome, PartitionState):
            self._write(outcome)
        elif outcome is ErrorCode.INELIGIBLE_REPLICA:  # its answer arrives, if its sender is the same
            leader = self.leaders[message.sender]
            if leader is not None and leader.leader_epoch == message.alteration.leader_epoch:
                leader.refused(message.proposal)
                self._acknowledge(message.sender)

    def _write(self, state: PartitionState) -> None:
        before = self.states[-1]
        self.states += (before.with_state(state, before.partition_epoch + 1),)

    # -- the promise ---------------------------------------------------------------------------------------------

    def _acknowledge(self, one: int) -> None:
        """What the leader's watermark has passed is acknowledged, and shown."""
        leader = self._leader(one)
        leader.check_invariants()
        for offset in range(self.watermarks[one], leader.high_watermark):
            self._promise(one, offset, leader)
        self.watermarks[one] = leader.high_watermark

    def _promise(self, one: int, offset: int, leader: LeaderState) -> None:
        if offset >= self.promised_below:
            return
        record = self.logs[one][offset]
        if offset < len(self.promises):
            shown = self.promises[offset].record
            if shown != record:
                raise Violation(f"offset {offset} was shown as {shown}, and broker {one} shows {record}")
            return
        members = {one, *leader.state.isr}
        holders = frozenset(other for other in members if self.logs[other][offset : offset + 1] == (record,))
        self.promises += (Promise(record, holders),)

    def _lost(self, one: int, left: int) -> None:
        kept: list[Promise] = []
        for offset, promise in enumerate(self.promises):
            holders = promise.holders - {one} if offset >= left else promise.holders
            if not holders:
                self.promised_below = min(self.promised_below, offset)
                break
            kept.append(Promise(promise.record, holders))
        self.promises = tuple(kept)

    def check(self) -> None:
        epoch = self.states[-1].leader_epoch
        for one in REPLICAS:
            leader = self.leaders[one]
            if leader is not None and leader.leader_epoch == epoch:
                for offset, promise in enumerate(self.promises):
                    if self.logs[one][offset : offset + 1] != (promise.record,):
                        raise Violation(
                            f"broker {one} leads in epoch {epoch} without {promise.record} at offset {offset}, which "
                            f"{sorted(promise.holders)} have"
                        )
            for other in range(one):
                self._check_same(one, other)

    def _check_same(self, one: int, other: int) -> None:
        shared = min(self.watermarks[one], self.watermarks[other], self.promised_below)
        for offset, (mine, theirs) in enumerate(zip(self.logs[one], self.logs[other], strict=False)):
            if mine != theirs and mine[0] == theirs[0]:
                raise Violation(f"brokers {one} and {other} differ at offset {offset} within epoch {mine[0]}")
            if mine != theirs and offset < shared:
                raise Violation(f"brokers {one} and {other} differ at offset {offset}, below both watermarks")

    def heal(self) -> None:
        """Faults end: everybody comes back and is seen. Then somebody leads, and knows it."""
        for one in REPLICAS:
            if not self.up[one]:
                self.apply(("restart", one))
            elif one not in self.registered:
                self.apply(("register", one))
        self.known = dict(self.registered)
        for _ in range(5):
            if self._decision() is not None:
                self.budget = replace(self.budget, elect=1)
                self.apply(("decide",))
        for one in REPLICAS:
            while self.seen[one] < len(self.states) - 1:
                self.apply(("image", one))
        self.check()
        now = self.states[-1]
        leader = self.leaders[now.leader] if now.leader >= 0 else None
        if leader is None or leader.leader_epoch != now.leader_epoch:
            raise Violation("nobody leads, though everybody is back")


def new_world(budget: Budget | None = None) -> World:
    """All are in sync, and broker 0 leads."""
    epochs = tuple([0] * len(REPLICAS))
    first = Partition(
        0,
        REPLICAS,
        leader=0,
        leader_epoch=0,
        isr=REPLICAS,
        partition_epoch=0,
        isr_epochs=epochs,
        min_insync_replicas=MINIMUM,
    )
    world = World(budget or Budget(), states=(first,))
    world.registered = {one: RegisteredBroker(one, 0, ()) for one in REPLICAS}
    world.known = dict(world.registered)
    world.leaders[0] = LeaderState(0, 0, 0, 0, 0, _committed(first), 0)
    for one in (1, 2):  # they have fetched before
        world.leaders[0].fetched(Fetched(one, 0, 0, 0, 0))
    return world


def _committed(view: Partition) -> CommittedState:
    return CommittedState(view.partition_epoch, isr_of(view), minimum_of(view), view.replicas)


def _history(log: Log) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, (epoch, _) in enumerate(log):
        if epochs.latest_epoch != epoch:
            epochs.assign(epoch, offset)
    return epochs


def _end_of_epoch(log: Log, epoch: int, leader_epoch: int) -> EpochEnd:
    """As `Partition.end_of_epoch` answers."""
    history = _history(log)
    latest: EpochEntry | None = history.latest
    if latest is None or epoch > latest.epoch:
        return EpochEnd(epoch if latest is None or epoch == leader_epoch else latest.epoch, len(log))
    return history.end_offset_for(epoch, len(log))

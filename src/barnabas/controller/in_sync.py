"""Who is in sync, who may lead: what the controller makes of a partition's state. Pure.

A member of a state is a replica *in one registration* (its broker epoch). What the registrations say now decides what
it is worth:

| the broker's registration | the member |
|---|---|
| is the one that the state names | stays |
| is a later one, and proves that nothing was lost since | stays, in its new epoch |
| is a later one, and proves nothing | is out: its log may have lost what was acknowledged |
| is gone | is not in sync; it stays *eligible* if too few are in sync |
| is the one in which its log directory failed | is out, and is not elected, whatever its log may have |

The eligible (ELR) have left the ISR by a write that took it below the minimum: since then nothing was acknowledged that
they lack. The write that brings the ISR back to the minimum empties them. They are dead, or lag: a wrong one is worse
than none.

`elected` chooses the first replica in the order of assignment that is in sync, else the first eligible one. When there
is neither, and nobody can come back who might be, the logs themselves must be asked: all assigned replicas, and of
those the one with the largest (last epoch, end) leads. Records may be lost then, and the state says so.

These are rules 1 to 6 and 8 of the cluster's design; `tests/model` searches for histories that break them.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from barnabas.base.ids import LeaderEpoch, Offset
from barnabas.metadata.image import Partition, RegisteredBroker
from barnabas.metadata.znodes import NO_LEADER, PartitionState
from barnabas.wire.errors import ErrorCode

NO_BROKER_EPOCH: Final = -1
"""Of a member of a state that does not say: it matches no registration."""

Members: TypeAlias = Mapping[int, int]
"""Replicas, each with the broker epoch in which it is what it is."""

Registered: TypeAlias = Mapping[int, RegisteredBroker]


class LogEnd(NamedTuple):
    """What a replica says of its log, in this registration."""

    broker_epoch: int
    last_epoch: LeaderEpoch
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class Settled:
    """Who is in sync and who is eligible, by what is registered now."""

    isr: Members
    elr: Members


@dataclass(frozen=True, slots=True)
class Election:
    """What becomes of a partition without a leader, or with one whose grant is over."""

    leader: int
    settled: Settled
    is_unclean: bool = False
    """Acknowledged records may be lost."""
    must_ask: bool = False
    """The state names nobody who could lead: ask every assigned replica where its log ends."""


def isr_of(partition: Partition) -> dict[int, int]:
    return _members(partition.isr, partition.isr_epochs)


def elr_of(partition: Partition) -> dict[int, int]:
    return _members(partition.elr, partition.elr_epochs)


def _members(ids: tuple[int, ...], epochs: tuple[int, ...]) -> dict[int, int]:
    return dict(zip(ids, epochs or (NO_BROKER_EPOCH,) * len(ids), strict=True))


def minimum_of(partition: Partition) -> int:
    """The minimum in force; a partition cannot have more replicas in sync than it has."""
    return min(partition.min_insync_replicas or 1, len(partition.replicas))


# -- members -------------------------------------------------------------------------------------------------------


def is_offline(partition: Partition, broker_id: int, registered: Registered) -> bool:
    """Whether the replica's log directory has failed, in the registration that there is."""
    broker = registered.get(broker_id)
    return broker is not None and partition.is_offline_in(broker_id, broker.epoch)


def epoch_now(broker_id: int, broker_epoch: int, registered: Registered) -> int | None:
    """In which registration a member is now what it was in that one; None when it is not, or is not registered."""
    broker = registered.get(broker_id)
    if broker is None:
        return None
    if broker.epoch == broker_epoch or broker.is_intact_since(broker_epoch):
        return broker.epoch
    return None


def settle(partition: Partition, registered: Registered, proposed: Members | None = None) -> Settled:
    """With the ISR of the state, or the one that its leader proposes."""
    before = isr_of(partition)
    wanted = before if proposed is None else proposed
    isr = {
        one: now
        for one, epoch in wanted.items()
        if (now := epoch_now(one, epoch, registered)) is not None and not partition.is_offline_in(one, epoch)
    }
    if len(isr) >= minimum_of(partition):
        return Settled(isr, {})
    elr: dict[int, int] = {}
    for one, epoch in {**before, **wanted, **elr_of(partition)}.items():
        if one in isr or partition.is_offline_in(one, epoch):
            continue
        if one not in registered:
            elr[one] = epoch
        elif (now := epoch_now(one, epoch, registered)) is not None:
            elr[one] = now
    return Settled(isr, elr)


# -- elections -----------------------------------------------------------------------------------------------------


def is_led(partition: Partition, registered: Registered) -> bool:
    """Whether the leader's grant is of the registration that there is."""
    broker = registered.get(partition.leader)
    return (
        broker is not None
        and partition.is_granted_to(broker.id, broker.epoch)
        and not partition.is_offline_in(broker.id, broker.epoch)
    )


def elected(
    partition: Partition,
    registered: Registered,
    *,
    ends: Mapping[int, LogEnd] | None = None,
    is_unclean_allowed: bool = False,
) -> Election:
    """Who leads next. `ends` are those that replicas have told, if they were asked."""
    settled = settle(partition, registered)
    in_order = [one for one in partition.replicas if one in registered and not is_offline(partition, one, registered)]
    for one in in_order:
        if one in settled.isr:
            return Election(one, settled)
    for one in in_order:
        if one in settled.elr:
            is_enough = minimum_of(partition) == 1  # it acknowledges alone: from now on the others may lack records
            others = {} if is_enough else {other: epoch for other, epoch in settled.elr.items() if other != one}
            return Election(one, Settled({one: settled.elr[one]}, others))
    if not settled.elr:
        last = _longest(partition, registered, ends or {})
        if last is not None:
            return Election(last, Settled({last: registered[last].epoch}, {}), is_unclean=len(partition.replicas) > 1)
    if is_unclean_allowed and in_order:
        first = in_order[0]
        return Election(first, Settled({first: registered[first].epoch}, {}), is_unclean=True)
    can_all_tell = not any(is_offline(partition, one, registered) for one in partition.replicas)
    return Election(NO_LEADER, settled, must_ask=not settled.elr and bool(partition.replicas) and can_all_tell)


def _longest(partition: Partition, registered: Registered, ends: Mapping[int, LogEnd]) -> int | None:
    """The replica with the longest log, when all have answered in the registrations that they have now."""
    if any(is_offline(partition, one, registered) for one in partition.replicas):
        return None  # nobody knows what it has
    if len(partition.replicas) == 1:  # nobody else can have more
        [only] = partition.replicas
        return only if only in registered else None
    for one in partition.replicas:
        if one not in ends or one not in registered or ends[one].broker_epoch != registered[one].epoch:
            return None
    return max(partition.replicas, key=lambda one: (ends[one].last_epoch, ends[one].end_offset), default=None)


def next_state(
    partition: Partition,
    registered: Registered,
    controller_epoch: int,
    *,
    ends: Mapping[int, LogEnd] | None = None,
    is_unclean_allowed: bool = False,
) -> PartitionState | None:
    """The state to write after brokers came or went; None when nothing changes."""
    if is_led(partition, registered):
        settled = settle(partition, registered)
        if settled.isr == isr_of(partition) and settled.elr == elr_of(partition):
            return None
        return _state(partition, partition.leader, partition.leader_epoch, settled, controller_epoch)
    election = elected(partition, registered, ends=ends, is_unclean_allowed=is_unclean_allowed)
    if election.leader == NO_LEADER == partition.leader:
        if election.settled == Settled(isr_of(partition), elr_of(partition)):
            return None
        return _state(partition, NO_LEADER, partition.leader_epoch, election.settled, controller_epoch)
    return _state(
        partition,
        election.leader,
        partition.leader_epoch + 1,
        election.settled,
        controller_epoch,
        is_recovering=election.is_unclean,
    )


def led_by_preferred(partition: Partition, registered: Registered, controller_epoch: int) -> PartitionState | ErrorCode:
    """The state in which the first replica leads, or why that is not to be written."""
    preferred = partition.replicas[0] if partition.replicas else NO_LEADER
    settled = settle(partition, registered)
    if preferred == partition.leader and is_led(partition, registered):
        return ErrorCode.ELECTION_NOT_NEEDED
    if preferred not in settled.isr:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    next_epoch = partition.leader_epoch + 1
    return _state(partition, preferred, next_epoch, settled, controller_epoch, is_recovering=False)


def led_by_longest(
    partition: Partition, registered: Registered, controller_epoch: int, *, ends: Mapping[int, LogEnd]
) -> PartitionState | ErrorCode:
    """The state in which the replica with the longest log leads a partition that nobody could lead; or why not."""
    if is_led(partition, registered):
        return ErrorCode.ELECTION_NOT_NEEDED
    state = next_state(partition, registered, controller_epoch, ends=ends)
    if state is None or state.leader == NO_LEADER:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return state


def led_by_anybody(partition: Partition, registered: Registered, controller_epoch: int) -> PartitionState | ErrorCode:
    """The state in which some replica leads a partition that nobody leads, whatever it may lack; or why not."""
    if is_led(partition, registered):
        return ErrorCode.ELECTION_NOT_NEEDED
    state = next_state(partition, registered, controller_epoch, is_unclean_allowed=True)
    if state is None or state.leader == NO_LEADER:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return state


def without_broker(
    partition: Partition, broker_id: int, registered: Registered, leaders: Container[int], controller_epoch: int
) -> PartitionState | None:
    """The state in which a broker that stops is not in sync any more, and one of `leaders` leads what it led.

    None when the broker is not in sync anyway, or nobody else could lead.
    """
    if broker_id not in partition.isr or not is_led(partition, registered):
        return None
    settled = settle(partition, {one: broker for one, broker in registered.items() if one != broker_id})
    if partition.leader != broker_id:
        return _state(partition, partition.leader, partition.leader_epoch, settled, controller_epoch)
    for one in partition.replicas:
        if one in settled.isr and one in leaders:
            next_epoch = partition.leader_epoch + 1
            return _state(partition, one, next_epoch, settled, controller_epoch, is_recovering=False)
    return None


def with_offline_replica(
    partition: Partition,
    broker_id: int,
    registered: Registered,
    controller_epoch: int,
    *,
    is_unclean_allowed: bool = False,
) -> PartitionState | None:
    """The log directory of a replica has failed in the registration that its broker has now: others are in sync, and
    one of them leads. None when the state says so already, or the broker has no such replica.

    Recorded in the state, so that every controller knows it until the broker registers again.
    """
    if broker_id not in partition.replicas or broker_id not in registered:
        return None
    if is_offline(partition, broker_id, registered):
        return None
    known = dict(zip(partition.offline, partition.offline_epochs, strict=True))
    known[broker_id] = registered[broker_id].epoch
    told = partition._replace(offline=tuple(known), offline_epochs=tuple(known.values()))
    state = next_state(told, registered, controller_epoch, is_unclean_allowed=is_unclean_allowed)
    if state is not None:
        return state
    return _state(told, told.leader, told.leader_epoch, settle(told, registered), controller_epoch)


def _state(
    partition: Partition,
    leader: int,
    leader_epoch: LeaderEpoch,
    settled: Settled,
    controller_epoch: int,
    *,
    is_recovering: bool | None = None,
) -> PartitionState:
    in_order = [*partition.replicas, *(one for one in settled.isr if one not in partition.replicas)]
    isr = tuple([one for one in in_order if one in settled.isr])
    elr = tuple([one for one in partition.replicas if one in settled.elr])
    offline = {  # a member has registered again since
        one: epoch
        for one, epoch in zip(partition.offline, partition.offline_epochs, strict=True)
        if one in partition.replicas and one not in settled.isr and one not in settled.elr
    }
    return PartitionState(
        leader,
        leader_epoch,
        isr,
        controller_epoch,
        is_recovering=partition.is_recovering if is_recovering is None else is_recovering,
        isr_epochs=tuple([settled.isr[one] for one in isr]),
        elr=elr,
        elr_epochs=tuple([settled.elr[one] for one in elr]),
        min_insync_replicas=partition.min_insync_replicas,
        offline=tuple(offline),
        offline_epochs=tuple(offline.values()),
    )


# -- what leaders ask for ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alteration:
    """An ISR that a leader proposes."""

    leader: int
    leader_broker_epoch: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: Members


def altered(
    partition: Partition, alteration: Alteration, registered: Registered, controller_epoch: int
) -> PartitionState | ErrorCode:
    """The state to write, or why not: the leader epoch is looked at first, then the partition epoch, then members."""
    if alteration.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if alteration.leader_epoch > partition.leader_epoch or alteration.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # it knows more than this controller
    if alteration.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if alteration.leader != partition.leader or alteration.leader not in alteration.isr:
        return ErrorCode.INVALID_REQUEST
    if not partition.is_granted_to(alteration.leader, alteration.leader_broker_epoch):
        return ErrorCode.STALE_BROKER_EPOCH
    before = isr_of(partition)
    added = {one: epoch for one, epoch in alteration.isr.items() if one not in before}
    for one, epoch in {**added, alteration.leader: alteration.leader_broker_epoch}.items():
        broker = registered.get(one)
        is_registered = broker is not None and broker.epoch == epoch
        if one not in partition.replicas or not is_registered or partition.is_offline_in(one, epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    proposed = {one: before.get(one, epoch) for one, epoch in alteration.isr.items()}
    settled = settle(partition, registered, proposed)
    return _state(
        partition,
        partition.leader,
        partition.leader_epoch,
        settled,
        controller_epoch,
        is_recovering=False,
    )


def due_minimum(partition: Partition, asked: int) -> int:
    """What the state should have where the topic asks for this minimum: at most the number of replicas.

    A replica that is being added (`controller.additions`) counts once it is in sync. Until then nobody can be refused
    for lack of it, and what is in force is not lowered when it leaves again.
    """
    counted = sum(one not in partition.adding or one in partition.isr for one in partition.replicas)
    return max(1, min(asked, max(counted, minimum_of(partition))))


def with_minimum(partition: Partition, asked: int, controller_epoch: int) -> PartitionState | None:
    """The state with the minimum that is due, by another `min.insync.replicas` or replica; None when it has it.

    A lower one empties the eligible, unless nobody is in sync: then nothing can be acknowledged that they lack.
    """
    due = due_minimum(partition, asked)
    if partition.min_insync_replicas == due:
        return None
    before, after = minimum_of(partition), min(due, len(partition.replicas))
    isr = isr_of(partition)
    settled = Settled(isr, {} if isr and after < before else elr_of(partition))
    state = _state(partition, partition.leader, partition.leader_epoch, settled, controller_epoch)
    return replace(state, min_insync_replicas=due)

"""The rules of replication, each left out of the production cores in turn, with a history that shows it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from barnabas.controller import in_sync
from barnabas.controller.in_sync import Alteration, LogEnd, Registered, Settled
from barnabas.metadata.image import Partition, RegisteredBroker
from barnabas.replication.leader import Fetched, LeaderState, Proposal
from tests.model import traces
from tests.model import world as world_module
from tests.model.world import Action, World

Patch = Callable[[pytest.MonkeyPatch], None]


def _epochs_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    original = in_sync.altered

    def altered(partition: Partition, alteration: Alteration, registered: Registered, epoch: int) -> Any:
        isr = {one: registered[one].epoch if one in registered else at for one, at in alteration.isr.items()}
        return original(partition, replace(alteration, isr=isr), registered, epoch)

    patch.setattr(in_sync, "altered", altered)


def _grant_is_to_any_registration(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "is_granted_to", lambda partition, broker_id, broker_epoch: partition.leader == broker_id)


def _everybody_is_intact(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RegisteredBroker, "is_intact_since", lambda broker, epoch: True)


def _eligible_stay(patch: pytest.MonkeyPatch) -> None:
    original = in_sync.settle

    def settle(partition: Partition, registered: Registered, proposed: Any = None) -> Settled:
        settled = original(partition, registered, proposed)
        kept = {one: at for one, at in in_sync.elr_of(partition).items() if one not in settled.isr}
        return Settled(settled.isr, {**kept, **settled.elr})

    patch.setattr(in_sync, "settle", settle)


def _whoever_answers_is_enough(patch: pytest.MonkeyPatch) -> None:
    def longest(partition: Partition, registered: Registered, ends: Mapping[int, LogEnd]) -> int | None:
        told = [one for one in partition.replicas if one in ends and one in registered]
        return max(told, key=lambda one: (ends[one].last_epoch, ends[one].end_offset), default=None)

    patch.setattr(in_sync, "_longest", longest)


def _longest_by_length_alone(patch: pytest.MonkeyPatch) -> None:
    original = in_sync._longest

    def longest(partition: Partition, registered: Registered, ends: Mapping[int, LogEnd]) -> int | None:
        flat = {one: end._replace(last_epoch=0) for one, end in ends.items()}
        return original(partition, registered, flat)

    patch.setattr(in_sync, "_longest", longest)


def _watermark_is_enough_to_join(patch: pytest.MonkeyPatch) -> None:
    def may_join(leader: LeaderState, broker_id: int) -> bool:
        follower = leader.followers.get(broker_id)
        return (
            follower is not None
            and broker_id not in leader.state.isr
            and follower.broker_epoch >= 0
            and follower.end_offset >= leader.high_watermark
        )

    patch.setattr(LeaderState, "may_join", may_join)


def _diverging_fetch_proves(patch: pytest.MonkeyPatch) -> None:
    original = World._fetch

    def fetch(world: World, one: int, source: int, *, is_lost: bool) -> None:
        leader = world.leaders[source]
        assert leader is not None
        end = min(len(world.logs[one]), len(world.logs[source]))
        leader.fetched(Fetched(one, world.epochs[one], end, 0, 0))
        world._acknowledge(source)
        original(world, one, source, is_lost=is_lost)

    patch.setattr(World, "_fetch", fetch)


def _proposed_count_for_the_minimum(patch: pytest.MonkeyPatch) -> None:
    has_enough = property(lambda leader: len(leader.maximal_isr) >= leader.state.minimum)
    patch.setattr(LeaderState, "has_enough", has_enough)


def _no_minimum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "has_enough", property(lambda leader: True))


def _lower_minimum_keeps_the_eligible(patch: pytest.MonkeyPatch) -> None:
    def with_minimum(partition: Partition, minimum: int, controller_epoch: int) -> Any:
        settled = Settled(in_sync.isr_of(partition), in_sync.elr_of(partition))
        state = in_sync._state(partition, partition.leader, partition.leader_epoch, settled, controller_epoch)
        return replace(state, min_insync_replicas=minimum)

    patch.setattr(in_sync, "with_minimum", with_minimum)


def _expansion_counts_when_confirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "maximal_isr", property(lambda leader: frozenset(leader.state.isr)))


def _shrink_counts_at_once(patch: pytest.MonkeyPatch) -> None:
    original = LeaderState.propose

    def propose(leader: LeaderState, isr: Mapping[int, int]) -> Proposal:
        proposal = original(leader, isr)
        kept = {one: at for one, at in leader.state.isr.items() if one in isr}
        leader.state = replace(leader.state, isr=kept)
        leader.written(leader.own_end, 0)
        return proposal

    patch.setattr(LeaderState, "propose", propose)


def _refused_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "sent_again", lambda leader, proposal: None)


def _truncation_to_the_watermark(patch: pytest.MonkeyPatch) -> None:
    original = World._fetch

    def fetch(world: World, one: int, source: int, *, is_lost: bool) -> None:
        before = world.logs[one]
        original(world, one, source, is_lost=is_lost)
        if len(world.logs[one]) < len(before):
            world.logs[one] = before[: world.watermarks[one]]

    patch.setattr(World, "_fetch", fetch)


def _no_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world_module, "diverges", lambda asked, ours: False)


DROPPED: Final[dict[str, tuple[Patch, tuple[Action, ...]]]] = {
    "1: added members are taken in any registration": (_epochs_are_not_compared, traces.REGISTERED_AGAIN),
    "2: a grant is to any registration": (_grant_is_to_any_registration, traces.SAME_EPOCH),
    "3, 4: everybody is intact": (_everybody_is_intact, traces.LOST_AND_BACK),
    "5: the eligible stay when enough are in sync": (_eligible_stay, traces.ELIGIBLE_FOR_TOO_LONG),
    "6: whoever answers is enough": (_whoever_answers_is_enough, traces.ELECTED_WITHOUT_ASKING),
    "6: the longest log, whatever its epoch": (_longest_by_length_alone, traces.LONGEST_OF_AN_OLD_EPOCH),
    "7: the watermark is enough to join": (_watermark_is_enough_to_join, traces.JOINS_TOO_EARLY),
    "7: a diverging fetch proves": (_diverging_fetch_proves, traces.DIVERGED_PROVES_NOTHING),
    "8: proposed members count for the minimum": (_proposed_count_for_the_minimum, traces.PROPOSED_IS_NO_MEMBER),
    "8: no minimum": (_no_minimum, traces.ACKNOWLEDGED_ALONE),
    "8: a lower minimum keeps the eligible": (_lower_minimum_keeps_the_eligible, traces.MINIMUM_LOWERED),
    "9: an expansion counts when it is confirmed": (_expansion_counts_when_confirmed, traces.EXPANDED_UNHEARD),
    "9: a shrink counts at once": (_shrink_counts_at_once, traces.SHRINK_NOT_WRITTEN),
    "9: a refused proposal is forgotten": (_refused_is_forgotten, traces.COPY_UNDER_WAY),
    "10: truncation to the watermark": (_truncation_to_the_watermark, traces.CUT_TO_THE_WATERMARK),
    "10: no truncation": (_no_truncation, traces.PARTED_LOGS),
}

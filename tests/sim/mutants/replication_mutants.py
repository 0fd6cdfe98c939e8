"""Mistakes in replication: of leaders, of followers, and of the controller that decides who is in sync.

Most are caught by a page of `tests/sim/scenarios`: what they need to show is a story of several steps.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from barnabas.base.ids import Offset
from barnabas.broker.handlers import replica_fetch
from barnabas.broker.handlers.replica_fetch import ReplicaAttempt
from barnabas.controller import elections, in_sync
from barnabas.controller.in_sync import Alteration, LogEnd, Registered, Settled
from barnabas.metadata.image import Partition as PartitionImage
from barnabas.metadata.image import RegisteredBroker
from barnabas.replication.fetcher import Fetcher, Followed
from barnabas.replication.following import Following
from barnabas.replication.leader import Fetched, LeaderState, Proposal
from barnabas.replication.partition import Partition
from barnabas.replication.partition_reading import PartitionReading
from barnabas.replication.proposals import Proposals, Proposed
from barnabas.replication.replicas import Replicas
from barnabas.replication.waiting import ALL_ACKS, Waiters
from barnabas.storage.log.log import Log
from barnabas.wire.fetch import FetchResult
from tests.sim.mutants.planting import Mutants

mutants = Mutants(brokers=3)
_LOST = ("acked records", "seen records", "watermarks", "replicas", "compaction", "commits", "producer order")


# Leaders


@mutants.plant(
    "acknowledged-before-replication",
    "A record that all in-sync replicas must have is acknowledged when the leader has it.",
    Partition,
    "when_committed",
    checkers=_LOST,
    page="cluster_deposed_leader_acknowledges_nothing",
)
def _(original: Any) -> Any:
    def when_committed(self: Partition, last_offset: Offset, acks: int, deadline: float, callback: Any) -> None:
        original(self, last_offset, 1 if acks == ALL_ACKS else acks, deadline, callback)

    return when_committed


@mutants.plant(
    "expansion-counted-when-confirmed",
    "The watermark is that of the members that are written down; those that were proposed do not count.",
    LeaderState,
    "maximal_isr",
    checkers=_LOST,
    page="cluster_lost_answer_of_the_controller",
)
def _(original: Any) -> Any:
    return property(lambda self: frozenset(self.state.isr))


@mutants.plant(
    "shrink-counted-at-once",
    "A member that the leader wants to be without does not count from the moment that it is proposed.",
    LeaderState,
    "propose",
    checkers=_LOST,
    page="cluster_cut_off_from_the_controller",
)
def _(original: Any) -> Any:
    def propose(self: LeaderState, isr: Mapping[int, int]) -> Proposal:
        proposal: Proposal = original(self, isr)
        self.state = replace(self.state, isr={one: epoch for one, epoch in self.state.isr.items() if one in isr})
        return proposal

    return propose


@mutants.plant(
    "proposal-released-on-timeout",
    "A proposal that is not answered in time counts as refused, though it may be written.",
    Proposals,
    "_send",
    checkers=_LOST,
    page="cluster_lost_answer_of_the_controller",
)
def _(original: Any) -> Any:
    async def send(self: Proposals, proposed: Sequence[Proposed]) -> None:
        try:
            async with asyncio.timeout(0.5):
                await original(self, proposed)
        except TimeoutError:
            for partition, proposal in proposed:
                self._sent.pop(partition, None)
                partition.refused(proposal)

    return send


@mutants.plant(
    "minimum-ignored",
    "Records are committed however few replicas are in sync.",
    LeaderState,
    "has_enough",
    checkers=_LOST,
    page="cluster_minimum_counts_those_who_are_in_sync",
)
def _(original: Any) -> Any:
    return property(lambda self: True)


@mutants.plant(
    "proposed-count-for-the-minimum",
    "Members that were only proposed count for the minimum.",
    LeaderState,
    "has_enough",
    checkers=_LOST,
    page="cluster_minimum_counts_those_who_are_in_sync",
)
def _(original: Any) -> Any:
    return property(lambda self: len(self.maximal_isr) >= self.state.minimum)


@mutants.plant(
    "joins-by-the-watermark",
    "A follower is proposed when it has reached the high watermark, which a new leader does not know yet.",
    LeaderState,
    "may_join",
    checkers=_LOST,
    page="cluster_joins_only_with_everything",
)
def _(original: Any) -> Any:
    def may_join(self: LeaderState, broker_id: int) -> bool:
        follower = self.followers.get(broker_id)
        return (
            follower is not None
            and broker_id not in self.state.isr
            and follower.broker_epoch >= 0
            and follower.end_offset >= self.high_watermark
        )

    return may_join


@mutants.plant(
    "deposed-leader-acknowledges",
    "When a leadership ends, those who wait for the high watermark are told that it is reached.",
    Waiters,
    "fail_all",
    checkers=_LOST,
    page="cluster_deposed_leader_acknowledges_nothing",
)
def _(original: Any) -> Any:
    def fail_all(self: Waiters, error: Any) -> None:
        uncommitted, self.uncommitted = self.uncommitted, []
        for _, _, _, callback in uncommitted:
            callback(None)
        original(self, error)

    return fail_all


@mutants.plant(
    "retry-acknowledged-before-replication",
    "A batch that is sent again and is in the log already is acknowledged at once, whoever has it.",
    Partition,
    "when_committed",
    checkers=_LOST,
    page="cluster_retry_waits_for_the_others",
)
def _(original: Any) -> Any:
    def when_committed(self: Partition, last_offset: Offset, acks: int, deadline: float, callback: Any) -> None:
        is_there = last_offset < self.end_offset
        original(self, last_offset, 1 if is_there else acks, deadline, callback)

    return when_committed


@mutants.plant(
    "waiting-ends-with-too-few",
    "When too few are in sync, what waits for the others is acknowledged instead of refused.",
    Waiters,
    "fail_uncommitted",
    checkers=_LOST,
    page="cluster_too_few_after_the_append",
)
def _(original: Any) -> Any:
    def fail_uncommitted(self: Waiters, error: Any) -> None:
        uncommitted, self.uncommitted = self.uncommitted, []
        for _, _, _, callback in uncommitted:
            callback(None)

    return fail_uncommitted


@mutants.plant(
    "uncommitted-records-shown",
    "Readers are shown everything that the leader has written.",
    PartitionReading,
    "read",
    checkers=(*_LOST, "positions", "epoch contents"),
    page="cluster_readers_see_what_is_committed",
)
def _(original: Any) -> Any:
    def read(self: Partition, offset: Offset, max_bytes: int, *, is_committed_only: bool, at_least_one: bool) -> Any:
        return self.read_for_follower(offset, max_bytes, at_least_one=at_least_one)

    return read


@mutants.plant(
    "position-above-the-watermark-refused",
    "A reader that stands between the high watermark of a new leader and the end of its log is told to begin again.",
    PartitionReading,
    "read",
    checkers=("positions", *_LOST),
    page="cluster_reader_above_the_new_watermark",
)
def _(original: Any) -> Any:
    def read(self: Partition, offset: Offset, max_bytes: int, *, is_committed_only: bool, at_least_one: bool) -> Any:
        wrong = offset if offset <= self.high_watermark else self.end_offset + 1
        return original(self, wrong, max_bytes, is_committed_only=is_committed_only, at_least_one=at_least_one)

    return read


@mutants.plant(
    "followers-get-what-is-committed",
    "A follower is sent no more than readers are.",
    PartitionReading,
    "read_for_follower",
    checkers=("healing", *_LOST),
    page="cluster_zookeeper_down",
)
def _(original: Any) -> Any:
    def read_for_follower(self: Partition, offset: Offset, max_bytes: int, *, at_least_one: bool) -> FetchResult:
        return self.read(offset, max_bytes, is_committed_only=False, at_least_one=at_least_one)

    return read_for_follower


@mutants.plant(
    "divergence-not-looked-for",
    "A leader sends records to a follower whose log has left its own.",
    replica_fetch,
    "diverged",
    checkers=(*_LOST, "epoch contents", "disks"),
    page="cluster_deposed_leader_acknowledges_nothing",
)
def _(original: Any) -> Any:
    return lambda partition, wanted: None


@mutants.plant(
    "diverging-fetch-proves",
    "A follower's fetch counts as proof of what it has before the leader has looked whether the logs have parted.",
    ReplicaAttempt,
    "_read_from",
    checkers=(*_LOST, "epoch contents"),
    page="cluster_parted_log_proves_nothing",
)
def _(original: Any) -> Any:
    def read_from(self: ReplicaAttempt, partition: Partition, known: Any) -> FetchResult | None:
        session, wanted = self._session, known.wanted
        end_offset = min(wanted.offset, partition.end_offset)
        now_ms = self._handler.steady_ms()
        partition.fetched_by(
            Fetched(session.broker_id, session.broker_epoch, end_offset, wanted.log_start_offset, now_ms)
        )
        result: FetchResult | None = original(self, partition, known)
        return result

    return read_from


# Followers


@mutants.plant(
    "truncated-to-the-watermark",
    "A follower whose log has left the leader's cuts it at its own high watermark.",
    Following,
    "_cut",
    checkers=_LOST,
    page="cluster_log_is_cut_by_epochs",
)
def _(original: Any) -> Any:
    def cut(self: Following, followed: Followed, offset: Offset) -> None:
        original(self, followed, min(followed.log.high_watermark, followed.log.end_offset))

    return cut


@mutants.plant(
    "unsynced-records-named",
    "A follower names what it has written, though the topic asks for more.",
    Log,
    "awaits_flush",
    checkers=_LOST,
    page="cluster_follower_syncs_before_it_asks_for_more",
)
def _(original: Any) -> Any:
    return lambda self, now_ms: False


@mutants.plant(
    "running-flush-forgotten",
    "A log that is being synced counts as synced.",
    Log,
    "awaits_flush",
    checkers=_LOST,
    page="cluster_new_leader_syncs_first",
)
def _(original: Any) -> Any:
    return lambda self, now_ms: self.must_flush(now_ms)


@mutants.plant(
    "session-of-an-old-registration",
    "A broker that registers again goes on with fetches that name its old registration.",
    Replicas,
    "registered",
    checkers=("healing",),
    page="cluster_deposed_leader_acknowledges_nothing",
)
def _(original: Any) -> Any:
    def registered(self: Replicas, broker_epoch: int) -> None:
        assert self._following is not None
        side = self._following.side
        before = side.broker_epoch
        original(self, broker_epoch)
        if before >= 0:
            side.broker_epoch = before

    return registered


@mutants.plant(
    "follower-forgets-a-cut",
    "A log that was cut is not followed again.",
    Fetcher,
    "add",
    checkers=("healing",),
    page="cluster_deposed_leader_acknowledges_nothing",
)
def _(original: Any) -> Any:
    def add(self: Fetcher, followed: Followed) -> None:
        if followed.id not in self._forgotten:
            original(self, followed)

    return add


# The controller


@mutants.plant(
    "everybody-is-intact",
    "A broker that lost power stays among those in sync when it registers again.",
    RegisteredBroker,
    "is_intact_since",
    checkers=_LOST,
    page="cluster_ghost_is_not_elected",
)
def _(original: Any) -> Any:
    return lambda self, epoch: True


@mutants.plant(
    "members-in-any-registration",
    "The controller takes a member that a leader proposes in whatever registration it is now.",
    elections,
    "altered",
    checkers=_LOST,
    page="cluster_member_registered_again_is_refused",
)
def _(original: Any) -> Any:
    def altered(partition: PartitionImage, asked: Alteration, registered: Registered, controller_epoch: int) -> Any:
        isr = {one: registered[one].epoch if one in registered else epoch for one, epoch in asked.isr.items()}
        return original(partition, replace(asked, isr=isr), registered, controller_epoch)

    return altered


@mutants.plant(
    "old-grant-believed",
    "A broker leads when the state names it, in whatever registration.",
    PartitionImage,
    "is_granted_to",
    checkers=("leaders", *_LOST),
    page="cluster_restarted_leader_has_another_epoch",
)
def _(original: Any) -> Any:
    return lambda self, broker_id, broker_epoch: self.leader == broker_id


@mutants.plant(
    "eligible-for-ever",
    "Replicas stay eligible when enough are in sync, though the leader acknowledges without them from now on.",
    in_sync,
    "settle",
    checkers=_LOST,
    page="cluster_enough_in_sync_end_eligibility",
)
def _(original: Any) -> Any:
    def settle(partition: PartitionImage, registered: Registered, proposed: Any = None) -> Settled:
        settled: Settled = original(partition, registered, proposed)
        kept = {one: at for one, at in in_sync.elr_of(partition).items() if one not in settled.isr}
        return Settled(settled.isr, {**kept, **settled.elr})

    return settle


@mutants.plant(
    "whoever-answers-is-enough",
    "When nobody in sync is left, the longest log of those who answer leads, without waiting for all.",
    in_sync,
    "_longest",
    checkers=_LOST,
    page="cluster_the_one_out_of_sync_has_most",
)
def _(original: Any) -> Any:
    def longest(partition: PartitionImage, registered: Registered, ends: Mapping[int, LogEnd]) -> int | None:
        told = [one for one in partition.replicas if one in ends and one in registered]
        return max(told, key=lambda one: (ends[one].last_epoch, ends[one].end_offset), default=None)

    return longest


@mutants.plant(
    "shortest-log-leads",
    "When nobody in sync is left, the first replica leads once all have answered, however long its log is.",
    in_sync,
    "_longest",
    checkers=_LOST,
    page="cluster_the_one_out_of_sync_has_most",
)
def _(original: Any) -> Any:
    def longest(partition: PartitionImage, registered: Registered, ends: Mapping[int, LogEnd]) -> int | None:
        return None if original(partition, registered, ends) is None else partition.replicas[0]

    return longest

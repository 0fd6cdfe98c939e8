"""One member of one group, as the coordinator sees it: join, sync, heartbeat, commit, leave.

```
              join ──▶ the coordinator waits for everybody ──▶ sync ──▶ the leader's assignment
                ▲                                                │
                └── heartbeat: a rebalance goes on ◀─────────────┘
```

The first join brings a member id (KIP-394), every completed one a *generation*. Both go with every request; a
coordinator that does not know them any more answers UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION, and then this member has
lost what it had (`is_lost`), because others may have it. The group's leader assigns the partitions, by the
assignor that all have agreed on.

A join waits as long as the slowest member takes, and so does a sync: they have their own lane. Heartbeats, commits
and leaving use the general one.

This class knows the protocol. When to join, and what becomes of the partitions, is for `group_consumer` to decide.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.group.assignors import Assignor, JoinedMember
from barnabas.client.group.consumer_protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.client.group.group_admin import raise_for_group
from barnabas.client.group.group_offsets import Committer, OffsetAndMetadata, commit_offsets
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages import Message
from barnabas.wire.values import Values

_LOG = logging.getLogger(__name__)

_EXCLUDED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The coordinator does not count us as a member any more."""
_REASON_CHARACTERS_MAX: Final = 255
_WAIT_SECONDS_EXTRA: Final = 5.0
"""A join is answered when the rebalance timeout is over, and a little later."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    group: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Joined:
    """What a rebalance brought."""

    assignment: frozenset[TopicPartition]
    was_lost: bool
    """Whether we were excluded on the way: then nothing of what we kept is ours, unless it is assigned again."""
    counts: Mapping[str, int]
    """To the leader: the topics of the whole group, and how many partitions they had when it shared them out."""


class Membership:
    def __init__(self, cluster: Cluster, options: MemberOptions, assignors: Sequence[Assignor]) -> None:
        self._cluster = cluster
        self._options = options
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.member_id = ""
        self.generation = NO_GENERATION
        self.is_lost = False
        """Whether the coordinator excluded us after the last join: what we had may be others' now."""
        self._is_joining = False
        self._last_generation = NO_GENERATION

    @property
    def is_member(self) -> bool:
        return self.generation != NO_GENERATION

    @property
    def is_static(self) -> bool:
        return self._options.instance_id is not None

    # --- joining --------------------------------------------------------------------------------------------

    async def join(
        self,
        topics: Collection[str],
        owned: Collection[TopicPartition],
        previous: Collection[TopicPartition],
        reason: str,
    ) -> Joined:
        """Takes part in a rebalance until it is complete.

        `owned` is what is kept meanwhile (cooperative), `previous` what was assigned last, given up or not.
        """
        timeout_seconds = self._rebalance_seconds + self._cluster.options.retry_timeout_seconds

        async def attempt() -> Joined:
            tries = 0
            while True:
                protocols = self._protocols(topics, () if self.is_lost else owned, previous)
                try:
                    return await self._join_once(protocols, reason)
                except KafkaError as error:
                    if error.code in _EXCLUDED:
                        self._exclude()
                    elif error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                        raise
                    _LOG.debug("joining again", extra={"group": self._options.group, "problem": str(error)})
                await asyncio.sleep(self._cluster.backoff_seconds(tries))
                tries += 1

        self._is_joining = True
        try:
            what = f"group '{self._options.group}' could not be joined"
            return await self._cluster.retry(what, attempt, timeout_seconds=timeout_seconds)
        finally:
            self._is_joining = False

    def _protocols(
        self, topics: Collection[str], owned: Collection[TopicPartition], previous: Collection[TopicPartition]
    ) -> list[Values]:
        return [
            {
                "name": assignor.name,
                "metadata": encode_subscription(
                    MemberSubscription(
                        tuple(topics),
                        assignor.user_data(previous, self._last_generation),
                        tuple(owned),
                        self._last_generation if owned else NO_GENERATION,
                        self._options.rack,
                    )
                ),
            }
            for assignor in self._assignors.values()
        ]

    async def _join_once(self, protocols: Sequence[Values], reason: str) -> Joined:
        async with self._cluster.coordinator(self._options.group, lane=self) as connection:
            values = {
                "session_timeout_ms": self._options.session_timeout_ms,
                "rebalance_timeout_ms": self._options.rebalance_timeout_ms,
                "protocol_type": PROTOCOL_TYPE,
                "protocols": protocols,
                "reason": reason[:_REASON_CHARACTERS_MAX],
            }
            wait_seconds = self._rebalance_seconds + _WAIT_SECONDS_EXTRA
            reply = await connection.call(ApiKey.JOIN_GROUP, {**self._identity(), **values}, wait_seconds=wait_seconds)
            if reply.error_code.value == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = reply.member_id
                reply = await connection.call(
                    ApiKey.JOIN_GROUP, {**self._identity(), **values}, wait_seconds=wait_seconds
                )
            raise_for_group(reply.error_code.value, self._options.group)
            # Heartbeats are due from here on, so the generation is set at once.
            self.member_id, self.generation = reply.member_id, reply.generation_id
            counts: dict[str, int] = {}
            assignments: list[Values] = []
            if reply.leader == reply.member_id:
                members = [_joined_member(member) for member in reply.members]
                counts = await self._counts(members)
                if not getattr(reply, "skip_assignment", False):
                    assignments = self._assign(reply.protocol_name, members, counts)
            sync = {
                **self._identity(),
                "protocol_type": PROTOCOL_TYPE,
                "protocol_name": reply.protocol_name,
                "assignments": assignments,
            }
            answer = await connection.call(ApiKey.SYNC_GROUP, sync, wait_seconds=wait_seconds)
            raise_for_group(answer.error_code.value, self._options.group)
            self._last_generation = self.generation
            was_lost, self.is_lost = self.is_lost, False
            return Joined(frozenset(decode_assignment(answer.assignment)), was_lost, counts)

    async def _counts(self, members: Sequence[JoinedMember]) -> dict[str, int]:
        topics = sorted({topic for member in members for topic in member.subscription.topics})
        view = await self._cluster.refresh(topics)
        return {topic: len(view.topics[topic].partitions) if topic in view.topics else 0 for topic in topics}

    def _assign(self, protocol: str, members: Sequence[JoinedMember], counts: Mapping[str, int]) -> list[Values]:
        assigned = self._assignors[protocol].assign(counts, members)
        _LOG.debug("assigned", extra={"group": self._options.group, "members": len(members), "protocol": protocol})
        return [
            {"member_id": member_id, "assignment": encode_assignment(partitions)}
            for member_id, partitions in assigned.items()
        ]

    # --- staying --------------------------------------------------------------------------------------------

    async def heartbeat(self) -> bool:
        """Tells that we live. False when a rebalance goes on, or when we are excluded (`is_lost`): join again."""
        generation = self.generation
        async with self._cluster.coordinator(self._options.group) as connection:
            reply = await connection.call(ApiKey.HEARTBEAT, self._identity())
            code = ErrorCode.of(reply.error_code.value)
            if generation != self.generation or (self._is_joining and code in _EXCLUDED):
                return True  # the answer is about the previous generation: the join itself reports such errors
            if code in _EXCLUDED:
                self._exclude()
            elif code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise_for_group(code, self._options.group)
                return True
            return False

    async def commit(
        self, offsets: Mapping[TopicPartition, Offset | OffsetAndMetadata], *, timeout_seconds: float | None = None
    ) -> None:
        """REBALANCE_IN_PROGRESS when a rebalance must be completed first; UNKNOWN_MEMBER_ID when we are excluded."""
        if not self.is_member:
            message = (
                f"no longer a member of group '{self._options.group}': its partitions may already belong to "
                "other members"
            )
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        generation = self.generation
        committer = Committer(self.member_id, generation, self._options.instance_id)
        try:
            await commit_offsets(
                self._cluster, self._options.group, offsets, committer, timeout_seconds=timeout_seconds
            )
        except KafkaError as error:
            if error.code in _EXCLUDED and generation == self.generation:
                self._exclude()
            raise

    async def leave(self, reason: str, *, timeout_seconds: float) -> None:
        """Lets the others have our partitions at once, instead of after the session timeout."""
        member_id, self.generation = self.member_id, NO_GENERATION
        if not member_id:
            return
        self.member_id = ""
        identity = {
            "member_id": member_id,
            "group_instance_id": self._options.instance_id,
            "reason": reason[:_REASON_CHARACTERS_MAX],
        }
        values = {"group_id": self._options.group, "member_id": member_id, "members": [identity]}

        async def attempt() -> None:
            async with self._cluster.coordinator(self._options.group) as connection:
                reply = await connection.call(ApiKey.LEAVE_GROUP, values)
                raise_for_group(reply.error_code.value, self._options.group)

        what = f"group '{self._options.group}' could not be left"
        await self._cluster.retry(what, attempt, timeout_seconds=timeout_seconds)

    def withdraw(self) -> None:
        """Acts as if excluded, without a word to the coordinator."""
        self.generation = NO_GENERATION
        self.is_lost = True

    async def close(self) -> None:
        """Gives up the lane; to the coordinator we are a member until we leave, or the session is over."""
        await self._cluster.close_lane(self)

    @property
    def _rebalance_seconds(self) -> float:
        return self._options.rebalance_timeout_ms / 1000

    def _identity(self) -> dict[str, str | int | None]:
        return {
            "group_id": self._options.group,
            "member_id": self.member_id,
            "generation_id": self.generation,
            "group_instance_id": self._options.instance_id,
        }

    def _exclude(self) -> None:
        self.member_id = ""
        self.withdraw()


def _joined_member(member: Message) -> JoinedMember:
    instance_id = getattr(member, "group_instance_id", None)
    return JoinedMember(member.member_id, instance_id, decode_subscription(member.metadata))

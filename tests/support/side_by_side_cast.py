"""Groups for the stories: their members, what these ask, and what the groups refuse of anyone.

A group has a name of its own in every story, so that no story sees what another left behind. Its members have names,
too; each has a connection (`Side.line`), because a join waits for the joins of others, and an id that the broker drew
(`Side.member_ids`), which is masked when answers are compared.

```python
cast = Cast(pair, "heartbeat-4")
cast.settle("klamm", "frieda")                 # a stable group with two members, klamm leads
cast.compare("by a member", ApiKey.HEARTBEAT, 4, cast.member("frieda"))
```
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from barnabas.wire.apis import ApiKey
from tests.support.kafka import wait_until
from tests.support.side_by_side import Pair, Side, Values

_NAMES_FOR_EVERY_PARTITION = 100
_ROUNDS_LOADED = 3
NOBODY = "nobody"
OFFSETS_TOPIC = "__consumer_offsets"
_NO_INSTANCES: Mapping[str, str] = {}
SESSION_TIMEOUT_MS = 30_000
GROUP_SIZE_MAX = 3
SESSION_TIMEOUT_MS_MIN = 200
GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": str(SESSION_TIMEOUT_MS_MIN),
    "group.max.size": str(GROUP_SIZE_MAX),
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
"""What both sides are told, so that the stories are short."""

_SETUP_JOIN, _SETUP_SYNC, _DESCRIBE = 5, 3, 5
_MEMBER_ID_REQUIRED = 79
_UNKNOWN_MEMBER_ID = 25


def subscription(*topics: str, user_data: bytes | None = None) -> bytes:
    """What a consumer says of itself when it joins: version 0 of the consumer protocol."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    data = struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    return struct.pack(">hi", 0, len(topics)) + names + data


def protocols(*names: str, metadata: bytes = b"") -> list[Values]:
    return [{"name": name, "metadata": metadata or subscription("orders")} for name in names]


def ready(side: Side) -> None:
    """The topic of the groups is made when somebody first looks for a coordinator, and that takes a moment."""
    asked = {"key": "ready", "key_type": 0, "group_id": "ready", "generation_id": 1, "member_id": NOBODY}
    wait_until(lambda: not side.ask(ApiKey.FIND_COORDINATOR, 3, asked)["error_code"], f"{side.name} has a coordinator")
    # Each partition of that topic is loaded by itself, and a group is on the one that its name hashes to.
    names = [f"ready-{number}" for number in range(_NAMES_FOR_EVERY_PARTITION)]

    def is_loaded() -> bool:
        """Kafka may load a new partition a second time, a moment later: it has to stay loaded."""
        return all(
            side.ask(ApiKey.HEARTBEAT, 3, {**asked, "group_id": name})["error_code"] == _UNKNOWN_MEMBER_ID
            for _ in range(_ROUNDS_LOADED)
            for name in names
        )

    wait_until(is_loaded, f"{side.name} coordinates groups")
    side.learn_topic(OFFSETS_TOPIC)


class Cast:
    """The members of one group, on both sides."""

    def __init__(self, pair: Pair, group: str, protocol_type: str = "consumer") -> None:
        self.pair = pair
        self.group = group
        self.protocol_type = protocol_type
        self.generations: dict[str, int] = {}

    # -- requests ----------------------------------------------------------------------------------------------

    def member_id(self, side: Side, who: str) -> str:
        """Somebody who never joined goes by the plain name."""
        return side.member_ids.get(f"{who} of {self.group}", who)

    def member(self, who: str, **others: Any) -> Callable[[Side], Values]:
        """Who speaks, and what else a request says."""

        def make(side: Side) -> Values:
            generation = self.generations.get(side.name, 1)
            return {
                "group_id": self.group,
                "member_id": self.member_id(side, who),
                "generation_id": generation,
                "generation_id_or_member_epoch": generation,
                "assignments": [],
                **others,
            }

        return make

    def joining(self, who: str, **others: Any) -> Callable[[Side], Values]:
        def make(side: Side) -> Values:
            return {
                "group_id": self.group,
                "session_timeout_ms": SESSION_TIMEOUT_MS,
                "rebalance_timeout_ms": SESSION_TIMEOUT_MS,
                "member_id": side.member_ids.get(f"{who} of {self.group}", ""),
                "protocol_type": self.protocol_type,
                "protocols": protocols("range", "roundrobin"),
                **others,
            }

        return make

    def assigning(self, who: str, *to: str, **others: Any) -> Callable[[Side], Values]:
        def make(side: Side) -> Values:
            assignments = [
                {"member_id": self.member_id(side, one), "assignment": f"what {one} gets".encode()} for one in to
            ]
            return {**self.member(who)(side), "assignments": assignments, **others}

        return make

    # -- comparing ---------------------------------------------------------------------------------------------

    def learn(self, who: str) -> Callable[[Side, Any], None]:
        def keep(side: Side, answer: Any) -> None:
            if answer["member_id"] and answer["error_code"] in (0, _MEMBER_ID_REQUIRED):
                side.member_ids[f"{who} of {self.group}"] = answer["member_id"]
            if answer["error_code"] == 0:
                self.generations[side.name] = answer["generation_id"]

        return keep

    def compare(
        self, case: str, api_key: ApiKey, version: int, request: Callable[[Side], Values], who: str = ""
    ) -> None:
        self.pair.compare(case, api_key, version, request, line=who)

    def join(self, case: str, version: int, who: str, **others: Any) -> None:
        """One that is answered at once."""
        self.pair.compare(
            case, ApiKey.JOIN_GROUP, version, self.joining(who, **others), line=who, learn=self.learn(who)
        )

    def begin_join(self, version: int, who: str, *, waiting: int, **others: Any) -> None:
        """One that waits for others; returns when the group has so many members and waits, too."""
        self.pair.begin(who, ApiKey.JOIN_GROUP, version, self.joining(who, **others))
        self.pair.each(lambda side: self.wait(side, "PreparingRebalance", waiting))

    def finish_join(self, case: str, version: int, who: str) -> None:
        self.pair.finish(case, who, ApiKey.JOIN_GROUP, version, self.learn(who))

    def describe(self, case: str, version: int = _DESCRIBE) -> None:
        asked = {"groups": [self.group], "include_authorized_operations": False}
        self.pair.compare(case, ApiKey.DESCRIBE_GROUPS, version, lambda side: asked, is_read=True)

    # -- what a story needs done, without comparing it ---------------------------------------------------------

    def wait(self, side: Side, state: str, members: int) -> None:
        asked = {"groups": [self.group], "include_authorized_operations": False}

        def is_so() -> bool:
            (group,) = side.ask(ApiKey.DESCRIBE_GROUPS, _DESCRIBE, asked)["groups"]
            return bool(group["group_state"] == state and len(group["members"]) == members)

        wait_until(is_so, f"{self.group} of {side.name} is {state} with {members} members", 10)

    def settle(self, *members: str, synced: bool = True, instances: Mapping[str, str] = _NO_INSTANCES) -> None:
        """A group with these members, the first of which leads; stable, or waiting for its leader's assignment."""
        self.pair.each(lambda side: self._settle(side, members, instances))
        if synced:
            self.pair.each(lambda side: self._sync_all(side, members, instances))

    def _settle(self, side: Side, members: Sequence[str], instances: Mapping[str, str]) -> None:
        leader, *followers = members
        for who in members:
            if who not in instances:
                answer = side.line(who).ask(ApiKey.JOIN_GROUP, _SETUP_JOIN, self.joining(who)(side))
                assert answer["error_code"] == _MEMBER_ID_REQUIRED, answer
                self.learn(who)(side, answer)
        self._begin_join(side, leader, instances)
        self._finish_join(side, leader)
        if followers:
            for who in followers:
                self._begin_join(side, who, instances)
            self.wait(side, "PreparingRebalance", len(members))
            self._begin_join(side, leader, instances)
            for who in members:
                self._finish_join(side, who)

    def outlive(self, side: Side, leader: str, who: str) -> None:
        """A member that joins and is not heard of again, until the group is without it."""
        line = side.line(who)
        silent = self.joining(who, session_timeout_ms=SESSION_TIMEOUT_MS_MIN, rebalance_timeout_ms=SESSION_TIMEOUT_MS)
        self.learn(who)(side, line.ask(ApiKey.JOIN_GROUP, _SETUP_JOIN, silent(side)))
        line.begin(ApiKey.JOIN_GROUP, _SETUP_JOIN, silent(side))
        self.wait(side, "PreparingRebalance", 2)
        self._begin_join(side, leader, _NO_INSTANCES)
        self._finish_join(side, leader)
        self.learn(who)(side, line.finish())
        self.wait(side, "PreparingRebalance", 1)

    def _begin_join(self, side: Side, who: str, instances: Mapping[str, str]) -> None:
        request = self.joining(who, group_instance_id=instances.get(who))
        side.line(who).begin(ApiKey.JOIN_GROUP, _SETUP_JOIN, request(side))

    def _finish_join(self, side: Side, who: str) -> None:
        answer = side.line(who).finish()
        assert answer["error_code"] == 0, answer
        self.learn(who)(side, answer)

    def _sync_all(self, side: Side, members: Sequence[str], instances: Mapping[str, str]) -> None:
        for who in members:
            request = self.assigning(who, *(members if who == members[0] else ()), group_instance_id=instances.get(who))
            answer = side.line(who).ask(ApiKey.SYNC_GROUP, _SETUP_SYNC, request(side))
            assert answer["error_code"] == 0, answer


def bad_members(cast: Cast, with_instances: bool) -> Iterator[tuple[str, Callable[[Side], Values]]]:
    """What a group refuses of anyone."""
    yield "no group", cast.member("klamm", group_id="")
    yield "unknown member", cast.member(NOBODY)
    yield "no member", cast.member("", member_id="")
    yield "generation to come", cast.member("klamm", **generation(7))
    yield "generation of before", cast.member("klamm", **generation(0))
    yield "no generation", cast.member("klamm", **generation(-1))
    if with_instances:
        yield "unknown instance", cast.member("klamm", group_instance_id="unknown")
        yield "instance of another id", cast.member(NOBODY, group_instance_id="first")
        yield "unknown instance and member", cast.member(NOBODY, group_instance_id="unknown")
        yield "instance without an id", cast.member("", member_id="", group_instance_id="first")
        yield "no group, instance", cast.member("klamm", group_id="", group_instance_id="first")


def generation(number: int) -> dict[str, int]:
    return {"generation_id": number, "generation_id_or_member_epoch": number}

"""Committed offsets: OffsetCommit, OffsetFetch and OffsetDelete."""

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.wire.apis import ApiKey
from tests.support.side_by_side import Pair, Side, Values, versions
from tests.support.side_by_side_cast import NOBODY, Cast, bad_members, generation, protocols, ready, subscription

ORDERS, PRICES = "committed-orders", "committed-prices"
UNKNOWN = "no-such-topic"
METADATA_BYTES_MAX = 4096

_IDS_FROM = 10
_GROUPS_FROM = 8
_INSTANCES_FROM = 7


def _fill(side: Side) -> None:
    ready(side)
    for topic in (ORDERS, PRICES):
        if topic not in side.topic_ids:
            side.create_topic(topic, 2)


def committing(*topics: tuple[str, Sequence[Values]], **others: Any) -> Callable[[Side], Values]:
    """As a group without members does it, unless `others` say who commits."""

    def make(side: Side) -> Values:
        return {
            "group_id": "simple",
            "member_id": "",
            **generation(-1),
            "topics": [{**side.topic(name), "partitions": partitions} for name, partitions in topics],
            **others,
        }

    return make


def partition(index: int, offset: int, metadata: str | None = "", **others: int) -> Values:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata, **others}


def _of(cast: Cast, who: str, *topics: tuple[str, Sequence[Values]], **others: Any) -> Callable[[Side], Values]:
    """A member's commit."""
    return lambda side: {**committing(*topics)(side), **cast.member(who, **others)(side)}


ONE = (ORDERS, [partition(0, 5)])

COMMITS: dict[str, list[tuple[str, Sequence[Values]]]] = {
    "one partition": [ONE],
    "two topics": [(ORDERS, [partition(0, 6, "here"), partition(1, 7)]), (PRICES, [partition(1, 8)])],
    "leader epoch": [(ORDERS, [partition(0, 6, committed_leader_epoch=3)])],
    "leader epoch below zero": [(ORDERS, [partition(0, 6, committed_leader_epoch=-7)])],
    "null metadata": [(ORDERS, [partition(0, 6, None)])],
    "longest metadata": [(ORDERS, [partition(0, 6, "m" * METADATA_BYTES_MAX)])],
    "metadata too long": [(ORDERS, [partition(0, 6, "m" * (METADATA_BYTES_MAX + 1)), partition(1, 6)])],
    "metadata too long in bytes": [(ORDERS, [partition(0, 6, "ä" * (METADATA_BYTES_MAX // 2 + 1))])],
    "offset below zero": [(ORDERS, [partition(0, -1)])],
    "offset far below zero": [(ORDERS, [partition(1, -9)])],
    "offset that nobody wrote": [(ORDERS, [partition(0, 1 << 50)])],
    "unknown partition": [(ORDERS, [partition(9, 5), partition(0, 5)])],
    "negative partition": [(ORDERS, [partition(-1, 5)])],
    "unknown topic": [(UNKNOWN, [partition(0, 5)])],
    "unknown topic and a known one": [(UNKNOWN, [partition(0, 5)]), ONE],
    "name that no topic can have": [("no topic!", [partition(0, 5)])],
    "no topics": [],
    "topic without partitions": [(ORDERS, [])],
    "a partition twice": [(ORDERS, [partition(0, 1), partition(0, 2)])],
    "a topic twice": [(ORDERS, [partition(0, 3)]), (ORDERS, [partition(0, 4)])],
}


def tell_offset_commit(pair: Pair) -> None:
    pair.each(_fill)
    for version in versions(ApiKey.OFFSET_COMMIT):
        simple = f"commit-simple-{version}"
        for case, topics in COMMITS.items():
            _commit(pair, case, version, committing(*topics, group_id=simple))
            _show(pair, f"{case} ({version}), then", simple)
        bad: dict[str, dict[str, Any]] = {
            "no group": {"group_id": ""},
            "no group, no topics": {"group_id": "", "topics": []},
            "generation, without a group": {**generation(3), "group_id": f"commit-none-{version}"},
            "member, without a group": {"member_id": NOBODY, "group_id": f"commit-none-{version}"},
            "member and generation, without a group": {
                **generation(3),
                "member_id": NOBODY,
                "group_id": f"commit-none-{version}",
            },
            "member of a simple group": {"member_id": NOBODY, "group_id": simple},
            "generation of a simple group": {**generation(1), "group_id": simple},
            "retention time": {"retention_time_ms": 3_600_000, "group_id": simple},
        }
        for case, others in bad.items():
            _commit(pair, case, version, committing(ONE, **others))
        if version >= _INSTANCES_FROM:
            static = committing(ONE, group_id=simple, group_instance_id="first")
            _commit(pair, "instance of a simple group", version, static)
        _tell_commits_of_members(pair, version)


def _tell_commits_of_members(pair: Pair, version: int) -> None:
    stable, waiting = Cast(pair, f"commit-stable-{version}"), Cast(pair, f"commit-waiting-{version}")
    stable.settle("klamm", instances={"klamm": "first"})
    waiting.settle("klamm", "frieda", synced=False)
    for cast in (stable, waiting):
        _commit(pair, f"a member, {cast.group}", version, _of(cast, "klamm", ONE))
        for case, who in bad_members(cast, version >= _INSTANCES_FROM):
            request = lambda side, who=who: {**committing(ONE)(side), **who(side)}  # noqa: E731
            _commit(pair, f"{case}, {cast.group}", version, request)
        _commit(pair, f"without a member, {cast.group}", version, committing(ONE, group_id=cast.group))
    if version >= _INSTANCES_FROM:
        _commit(pair, "a static member", version, _of(stable, "klamm", ONE, group_instance_id="first"))
    joining = Cast(pair, f"commit-joining-{version}")
    joining.settle("klamm")
    joining.join("asks for an id", 4, "frieda")
    _commit(pair, "a member to come", version, _of(joining, "frieda", ONE))
    joining.begin_join(4, "frieda", waiting=2)
    _commit(pair, "before it joins again", version, _of(joining, "klamm", ONE))
    _commit(pair, "while it joins", version, _of(joining, "frieda", ONE))
    joining.join("joins again", 4, "klamm")
    joining.finish_join("joined", 4, "frieda")
    _show(pair, f"commits of members ({version}), then", joining.group)
    empty = Cast(pair, f"commit-empty-{version}")
    empty.settle("klamm")
    empty.compare("leaves", ApiKey.LEAVE_GROUP, 2, empty.member("klamm"))
    _commit(pair, "a member that left", version, _of(empty, "klamm", ONE))
    _commit(pair, "anybody, when all left", version, committing(ONE, group_id=empty.group))
    _commit(pair, "anybody, of the generation to come", version, committing(ONE, group_id=empty.group, **generation(2)))
    connect = Cast(pair, f"commit-connect-{version}", "connect")
    connect.settle("klamm")
    _commit(pair, "a member of another type of group", version, _of(connect, "klamm", ONE))


def _commit(pair: Pair, case: str, version: int, request: Callable[[Side], Values]) -> None:
    pair.compare(case, ApiKey.OFFSET_COMMIT, version, request)


def _show(pair: Pair, case: str, group: str) -> None:
    """All that the group has committed."""
    asked = {"groups": [{"group_id": group, "topics": None}]}
    pair.compare(case, ApiKey.OFFSET_FETCH, 8, lambda side: asked)


# --- OffsetFetch ------------------------------------------------------------------------------------------


def _commit_some(side: Side, group: str) -> None:
    topics = [
        (ORDERS, [partition(0, 5, "first", committed_leader_epoch=2), partition(1, 6, "second")]),
        (PRICES, [partition(0, 7)]),
    ]
    answer = side.ask(ApiKey.OFFSET_COMMIT, 8, committing(*topics, group_id=group)(side))
    assert all(one["error_code"] == 0 for topic in answer["topics"] for one in topic["partitions"]), answer


FETCHES: dict[str, Sequence[tuple[str, Sequence[int]]] | None] = {
    "one partition": [(ORDERS, [0])],
    "two topics": [(ORDERS, [0, 1]), (PRICES, [0])],
    "what was not committed": [(PRICES, [1])],
    "unknown partition": [(ORDERS, [9, 0])],
    "negative partition": [(ORDERS, [-1])],
    "unknown topic": [(UNKNOWN, [0])],
    "unknown topic and a known one": [(UNKNOWN, [0]), (ORDERS, [0])],
    "name that no topic can have": [("no topic!", [0])],
    "no topics": [],
    "topic without partitions": [(ORDERS, [])],
    "a partition twice": [(ORDERS, [0, 0])],
    "a topic twice": [(ORDERS, [0]), (ORDERS, [1])],
    "all topics": None,
}


def fetching(
    topics: Sequence[tuple[str, Sequence[int]]] | None, *groups: str, is_stable: bool = False, **others: Any
) -> Callable[[Side], Values]:
    """One group for the versions that take one, and all of them for the others."""

    def make(side: Side) -> Values:
        named = None if topics is None else [{**side.topic(name), "partition_indexes": all_} for name, all_ in topics]
        wanted = [{"group_id": group, "topics": named, **others} for group in groups]
        return {**wanted[0], "groups": wanted, "require_stable": is_stable} if wanted else {"groups": wanted}

    return make


def tell_offset_fetch(pair: Pair) -> None:
    pair.each(_fill)
    for version in versions(ApiKey.OFFSET_FETCH):
        group, unknown = f"fetch-{version}", f"fetch-none-{version}"
        pair.each(lambda side, group=group: _commit_some(side, group))  # type: ignore[misc]
        for case, topics in FETCHES.items():
            if topics is None and version < 2:
                continue
            for is_stable in (False, True):
                for name in (group, unknown, ""):
                    full = f"{case}, {name}{', stable' if is_stable else ''}"
                    _fetch(pair, full, version, fetching(topics, name, is_stable=is_stable))
        members = Cast(pair, group)
        members.settle("klamm")
        _fetch(pair, "with members", version, fetching([(ORDERS, [0])], group))
        if version >= _GROUPS_FROM:
            several = fetching([(ORDERS, [0]), (UNKNOWN, [0])], group, unknown, "", group)
            _fetch(pair, "several groups", version, several)
            _fetch(pair, "all topics of several groups", version, fetching(None, group, unknown))
            _fetch(pair, "no groups", version, fetching([]))
        as_members: dict[str, dict[str, Any]] = {
            "a member": {"member_id": "klamm", "member_epoch": 1},
            "a member of another epoch": {"member_id": "klamm", "member_epoch": 9},
            "a member without an epoch": {"member_id": "klamm", "member_epoch": -1},
            "nobody": {"member_id": NOBODY, "member_epoch": 1},
            "no member, an epoch": {"member_id": None, "member_epoch": 1},
            "an empty member": {"member_id": "", "member_epoch": -1},
        }
        for case, others in as_members.items():
            if version >= 9:
                for name in (group, unknown):
                    _fetch(pair, f"{case}, {name}", version, _as_member(members, name, others))


def _as_member(cast: Cast, group: str, others: Values) -> Callable[[Side], Values]:
    def make(side: Side) -> Values:
        who = others["member_id"]
        member_id = cast.member_id(side, who) if who else who
        return fetching([(ORDERS, [0])], group, **{**others, "member_id": member_id})(side)

    return make


def _fetch(pair: Pair, case: str, version: int, request: Callable[[Side], Values]) -> None:
    pair.compare(case, ApiKey.OFFSET_FETCH, version, request)


# --- OffsetDelete -----------------------------------------------------------------------------------------


def tell_offset_delete(pair: Pair) -> None:
    pair.each(_fill)
    simple, unknown = "uncommit-simple", "uncommit-none"
    consumers, connect = Cast(pair, "uncommit-consumers"), Cast(pair, "uncommit-connect", "connect")
    for group in (simple, consumers.group, connect.group):
        pair.each(lambda side, group=group: _commit_some(side, group))  # type: ignore[misc]
    pair.each(lambda side: _subscribe(consumers, side, subscription(ORDERS)))
    connect.settle("klamm")
    for group in (unknown, "", connect.group, consumers.group, simple):
        _delete(pair, f"one partition, {group}", group, (ORDERS, [0]))
        _delete(pair, f"the same again, {group}", group, (ORDERS, [0]))
        _delete(pair, f"two topics, {group}", group, (ORDERS, [1, 0]), (PRICES, [0]))
        _delete(pair, f"unknown partition, {group}", group, (ORDERS, [9, -1]))
        _delete(pair, f"unknown topic, {group}", group, (UNKNOWN, [0]), (PRICES, [1]))
        _delete(pair, f"no topics, {group}", group)
        _delete(pair, f"topic without partitions, {group}", group, (ORDERS, []))
        _delete(pair, f"a partition twice, {group}", group, (PRICES, [0, 0]))
        _show(pair, f"what is left, {group}", group)
    consumers.compare("leaves", ApiKey.LEAVE_GROUP, 2, consumers.member("klamm"))
    _delete(pair, "after all left", consumers.group, (ORDERS, [0, 1]))
    _show(pair, "what is left after all left", consumers.group)
    odd = Cast(pair, "uncommit-odd")
    pair.each(lambda side: _commit_some(side, odd.group))
    pair.each(lambda side: _subscribe(odd, side, b"\1"))
    _delete(pair, "a consumer that cannot be understood", odd.group, (ORDERS, [0]))


def _subscribe(cast: Cast, side: Side, metadata: bytes) -> None:
    joining = cast.joining("klamm", protocols=protocols("range", metadata=metadata))
    line = side.line("klamm")
    for _ in range(2):
        cast.learn("klamm")(side, line.ask(ApiKey.JOIN_GROUP, 4, joining(side)))
    assert line.ask(ApiKey.SYNC_GROUP, 3, cast.assigning("klamm", "klamm")(side))["error_code"] == 0


def _delete(pair: Pair, case: str, group: str, *topics: tuple[str, Sequence[int]]) -> None:
    wanted = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]} for name, indexes in topics
    ]
    asked = {"group_id": group, "topics": wanted}
    pair.compare(case, ApiKey.OFFSET_DELETE, 0, lambda side: asked)

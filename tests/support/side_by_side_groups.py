"""Membership: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from typing import Any

from barnabas.wire.apis import ApiKey
from tests.support.side_by_side import Pair, Side, Values, versions
from tests.support.side_by_side_cast import (
    NOBODY,
    SESSION_TIMEOUT_MS_MIN,
    Cast,
    bad_members,
    protocols,
    ready,
)

_IDS_REQUIRED_FROM = 4
_INSTANCES_FROM = 5


# --- JoinGroup --------------------------------------------------------------------------------------------


def tell_join_group(pair: Pair) -> None:
    pair.each(ready)
    for version in versions(ApiKey.JOIN_GROUP):
        _tell_first_join(pair, version)
        _tell_bad_joins(pair, version)
        _tell_two_joins(pair, version)
        _tell_vote(pair, version)
        _tell_too_many(pair, version)
        if version >= _INSTANCES_FROM:
            _tell_static_joins(pair, version)


def _enter(cast: Cast, version: int, who: str, **others: Any) -> None:
    """The first of two steps, where there are two."""
    if version >= _IDS_REQUIRED_FROM:
        cast.join(f"{who} asks for an id", version, who, **others)


def _tell_first_join(pair: Pair, version: int) -> None:
    cast = Cast(pair, f"join-first-{version}")
    _enter(cast, version, "klamm")
    cast.describe(f"with a member to come, {version}")
    cast.join("the first member", version, "klamm", reason="is new")
    cast.join("the first member again, before its sync", version, "klamm")
    cast.join("the first member again, with other metadata", version, "klamm", protocols=protocols("range"))
    cast.compare("its sync", ApiKey.SYNC_GROUP, 3, cast.assigning("klamm", "klamm"), "klamm")
    cast.join("the leader again", version, "klamm", protocols=protocols("range"))
    cast.compare("its next sync", ApiKey.SYNC_GROUP, 3, cast.assigning("klamm", "klamm"), "klamm")
    cast.join("the leader, with other metadata", version, "klamm", protocols=protocols("range", metadata=b"other"))
    cast.describe(f"before the sync, {version}")


def _tell_bad_joins(pair: Pair, version: int) -> None:
    empty = Cast(pair, f"join-empty-{version}")
    stable = Cast(pair, f"join-stable-{version}")
    stable.settle("klamm")
    for cast in (empty, stable):
        cast.join("unknown member id", version, NOBODY, member_id=NOBODY)
        cast.join("no group", version, NOBODY, group_id="")
        cast.join("session too short", version, NOBODY, session_timeout_ms=SESSION_TIMEOUT_MS_MIN - 1)
        cast.join("session too long", version, NOBODY, session_timeout_ms=1_800_001)
        cast.join("session below zero", version, NOBODY, session_timeout_ms=-1)
        cast.join("no protocols", version, NOBODY, protocols=[])
        cast.join("no protocol type", version, NOBODY, protocol_type="")
        if cast is stable:
            cast.join("another protocol type", version, NOBODY, protocol_type="connect")
            cast.join("other protocols", version, NOBODY, protocols=protocols("sticky"))
            cast.join("a member with other protocols", version, "klamm", protocols=protocols("sticky"))
        cast.describe(f"after bad joins, {version}")


def _tell_two_joins(pair: Pair, version: int) -> None:
    cast = Cast(pair, f"join-two-{version}")
    cast.settle("klamm")
    _enter(cast, version, "frieda")
    cast.begin_join(version, "frieda", waiting=2)
    cast.compare("the other one must join", ApiKey.HEARTBEAT, 3, cast.member("klamm"))
    cast.compare("who waits lives", ApiKey.HEARTBEAT, 3, cast.member("frieda"))
    cast.compare("no sync now", ApiKey.SYNC_GROUP, 3, cast.member("klamm"))
    cast.describe(f"while one waits, {version}")
    cast.join("the first one joins again", version, "klamm")
    cast.finish_join("the second one", version, "frieda")
    cast.join("a follower again, before its sync", version, "frieda")
    cast.describe(f"before the sync of two, {version}")
    cast.compare("sync of the leader", ApiKey.SYNC_GROUP, 3, cast.assigning("klamm", "klamm", "frieda"), "klamm")
    cast.join("a follower again", version, "frieda")
    cast.describe(f"two, stable, {version}")
    cast.begin_join(version, "frieda", waiting=2, protocols=protocols("range"))
    cast.join("the leader, because a follower changed", version, "klamm")
    cast.finish_join("a follower with other metadata", version, "frieda")
    cast.compare("the leader goes", ApiKey.LEAVE_GROUP, 2, cast.member("klamm"))
    cast.join("the other one leads now", version, "frieda")


def _tell_vote(pair: Pair, version: int) -> None:
    """Each member's first choice that all know counts."""
    cast = Cast(pair, f"join-vote-{version}")
    cast.settle("klamm")
    for who, wanted in (("frieda", ("roundrobin", "range")), ("olga", ("sticky", "roundrobin", "range"))):
        _enter(cast, version, who, protocols=protocols(*wanted))
        count = 2 if who == "frieda" else 3
        cast.begin_join(version, who, waiting=count, protocols=protocols(*wanted))
    cast.join("three vote", version, "klamm")
    for who in ("frieda", "olga"):
        cast.finish_join(f"{who} voted", version, who)


def _tell_too_many(pair: Pair, version: int) -> None:
    cast = Cast(pair, f"join-many-{version}")
    cast.settle("klamm", "frieda", "olga")
    cast.join("one too many", version, "amalia")
    cast.join("one too many again", version, "amalia")


def _tell_static_joins(pair: Pair, version: int) -> None:
    cast = Cast(pair, f"join-static-{version}")
    first, second = {"group_instance_id": "first"}, {"group_instance_id": "second"}
    cast.join("a static member", version, "klamm", **first)
    cast.compare("its sync", ApiKey.SYNC_GROUP, 3, cast.assigning("klamm", "klamm", **first), "klamm")
    cast.join("unknown id for a static member", version, NOBODY, member_id=NOBODY, **first)
    cast.join("unknown id, unknown instance", version, NOBODY, member_id=NOBODY, **second)
    cast.join("a leader comes back without its id", version, "klamm", member_id="", **first)
    cast.describe(f"leader came back, {version}")
    cast.join("a leader comes back with its id", version, "klamm", **first)
    cast.compare("sync after that", ApiKey.SYNC_GROUP, 3, cast.assigning("klamm", "klamm", **first), "klamm")
    cast.begin_join(version, "frieda", waiting=2, **second)
    cast.join("the first, for a second", version, "klamm", **first)
    cast.finish_join("a second static member", version, "frieda")
    cast.compare("sync of two", ApiKey.SYNC_GROUP, 3, cast.assigning("klamm", "klamm", "frieda", **first), "klamm")
    cast.join("a follower comes back without its id", version, "frieda", member_id="", **second)
    cast.join("a leader of two comes back without its id", version, "klamm", member_id="", **first)
    cast.describe(f"both came back, {version}")
    cast.compare("a follower's beat", ApiKey.HEARTBEAT, 3, cast.member("frieda", **second))
    cast.begin_join(version, "frieda", waiting=2, member_id="", protocols=protocols("roundrobin"), **second)
    cast.join("the leader, for a new protocol", version, "klamm", **first)
    cast.finish_join("a follower comes back with another protocol", version, "frieda")
    cast.begin_join(version, "frieda", waiting=2, member_id="", **second)
    cast.join("the leader, for a follower that came back before the sync", version, "klamm", **first)
    cast.finish_join("a follower comes back before the sync", version, "frieda")


# --- SyncGroup --------------------------------------------------------------------------------------------


def tell_sync_group(pair: Pair) -> None:
    pair.each(ready)
    for version in versions(ApiKey.SYNC_GROUP):
        _tell_sync(pair, version)
        _tell_bad_syncs(pair, version)


def _tell_sync(pair: Pair, version: int) -> None:
    cast = Cast(pair, f"sync-{version}")
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    cast.settle("klamm", "frieda", synced=False)
    pair.begin("frieda", ApiKey.SYNC_GROUP, version, cast.member("frieda", **names))
    assigned = cast.assigning("klamm", "klamm", "frieda", NOBODY, **names)
    cast.compare("leader", ApiKey.SYNC_GROUP, version, assigned, "klamm")
    pair.finish("follower, who waited", "frieda", ApiKey.SYNC_GROUP, version)
    cast.compare("follower again", ApiKey.SYNC_GROUP, version, cast.member("frieda"), "frieda")
    cast.compare("leader again, with another mind", ApiKey.SYNC_GROUP, version, cast.assigning("klamm", "frieda"))
    cast.describe(f"after the syncs, {version}")
    half = Cast(pair, f"sync-half-{version}")
    half.settle("klamm", "frieda", synced=False)
    half.compare("leader who forgets a member", ApiKey.SYNC_GROUP, version, half.assigning("klamm", "klamm"))
    half.compare("who was forgotten", ApiKey.SYNC_GROUP, version, half.member("frieda"))
    none = Cast(pair, f"sync-none-{version}")
    none.settle("klamm", synced=False)
    none.compare("leader without assignments", ApiKey.SYNC_GROUP, version, none.member("klamm"))
    none.describe(f"without assignments, {version}")


def _tell_bad_syncs(pair: Pair, version: int) -> None:
    waiting, stable = Cast(pair, f"sync-waiting-{version}"), Cast(pair, f"sync-stable-{version}")
    waiting.settle("klamm", synced=False)
    stable.settle("klamm", instances={"klamm": "first"})
    for cast in (waiting, stable, Cast(pair, f"sync-unknown-{version}")):
        for case, request in bad_members(cast, version >= 3):
            cast.compare(f"{case}, {cast.group}", ApiKey.SYNC_GROUP, version, request)
        others: dict[str, dict[str, str | None]] = {
            "protocol type": {"protocol_type": "connect", "protocol_name": "range"},
            "protocol name": {"protocol_type": "consumer", "protocol_name": "sticky"},
            "no protocol type": {"protocol_type": None, "protocol_name": "range"},
            "no protocol name": {"protocol_type": "consumer", "protocol_name": None},
        }
        for case, names in others.items():
            if version >= 5:
                cast.compare(f"other {case}, {cast.group}", ApiKey.SYNC_GROUP, version, cast.member("klamm", **names))


# --- Heartbeat --------------------------------------------------------------------------------------------


def tell_heartbeat(pair: Pair) -> None:
    pair.each(ready)
    for version in versions(ApiKey.HEARTBEAT):
        stable, waiting = Cast(pair, f"beat-stable-{version}"), Cast(pair, f"beat-waiting-{version}")
        stable.settle("klamm", instances={"klamm": "first"})
        waiting.settle("klamm", "frieda", synced=False)
        for cast in (stable, waiting, Cast(pair, f"beat-unknown-{version}")):
            cast.compare(f"a member, {cast.group}", ApiKey.HEARTBEAT, version, cast.member("klamm"))
            for case, request in bad_members(cast, version >= 3):
                cast.compare(f"{case}, {cast.group}", ApiKey.HEARTBEAT, version, request)
        if version >= 3:
            static = stable.member("klamm", group_instance_id="first")
            stable.compare("a static member", ApiKey.HEARTBEAT, version, static)
        left = Cast(pair, f"beat-left-{version}")
        left.settle("klamm")
        left.compare("leaves", ApiKey.LEAVE_GROUP, 2, left.member("klamm"))
        left.compare("a member that left", ApiKey.HEARTBEAT, version, left.member("klamm"))
        coming = Cast(pair, f"beat-coming-{version}")
        coming.join("asks for an id", 4, "klamm")
        coming.compare("a member to come", ApiKey.HEARTBEAT, version, coming.member("klamm"))
        late = Cast(pair, f"beat-late-{version}")
        late.settle("klamm")
        pair.each(lambda side, cast=late: cast.outlive(side, "klamm", "frieda"))  # type: ignore[misc]
        late.compare("a member that was silent for too long", ApiKey.HEARTBEAT, version, late.member("frieda"))


# --- LeaveGroup -------------------------------------------------------------------------------------------


def tell_leave_group(pair: Pair) -> None:
    pair.each(ready)
    for version in versions(ApiKey.LEAVE_GROUP):
        stable, unknown = Cast(pair, f"leave-stable-{version}"), Cast(pair, f"leave-unknown-{version}")
        stable.settle("klamm", "frieda", "olga", instances={"olga": "third"})
        for cast in (stable, unknown):
            _leave(cast, "unknown member", version, NOBODY)
            _leave(cast, "no member", version, "")
            _leave(cast, "no group", version, "frieda", group_id="")
            if version >= 3:
                _leave(cast, "nobody at all", version)
                _leave(cast, "unknown instance", version, ("", "unknown"))
                _leave(cast, "instance of another id", version, (NOBODY, "third"))
                _leave(cast, "instance of another member", version, ("frieda", "third"))
        _leave(stable, "a follower", version, "frieda")
        _leave(stable, "a follower again", version, "frieda")
        stable.describe(f"a follower left, {version}")
        if version >= 3:
            _leave(stable, "by instance and several", version, ("", "third"), ("klamm", None), (NOBODY, None))
        else:
            _leave(stable, "a static member", version, "olga")
            _leave(stable, "the leader", version, "klamm")
        stable.describe(f"all left, {version}")
        coming = Cast(pair, f"leave-coming-{version}")
        coming.join("asks for an id", 4, "klamm")
        _leave(coming, "a member to come", version, "klamm")
        coming.join("after it left", 4, "klamm")
        _tell_leave_while_joining(pair, version)


def _tell_leave_while_joining(pair: Pair, version: int) -> None:
    cast = Cast(pair, f"leave-joining-{version}")
    cast.settle("klamm")
    cast.join("asks for an id", 4, "frieda")
    cast.begin_join(4, "frieda", waiting=2)
    _leave(cast, "the one that the other waits for", version, "klamm")
    cast.finish_join("alone, and leads", 4, "frieda")


def _leave(cast: Cast, case: str, version: int, *members: str | tuple[str, str | None], **others: Any) -> None:
    """By names, or by names and instances; the first name is what the versions for one member take."""

    def make(side: Side) -> Values:
        wanted = [one if isinstance(one, tuple) else (one, None) for one in members]
        identities = [
            {
                "member_id": cast.member_id(side, who) if who else "",
                "group_instance_id": instance,
                "reason": "the castle is closed",
            }
            for who, instance in wanted
        ]
        first = identities[0]["member_id"] if identities else ""
        return {"group_id": cast.group, "member_id": first, "members": identities, **others}

    cast.compare(f"{case}, {cast.group}", ApiKey.LEAVE_GROUP, version, make)

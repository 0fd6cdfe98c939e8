"""What is asked about groups, not by their members: FindCoordinator, DescribeGroups, ListGroups and DeleteGroups."""

from collections.abc import Sequence
from typing import Any

from barnabas.wire.apis import ApiKey
from tests.support.side_by_side import Pair, versions
from tests.support.side_by_side_cast import OFFSETS_TOPIC, Cast, ready
from tests.support.side_by_side_group_offsets import ORDERS, committing, partition

GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPIC = 2

_BATCHED_FROM = 4


def tell_find_coordinator(pair: Pair) -> None:
    pair.each(ready)
    asked = {"topics": [{"name": OFFSETS_TOPIC}], "allow_auto_topic_creation": False}
    pair.compare("its topic", ApiKey.METADATA, 12, lambda side: asked, is_read=True)
    described = {"resources": [{"resource_type": TOPIC, "resource_name": OFFSETS_TOPIC, "configuration_keys": None}]}
    pair.compare("settings of its topic", ApiKey.DESCRIBE_CONFIGS, 4, lambda side: described, is_read=True)
    for version in versions(ApiKey.FIND_COORDINATOR):
        for key_type, name in ((GROUP, "group"), (TRANSACTION, "transaction"), (SHARE, "share"), (9, "9"), (-1, "-1")):
            for key in ("someone", "", "two words", "ä" * 300):
                _find(pair, f"{name} '{key[:9]}'", version, key_type, [key])
        if version >= _BATCHED_FROM:
            for case, keys in {"several": ["someone", "another", ""], "one twice": ["someone"] * 2, "none": []}.items():
                _find(pair, case, version, GROUP, keys)


def _find(pair: Pair, case: str, version: int, key_type: int, keys: Sequence[str]) -> None:
    asked = {"key": keys[0] if keys else "", "key_type": key_type, "coordinator_keys": keys}
    pair.compare(case, ApiKey.FIND_COORDINATOR, version, lambda side: asked)


# --- groups of every state --------------------------------------------------------------------------------


def _cast_all(pair: Pair, prefix: str) -> dict[str, Cast]:
    """A group in each state that a group can be in."""
    casts = {
        state: Cast(pair, f"{prefix}-{state}")
        for state in ("stable", "waiting", "joining", "coming", "empty", "simple", "none")
    }
    casts["connect"] = Cast(pair, f"{prefix}-connect", "connect")
    casts["stable"].settle("klamm", "frieda", instances={"frieda": "second"})
    casts["connect"].settle("klamm")
    casts["waiting"].settle("klamm", "frieda", synced=False)
    casts["joining"].settle("klamm")
    casts["joining"].join("asks for an id", 4, "frieda")
    casts["joining"].begin_join(4, "frieda", waiting=2)
    casts["coming"].join("asks for an id", 4, "klamm")
    casts["empty"].settle("klamm")
    casts["empty"].compare("leaves", ApiKey.LEAVE_GROUP, 2, casts["empty"].member("klamm"))
    commit = committing((ORDERS, [partition(0, 5)]), group_id=casts["simple"].group)
    pair.each(lambda side: side.learn_topic(ORDERS) if ORDERS in side.topic_ids else side.create_topic(ORDERS, 2))
    pair.compare("a simple group", ApiKey.OFFSET_COMMIT, 8, commit)
    return casts


def _end(casts: dict[str, Cast]) -> None:
    """The join that still waits is answered."""
    casts["joining"].join("joins again", 4, "klamm")
    casts["joining"].finish_join("joined", 4, "frieda")


def tell_describe_groups(pair: Pair) -> None:
    pair.each(ready)
    casts = _cast_all(pair, "described")
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        for with_operations in (False, True):
            suffix = ", operations" if with_operations else ""
            for state, cast in casts.items():
                _describe(pair, f"{state}{suffix}", version, [cast.group], with_operations)
            _describe(pair, f"no name{suffix}", version, [""], with_operations)
        _describe(pair, "several", version, [cast.group for cast in casts.values()])
        _describe(pair, "one twice", version, [casts["stable"].group] * 2)
        _describe(pair, "none", version, [])
    _end(casts)


def _describe(pair: Pair, case: str, version: int, groups: Sequence[str], with_operations: bool = False) -> None:
    asked = {"groups": groups, "include_authorized_operations": with_operations}
    pair.compare(case, ApiKey.DESCRIBE_GROUPS, version, lambda side: asked, is_read=True)


def tell_list_groups(pair: Pair) -> None:
    pair.each(ready)
    casts = _cast_all(pair, "listed")

    def own(answer: Any) -> Any:
        """Other stories have other groups."""
        return {**answer, "groups": [one for one in answer["groups"] if one["group_id"].startswith("listed-")]}

    def ask(case: str, states: Sequence[str] = (), types: Sequence[str] = ()) -> None:
        asked = {"states_filter": states, "types_filter": types}
        pair.compare(case, ApiKey.LIST_GROUPS, version, lambda side: asked, is_read=True, only=own)

    for version in versions(ApiKey.LIST_GROUPS):
        ask("all")
        if version >= 4:
            for state in (
                "Stable",
                "stable",
                "PreparingRebalance",
                "CompletingRebalance",
                "Empty",
                "Dead",
                "no such",
                "",
            ):
                ask(f"state '{state}'", [state])
            ask("two states", ["Stable", "Empty"])
            ask("a state twice, and an unknown one", ["Stable", "Stable", "no such"])
        if version >= 5:
            for kind in ("classic", "Classic", "consumer", "share", "streams", "unknown", "no such", ""):
                ask(f"type '{kind}'", types=[kind])
            ask("two types", types=["classic", "consumer"])
            ask("a type and a state", ["Stable"], ["classic"])
    _end(casts)


def tell_delete_groups(pair: Pair) -> None:
    pair.each(ready)
    for version in versions(ApiKey.DELETE_GROUPS):
        casts = _cast_all(pair, f"deleted-{version}")
        for state, cast in casts.items():
            _delete(pair, state, version, [cast.group])
            _delete(pair, f"{state} again", version, [cast.group])
            _describe(pair, f"{state} ({version}), then", 6, [cast.group])
        _delete(pair, "no name", version, [""])
        _delete(pair, "none", version, [])
        _delete(pair, "several", version, [casts["stable"].group, "", casts["none"].group, casts["none"].group])
        again = committing((ORDERS, [partition(0, 5)]), group_id=casts["simple"].group)
        pair.compare("committed again", ApiKey.OFFSET_COMMIT, 8, again)
        _delete(pair, "one twice", version, [casts["simple"].group] * 2)
        _end(casts)


def _delete(pair: Pair, case: str, version: int, groups: Sequence[str]) -> None:
    pair.compare(case, ApiKey.DELETE_GROUPS, version, lambda side: {"groups_names": groups})

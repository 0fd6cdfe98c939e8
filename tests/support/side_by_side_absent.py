"""APIs that are served to say that there is no such thing: access control lists, the groups of KIP-848."""

from tests.support.side_by_side import ApiKey, Pair, Values, versions

_ANY = 1
_FILTER = {
    "resource_type_filter": _ANY,
    "resource_name_filter": None,
    "pattern_type_filter": _ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": _ANY,
    "permission_type": _ANY,
}
_ACL = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:K.",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_HEARTBEAT = {
    "group_id": "modern",
    "member_id": "K.",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1000,
    "subscribed_topic_names": ["orders"],
    "topic_partitions": [],
}


def _compare_all(pair: Pair, api_key: ApiKey, cases: dict[str, Values]) -> None:
    for version in versions(api_key):
        for case, values in cases.items():
            pair.compare(case, api_key, version, lambda side, values=values: values)  # type: ignore[misc]


def tell_describe_acls(pair: Pair) -> None:
    _compare_all(
        pair, ApiKey.DESCRIBE_ACLS, {"all": _FILTER, "of a topic": {**_FILTER, "resource_name_filter": "orders"}}
    )


def tell_create_acls(pair: Pair) -> None:
    _compare_all(pair, ApiKey.CREATE_ACLS, {"two": {"creations": [_ACL, _ACL]}, "none": {"creations": []}})


def tell_delete_acls(pair: Pair) -> None:
    _compare_all(pair, ApiKey.DELETE_ACLS, {"two": {"filters": [_FILTER, _FILTER]}, "none": {"filters": []}})


def tell_consumer_group_heartbeat(pair: Pair) -> None:
    _compare_all(pair, ApiKey.CONSUMER_GROUP_HEARTBEAT, {"a new member": _HEARTBEAT})

"""Access rules, as far as the nodes of a real Kafka do not show it (`test_kafka_nodes.py`)."""

import pytest

from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.znodes_acls import (
    AccessRule,
    AclChange,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
)

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")


def test_resource_without_data_has_no_rules() -> None:
    assert ResourceAcls.decode(ORDERS, b"").rules == ()


@pytest.mark.parametrize("kind", ResourceType)
@pytest.mark.parametrize("pattern_type", PatternType)
def test_resource_path_and_change_say_the_same(kind: ResourceType, pattern_type: PatternType) -> None:
    resource = ResourcePattern(kind, "a:b", pattern_type)
    change = AclChange(resource)
    assert ResourcePattern.of_path(resource.path) == resource
    assert AclChange.decode(f"{change.prefix}0000000000", change.encode()) == change


@pytest.mark.parametrize("operation", AclOperation)
def test_every_operation_comes_back(operation: AclOperation) -> None:
    acls = ResourceAcls(ORDERS, (AccessRule("User:a", operation, AclPermission.DENY, "h"),))
    assert ResourceAcls.decode(ORDERS, acls.encode()) == acls


@pytest.mark.parametrize(
    "path",
    [
        "/kafka-acl",
        "/kafka-acl/Topic",
        "/kafka-acl/Table/a",
        "/kafka-acl-extended/match/Topic/a",
        "/kafka-acl/Topic/a/b",
    ],
)
def test_path_of_something_else_is_no_resource(path: str) -> None:
    with pytest.raises(CorruptNode):
        ResourcePattern.of_path(path)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"version":1}',
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":[{}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Maybe","operation":"Read","host":"*"}]}',
    ],
)
def test_rules_that_cannot_be_read_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptNode):
        ResourceAcls.decode(ORDERS, data)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/kafka-acl-changes/acl_changes_0000000000", b"TOPIC"),
        ("/kafka-acl-changes/acl_changes_0000000000", b"TABLE:a"),
        ("/kafka-acl-changes/acl_changes_0000000000", b"\xff"),
        ("/kafka-acl-extended-changes/acl_changes_0000000000", b"TOPIC:a"),
        (
            "/kafka-acl-extended-changes/acl_changes_0000000000",
            b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"MATCH"}',
        ),
    ],
)
def test_change_that_cannot_be_read_is_corrupt(path: str, data: bytes) -> None:
    with pytest.raises(CorruptNode):
        AclChange.decode(path, data)

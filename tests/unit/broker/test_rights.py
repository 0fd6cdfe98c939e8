"""Nobody who may do nothing is told anything, or gets anything done: every API, read by either codec."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.authorizer import Operation, Resource
from barnabas.broker.caller import Caller
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codecs import COMPILED, REFERENCE, Codecs
from barnabas.wire.errors import ErrorCode
from tests.support.broker_parts import LISTENER, ServedBroker, served_broker
from tests.support.kernels import build_batch
from tests.support.network import run

TOPIC, GROUP = "secret", "hidden"
BATCH = bytes(build_batch(3))
CODECS = [pytest.param(codecs, id=codecs.name) for codecs in (COMPILED, REFERENCE) if codecs is not None]
SETTINGS = {"offsets_topic_replication_factor": "1"}
PARTITION = {"partition_index": 0, "partition": 0, "index": 0}
TOPIC_DENIED, GROUP_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
NEVER_NULL = {(ApiKey.METADATA, 0), (ApiKey.OFFSET_FETCH, 1)}
"""Whose list of topics cannot be null."""
CLUSTER_DENIED, NONE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NONE


class Guard:
    """Denies everything once it is closed, and notes who asked for what."""

    allows_all = False

    def __init__(self) -> None:
        self.is_closed = False
        self.asked: list[tuple[Caller, Operation, Resource, str]] = []

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        self.asked.append((caller, operation, resource, name))
        return not self.is_closed


def requests(topic_id: Any) -> dict[ApiKey, tuple[dict[str, Any], set[ErrorCode]]]:
    """What is asked of each API, and the only codes that its answer may carry."""
    topic = {"name": TOPIC, "topic": TOPIC, "topic_id": topic_id}
    member = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}
    config = {"resource_type": 2, "resource_name": TOPIC}
    broker = {"resource_type": 4, "resource_name": "1"}
    acl = {"resource_type": 2, "resource_name": TOPIC, "principal": "User:x", "host": "*", "operation": 3}
    acl_filter = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    altered = [
        {**one, "configs": [{"name": "retention.ms", "value": "1", "config_operation": 0}]} for one in (config, broker)
    ]
    committed = {**PARTITION, "committed_offset": 7, "committed_metadata": "note"}
    wanted = {**PARTITION, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {
        ApiKey.PRODUCE: (
            {
                "acks": -1,
                "timeout_ms": 1000,
                "transactional_id": None,
                "topic_data": [{**topic, "partition_data": [{**PARTITION, "records": BATCH}]}],
            },
            {TOPIC_DENIED},
        ),
        ApiKey.FETCH: (
            {
                "replica_id": -1,
                "max_wait_ms": 0,
                "min_bytes": 0,
                "max_bytes": 1 << 20,
                "topics": [{**topic, "partitions": [wanted]}],
                "forgotten_topics_data": [],
            },
            {TOPIC_DENIED, NONE},
        ),
        ApiKey.LIST_OFFSETS: (
            {
                "replica_id": -1,
                "isolation_level": 0,
                "timeout_ms": 0,
                "topics": [{**topic, "partitions": [{**PARTITION, "timestamp": -1}]}],
            },
            {TOPIC_DENIED},
        ),
        ApiKey.METADATA: ({"topics": None, "allow_auto_topic_creation": True}, {NONE}),
        ApiKey.OFFSET_COMMIT: (
            {
                "group_id": GROUP,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{**topic, "partitions": [committed]}],
            },
            {GROUP_DENIED},
        ),
        ApiKey.OFFSET_FETCH: (
            {"group_id": GROUP, "topics": None, "groups": [{"group_id": GROUP, "topics": None}]},
            {GROUP_DENIED},
        ),
        ApiKey.FIND_COORDINATOR: ({"key": GROUP, "key_type": 0, "coordinator_keys": [GROUP]}, {GROUP_DENIED}),
        ApiKey.JOIN_GROUP: (
            {
                "group_id": GROUP,
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 10_000,
                "member_id": "",
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            },
            {GROUP_DENIED},
        ),
        ApiKey.HEARTBEAT: (member, {GROUP_DENIED}),
        ApiKey.LEAVE_GROUP: ({**member, "members": [{"member_id": "m"}]}, {GROUP_DENIED}),
        ApiKey.SYNC_GROUP: (
            {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": []},
            {GROUP_DENIED},
        ),
        ApiKey.DESCRIBE_GROUPS: ({"groups": [GROUP]}, {GROUP_DENIED}),
        ApiKey.LIST_GROUPS: ({}, {NONE}),
        ApiKey.API_VERSIONS: ({"client_software_name": "test", "client_software_version": "1"}, {NONE}),
        ApiKey.CREATE_TOPICS: (
            {
                "timeout_ms": 1000,
                "validate_only": False,
                "topics": [
                    {
                        **topic,
                        "name": "new",
                        "num_partitions": 1,
                        "replication_factor": 1,
                        "assignments": [],
                        "configs": [],
                    }
                ],
            },
            {TOPIC_DENIED},
        ),
        ApiKey.DELETE_TOPICS: (
            {"timeout_ms": 1000, "topic_names": [TOPIC], "topics": [{"name": TOPIC, "topic_id": None}]},
            {TOPIC_DENIED},
        ),
        ApiKey.DELETE_RECORDS: (
            {"timeout_ms": 1000, "topics": [{**topic, "partitions": [{**PARTITION, "offset": 2}]}]},
            {TOPIC_DENIED},
        ),
        ApiKey.INIT_PRODUCER_ID: ({"transactional_id": None, "transaction_timeout_ms": 1000}, {CLUSTER_DENIED}),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (
            {"replica_id": -1, "topics": [{**topic, "partitions": [{**PARTITION, "leader_epoch": 0}]}]},
            {TOPIC_DENIED},
        ),
        ApiKey.DESCRIBE_ACLS: (acl_filter, {CLUSTER_DENIED, ErrorCode.SECURITY_DISABLED}),
        ApiKey.CREATE_ACLS: (
            {"creations": [{**acl, "permission_type": 3}]},
            {CLUSTER_DENIED, ErrorCode.SECURITY_DISABLED},
        ),
        ApiKey.DELETE_ACLS: ({"filters": [acl_filter]}, {CLUSTER_DENIED, ErrorCode.SECURITY_DISABLED}),
        ApiKey.DESCRIBE_CONFIGS: (
            {"resources": [{**config, "configuration_keys": None}, {**broker, "configuration_keys": None}]},
            {TOPIC_DENIED, CLUSTER_DENIED},
        ),
        ApiKey.ALTER_CONFIGS: ({"resources": altered, "validate_only": False}, {TOPIC_DENIED, CLUSTER_DENIED}),
        ApiKey.DESCRIBE_LOG_DIRS: ({"topics": None}, {CLUSTER_DENIED, NONE}),
        ApiKey.CREATE_PARTITIONS: (
            {"timeout_ms": 1000, "validate_only": False, "topics": [{**topic, "count": 5, "assignments": None}]},
            {TOPIC_DENIED},
        ),
        ApiKey.ELECT_LEADERS: (
            {"election_type": 0, "topic_partitions": None, "timeout_ms": 1000},
            {CLUSTER_DENIED},
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
            {"timeout_ms": 1000, "topics": [{**topic, "partitions": [{**PARTITION, "replicas": [1]}]}]},
            {CLUSTER_DENIED},
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ({"timeout_ms": 1000, "topics": None}, {CLUSTER_DENIED}),
        ApiKey.DELETE_GROUPS: ({"groups_names": [GROUP]}, {GROUP_DENIED}),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (
            {"resources": altered, "validate_only": False},
            {TOPIC_DENIED, CLUSTER_DENIED},
        ),
        ApiKey.OFFSET_DELETE: (
            {"group_id": GROUP, "topics": [{**topic, "partitions": [PARTITION]}]},
            {GROUP_DENIED, NONE},
        ),
        ApiKey.DESCRIBE_CLUSTER: ({"include_cluster_authorized_operations": True}, {NONE}),
        ApiKey.DESCRIBE_PRODUCERS: ({"topics": [{**topic, "partition_indexes": [0]}]}, {TOPIC_DENIED}),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (
            {"group_id": GROUP, "member_id": "m", "member_epoch": 0, "topic_partitions": None},
            {GROUP_DENIED, ErrorCode.UNSUPPORTED_VERSION},
        ),
        ApiKey.LIST_CONFIG_RESOURCES: ({"resource_types": []}, {CLUSTER_DENIED}),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
            {"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None},
            {TOPIC_DENIED},
        ),
    }


def codes_in(value: Any) -> set[ErrorCode]:
    """Every error code of an answer."""
    found: set[ErrorCode] = set()
    if isinstance(value, tuple | list):
        for one in value:
            found |= codes_in(one)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            inner = getattr(value, name)
            found |= {ErrorCode(inner.value)} if name == "error_code" else codes_in(inner)
    return found


def state_of(served: ServedBroker) -> tuple[Any, ...]:
    """What no denied request may change."""
    image = served.broker.replicas.image
    ends = [(one.name, one.log_start_offset, one.end_offset) for one in served.broker.replicas if not one.is_internal]
    groups = served.broker.groups.coordinator.counts()
    return image.topics, image.topic_configs, image.broker_configs, ends, groups


def test_every_api_is_tried() -> None:
    assert requests(None).keys() == APIS.keys()


@pytest.mark.parametrize("codecs", CODECS)
def test_denied_requests_do_nothing_and_tell_nothing(tmp_path: Path, codecs: Codecs) -> None:
    async def scenario() -> None:
        guard = Guard()
        async with served_broker(tmp_path, codecs=codecs, authorizer=guard, **SETTINGS) as served:
            await served.create(TOPIC, retention_ms="777777")
            served.append(TOPIC, [1, 2, 3])
            topic_id = served.broker.replicas.image.topics[TOPIC].id
            await served.find_coordinator(GROUP)
            guard.is_closed = True
            before = state_of(served)
            for api_key, (values, allowed) in requests(topic_id).items():
                for version in range(APIS[api_key].version_min, APIS[api_key].version_max + 1):
                    asked = {**values, "topics": []} if (api_key, version) in NEVER_NULL else values
                    answer = await served.ask(api_key, version, **asked)
                    assert codes_in(answer) <= allowed, (api_key.name, version, answer)
                    told = repr(answer)
                    assert "777777" not in told, (api_key.name, version)
                    assert str(tmp_path) not in told, (api_key.name, version)
                    if api_key in (ApiKey.METADATA, ApiKey.LIST_GROUPS):
                        assert TOPIC not in told, (api_key.name, version)
                        assert GROUP not in told, (api_key.name, version)
                    assert state_of(served) == before, (api_key.name, version)
            assert guard.asked
            assert all(caller.listener == LISTENER for caller, *_ in guard.asked)

    run(scenario())


@pytest.mark.parametrize("codecs", CODECS)
def test_produce_and_fetch_ask_who_the_caller_is(tmp_path: Path, codecs: Codecs) -> None:
    async def scenario() -> None:
        guard = Guard()
        async with served_broker(tmp_path, codecs=codecs, authorizer=guard, **SETTINGS) as served:
            await served.create(TOPIC)
            topic_id = served.broker.replicas.image.topics[TOPIC].id
            asked = requests(topic_id)
            for api_key, operation in ((ApiKey.PRODUCE, Operation.WRITE), (ApiKey.FETCH, Operation.READ)):
                for version in range(APIS[api_key].version_min, APIS[api_key].version_max + 1):
                    guard.asked.clear()
                    answer = await served.ask(api_key, version, **asked[api_key][0])
                    assert codes_in(answer) == {NONE}, (api_key.name, version)
                    ((caller, *rest),) = guard.asked
                    assert caller == Caller(LISTENER, "127.0.0.1", client_id="test")
                    assert rest == [operation, Resource.TOPIC, TOPIC]

    run(scenario())

"""Topics and the cluster: what makes, changes, removes and describes them, and ApiVersions."""

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.wire.apis import APIS, ApiKey
from tests.support.side_by_side import CLOSED, UNKNOWN_ID, Pair, Side, Values, versions
from tests.support.side_by_side_cast import ready
from tests.support.side_by_side_produce import batch

SHOWN = "shown"
UNKNOWN = "no-such-topic"
BAD_NAMES = ("no topic!", "", ".", "..", "a" * 250, "umläut")

_IDS_FROM = 10


def _fill(side: Side) -> None:
    if SHOWN not in side.topic_ids:
        side.create_topic(SHOWN, 3, {"retention.ms": "1000000000"})
        side.produce(SHOWN, batch(4))


def _constant(values: Values) -> Callable[[Side], Values]:
    return lambda side: values


# --- ApiVersions and what is not served -------------------------------------------------------------------


def tell_api_versions(pair: Pair) -> None:
    def served(answer: Any) -> Any:
        """Kafka serves more: only what both know is compared."""
        return {**answer, "api_keys": [one for one in answer["api_keys"] if one["api_key"] in APIS]}

    names = ("librdkafka", "a", "-a", "a-", "two words", "", "1.0.0", "a..b", "ä")
    for version in versions(ApiKey.API_VERSIONS):
        for name in names:
            asked = {"client_software_name": name, "client_software_version": "1.0"}
            pair.compare(f"name '{name}'", ApiKey.API_VERSIONS, version, _constant(asked), only=served)
            asked = {"client_software_name": "client", "client_software_version": name}
            pair.compare(f"version '{name}'", ApiKey.API_VERSIONS, version, _constant(asked), only=served)
    for version in (5, 99, 32_767, -1):
        pair.compare_raw(f"ApiVersions {version}", _frame(ApiKey.API_VERSIONS, version, b"\0"))
    for api in APIS.values():
        for version in (api.version_min - 1, api.version_max + 1, 999):
            if api.key != ApiKey.API_VERSIONS and version >= 0:
                answers = pair.compare_raw(f"{api.name} {version}", _frame(api.key, version, bytes(20)))
                assert answers[0] == CLOSED
    for api_key in (4, 5, 6, 7, 63, 200, 999, -1):
        assert pair.compare_raw(f"API {api_key}", _frame(api_key, 0, bytes(20)))[0] == CLOSED


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    header = (
        api_key.to_bytes(2, "big", signed=True)
        + version.to_bytes(2, "big", signed=True)
        + (7).to_bytes(4, "big")
        + b"\xff\xff"
    )
    content = header + body
    return len(content).to_bytes(4, "big") + content


# --- Metadata ---------------------------------------------------------------------------------------------


def tell_metadata(pair: Pair) -> None:
    pair.each(ready)  # so that the internal topic exists
    pair.each(_fill)

    def without_others(answer: Any) -> Any:
        """Other stories have other topics."""
        topics = [one for one in answer["topics"] if one["name"] in (SHOWN, UNKNOWN, *BAD_NAMES, None)]
        return {**answer, "topics": topics}

    def ask(case: str, topics: Any, *, is_whole: bool = True, **others: Any) -> None:
        def make(side: Side) -> Values:
            wanted = topics(side) if callable(topics) else topics
            return {"topics": wanted, "allow_auto_topic_creation": False, **others}

        only = (lambda answer: answer) if is_whole else without_others
        pair.compare(case, ApiKey.METADATA, version, make, is_read=True, only=only)

    for version in versions(ApiKey.METADATA):
        ask("one topic", [{"name": SHOWN}])
        ask("a topic twice", [{"name": SHOWN}, {"name": SHOWN}])
        ask("internal topic", [{"name": "__consumer_offsets"}])
        if version >= 1:
            ask("all topics", None, is_whole=False)
            ask("no topics", [])
        if version >= 4:
            ask("unknown topic", [{"name": UNKNOWN}, {"name": SHOWN}])
            for name in BAD_NAMES:
                ask(f"name '{name[:20]}'", [{"name": name}], allow_auto_topic_creation=True)
        if version >= 8:
            ask(
                "authorized operations",
                [{"name": SHOWN}, {"name": UNKNOWN}],
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            )
        if version >= _IDS_FROM:
            ask("by id", lambda side: [{"name": None, "topic_id": side.topic_ids[SHOWN]}])
            ask("by unknown id", [{"name": None, "topic_id": UNKNOWN_ID}])
            ask("by id and name", lambda side: [{"name": SHOWN, "topic_id": side.topic_ids[SHOWN]}])
            ask("by another's id and name", [{"name": SHOWN, "topic_id": UNKNOWN_ID}])
            ask("by neither", [{"name": None}])
            ask("by id and by name", lambda side: [{"name": None, "topic_id": UNKNOWN_ID}, {"name": SHOWN}])
        automatic = f"automatic-{version}"
        asked = {"topics": [{"name": automatic}], "allow_auto_topic_creation": True}
        pair.compare("made on demand", ApiKey.METADATA, version, _constant(asked))
        pair.each(lambda side, name=automatic: side.learn_topic(name))  # type: ignore[misc]
        pair.compare("was made on demand", ApiKey.METADATA, version, _constant(asked), is_read=True)


def tell_describe_topic_partitions(pair: Pair) -> None:
    pair.each(_fill)

    def ask(case: str, names: Sequence[str], limit: int = 2000, cursor: Values | None = None) -> None:
        asked = {
            "topics": [{"name": name} for name in names],
            "response_partition_limit": limit,
            "cursor": cursor,
        }
        pair.compare(case, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, _constant(asked), is_read=True)

    ask("one topic", [SHOWN])
    ask("unknown topic", [UNKNOWN, SHOWN])
    ask("a topic twice", [SHOWN, SHOWN])
    for name in BAD_NAMES:
        ask(f"name '{name[:20]}'", [name])
    for limit in (-1, 0, 1, 2, 3):
        ask(f"limit of {limit}", [SHOWN, UNKNOWN], limit)
    for index in (-1, 0, 1, 2, 3, 9):
        ask(f"from partition {index}", [SHOWN], 2, {"topic_name": SHOWN, "partition_index": index})
    ask("cursor before", [SHOWN], 2, {"topic_name": "a", "partition_index": 0})
    ask("cursor after", [SHOWN], 2, {"topic_name": "z", "partition_index": 0})
    ask("cursor at an unknown topic", [SHOWN, UNKNOWN], 2, {"topic_name": UNKNOWN, "partition_index": 1})


# --- making and removing ----------------------------------------------------------------------------------


def new_topic(name: str, partitions: int = 1, replicas: int = 1, **others: Any) -> Values:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [],
        **others,
    }


def assigned(name: str, *replicas: Sequence[int], first: int = 0, **others: Any) -> Values:
    assignments = [
        {"partition_index": index, "broker_ids": list(brokers)} for index, brokers in enumerate(replicas, first)
    ]
    return new_topic(name, -1, -1, assignments=assignments, **others)


def configured(name: str, **configs: str | None) -> Values:
    entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return new_topic(name, configs=entries)


def _new_topics(version: int) -> dict[str, list[Values]]:
    own = f"made-{version}"
    return {
        "a topic": [new_topic(own, 3)],
        "defaults": [new_topic(f"{own}-default", -1, -1)],
        "assigned": [assigned(f"{own}-assigned", [1], [1])],
        "configured": [configured(f"{own}-configured", cleanup_policy="compact", retention_ms="5000")],
        "exists already": [new_topic(own)],
        "no partitions": [new_topic("refused", 0)],
        "partitions below zero": [new_topic("refused", -2)],
        "no replicas": [new_topic("refused", 1, 0)],
        "replicas below zero": [new_topic("refused", 1, -2)],
        "too many replicas": [new_topic("refused", 1, 2)],
        "too many partitions": [new_topic("refused", 10_001)],
        "too many partitions together": [new_topic("refused-1", 6000), new_topic("refused-2", 6000)],
        "a name twice": [new_topic("refused"), new_topic("refused"), new_topic(f"{own}-once")],
        "good and bad": [new_topic("no topic!"), new_topic(f"{own}-good")],
        "dotted name": [new_topic(f"{own}.dotted")],
        "collides with a name": [new_topic(f"{own}_dotted")],
        "assigned to an unknown broker": [assigned("refused", [9])],
        "assigned to nobody": [assigned("refused", [])],
        "assigned to one twice": [assigned("refused", [1, 1])],
        "assigned from partition 1 on": [assigned("refused", [1], first=1)],
        "assigned unevenly": [assigned("refused", [1], [])],
        "assigned, with a number of partitions": [{**assigned("refused", [1]), "num_partitions": 1}],
        "assigned, with a number of replicas": [{**assigned("refused", [1]), "replication_factor": 1}],
        "partition assigned twice": [
            {**assigned("refused", [1]), "assignments": [{"partition_index": 0, "broker_ids": [1]}] * 2}
        ],
        "unknown setting": [configured("refused", no_such_setting="1")],
        "wrong value": [configured("refused", retention_ms="soon")],
        "value out of range": [configured("refused", segment_bytes="1")],
        "null value": [configured("refused", retention_ms=None)],
        "settings that do not go together": [
            configured("refused", retention_ms="-1", max_compaction_lag_ms="1", min_compaction_lag_ms="2")
        ],
        "metadata of the cluster": [new_topic("__cluster_metadata")],
        "no topics": [],
        **{f"name '{name[:20]}'": [new_topic(name)] for name in BAD_NAMES},
    }


def tell_create_topics(pair: Pair) -> None:
    pair.each(_fill)
    for version in versions(ApiKey.CREATE_TOPICS):
        for case, topics in _new_topics(version).items():
            for validate_only in (True, False):
                asked = {"topics": topics, "timeout_ms": 10_000, "validate_only": validate_only}
                name = f"{case}{', validate only' if validate_only else ''}"
                pair.compare(name, ApiKey.CREATE_TOPICS, version, _constant(asked), only=_without_new_ids)


def _without_new_ids(answer: Any) -> Any:
    """Whether there is an id is compared, not which."""
    return {
        **answer,
        "topics": [{**one, "topic_id": None if one.get("topic_id") is None else "new"} for one in answer["topics"]],
    }


def tell_delete_topics(pair: Pair) -> None:
    for version in versions(ApiKey.DELETE_TOPICS):
        names = [f"gone-{version}-{index}" for index in range(4)]
        for name in names:
            pair.each(lambda side, name=name: side.create_topic(name))  # type: ignore[misc]

        def ask(case: str, *wanted: tuple[str | None, str | None], version: int = version) -> None:
            def make(side: Side) -> Values:
                topics = [
                    {"name": name, "topic_id": None if other is None else side.topic_ids.get(other, UNKNOWN_ID)}
                    for name, other in wanted
                ]
                return {"topics": topics, "topic_names": [name for name, _ in wanted], "timeout_ms": 10_000}

            pair.compare(case, ApiKey.DELETE_TOPICS, version, make)

        ask("a topic", (names[0], None))
        ask("a topic again", (names[0], None))
        ask("unknown topic", (UNKNOWN, None))
        ask("a name twice", (names[1], None), (names[1], None))
        ask("good and bad", (names[1], None), ("no topic!", None))
        ask("none")
        if version >= 6:
            ask("by id", (None, names[2]))
            ask("by unknown id", (None, UNKNOWN))
            ask("by an id twice", (None, names[3]), (None, names[3]))
            ask("by name and id", (names[3], names[3]))
            ask("by name, and by id", (names[3], None), (None, names[3]))
            ask("by neither", (None, None))


def tell_create_partitions(pair: Pair) -> None:
    for version in versions(ApiKey.CREATE_PARTITIONS):
        topic = f"grown-{version}"
        pair.each(lambda side, topic=topic: side.create_topic(topic, 2))  # type: ignore[misc]

        def ask(
            case: str,
            *wanted: tuple[str, int, list[list[int]] | None],
            validate_only: bool = False,
            version: int = version,
        ) -> None:
            topics = [
                {
                    "name": name,
                    "count": count,
                    "assignments": None if replicas is None else [{"broker_ids": brokers} for brokers in replicas],
                }
                for name, count, replicas in wanted
            ]
            asked = {"topics": topics, "timeout_ms": 10_000, "validate_only": validate_only}
            pair.compare(case, ApiKey.CREATE_PARTITIONS, version, _constant(asked))

        ask("validate only", (topic, 3, None), validate_only=True)
        ask("one more", (topic, 3, None))
        ask("as many", (topic, 3, None))
        ask("fewer", (topic, 1, None))
        ask("none", (topic, 0, None))
        ask("below zero", (topic, -1, None))
        ask("assigned", (topic, 4, [[1]]))
        ask("assigned too few", (topic, 6, [[1]]))
        ask("assigned too many", (topic, 5, [[1], [1]]))
        ask("assigned to an unknown broker", (topic, 5, [[9]]))
        ask("assigned to one twice", (topic, 5, [[1, 1]]))
        ask("assigned to nobody", (topic, 5, [[]]))
        ask("unknown topic", (UNKNOWN, 5, None))
        ask("bad name", ("no topic!", 5, None))
        ask("a name twice", (topic, 5, None), (topic, 6, None))
        ask("good and bad", (topic, 5, None), (UNKNOWN, 5, None))
        ask("no topics")
        pair.each(lambda side, topic=topic: side.learn_topic(topic))  # type: ignore[misc]
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        pair.compare("as they are then", ApiKey.METADATA, 12, _constant(asked), is_read=True)


# --- the cluster ------------------------------------------------------------------------------------------


def tell_describe_cluster(pair: Pair) -> None:
    for version in versions(ApiKey.DESCRIBE_CLUSTER):
        for endpoint_type in (0, 1, 2, 3, -1):
            for with_operations in (False, True):
                for with_fenced in (False, True):
                    asked = {
                        "include_cluster_authorized_operations": with_operations,
                        "endpoint_type": endpoint_type,
                        "include_fenced_brokers": with_fenced,
                    }
                    case = f"endpoint {endpoint_type}, operations {with_operations}, fenced {with_fenced}"
                    pair.compare(case, ApiKey.DESCRIBE_CLUSTER, version, _constant(asked))


def tell_describe_log_dirs(pair: Pair) -> None:
    pair.each(_fill)
    for version in versions(ApiKey.DESCRIBE_LOG_DIRS):
        for case, topics in {
            "partitions": [{"topic": SHOWN, "partitions": [0, 2]}],
            "unknown partition": [{"topic": SHOWN, "partitions": [0, 7]}],
            "unknown topic": [{"topic": UNKNOWN, "partitions": [0]}],
            "topic without partitions": [{"topic": SHOWN, "partitions": []}],
            "no topics": [],
        }.items():
            pair.compare(case, ApiKey.DESCRIBE_LOG_DIRS, version, _constant({"topics": topics}), is_read=True)
        pair.compare(
            "all topics",
            ApiKey.DESCRIBE_LOG_DIRS,
            version,
            _constant({"topics": None}),
            is_read=True,
            only=lambda answer: [
                one for directory in answer["results"] for one in directory["topics"] if one["name"] == SHOWN
            ],
        )


def tell_list_config_resources(pair: Pair) -> None:
    pair.each(_fill)
    for version in versions(ApiKey.LIST_CONFIG_RESOURCES):
        for types in ([], [2], [4], [8], [16], [32], [4, 8], [4, 4], [1], [64], [-1], [4, 3]):
            pair.compare(
                f"types {types}",
                ApiKey.LIST_CONFIG_RESOURCES,
                version,
                _constant({"resource_types": types}),
                is_read=True,
                only=_without_other_topics,
            )


def _without_other_topics(answer: Any) -> Any:
    """What other stories made, and maybe removed, is theirs."""
    kept = [
        one for one in answer["config_resources"] if one.get("resource_type", 16) != 2 or one["resource_name"] == SHOWN
    ]
    kept.sort(key=lambda one: (one.get("resource_type", 0), one["resource_name"]))
    return {**answer, "config_resources": kept}


def tell_elect_leaders(pair: Pair) -> None:
    pair.each(lambda side: side.create_topic("elected", 2))

    def without_others(answer: Any) -> Any:
        """Other stories have other topics."""
        results = [one for one in answer["replica_election_results"] if one["topic"] in ("elected", UNKNOWN)]
        return {**answer, "replica_election_results": results}

    for version in versions(ApiKey.ELECT_LEADERS):

        def ask(
            case: str, wanted: list[tuple[str, list[int]]] | None, election_type: int = 0, version: int = version
        ) -> None:
            topics = None if wanted is None else [{"topic": name, "partitions": indexes} for name, indexes in wanted]
            asked = {"election_type": election_type, "topic_partitions": topics, "timeout_ms": 10_000}
            pair.compare(case, ApiKey.ELECT_LEADERS, version, _constant(asked), only=without_others)

        for election_type in (0, 1) if version else (0,):
            ask(f"all, type {election_type}", None, election_type)
            ask(f"not needed, type {election_type}", [("elected", [0, 1])], election_type)
            ask(f"unknown partition, type {election_type}", [("elected", [7])], election_type)
            ask(f"unknown topic, type {election_type}", [(UNKNOWN, [0])], election_type)
            ask(f"none, type {election_type}", [], election_type)


def tell_alter_partition_reassignments(pair: Pair) -> None:
    """Both sides have one broker: nothing can be added, and nothing is moved."""
    pair.each(lambda side: side.create_topic("reassigned", 2))
    for version in versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS):

        def ask(
            case: str, *wanted: tuple[str, int, list[int] | None], may_grow: bool = True, version: int = version
        ) -> None:
            topics = [
                {"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}
                for name, index, replicas in wanted
            ]
            asked = {"topics": topics, "timeout_ms": 10_000, "allow_replication_factor_change": may_grow}
            pair.compare(case, ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, _constant(asked))

        ask("nothing")
        ask("as it is", ("reassigned", 0, [1]))
        ask("a broker that there is not", ("reassigned", 0, [1, 7]))
        ask("twice the same broker", ("reassigned", 0, [1, 1]))
        ask("no broker", ("reassigned", 1, []))
        ask("cancelled", ("reassigned", 1, None))
        ask("unknown partition", ("reassigned", 7, [1]))
        ask("unknown partition, cancelled", ("reassigned", 7, None))
        ask("unknown topic", (UNKNOWN, 0, [1]))
        ask("as many replicas", ("reassigned", 0, [1]), may_grow=False)


def tell_list_partition_reassignments(pair: Pair) -> None:
    pair.each(lambda side: side.create_topic("reassigned-listed", 2))
    for version in versions(ApiKey.LIST_PARTITION_REASSIGNMENTS):
        for case, topics in (
            ("all", None),
            ("none", []),
            ("of a topic", [{"name": "reassigned-listed", "partition_indexes": [0, 1]}]),
            ("unknown", [{"name": "reassigned-listed", "partition_indexes": [7]}]),
            ("unknown topic", [{"name": UNKNOWN, "partition_indexes": [0]}]),
        ):
            asked = {"topics": topics, "timeout_ms": 10_000}
            pair.compare(case, ApiKey.LIST_PARTITION_REASSIGNMENTS, version, _constant(asked), is_read=True)

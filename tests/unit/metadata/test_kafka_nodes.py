"""The tree that a real Kafka 3.9.1 left in ZooKeeper, beside what we make of it and what we would have written.

`tests/compat/test_zookeeper_nodes.py` compares the recorded tree with a Kafka that runs.
"""

import pytest

from barnabas.controller.configs import update_broker_configs, update_topic_configs
from barnabas.controller.topics import TopicPlan
from barnabas.metadata.identity import ProducerIds, next_broker_id
from barnabas.metadata.paths import parent_of, with_parents
from barnabas.metadata.znodes import (
    BROKER_SEQUENCE,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETED_TOPICS,
    PERSISTENT_PATHS,
    PRODUCER_ID_BLOCK,
    BrokerRegistration,
    PartitionState,
    broker_config_path,
    decode_configs,
    topic_config_path,
)
from tests.support.kafka_nodes import KafkaNode, KafkaTree, content
from tests.support.metadata_cluster import MetadataCluster, run_in_cluster
from tests.support.znode_classes import (
    EMPTY_NODES,
    LEFT_OUT,
    SERVED,
    kind_of,
    served_nodes,
    topic_assignments,
)

TREE = KafkaTree.load()
NODES = list(TREE.nodes.values())
LEFT_OUT_ROOTS = [kind.form for kind in LEFT_OUT]


@pytest.mark.parametrize("node", [node for node in NODES if node.data], ids=lambda node: node.path)
def test_node_of_kafka_is_read_and_written_the_same(node: KafkaNode) -> None:
    kind = kind_of(node.path, [*SERVED, *LEFT_OUT])
    assert kind is not None, "no class of ours knows this node"
    assert node.data is not None
    assert content(kind.read_and_write(node.path, node.data)) == node.content


def test_our_classes_write_for_the_same_facts_what_kafka_wrote() -> None:
    ours = served_nodes(TREE.facts)
    kafkas = {node.path: node.content for node in NODES if node.data and kind_of(node.path, SERVED)}

    assert {path: content(data) for path, data in ours.items()} == kafkas


def test_every_node_of_kafka_is_served_left_out_or_the_parent_of_others() -> None:
    parents = {parent_of(path) for path in TREE.nodes}
    known = {node.path for node in NODES if kind_of(node.path, [*SERVED, *LEFT_OUT])}
    rest = TREE.nodes.keys() - known - parents

    # Empty, because nothing came to pass that Kafka would write there; or an authorizer's node for a type of resource.
    left_out = {path for path in rest if path in LEFT_OUT_ROOTS}
    without_rules = {path for path in rest if path.startswith(("/kafka-acl/", "/kafka-acl-extended/prefixed/"))}
    assert rest == left_out | without_rules
    assert left_out == {"/consumers", "/isr_change_notification", "/log_dir_event_notification"}


def test_nodes_that_say_all_by_being_there_have_no_data() -> None:
    assert [TREE.nodes[path].data or b"" for path in EMPTY_NODES] == [b"", b""]


def test_only_registrations_and_the_controller_are_ephemeral() -> None:
    ephemeral = {node.path for node in NODES if node.is_ephemeral}

    assert ephemeral == {CONTROLLER, BrokerRegistration.path_of(1), BrokerRegistration.path_of(1001)}


def test_nodes_that_a_broker_makes_at_its_start_are_kafkas_and_one_of_ours() -> None:
    ours = set(with_parents(PERSISTENT_PATHS)) - set(with_parents([DELETED_TOPICS]))

    assert ours <= TREE.nodes.keys()


def test_what_the_controller_writes_for_the_same_facts_is_what_kafka_wrote() -> None:
    """The code that creates topics, changes configs and gives out ids, not only the classes."""

    async def scenario(cluster: MetadataCluster) -> None:
        session, controllership = cluster.session, cluster.controllership
        for topic in topic_assignments(TREE.facts):
            path = topic_config_path(topic.topic)
            configs = decode_configs(path, TREE.nodes[path].data or b"")
            await cluster.writer.create(TopicPlan(topic, configs))
        await update_topic_configs(controllership, "plain", lambda _: {"max.message.bytes": "1000"})
        await update_topic_configs(controllership, "plain", lambda _: {})
        await update_broker_configs(controllership, 1, lambda _: {"log.cleaner.threads": "2"})
        defaults = {"message.max.bytes": "2000000", "log.retention.ms": "3600000"}
        await update_broker_configs(controllership, None, lambda _: defaults)
        assert await ProducerIds(session, 1).take() == 0
        assert await next_broker_id(session) == 1001

        topics = [topic.path for topic in topic_assignments(TREE.facts)]
        configs_paths = [topic_config_path(topic.topic) for topic in topic_assignments(TREE.facts)]
        paths = [
            *topics,
            *[f"{topic}/partitions" for topic in topics],
            *configs_paths,
            PartitionState.path_of("plain", 0),
            broker_config_path(1),
            broker_config_path(None),
            PRODUCER_ID_BLOCK,
            BROKER_SEQUENCE,
        ]
        written = dict(zip(paths, await session.get_many(paths), strict=True))
        for path, node in written.items():
            kafkas = TREE.nodes[path]
            assert node is not None, path
            ours = content(node.data)
            if path.endswith("/state"):  # what brokers of Kafka pass over
                assert ours.pop("barnabas") == {"min_insync_replicas": 1}
            assert ours == (kafkas.content or b""), path
            # Kafka wrote the topic `moving` once more, with what is to be added and removed.
            assert node.stat.version == kafkas.version or path.endswith("/moving"), path

        # Kafka creates the epoch as 0 and then raises it; we create it as 1.
        [epoch] = await session.get_many([CONTROLLER_EPOCH])
        assert epoch is not None
        assert (epoch.data, epoch.stat.version) == (TREE.nodes[CONTROLLER_EPOCH].data, 0)
        assert TREE.nodes[CONTROLLER_EPOCH].version == 1

    run_in_cluster(scenario, (1, 1001))

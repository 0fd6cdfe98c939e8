"""An image that followed changes equals one that was loaded anew; and `apply` equals what a plain model says."""

import asyncio
import random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import BarnabasError
from barnabas.controller.configs import update_broker_configs, update_topic_configs
from barnabas.controller.watcher import MetadataWatcher
from barnabas.metadata.identity import register_broker
from barnabas.metadata.image import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    ClusterImage,
    ControllerChanged,
    Partition,
    RegisteredBroker,
    Topic,
    TopicChanged,
    TopicConfigsChanged,
    TopicRemoved,
)
from barnabas.metadata.znodes import PartitionState
from tests.support.metadata_cluster import MetadataCluster, metadata_cluster, registration

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)

steps = st.one_of(
    st.tuples(st.just("create"), names, st.integers(1, 4)),
    st.tuples(st.just("delete"), names, st.just(0)),
    st.tuples(st.just("grow"), names, st.integers(1, 6)),
    st.tuples(st.just("lead"), names, st.integers(0, 3)),
    st.tuples(st.just("configure"), names, st.integers(0, 2)),
    st.tuples(st.just("configure broker"), names, st.integers(0, 2)),
    st.tuples(st.just("mark"), names, st.integers(0, 1)),
    st.tuples(st.just("register"), names, st.integers(5, 7)),
    st.tuples(st.just("unregister"), names, st.integers(5, 7)),
    st.tuples(st.just("abdicate"), names, st.just(0)),
    st.tuples(st.just("pause"), names, st.integers(0, 8)),
)


async def take(cluster: MetadataCluster, action: str, name: str, number: int) -> None:
    """One step; what the store refuses is no step."""
    session, image = cluster.session, cluster.watcher.image
    match action:
        case "create":
            await cluster.writer.create(cluster.writer.plan(image, name, number, 1, {"n": str(number)}))
        case "delete":
            await cluster.writer.delete(name)
        case "grow":
            await cluster.writer.add_partitions(image, name, number)
        case "lead":
            state = PartitionState(number, number, (number,), 1)
            await session.set(PartitionState.path_of(name, number), state.encode())
        case "configure":
            await update_topic_configs(
                cluster.controllership, name, lambda _configs: {"n": str(number)} if number else {}
            )
        case "configure broker":
            broker_id = number or None
            await update_broker_configs(cluster.controllership, broker_id, lambda old: {} if old else {"x": "1"})
        case "mark":
            path = f"/admin/delete_topics/{name}"
            await (session.create(path) if number else session.delete(path))
        case "register":
            await register_broker(session, registration(number))
        case "unregister":
            await session.delete(f"/brokers/ids/{number}")
        case "abdicate":
            await session.delete("/controller")
        case "pause":
            for _ in range(number):
                await asyncio.sleep(0)


@settings(max_examples=150)
@given(st.lists(st.lists(steps, min_size=1, max_size=4), max_size=25))
def test_image_that_followed_the_store_equals_one_loaded_anew(histories: list[list[tuple[str, str, int]]]) -> None:
    async def main() -> None:
        async with metadata_cluster((1,)) as cluster:
            followed = [cluster.watcher.image]
            cluster.watcher.subscribe(lambda old, new: followed.append(new) if old is followed[-1] else None)
            for together in histories:
                attempts = [take(cluster, *step) for step in together]
                for outcome in await asyncio.gather(*attempts, return_exceptions=True):
                    assert outcome is None or isinstance(outcome, BarnabasError)
            await cluster.settle()
            fresh = await MetadataWatcher(cluster.store.session()).load()
            assert cluster.watcher.image == fresh
            assert followed[-1] is cluster.watcher.image
            fresh.check_invariants()

    asyncio.run(main())


def topic_of(name: str, generation: int, leaders: tuple[int, ...]) -> Topic:
    topic_id = UUID(int=1000 * (NAMES.index(name) + 1) + generation)
    return Topic(name, topic_id, tuple(Partition(i, (leader,), leader=leader) for i, leader in enumerate(leaders)))


changes = st.one_of(
    st.builds(
        TopicChanged,
        st.builds(topic_of, names, st.integers(0, 2), st.lists(st.integers(1, 2), max_size=3).map(tuple)),
    ),
    st.builds(TopicRemoved, names),
    st.builds(BrokerChanged, st.builds(RegisteredBroker, st.integers(1, 3), st.integers(1, 3), st.just(()))),
    st.builds(BrokerRemoved, st.integers(1, 3)),
    st.builds(TopicConfigsChanged, names, st.dictionaries(names, names, max_size=2)),
    st.builds(BrokerConfigsChanged, st.sampled_from([None, 1, 2]), st.dictionaries(names, names, max_size=1)),
    st.builds(ControllerChanged, st.sampled_from([None, 1, 2])),
)


def model_of(changes: list[Change]) -> ClusterImage:
    """The last change of each thing is what counts."""
    controller_id = None
    brokers: dict[int, RegisteredBroker] = {}
    topics: dict[str, Topic] = {}
    topic_configs = {}
    broker_configs = {}
    for change in changes:
        match change:
            case TopicChanged(topic):
                topics[topic.name] = topic
            case TopicRemoved(name):
                topics.pop(name, None)
            case BrokerChanged(broker):
                brokers[broker.id] = broker
            case BrokerRemoved(broker_id):
                brokers.pop(broker_id, None)
            case TopicConfigsChanged(name, configs):
                topic_configs[name] = configs
            case BrokerConfigsChanged(owner, configs):
                broker_configs[owner] = configs
            case ControllerChanged(broker_id):
                controller_id = broker_id
    return ClusterImage(
        controller_id,
        brokers,
        topics,
        {topic.id: topic for topic in topics.values()},
        {name: configs for name, configs in topic_configs.items() if configs},
        {owner: configs for owner, configs in broker_configs.items() if configs},
    )


@given(st.lists(st.lists(changes, max_size=5), max_size=8))
def test_applied_changes_leave_the_last_of_each_thing_and_old_images_alone(runs: list[list[Change]]) -> None:
    image = ClusterImage()
    so_far: list[Change] = []
    earlier: list[tuple[ClusterImage, ClusterImage]] = []
    for run in runs:
        so_far += run
        after = image.apply(run)
        after.check_invariants()
        assert after == model_of(so_far)
        assert after.apply(run[-1:]) is after
        earlier.append((after, model_of(so_far)))
        image = after
    assert all(image == expected for image, expected in earlier)


def test_replacing_one_topic_shares_all_others() -> None:
    source = random.Random(1)
    topics = [Topic(f"t{n}", UUID(int=source.getrandbits(128)), (Partition(0, (1,)),)) for n in range(100)]
    before = ClusterImage().apply([TopicChanged(topic) for topic in topics])
    after = before.apply([TopicChanged(topics[5].with_partitions([Partition(0, (2,))]))])
    assert [name for name in before.topics if after.topics[name] is not before.topics[name]] == ["t5"]
    assert before.brokers is after.brokers
    assert after.topics_by_id[topics[5].id].partitions[0].replicas == (2,)


@given(st.lists(st.lists(changes, max_size=3), max_size=6))
def test_difference_of_two_images_is_that_of_their_topics(runs: list[list[Change]]) -> None:
    """Of neighbours, which know it, and of any others, whose topics are compared; also backwards."""
    images = [ClusterImage()]
    for run in runs:
        images.append(images[-1].apply(run))
    for before in images:
        for after in images:
            changed = after.topics_changed_since(before)
            assert len(changed) == len(set(changed))
            differ = {name for name in NAMES if before.topics.get(name) is not after.topics.get(name)}
            assert differ <= set(changed)
            assert all(name in differ or before.topics.get(name) == after.topics.get(name) for name in changed)
            gone = {
                topic.name
                for topic in before.topics.values()
                if topic.name not in after.topics or after.topics[topic.name].id != topic.id
            }
            assert [one.name for one in after.topics_gone_since(before)] == [name for name in changed if name in gone]
            assert gone <= set(changed)

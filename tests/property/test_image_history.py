"""Brokers that follow a controller's image, through changes of the controller, all come to the same image."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.history import ImageHistory, Place
from barnabas.metadata.image import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    Partition,
    PartitionsChanged,
    RegisteredBroker,
    Topic,
    TopicChanged,
    TopicConfigsChanged,
    TopicRemoved,
)
from barnabas.wire.steps import finish

BROKERS = 4
names = st.sampled_from(["a", "b", "c"])
configs = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]))
partitions = st.builds(lambda leader, epoch: (leader, epoch), st.integers(-1, 3), st.integers(0, 5))


def topic(name: str, number: int, states: list[tuple[int, int]]) -> Topic:
    made = [Partition(index, (1,), leader=one, leader_epoch=epoch) for index, (one, epoch) in enumerate(states)]
    return Topic(name, UUID(int=number), tuple(made))


changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(lambda one, epoch: BrokerChanged(RegisteredBroker(one, epoch, ())), st.integers(0, 3), st.integers(0, 9)),
    st.builds(BrokerRemoved, st.integers(0, 3)),
    st.builds(
        lambda name, number, states: TopicChanged(topic(name, number, states)),
        names,
        st.integers(0, 2),
        st.lists(partitions, min_size=2, max_size=3),
    ),
    st.builds(
        lambda name, number, leader: PartitionsChanged(name, UUID(int=number), (Partition(1, (1,), leader=leader),)),
        names,
        st.integers(0, 2),
        st.integers(-1, 3),
    ),
    st.builds(TopicRemoved, names),
    st.builds(TopicConfigsChanged, names, configs),
    st.builds(BrokerConfigsChanged, st.sampled_from([None, 1]), configs),
)
steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(changes, max_size=4)),
    st.tuples(st.just("fetch"), st.integers(0, BROKERS - 1)),
    st.tuples(st.just("elect"), st.integers(0, BROKERS - 1)),
    st.tuples(st.just("forget"), st.integers(0, BROKERS - 1)),
)


def fetch(broker: ImageHistory, controller: ImageHistory) -> None:
    """One answer of the controller, as it was when the broker had asked."""
    found = controller.since(broker.place)
    if found is None:
        broker.restart(controller.place, finish(broker.image.replaced_by(controller.image.as_changes())))
    else:
        broker.follow(broker.place, controller.place, *broker.image.follow(found))


@given(st.lists(steps, max_size=60), st.sampled_from([3, 20, 1000]))
def test_every_broker_comes_to_the_controllers_image(script: list[tuple[str, object]], weight_max: int) -> None:
    brokers = [ImageHistory(weight_max) for _ in range(BROKERS)]
    controller, epoch = brokers[0], 1
    controller.begin_epoch(epoch, 0)
    known = {controller.place: controller.image}
    for action, argument in script:
        match action, argument:
            case "publish", list(published):
                controller.publish(*controller.image.follow(published))
                known[controller.place] = controller.image
            case "fetch", int(number):
                if brokers[number] is not controller:
                    fetch(brokers[number], controller)
            case "elect", int(number):
                controller, epoch = brokers[number], epoch + 1
                controller.begin_epoch(epoch, number)
                known[controller.place] = controller.image
            case "forget", int(number):
                if brokers[number] is not controller:
                    brokers[number] = ImageHistory(weight_max)
        for broker in brokers:
            assert broker.place == Place(-1, -1) or broker.image == known[broker.place]
            broker.image.check_invariants()
    for broker in brokers:
        if broker is not controller:
            fetch(broker, controller)
        assert (broker.place, broker.image) == (controller.place, controller.image)

"""Leaders that have just gone: until when, and what is told of them."""

from barnabas.base.clock import ManualClock
from barnabas.metadata.image import RegisteredBroker
from barnabas.replication.lost_leaders import LostLeaders

FIRST, AGAIN = RegisteredBroker(2, 10, ()), RegisteredBroker(2, 11, ())


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.registered: RegisteredBroker | None = FIRST
        self.leaders = LostLeaders(self.clock, lambda broker_id: self.registered, 6.0)


def test_leader_is_lost_until_it_is_found_or_its_time_is_over() -> None:
    scene = Scene()
    assert 2 not in scene.leaders
    scene.leaders.lost(2)
    assert 2 in scene.leaders
    scene.leaders.found(2)
    assert 2 not in scene.leaders
    scene.leaders.lost(2)
    scene.clock.advance(5900)
    assert 2 in scene.leaders
    scene.clock.advance(200)
    assert 2 not in scene.leaders


def test_leader_that_registers_again_is_not_lost() -> None:
    scene = Scene()
    scene.leaders.lost(2)
    scene.registered = AGAIN
    assert 2 not in scene.leaders
    assert not list(scene.leaders.still_listed())


def test_broker_is_listed_for_a_while_when_its_registration_is_gone() -> None:
    scene = Scene()
    scene.leaders.lost(2)
    assert not list(scene.leaders.still_listed()), "it is listed anyway"
    scene.registered = None
    assert list(scene.leaders.still_listed()) == [FIRST]
    assert 2 not in scene.leaders, "the image says that it leads nothing"
    scene.clock.advance(600)
    assert not list(scene.leaders.still_listed())


def test_first_moment_ends() -> None:
    scene = Scene()
    assert scene.leaders.moment_seconds == 0
    scene.leaders.lost(2)
    assert 0 < scene.leaders.moment_seconds <= 0.25
    scene.clock.advance(300)
    assert scene.leaders.moment_seconds <= 0


def test_broker_that_is_not_registered_is_not_lost() -> None:
    scene = Scene()
    scene.registered = None
    scene.leaders.lost(2)
    assert 2 not in scene.leaders
    assert not list(scene.leaders.still_listed())

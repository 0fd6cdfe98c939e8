"""Brokers of a cluster see one history of it."""

from barnabas.sim.checkers.images import check_images
from barnabas.sim.histories.events import Event, Happened, History, ImageSeen


def found(*events: Event) -> list[str]:
    history = History()
    history.events += events
    return list(check_images(history))


def seen(at: float, broker: int, epoch: int, position: int, *, controller: int = 1, checksum: int = 0) -> ImageSeen:
    return ImageSeen(at, f"broker-{broker}", epoch, position, controller, checksum or 100 * epoch + position)


def test_brokers_that_follow_one_history_pass() -> None:
    assert not found(
        seen(1, 1, 1, 0),
        seen(1, 2, 1, 0),
        seen(2, 1, 1, 1),
        seen(3, 2, 2, 0, controller=2),
        seen(4, 1, 2, 0, controller=2),
    )


def test_two_images_at_one_place_are_found() -> None:
    [problem] = found(seen(1, 1, 1, 7), seen(2, 2, 1, 7, checksum=5))
    assert problem.startswith("broker-2 has another image at ")


def test_two_controllers_of_an_epoch_are_found() -> None:
    [problem] = found(seen(1, 1, 3, 0, controller=1), seen(2, 2, 3, 1, controller=2))
    assert problem == "epoch 3 has two controllers: 1 (broker-1, 1.000 s) and 2 (broker-2, 2.000 s)"


def test_broker_that_goes_back_is_found_unless_it_was_started_again() -> None:
    assert len(found(seen(1, 1, 2, 5), seen(2, 1, 2, 4))) == 1
    assert not found(seen(1, 1, 2, 5), Happened(2, "broker-1", "start"), seen(3, 1, 2, 4))


def test_image_that_was_read_from_the_store_has_no_place() -> None:
    assert not found(seen(1, 1, -1, -1, checksum=1), seen(1, 2, -1, -1, checksum=2))

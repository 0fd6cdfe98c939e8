"""An offset has one content within an epoch."""

from barnabas.sim.checkers.epoch_contents import check_epoch_contents
from tests.sim.checkers.written import PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_epoch_contents(written.history))


def test_same_content_for_all_readers_passes() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.shown(PLACE, 0, 1, (0, "a"), by="reader-2")
    written.final(PLACE, (0, "a"))
    assert not found(written)


def test_other_content_in_a_later_epoch_passes() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.shown(PLACE, 0, 1, (0, "b"), epoch=2)
    assert not found(written)


def test_two_readers_with_two_contents_are_found() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.shown(PLACE, 0, 1, (0, "b"), by="reader-2")
    assert found(written) == [
        "offset 0 of plain-0 in epoch 1 has two contents: None=b'a' shown to reader-1 at 3.000 s, "
        "None=b'b' shown to reader-2 at 4.000 s"
    ]


def test_final_log_with_another_content_is_found() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 1, (0, "a", "k"))
    written.final(PLACE, (0, "a", "l"))
    (problem,) = found(written)
    assert "b'k'=b'a' shown to reader-1 at 3.000 s, b'l'=b'a' in the final log" in problem


def test_damaged_partition_proves_nothing() -> None:
    written = Written("plain")
    written.happened("flip", "disk-1/plain-0/00000000000000000000.log")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.final(PLACE, (0, "b"))
    assert not found(written)

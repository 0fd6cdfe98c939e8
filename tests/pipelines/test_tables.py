"""A compacted topic as a table, read from a real broker: what is kept, what is read again, what is too much."""

import pytest

from barnabas.base.clock import ManualClock
from barnabas.testing import Broker

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

SIZE_MAX = 1 << 20
COMPACTED = {"cleanup.policy": "compact"}


def current(broker: Broker, clock: ManualClock, *, size_max: int = SIZE_MAX) -> dict[bytes, bytes]:
    from barnabas.pipelines.tables import current_table

    table = current_table(broker.bootstrap, "users", 60, size_max, clock)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_table_is_kept_for_the_refresh_interval_and_then_brought_up(broker: Broker) -> None:
    clock = ManualClock()
    broker.create_topic("users", 2, COMPACTED)
    broker.append("users", [b"Ann"], key=b"1")
    broker.append("users", [b"Bob"], key=b"2", partition=1)
    assert current(broker, clock) == {b"1": b"Ann", b"2": b"Bob"}
    broker.append("users", [b"Anna"], key=b"1")
    broker.append("users", [None], key=b"2", partition=1)
    clock.advance(59_000)
    assert current(broker, clock) == {b"1": b"Ann", b"2": b"Bob"}
    clock.advance(1_000)
    assert current(broker, clock) == {b"1": b"Anna"}


def test_table_of_empty_topic_has_no_rows(broker: Broker) -> None:
    broker.create_topic("users", 1, COMPACTED)
    assert current(broker, ManualClock()) == {}


def test_table_of_topic_that_was_made_anew_is_read_anew(broker: Broker) -> None:
    clock = ManualClock()
    broker.create_topic("users", 1, COMPACTED)
    broker.append("users", [b"Ann", b"Anna"], key=b"1")
    assert current(broker, clock) == {b"1": b"Anna"}
    broker.delete_topic("users")
    broker.create_topic("users", 1, COMPACTED)
    broker.append("users", [b"Cid"], key=b"3")
    clock.advance(60_000)
    assert current(broker, clock) == {b"3": b"Cid"}


def test_table_larger_than_its_limit_is_refused_with_what_to_do(broker: Broker) -> None:
    from barnabas.pipelines.tables import TableTooLarge

    broker.create_topic("users", 1, COMPACTED)
    broker.append("users", [b"x" * 2_000], key=b"1")
    with pytest.raises(TableTooLarge, match=r"over the limit of 1000; raise 'size_max'"):
        current(broker, ManualClock(), size_max=1_000)


def test_table_of_missing_topic_is_refused(broker: Broker) -> None:
    from barnabas.client.errors import UnknownTopic

    with pytest.raises(UnknownTopic):
        current(broker, ManualClock())

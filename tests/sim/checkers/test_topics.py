"""Topics come, grow, change and go as they are told."""

import pytest

from barnabas.sim.checkers.topics import check_topics
from tests.sim.checkers.written import PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_topics(written.history))


def new_topic(written: Written, *, partitions: int = 2, answer: str = "done") -> None:
    written.admin("create_topic", partitions, topic="new", partitions=partitions, configs=(), answer=answer)


def test_topics_that_are_there_pass() -> None:
    written = Written("plain")
    new_topic(written)
    written.admin("describe", ("plain", "new"))
    written.final_topic("plain")
    written.final_topic("new", 2)
    assert not found(written)


def test_missing_topic_is_found() -> None:
    written = Written("plain")
    written.admin("describe", ())
    assert found(written) == [
        "topic plain is not there at 4.000 s, though it was created and not deleted",
        "topic plain is not there at the end, though it was created and not deleted",
    ]


def test_deleted_topic_is_gone() -> None:
    written = Written("plain")
    written.admin("delete_topic", topic="plain")
    written.admin("describe", ())
    assert not found(written)


def test_topic_that_comes_back_is_found() -> None:
    written = Written("plain")
    written.admin("delete_topic", topic="plain")
    written.admin("describe", ())
    written.final_topic("plain")
    assert found(written) == ["topic plain is there at the end, though it was deleted"]


@pytest.mark.parametrize("answer", ["failed", "none"])
@pytest.mark.parametrize("is_there", [True, False])
def test_calls_without_a_good_answer_may_have_worked(answer: str, is_there: bool) -> None:
    written = Written("plain")
    new_topic(written, answer=answer)
    written.admin("delete_topic", topic="plain", answer=answer)
    if is_there:
        written.final_topic("plain")
        written.final_topic("new", 2)
    assert not found(written)


def test_topic_created_again_is_there() -> None:
    written = Written()
    new_topic(written)
    written.admin("delete_topic", topic="new")
    new_topic(written)
    for topic in ("plain", "flushed", "compacted", "expiring"):
        written.final_topic(topic)
    assert found(written) == ["topic new is not there at the end, though it was created and not deleted"]


def test_partitions_that_were_added_stay() -> None:
    written = Written("plain")
    written.admin("add_partitions", topic="plain", total=3)
    written.admin("list_offsets", tuple((PLACE, 0, 0) for _ in range(3)), topic="plain")
    written.final_topic("plain", 3)
    assert not found(written)


def test_fewer_partitions_are_found() -> None:
    written = Written("plain")
    written.admin("add_partitions", topic="plain", total=3)
    written.admin("list_offsets", tuple((PLACE, 0, 0) for _ in range(2)), topic="plain")
    written.final_topic("plain", 1)
    assert found(written) == [
        "topic plain had 3 partitions at 4.000 s, and 2 at 6.000 s",
        "topic plain had 3 partitions at 4.000 s, and 1 at the end",
    ]


def test_more_partitions_than_anybody_asked_for_are_found() -> None:
    written = Written("plain")
    written.admin("add_partitions", topic="plain", total=3, answer="none")
    written.final_topic("plain", 4)
    assert found(written) == ["topic plain has 4 partitions; nobody asked for more than 3"]


def test_last_setting_is_in_effect() -> None:
    written = Written("expiring")
    written.admin("set_config", topic="expiring", configs=(("retention.ms", "5"),))
    written.final_topic("expiring", retention_ms="5")
    assert not found(written)


def test_earlier_setting_is_found() -> None:
    written = Written("expiring")
    written.admin("set_config", topic="expiring", configs=(("retention.ms", "5"),))
    written.final_topic("expiring")
    assert found(written) == [
        "retention.ms of topic expiring is '3000' at the end, though '5' was written between 3.000 and 4.000 s"
    ]


def test_setting_without_an_answer_may_be_in_effect() -> None:
    written = Written("expiring")
    written.admin("set_config", topic="expiring", configs=(("retention.ms", "5"),), answer="none")
    written.final_topic("expiring")
    assert not found(written)
    written.final_topic("expiring", retention_ms="5")
    assert not found(written)


def test_history_without_an_end_says_nothing_of_it() -> None:
    written = Written("plain")
    written.history.is_complete = False
    assert not found(written)

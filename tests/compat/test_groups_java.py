"""Groups of Kafka's own Java consumers, alone and together with those of other libraries."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.codec_runs import check_codecs
from tests.support.group_members import GroupMembers, Member
from tests.support.group_scenarios import GROUP_SETTINGS, SESSION_TIMEOUT_MS, make_group
from tests.support.kafka import JAVA_SOURCES, java_command, run_tools

BOTH_CODECS = True
pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka")]

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ASSIGNORS = "org.apache.kafka.clients.consumer"
RANGE, COOPERATIVE = f"{ASSIGNORS}.RangeAssignor", f"{ASSIGNORS}.CooperativeStickyAssignor"


@pytest.fixture(scope="module")
def broker(codecs: str) -> Iterator[Broker]:
    with Broker(GROUP_SETTINGS) as broker:
        yield broker
        check_codecs(broker, codecs)


def start_java(members: GroupMembers, broker: Broker, group: str, name: str, assignor: str) -> Member:
    """`group` is also the name of its topic."""
    program = str(JAVA_SOURCES / "GroupWorker.java")
    arguments = (broker.bootstrap, group, group, assignor, str(SESSION_TIMEOUT_MS), name)
    return members.start_command(name, java_command(program, *arguments, heap_megabytes=128))


def test_cooperative_java_group_survives_a_kill_and_a_pause(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(broker, "java", "confluent", tmp_path, partitions=4)
    with members:
        klamm = start_java(members, broker, "java", "klamm", COOPERATIVE)
        frieda = start_java(members, broker, "java", "frieda", COOPERATIVE)
        members.wait_settled("klamm", "frieda")
        members.wait_records(work.add())
        klamm.pause()
        members.wait_records(work.add())
        members.wait_settled("frieda")
        klamm.resume()
        members.wait_settled("klamm", "frieda")
        frieda.kill()
        members.wait_records(work.add())
        members.wait_settled("klamm")

    assert set(members.counts()) == work.values
    assert members.overlaps() == []


def test_members_of_four_libraries_share_a_group(broker: Broker, tmp_path: Path) -> None:
    members, work = make_group(broker, "mixed", "confluent", tmp_path, partitions=8)
    with members:
        start_java(members, broker, "mixed", "java", RANGE)
        for library in ("confluent", "aiokafka", "kafka-python"):
            members.start(library, library)
        names = ["java", "confluent", "aiokafka", "kafka-python"]
        members.wait_settled(*names)
        members.wait_records(work.add())
        assert {len(members.members[name].values()) for name in names} == {len(work.values) // len(names)}
        assert set(members.counts().values()) == {1}
        members.members["confluent"].kill()
        members.members["aiokafka"].close()
        members.wait_records(work.add())
        members.wait_settled("java", "kafka-python")

    assert members.overlaps() == []


def test_console_consumer_with_a_group_goes_on_where_it_stopped(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    broker.create_topic("console")
    values = ["two coffees", "a tea", "three cakes"]
    broker.append("console", [value.encode() for value in values])
    consume = (CONSOLE_CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", "console", "--group", "console")

    first, second = run_tools(
        [
            (*consume, "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"),
            (*consume, "--max-messages", "1", "--timeout-ms", "20000"),
        ]
    )

    assert [line for line in first.splitlines() if line in values] == values[:2]
    assert [line for line in second.splitlines() if line in values] == values[2:]

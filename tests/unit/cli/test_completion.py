"""What Tab offers, in Bash's way of asking; and that it never shows an error."""

import socket
from collections.abc import Callable, Iterator

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli import completion, main
from barnabas.client.blocking import BlockingClient
from barnabas.testing import Broker
from tests.unit.cli.test_remote import nobody

__all__ = ["nobody"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.create_topic("outer-space")
        with BlockingClient(broker.bootstrap) as client:
            client.commit_offsets("billing", {TopicPartition("orders", 0): 0})
        yield broker.bootstrap


@pytest.fixture
def press_tab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Calls `barnabas` as Bash does when Tab is pressed behind these words; returns what it offers."""

    def press(*words: str) -> list[str]:
        monkeypatch.setenv(completion.VARIABLE, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(("barnabas", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit) as ended:
            main.run([])
        printed = capsys.readouterr()
        assert (ended.value.code, printed.err) == (0, "")
        return printed.out.split()

    return press


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["topic", "describe", "o"], ["orders", "outer-space"]),
        (["topic", "delete", "orders", "out"], ["outer-space"]),
        (["topic", "delete-records", ""], ["orders", "outer-space"]),
        (["topic", "create", "o"], []),
        (["topic", "describe", "_"], ["__consumer_offsets"]),
        (["produce", "ord"], ["orders"]),
        (["consume", "ord"], ["orders"]),
        (["consume", "orders", "--group", ""], ["billing"]),
        (["group", "describe", "b"], ["billing"]),
        (["group", "delete", ""], ["billing"]),
        (["group", "reset", "billing", "--topic", "ord"], ["orders"]),
        (["config", "get", "--topic", "ord"], ["orders"]),
        (["config", "get", "--topic", "=", "ord"], ["orders"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_topics_and_groups_of_the_cluster_are_offered(
    press_tab: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    bootstrap: str,
    words: list[str],
    names: list[str],
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", bootstrap)
    assert press_tab(*words) == names


def test_cluster_is_the_one_that_the_command_line_names(press_tab: Callable[..., list[str]], bootstrap: str) -> None:
    host, _, port = bootstrap.partition(":")
    assert press_tab("topic", "describe", "-b", host, ":", port, "ord") == ["orders"]


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["topic", "create", "orders", "--set", "retention."], {"retention.ms=", "retention.bytes="}),
        (["topic", "alter", "orders", "--unset", "retention."], {"retention.ms", "retention.bytes"}),
        (["config", "set", "--topic", "orders", "retention.m"], {"retention.ms="}),
        (["config", "unset", "--broker", "1", "log.retention.h"], {"log.retention.hours"}),
        (["config", "get", "retention.m"], {"retention.ms"}),
        (["up", "--set", "num.partitions"], {"num.partitions="}),
        (["topi"], {"topic"}),
        (["topic", "delete"], {"delete", "delete-records"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_and_commands_are_offered_without_a_cluster(
    press_tab: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    nobody: str,
    words: list[str],
    some: set[str],
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", nobody)
    assert set(press_tab(*words)) == some


def test_nothing_is_offered_and_nothing_said_when_no_broker_answers(
    press_tab: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, nobody: str
) -> None:
    monkeypatch.setattr(completion, "_TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address in (nobody, f"127.0.0.1:{silent.getsockname()[1]}", "no address"):
            monkeypatch.setenv("BARNABAS_BOOTSTRAP", address)
            assert press_tab("topic", "describe", "") == []
            assert press_tab("group", "describe", "") == []


@pytest.mark.parametrize(
    ("words", "position", "joined", "joined_position"),
    [
        (["b", "-b", "::1", ":", "9", ""], 5, ["b", "-b", "::1:9", ""], 3),
        (["b", "--topic", "=", "or"], 3, ["b", "--topic=or"], 1),
        (["b", "--topic", "="], 2, ["b", "--topic="], 1),
        (["b", "topic", ""], 2, ["b", "topic", ""], 2),
        (["b", "topic", "describe"], 1, ["b", "topic", "describe"], 1),
    ],
)
def test_words_that_bash_broke_are_put_together(
    words: list[str], position: int, joined: list[str], joined_position: int
) -> None:
    environment = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(position)}
    completion.rejoin_words(environment)
    assert environment == {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(joined_position)}

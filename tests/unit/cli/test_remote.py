"""What the commands say when the cluster, or the user, is not as they should be: one line, and exit status 1."""

import socket

import pytest

from barnabas.cli.remote import error_line
from barnabas.client.errors import UnknownTopic
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.command_line import assert_no_broker_answers, run

COMMANDS = [
    ["topic", "create", "orders"],
    ["topic", "list"],
    ["topic", "describe", "orders"],
    ["topic", "alter", "orders", "-p", "3"],
    ["topic", "delete", "orders", "--yes"],
    ["config", "get", "--topic", "orders"],
    ["config", "set", "--topic", "orders", "retention.ms=1"],
    ["config", "unset", "--topic", "orders", "retention.ms"],
    ["cluster", "describe"],
    ["cluster", "watch"],
    ["consume", "orders"],
    ["produce", "orders", "/dev/null"],
]


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_without_a_broker_says_how_to_start_one(
    capsys: pytest.CaptureFixture[str], nobody: str, command: list[str]
) -> None:
    assert_no_broker_answers(capsys, nobody, command)


def test_address_comes_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, nobody: str
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", nobody)
    assert nobody in run(capsys, "topic", "list")[2]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["topic", "list", "-b", "a b"], "not an address of the form HOST:PORT: 'a b'"),
        (["topic", "list", "-b", "[::1]:1"], "no broker answers at [::1]:1"),
        (
            ["topic", "list", "-b", "::1:9092"],
            "not an address of the form HOST:PORT: '::1:9092' (put an IPv6 address",
        ),
        (["topic", "alter", "orders"], "nothing to change; give --partitions, --set or --unset"),
        (["topic", "create", "orders", "--set", "x"], "--set wants NAME=VALUE, not 'x'"),
        (["produce", "orders", "--header", "=x"], "--header wants NAME=VALUE, not '=x'"),
        (["produce", "orders", "/nowhere/at/all"], "cannot read /nowhere/at/all: No such file or directory"),
        (["consume", "orders", "--json", "--format", "x"], "give --format or --json, not both"),
        (
            ["consume", "orders", "--format", "{x}"],
            "--format: unknown field {x}; known fields are topic, partition, offset",
        ),
        (["consume", "orders", "--from", "never"], "--from 'never' is not a place to start"),
    ],
)
def test_mistake_is_told_in_one_line_before_anything_is_done(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"barnabas: {line}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UnknownTopic("topic 'x' does not exist"), "topic 'x' does not exist; see 'barnabas topic list'"),
        (
            KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'x': Topic 'x' already exists."),
            "topic 'x' exists already; see 'barnabas topic describe'",
        ),
        (KafkaError(ErrorCode.INVALID_CONFIG, "topic 'x': No."), "topic 'x': No (INVALID_CONFIG)"),
        (KafkaError(ErrorCode.NOT_CONTROLLER), "not controller (NOT_CONTROLLER)"),
    ],
)
def test_error_of_the_broker_is_told_with_what_helps(error: KafkaError, line: str) -> None:
    assert error_line(error) == line

"""What a person at a terminal sees: questions and their answers."""

import re
from collections.abc import Iterator

import pytest

from barnabas.cli import main
from barnabas.testing import Broker
from tests.support.command_line import run
from tests.support.terminal import Terminal

GROUPS = [name for name in main.COMMANDS if name not in ("up", "produce", "consume")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_question_is_answered_with_one_line_and_a_status_of_its_own(broker: Broker) -> None:
    broker.create_topic("asked")
    question = "Delete asked and everything in it? [y/N]: "
    for typed, status, said in [
        (["perhaps\n", "n\n"], 1, "nothing deleted"),
        (["\x03"], 130, ""),
        (["y\n"], 0, "deleted topic 'asked'"),
    ]:
        with Terminal(broker.bootstrap, "topic", "delete", "asked") as terminal:
            for number, answer in enumerate(typed, start=1):
                terminal.wait_for(question, times=number)
                terminal.type(answer)
            assert terminal.status() == status
        assert terminal.seen.splitlines()[len(typed) :] == ([said] if said else [])
        assert ("asked" in broker.topics()) == (status != 0)


def test_members_of_a_group_stand_on_one_line_each(broker: Broker) -> None:
    broker.create_topic("shared", partitions=2)
    with Terminal(broker.bootstrap, "consume", "shared", "--group", "kitchen", "--follow") as member:
        for _ in range(60):  # the member takes a moment to join
            with Terminal(broker.bootstrap, "group", "describe", "kitchen", "--members", "--offsets") as terminal:
                terminal.status()
            seen = terminal.seen
            if "shared 0,1" in seen:
                break
        member.type("\x03")
        assert member.status() == 130
    lines = seen.splitlines()
    assert max(map(len, lines)) <= 80
    (header,) = [number for number, line in enumerate(lines) if line.startswith("member ")]
    assert len(lines) == header + 2, "one line for the one member"
    assert re.match(r"barnabas-cli-[0-9a-f]{8}  barnabas-cli  127.0.0.1 ", lines[-1])


@pytest.mark.parametrize("group", GROUPS)
def test_group_of_commands_alone_shows_its_help(capsys: pytest.CaptureFixture[str], group: str) -> None:
    status, out, err = run(capsys, group)
    assert (status, err) == (0, "")
    assert out == run(capsys, group, "--help")[1]


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_list_of_commands_is_whole_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = run(capsys, *filter(None, [group]))[1]
    assert not [line for line in out.splitlines() if line.endswith("...") and "Usage" not in line]

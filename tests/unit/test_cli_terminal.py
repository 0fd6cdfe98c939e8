"""What a person at a terminal sees: questions and their answers."""

from collections.abc import Iterator

import pytest

from barnabas.cli import main
from barnabas.testing import Broker
from tests.support.terminal import Terminal
from tests.unit.test_cli_remote import run

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


@pytest.mark.parametrize("group", GROUPS)
def test_group_of_commands_alone_shows_its_help(capsys: pytest.CaptureFixture[str], group: str) -> None:
    status, out, err = run(capsys, group)
    assert (status, err) == (0, "")
    assert out == run(capsys, group, "--help")[1]

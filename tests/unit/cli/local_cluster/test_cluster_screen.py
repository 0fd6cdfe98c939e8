"""What a person sees of a local cluster."""

import io

import pytest

from barnabas.cli.local_cluster import cluster_screen
from barnabas.cli.local_cluster.cluster_screen import BrokerRow, PlainScreen, StateTable, TerminalScreen, make_screen

ROWS = [BrokerRow(1, "127.0.0.1:9092", None, 71, "ready"), BrokerRow(2, "127.0.0.1:9192", None, None, "stopped")]


def test_lines_go_to_standard_error_and_the_table_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    screen = make_screen()
    assert isinstance(screen, PlainScreen)
    with screen:
        screen.show(ROWS)
        screen.line("broker-1", "hello")
        screen.note("broker-2 stopped")
        screen.ready("it is ready", "127.0.0.1:9092", ROWS)

    said = capsys.readouterr()
    assert said.err.splitlines() == ["broker-1 | hello", "broker-2 stopped"]
    assert [" ".join(line.split()) for line in said.out.splitlines()] == [
        "it is ready",
        "broker address pid state",
        "1 127.0.0.1:9092 71 ready",
        "2 127.0.0.1:9192 stopped",
    ]


def test_ports_of_metrics_have_a_column_where_there_are_some() -> None:
    table = StateTable.of([BrokerRow(1, "h:1", 9404, 71, "ready")])

    assert table.columns == ("broker#", "address", "metrics port#", "pid#", "state")
    assert table.rows == [("1", "h:1", "9404", "71", "ready")]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_table_stays_below_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    page = _Terminal()
    monkeypatch.setattr(cluster_screen.sys, "stdout", page)
    monkeypatch.setenv("TERM", "xterm")
    screen = make_screen()
    assert isinstance(screen, TerminalScreen)
    with screen:
        screen.show(ROWS)
        screen.line("broker-1", "hello [bold]")
        screen.ready("it is ready", "127.0.0.1:9092", ROWS)
        screen.note("broker-2 stopped")

    seen = page.getvalue()
    assert "hello [bold]" in seen
    assert "it is ready; Ctrl-C stops it." in seen
    assert "barnabas topic create orders" in seen
    assert seen.rindex("127.0.0.1:9192") > seen.rindex("broker-2 stopped")

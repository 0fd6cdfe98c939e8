"""The docs of the tools stay true: every command and option has its place there, and every example gives what it says.

After a change of what a command prints, `python -m tests.unit.project.test_docs` writes the examples' output anew; read
the difference before you keep it.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer

from barnabas.cli.main import make_app, run
from tests.support.sample_log import make_sample

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "log-tools.md"
ALL_PAGES = "".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
CONSOLE = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
OPTIONS_WITHOUT_DOCS = {"--help", "-h", "--show-completion"}


def run_example(line: str) -> str:
    """What a person sees after this line, without colours, both streams in their order."""
    program, *arguments = shlex.split(line)
    if program == "barnabas":
        printed = StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            run(arguments)
        output = printed.getvalue()
    else:
        output = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
    return "".join(f"{line.rstrip()}\n" for line in output.splitlines())


def fill_examples(page: str, directory: Path) -> str:
    """The page with the output of every example as it is now."""
    make_sample(directory)

    def fill(block: re.Match[str]) -> str:
        lines = [line for line in block.group().splitlines() if line.startswith("$ ")]
        return "".join(f"{line}\n{run_example(line[2:])}" for line in lines)

    with chdir(directory):
        return CONSOLE.sub(fill, page)


def commands(command: Any = None, name: str = "barnabas") -> Iterator[tuple[str, Any]]:
    """Every command with its full name, groups included."""
    command = typer.main.get_command(make_app()) if command is None else command
    yield name, command
    for child_name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{name} {child_name}")


def test_examples_in_log_tools_page_give_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    page = PAGE.read_text()

    assert len(CONSOLE.findall(page)) > 5
    assert fill_examples(page, tmp_path) == page


@pytest.mark.parametrize("name", [name for name, command in commands() if not hasattr(command, "commands")])
def test_every_command_has_a_section(name: str) -> None:
    assert f"## `{name}`\n" in ALL_PAGES


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_every_option_is_mentioned(name: str, command: Any) -> None:
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("-")}

    assert [option for option in sorted(options - OPTIONS_WITHOUT_DOCS) if option not in ALL_PAGES] == []


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_every_command_and_option_explains_itself(name: str, command: Any) -> None:
    assert command.help
    assert [parameter.name for parameter in command.params if not getattr(parameter, "help", None)] == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        PAGE.write_text(fill_examples(PAGE.read_text(), Path(scratch)))

"""The examples of docs/commands.md give what the page says, on a broker process of their own.

After a change of what a command prints, `python -m tests.unit.project.test_docs_commands` rewrites the page; read the
difference before you keep it. Ids, addresses and sizes differ from run to run and are not compared.
"""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.command_line import run_line

PAGE = Path(__file__).resolve().parents[3] / "docs" / "commands.md"
CONSOLE = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
CHANGING = [
    (re.compile(r"[\w-]{22}(?=[\s\",])"), "ID"),
    (re.compile(r"127\.0\.0\.1:\d{4,}"), "ADDRESS"),
    (re.compile(r"\d+(\.\d)? (B|KiB|MiB|GiB)"), "SIZE"),
    (re.compile(r"[^\S\n\t]+"), " "),
]


def fill_examples(page: str, bootstrap: str) -> str:
    """The page with the output of every example as it is now."""
    return fill_lines(page, lambda line: run_line(line, bootstrap))


def fill_lines(page: str, run: Callable[[str], str]) -> str:
    """The same, with what `run` says of each line of the examples."""

    def fill(block: re.Match[str]) -> str:
        lines = [line for line in block.group().splitlines() if line.startswith("$ ")]
        return "".join(f"{line}\n{run(line[2:])}" for line in lines)

    return CONSOLE.sub(fill, page)


def without_what_changes(page: str) -> str:
    for pattern, constant in CHANGING:
        page = pattern.sub(constant, page)
    return page


def test_examples_in_commands_page_give_what_the_page_says(tmp_path: Path) -> None:
    page = PAGE.read_text()
    with BrokerProcess(tmp_path) as broker:
        filled = fill_examples(page, broker.bootstrap)

    assert len(CONSOLE.findall(page)) > 10
    assert without_what_changes(filled) == without_what_changes(page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, BrokerProcess(Path(scratch)) as running:
        text = fill_examples(PAGE.read_text(), running.bootstrap)
        PAGE.write_text(text.replace(running.bootstrap, "127.0.0.1:9092".ljust(len(running.bootstrap))))

"""The guides in docs/examples name what there is: files, commands with their options, keys of pipelines."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from barnabas.cli.main import make_app

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install barnabas[spark]")

ROOT = Path(__file__).resolve().parents[3]
GUIDES = sorted((ROOT / "docs" / "examples").glob("*.md"))
BLOCK = re.compile(r"```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL)
FILE = re.compile(r"`((?:examples|docs|src|tests)/[\w./-]+\.\w+)`")
MODULE = re.compile(r"python -m (examples(?:\.\w+)+)")

pytestmark = pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)


def blocks(guide: Path, *kinds: str) -> list[str]:
    return [match["text"] for match in BLOCK.finditer(guide.read_text(encoding="utf-8")) if match["kind"] in kinds]


def test_files_and_modules_of_a_guide_exist(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    names = [ROOT / name for name in FILE.findall(text)]
    names += [(ROOT / module.replace(".", "/")).with_suffix(".py") for module in MODULE.findall(text)]
    assert names
    assert [str(name) for name in names if not name.exists()] == []


def test_pipelines_in_a_guide_can_be_read(guide: Path) -> None:
    """A part of a pipeline is read as a change of the example's."""
    from barnabas.pipelines.spec import read_pipeline

    example: dict[str, Any] = yaml.safe_load((ROOT / "examples" / guide.stem / "pipeline.yaml").read_text("utf-8"))
    for text in blocks(guide, "yaml"):
        part = yaml.safe_load(text)
        whole = part if "name" in part else {**example, **part}
        for section in ("sources", "steps", "sinks"):
            whole[section] = {**example.get(section, {}), **part.get(section, {})}
        read_pipeline(yaml.safe_dump(whole, sort_keys=False), f"{guide.name}: {text[:60]}")


def test_commands_in_a_guide_have_the_options_that_it_gives(guide: Path) -> None:
    lines = [
        line.removeprefix("$ ").partition("  #")[0]
        for text in blocks(guide, "console", "sh")
        for line in text.splitlines()
    ]
    commands = [words[words.index("barnabas") + 1 :] for line in lines if "barnabas" in (words := split(line))]
    assert commands
    for words in commands:
        assert unknown(words) == [], f"barnabas {shlex.join(words)}"


def split(line: str) -> list[str]:
    """The words of the first command of a line, or none where it is output."""
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    words = words[: words.index("|")] if "|" in words else words
    return ["barnabas", *words[1:]] if words and words[0].endswith("barnabas") else []


def unknown(words: list[str]) -> list[str]:
    """The words that are no command, and the options that the command does not have."""
    command: Any = typer.main.get_command(make_app())
    while hasattr(command, "commands"):
        if not words or words[0] not in command.commands:
            return words[:1] or ["nothing"]
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in parameter.opts}
    return [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]

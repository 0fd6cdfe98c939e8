"""The examples as they are in the project, placed in a directory of a test's own, with its broker."""

import shutil
from pathlib import Path

from barnabas.testing import Broker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BOOTSTRAP = "bootstrap: 127.0.0.1:9092\n"


def place_example(name: str, directory: Path, broker: Broker, changes: dict[str, str] | None = None) -> Path:
    """The pipeline's file, with the modules beside it. `changes` are texts of it with what is to stand there."""
    for module in (EXAMPLES / name).glob("*.py"):
        shutil.copy(module, directory)
    text = (EXAMPLES / name / "pipeline.yaml").read_text(encoding="utf-8")
    for before, after in {BOOTSTRAP: f"bootstrap: {broker.bootstrap}\n", **(changes or {})}.items():
        assert text.count(before) == 1, f"{before!r} is not in the file once"
        text = text.replace(before, after)
    file = directory / "pipeline.yaml"
    file.write_text(text, encoding="utf-8")
    return file

"""The examples of docs/testing.md, run: together they are one test module of somebody who uses the broker."""

import re
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def test_every_example_of_the_page_passes(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    module = "\n\n".join(blocks)
    count = len(re.findall(r"^def test_", module, re.MULTILINE))
    assert count >= len(blocks)

    pytester.makepyfile(module)

    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=count)

"""The Go program in `tests/support/franz_go`, built once and kept."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.support.kafka import CACHE_DIRECTORY

_SOURCE = Path(__file__).resolve().parent / "franz_go"
_BUILD_TIMEOUT_SECONDS = 240


class FranzGoUnavailable(Exception):  # noqa: N818
    """franz-go cannot be had here; the message says what is missing."""


@cache
def franz_go_program() -> Path:
    if shutil.which("go") is None:
        raise FranzGoUnavailable("franz-go needs Go: no `go` on the PATH")
    fetched = _go("mod", "download")
    if fetched.returncode != 0:
        raise FranzGoUnavailable(f"franz-go cannot be fetched: {fetched.stderr.strip()[-300:]}")
    target = CACHE_DIRECTORY / "franz-go"
    built = _go("build", "-o", str(target), ".")
    assert built.returncode == 0, built.stderr
    return target


def _go(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["go", *arguments], cwd=_SOURCE, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_SECONDS, check=False
    )

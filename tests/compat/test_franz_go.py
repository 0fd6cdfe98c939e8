"""franz-go, the Go client, against Barnabas: `tests/support/franz_go` is the program, built once and kept."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.kafka import CACHE_DIRECTORY

BOTH_CODECS = True

SOURCE = Path(__file__).resolve().parents[1] / "support" / "franz_go"
BUILD_TIMEOUT_SECONDS = 240
RUN_TIMEOUT_SECONDS = 180


@pytest.fixture(scope="module")
def program() -> Path:
    if shutil.which("go") is None:
        pytest.skip("franz-go needs Go: no `go` on the PATH")
    fetched = _go("mod", "download")
    if fetched.returncode != 0:
        pytest.skip(f"franz-go cannot be fetched: {fetched.stderr.strip()[-300:]}")
    target = CACHE_DIRECTORY / "franz-go"
    built = _go("build", "-o", str(target), ".")
    assert built.returncode == 0, built.stderr
    return target


def _go(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["go", *arguments], cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_TIMEOUT_SECONDS, check=False
    )


@pytest.mark.slow
def test_franz_go_produces_with_every_codec_and_consumes_from_an_offset(barnabas_broker: Broker, program: Path) -> None:
    done = subprocess.run(
        [program, barnabas_broker.bootstrap], capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False
    )

    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"offset": number, "key": "key", "value": f"value {number}", "header": "franz-go"} for number in range(1, 5)
    ]
    stored = barnabas_broker.records("franz-go-orders")
    assert [record.compression for record in stored] == ["none", "gzip", "snappy", "lz4", "zstd"]

"""franz-go, the Go client, against Barnabas: `tests/support/franz_go` is the program."""

import json
import subprocess
from pathlib import Path

import pytest

from barnabas.testing import Broker

BOTH_CODECS = True

RUN_TIMEOUT_SECONDS = 180


@pytest.mark.slow
def test_franz_go_produces_with_every_codec_and_consumes_from_an_offset(
    barnabas_broker: Broker, franz_go: Path
) -> None:
    command = [franz_go, "round", barnabas_broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False)

    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"offset": number, "key": "key", "value": f"value {number}", "header": "franz-go"} for number in range(1, 5)
    ]
    stored = barnabas_broker.records("franz-go-orders")
    assert [record.compression for record in stored] == ["none", "gzip", "snappy", "lz4", "zstd"]

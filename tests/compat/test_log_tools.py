"""The tools on whole data directories of Apache Kafka."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas.cli.log.log_commands import app
from tests.support.kafka_directory import KafkaDirectories, copy_data_directory

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_data_directory_of_kafka_verifies(kafka_directory: KafkaDirectories, end: str) -> None:
    result = CliRunner().invoke(app, ["verify", str(getattr(kafka_directory, end).path)])

    assert result.exit_code == 0, result.stdout
    assert "error" not in result.stdout
    assert result.stdout.splitlines()[-1].endswith(": sound")


def test_repair_of_a_killed_data_directory_loses_nothing(kafka_directory: KafkaDirectories, tmp_path: Path) -> None:
    copy = copy_data_directory(kafka_directory.killed.path, tmp_path / "killed")

    repaired = CliRunner().invoke(app, ["repair", str(copy)])

    assert repaired.exit_code == 0, repaired.stdout
    assert "lost" not in repaired.stdout
    verified = CliRunner().invoke(app, ["verify", str(copy)])
    assert "zeros" not in verified.stdout
    assert verified.stdout.splitlines()[-1].endswith(": sound")


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_every_file_of_kafka_can_be_dumped(kafka_directory: KafkaDirectories, end: str) -> None:
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "offset-checkpoint", ".metadata", ".properties")
    data: Path = getattr(kafka_directory, end).path
    # A snapshot is empty when Kafka was killed just before it wrote it.
    whole = (path for path in sorted(data.rglob("*")) if path.suffix != ".snapshot" or path.stat().st_size)
    paths = [str(path) for path in whole if path.name.endswith(kinds)]

    result = CliRunner().invoke(app, ["dump", "--records", "--json", *paths])

    assert len(paths) > 100
    assert result.exit_code == 0, result.stderr

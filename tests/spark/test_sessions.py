"""What stands in the way of Spark's discovery, in one line; and discovery itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

from barnabas.spark.sessions import SparkUnavailable, discovery_problem, session
from barnabas.spark.source import BarnabasDataSource


def test_default_source_is_what_the_package_for_discovery_offers() -> None:
    from pyspark_barnabas import DefaultSource

    assert DefaultSource is BarnabasDataSource
    assert DefaultSource.name() == "barnabas"


def test_discovery_with_this_interpreter_has_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    assert discovery_problem() is None


def test_discovery_by_another_interpreter_names_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    problem = discovery_problem()
    assert problem is not None
    assert str(other) in problem
    assert sys.executable in problem


def test_discovery_with_an_interpreter_that_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/nowhere/python3")
    assert "no such program" in (discovery_problem() or "")


def test_discovery_with_a_broken_package_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('half installed')\n")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "pyspark_broken cannot be imported (half installed)" in (discovery_problem() or "")


def test_session_without_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(SparkUnavailable, match="Java 17"):
        session()


def test_importing_the_package_imports_no_pyspark() -> None:
    """The command line imports it to know its names; Spark comes when it is used."""
    program = "import sys, barnabas.spark; sys.exit('pyspark' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0

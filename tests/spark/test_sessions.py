"""What stands in the way of Spark's discovery, in one line; and discovery itself."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from barnabas.spark import compiled_modules
from barnabas.spark.format_session import discovery_problem, session
from barnabas.spark.source import BarnabasDataSource, SparkUnavailable, require_version
from barnabas.testing import Broker


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
    assert "which does not exist" in (discovery_problem() or "")


def test_discovery_with_a_broken_package_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('half installed')\n")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "pyspark_broken cannot be imported (half installed)" in (discovery_problem() or "")


def test_session_without_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(SparkUnavailable, match="Java 17"):
        session()


def test_importing_the_package_imports_no_pyspark() -> None:
    """The command line imports it to know its names; Spark comes when it is used."""
    program = "import sys, barnabas.spark; sys.exit('pyspark' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0


@pytest.mark.parametrize("version", ["3.5.3", "4.0.1", "4.1.0.dev0"])
def test_older_spark_is_told_which_one_it_takes(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = f"needs Spark 4.2 or newer, and this is {version}: pip install"
    with pytest.raises(SparkUnavailable, match=told):
        require_version(version)
    # Also without `session`, before anything is imported that an older Spark does not have.
    monkeypatch.setattr("pyspark.__version__", version)
    source = BarnabasDataSource({})
    schema = StructType([])
    for use in (
        source.schema,
        lambda: source.reader(schema),
        lambda: source.streamReader(schema),
        lambda: source.writer(schema, False),
        lambda: source.streamWriter(schema, False),
    ):
        with pytest.raises(SparkUnavailable, match=told):
            use()


ALL_USES = """
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "orders", "startingOffsets": "earliest"}
rows = spark.read.format("barnabas").options(**options).load().select("value")
assert sorted(row.value for row in rows.collect()) == [b"1", b"2"]
sink = {"kafka.bootstrap.servers": bootstrap, "topic": "copies"}
rows.write.format("barnabas").options(**sink).mode("append").save()
stream = spark.readStream.format("barnabas").options(**options).load().select("value")
writer = stream.writeStream.format("barnabas").options(**sink).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
"""
PLAIN_SCRIPT = f"""
import sys
import barnabas.spark
from pyspark.sql import SparkSession

bootstrap, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").getOrCreate()
{ALL_USES}
"""
NOTEBOOK = f"""
import sys
from pyspark.sql import SparkSession

bootstrap, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").getOrCreate()
assert spark.range(3).count() == 3
assert spark.sparkContext.pythonExec != sys.executable

from barnabas.spark import session

assert session() is spark
{ALL_USES}
"""


@pytest.mark.parametrize("script", [PLAIN_SCRIPT, NOTEBOOK], ids=["plain script", "session that exists"])
def test_environment_that_is_not_activated_reads_and_writes(broker: Broker, tmp_path: Path, script: str) -> None:
    """`python3` of the PATH is one without the package, as where somebody runs `.venv/bin/python program.py`."""
    broker.create_topic("orders")
    broker.create_topic("copies")
    broker.append("orders", [b"1", b"2"])
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'this python has no pyspark' >&2\nexit 1\n")
    other.chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text(script)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")},
        "PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, str(program), broker.bootstrap, str(tmp_path / "checkpoint")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert sorted(record.value or b"" for record in broker.records("copies")) == [b"1", b"1", b"2", b"2"]


# --- compiled modules -------------------------------------------------------------------------------------------


def test_workers_import_pyspark_from_where_it_is_installed(spark: SparkSession) -> None:
    """And not from the zip of sources, which takes each of them a second."""
    import pyspark

    def origin(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark as found

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [found.__file__]})

    paths = {row.path for row in spark.range(0, 2, 1, 1).mapInArrow(origin, "path string").collect()}
    assert paths == {pyspark.__file__}


@pytest.mark.parametrize(
    ("master", "variables", "is_used"),
    [
        ("local[2]", {}, True),
        ("local", {}, True),
        (None, {}, True),
        ("spark://host:7077", {}, False),
        ("yarn", {}, False),
        (None, {"MASTER": "yarn"}, False),
        (None, {"SPARK_CONF_DIR": "/etc/spark"}, False),
        ("local[2]", {"SPARK_HOME": "/opt/spark"}, False),
        ("local[2]", {"PYSPARK_PYTHON": "/usr/bin/python3"}, False),
        ("local[2]", {compiled_modules.SWITCH: "off"}, False),
        ("local[2]", {"XDG_CACHE_HOME": "/proc/none"}, False),
    ],
)
def test_spark_home_without_sources_is_for_local_masters_and_this_interpreter(
    master: str | None, variables: dict[str, str], is_used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_HOME", "MASTER", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", compiled_modules.SWITCH):
        monkeypatch.delenv(name, raising=False)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    home = compiled_modules.spark_home(master)
    assert (home is not None) == is_used
    if home is not None:
        assert home.is_relative_to(tmp_path)
        assert (home / "bin" / "spark-submit").is_file()
        assert os.listdir(home / "python") == []
        assert compiled_modules.spark_home(master) == home
        assert [path.name for path in home.parent.iterdir()] == [home.name]

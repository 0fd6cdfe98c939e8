"""A Spark session that knows `format("barnabas")`, even where Spark's own discovery fails.

Spark finds the format by itself when the package is installed for the interpreter that it starts, which is that of
`PYSPARK_DRIVER_PYTHON`, else of `PYSPARK_PYTHON`, else `python3` of the PATH. It does so by importing every package
whose name begins with `pyspark_`, and one that cannot be imported spoils it for all. `session` registers the format
explicitly, lets Spark's workers run by this interpreter, and says in one line what is in discovery's way for others.
"""

import importlib
import logging
import os
import pkgutil
import shutil
import sys
from collections.abc import Mapping

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from barnabas.spark import prefer_this_interpreter
from barnabas.spark.callbacks import ensure_callbacks
from barnabas.spark.compiled_modules import compiled_modules
from barnabas.spark.source import FORMAT, BarnabasDataSource, SparkUnavailable, require_version

_LOG = logging.getLogger(__name__)

_NO_SETTINGS: Mapping[str, str] = {}


def session(
    name: str = "barnabas", *, master: str | None = None, settings: Mapping[str, str] = _NO_SETTINGS
) -> SparkSession:
    """The running session, or a new one, with the format registered. `settings` are Spark's own.

    Without a master, and without one in Spark's configuration, it runs on all cores of this machine.
    """
    require_version(pyspark.__version__)
    if SparkSession.getActiveSession() is None and shutil.which(_java()) is None:
        raise SparkUnavailable("Spark needs Java 17 or newer: install one, or set JAVA_HOME to it")
    prefer_this_interpreter()
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with compiled_modules(master or settings.get("spark.master")):
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkUnavailable(f"Spark did not start: {error}") from error
    if "PYSPARK_PYTHON" in os.environ and isinstance(spark, SparkSession):
        # Of a session that was there before, which may have looked for an interpreter before this one was named.
        spark.sparkContext.pythonExec = os.environ["PYSPARK_PYTHON"]
    spark.dataSource.register(BarnabasDataSource)
    ensure_callbacks(spark)
    if problem := discovery_problem():
        _LOG.warning(
            "format('%s') is registered in this session, but other sessions do not find it: %s", FORMAT, problem
        )
    return spark


def discovery_problem() -> str | None:
    """Why Spark would not find the format by itself, in one line; None when it does."""
    chosen = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON") or "python3"
    found = shutil.which(chosen)
    if found is None:
        return f"Spark would run '{chosen}', which does not exist"
    if os.path.realpath(found) != os.path.realpath(sys.executable):
        return f"Spark would run {found}, but the package is installed for {sys.executable}: set PYSPARK_PYTHON to that"
    for module in pkgutil.iter_modules():
        if module.name.startswith("pyspark_"):
            try:
                importlib.import_module(module.name)
            except Exception as error:  # noqa: BLE001 - other people's packages may raise anything
                return f"package {module.name} cannot be imported ({error}), which stops Spark from finding any format"
    return None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"

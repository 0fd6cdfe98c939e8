"""The Spark session of a pipeline: its settings, its log, and a JVM that outlives a signal to the process group.

| setting | default | why |
|---|---|---|
| `spark.sql.shuffle.partitions` | the cores | Spark's 200 cost seconds in every batch of a small pipeline |
| `spark.sql.streaming.stateStore.providerClass` | RocksDB | state beyond memory, and what transformWithState needs |
| `spark.sql.session.timeZone` | UTC | the same file gives the same windows everywhere |
| `spark.sql.ansi.enabled` | false | a bad cast gives null, and does not stop the query |
| `spark.ui.enabled` | false | it would open a port that the user did not ask for |

Settings under `spark` in the file override these. Ctrl-C, or SIGTERM to the whole process group, must reach the driver
alone: the JVM runs in a session of its own, and ends by itself when the driver's end of its pipe closes. What the JVM
and Spark's workers say goes to a file, where one is given, which is kept short (`rotate_log`). The JVM starts faster
where `class_data` has an archive.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from barnabas.pipelines.class_data import with_archive
from barnabas.pipelines.rules import SHUFFLE_PARTITIONS
from barnabas.spark.compiled_modules import compiled_modules
from barnabas.spark.format_session import session
from barnabas.spark.source import SparkUnavailable

DEFAULTS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.numRecentProgressUpdates": "50",
}
_END_SECONDS: Final = 5.0
_LOG_BYTES_MAX: Final = 32 << 20
_DEFAULT_MASTER: Final = "local[*]"
_CHATTY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j")
"""They log every error with its trace, or as JSON, before it is raised; we report the raised one in one line."""


def start_session(
    name: str, master: str | None, settings: Mapping[str, str], log_file: Path | None = None
) -> SparkSession:
    """The session of this process, made with these settings over the defaults, where there is none yet."""
    chosen = {**DEFAULTS, **settings}
    for chatty in _CHATTY_LOGGERS:
        logging.getLogger(chatty).setLevel(logging.CRITICAL + 1)
    if SparkContext._active_spark_context is None:
        _start_context(name, master or chosen.get("spark.master", _DEFAULT_MASTER), chosen, log_file)
    spark = session(name, settings=chosen)
    _quiet_end(spark.sparkContext)
    if SHUFFLE_PARTITIONS not in settings:
        spark.conf.set(SHUFFLE_PARTITIONS, str(spark.sparkContext.defaultParallelism))
    return spark


def _quiet_end(context: SparkContext) -> None:
    """When the JVM dies, py4j logs traces to the root logger, and PySpark's server for accumulators prints one."""
    logging.getLogger().addFilter(_is_not_of_py4j)
    context._accumulatorServer.handle_error = lambda request, client_address: None  # type: ignore[method-assign]


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def has_jvm_ended(spark: SparkSession) -> bool:
    """Whether Spark itself is gone, killed or out of memory. To be called after an error in a call to it."""
    gateway = spark.sparkContext._gateway
    process: subprocess.Popen[bytes] | None = None if gateway is None else gateway.proc
    if process is None:
        return False  # somebody else started it
    try:
        process.wait(_END_SECONDS)  # its connections end a moment before it does
    except subprocess.TimeoutExpired:
        return False
    return True


def stop_session(spark: SparkSession) -> None:
    """Ends Spark, if it has not ended by itself."""
    try:
        spark.stop()
    except (Py4JError, OSError):
        if not has_jvm_ended(spark):
            raise


def rotate_log(log_file: Path) -> None:
    """Moves what a long log says to `NAME.1`. Its writers append, and go on at the beginning of the emptied file."""
    try:
        if log_file.stat().st_size < _LOG_BYTES_MAX:
            return
        shutil.copyfile(log_file, log_file.with_name(f"{log_file.name}.1"))
        os.truncate(log_file, 0)
    except OSError as error:
        logging.getLogger(__name__).warning("cannot rotate %s: %s", log_file, error)


def _start_context(name: str, master: str, settings: Mapping[str, str], log_file: Path | None) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(master).setAppName(name).setAll(list(with_archive(settings, master).items()))
    try:
        with compiled_modules(master):
            gateway = _launch(conf, log_file)
    except PySparkRuntimeError as error:
        where = "" if log_file is None else f"; see {log_file}"
        raise SparkUnavailable(f"Spark did not start; it needs Java 17 or newer{where}") from error
    interrupt = signal.getsignal(signal.SIGINT)
    SparkContext(gateway=gateway, conf=conf)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)  # Spark's own handler would break off the batches of a pipeline


def _launch(conf: SparkConf, log_file: Path | None) -> Any:
    options: dict[str, Any] = {"start_new_session": True}
    if log_file is None:
        return launch_gateway(conf=conf, popen_kwargs=options)  # type: ignore[no-untyped-call]
    log_file.parent.mkdir(parents=True, exist_ok=True)
    if log_file.exists():
        rotate_log(log_file)
    with open(log_file, "ab") as log:
        options |= {"stdout": log, "stderr": subprocess.STDOUT}
        return launch_gateway(conf=conf, popen_kwargs=options)  # type: ignore[no-untyped-call]

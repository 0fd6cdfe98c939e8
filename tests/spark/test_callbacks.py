"""The thread through which Spark calls Python, when it dies: no query hangs."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")


def kill_callback_thread(spark: "SparkSession") -> Any:
    """As an error in it does: the thread ends, and its socket goes on listening."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    server = gateway._callback_server
    server.is_shutdown = True
    with socket.create_connection(server.server_socket.getsockname()):
        server.thread.join(60)
    assert not server.thread.is_alive()
    return server


def run_batches(spark: "SparkSession", checkpoint: Path, timeout_seconds: float) -> bool:
    """Whether a query with `foreachBatch` ended in time."""
    seen: list[int] = []

    def write(rows: "DataFrame", batch_id: int) -> None:
        seen.append(batch_id)

    source = checkpoint / "source"
    source.mkdir(parents=True)
    spark.range(3).write.mode("append").parquet(str(source))
    rows = spark.readStream.schema("id bigint").parquet(str(source))
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint / "progress"))
    running = query.trigger(availableNow=True).start()
    try:
        has_ended = running.awaitTermination(timeout_seconds)
        return bool(has_ended) and seen == [0]
    finally:
        running.stop()


@contextmanager
def many_descriptors() -> Iterator[None]:
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        yield
    finally:
        for descriptor in opened:
            os.close(descriptor)


def test_dead_callback_thread_is_replaced_and_queries_run(spark: "SparkSession", tmp_path: Path) -> None:
    from barnabas.spark.callbacks import ensure_callbacks

    assert not ensure_callbacks(spark)
    dead = kill_callback_thread(spark)
    assert ensure_callbacks(spark)
    assert dead.server_socket.fileno() == -1
    assert not ensure_callbacks(spark)
    assert run_batches(spark, tmp_path, 120)


def test_callbacks_with_too_many_open_files_are_refused_with_what_to_do(spark: "SparkSession") -> None:
    from barnabas.spark.callbacks import CallbacksFailed, ensure_callbacks

    kill_callback_thread(spark).server_socket.close()
    with (
        many_descriptors(),
        pytest.raises(CallbacksFailed, match=r"create the session with barnabas\.spark\.session\(\) before"),
    ):
        ensure_callbacks(spark)
    assert not ensure_callbacks(spark)


def test_callback_server_started_by_many_threads_is_one(spark: "SparkSession") -> None:
    from barnabas.spark.callbacks import ensure_callbacks

    kill_callback_thread(spark)
    together = threading.Barrier(8)
    replaced: list[bool] = []

    def ensure() -> None:
        together.wait()
        replaced.append(ensure_callbacks(spark))

    threads = [threading.Thread(target=ensure) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(replaced) == [False] * 7 + [True]

"""Delta and Iceberg tables, written without jars: a batch goes through the driver as Arrow and is committed once.

The number of the batch is committed together with its rows: as a transaction of the query in Delta's log, as properties
of the snapshot in Iceberg's. A batch whose number is there is skipped. Both packages are the user's to install.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.spec import Sink

WriteBatch = Callable[[DataFrame, int], None]
_QUERY_ID: Final = "sql.streaming.queryId"
_ICEBERG_QUERY: Final = "barnabas.query"
_ICEBERG_BATCH: Final = "barnabas.batch"


class PackageMissing(BarnabasError):  # noqa: N818 - named as the fact that it is
    """A sink needs a package that is not installed."""


def require(package: str, kind: str) -> None:
    """PackageMissing, with what to install."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise PackageMissing(f"a {kind} sink needs the package {package}: pip install {package}")


def delta_writer(sink: Sink, directory: Path) -> WriteBatch:
    require("deltalake", "delta")
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
    from deltalake.exceptions import TableNotFoundError

    path = str(directory / sink.target)

    def write(rows: DataFrame, batch_id: int) -> None:
        query_id = query_id_of(rows)
        try:
            done = DeltaTable(path).transaction_version(query_id)
        except TableNotFoundError:
            done = None
        if done is not None and done >= batch_id:
            return
        write_deltalake(
            path,
            rows.toArrow(),
            mode="overwrite" if sink.mode == "complete" else "append",
            partition_by=list(sink.partition_by) or None,
            schema_mode="overwrite" if sink.mode == "complete" else "merge",
            commit_properties=CommitProperties(app_transactions=[Transaction(query_id, batch_id)]),
        )

    return write


def iceberg_writer(sink: Sink, directory: Path) -> WriteBatch:
    require("pyiceberg", "iceberg")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    catalog = load_catalog("barnabas", **dict(sink.catalog))

    def write(rows: DataFrame, batch_id: int) -> None:
        query_id = query_id_of(rows)
        batch = rows.toArrow()
        try:
            table = catalog.load_table(sink.target)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(sink.target.rpartition(".")[0])
            table = catalog.create_table(sink.target, batch.schema)
        if _iceberg_batch(table, query_id) >= batch_id:
            return
        properties = {_ICEBERG_QUERY: query_id, _ICEBERG_BATCH: str(batch_id)}
        if sink.mode == "complete":
            table.overwrite(batch, snapshot_properties=properties)
        else:
            table.append(batch, snapshot_properties=properties)

    return write


def _iceberg_batch(table: Any, query_id: str) -> int:
    """The last batch of this query in the table, -1 without one."""
    done = -1
    for snapshot in table.snapshots():
        summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if summary.get(_ICEBERG_QUERY) == query_id:
            done = max(done, int(summary[_ICEBERG_BATCH]))
    return done


def query_id_of(rows: DataFrame) -> str:
    """The id that the checkpoint keeps, of the query that runs this batch."""
    query_id = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    assert query_id is not None, "a batch belongs to a query"
    return query_id

"""What the sinks for Delta and Iceberg share: packages that the user installs, and the id of the running query.

Both work alike (`delta`, `iceberg`). Spark's tasks write the data files, where no table lists them yet; the driver gets
their names and commits them together with the number of the batch. A batch whose number is committed is skipped. What
a broken-off batch has written stays behind unlisted, as such tables expect; their own maintenance removes it.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame

from barnabas.base.errors import BarnabasError

WriteBatch = Callable[[DataFrame, int], None]
COMPACT_EVERY: Final = 16
"""Batches between two looks at how many small files there are."""
_QUERY_ID: Final = "sql.streaming.queryId"


class PackageMissing(BarnabasError):  # noqa: N818 - named as the fact that it is
    """A source or sink needs a package that is not installed."""


class UnfitColumn(BarnabasError):  # noqa: N818 - named as the fact that it is
    """A column has another type than the table, and neither can be widened."""


def require(package: str, what: str) -> None:
    """PackageMissing, with what to install."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise PackageMissing(f"{what} needs the package {package}: pip install {package}")


def query_id_of(rows: DataFrame) -> str:
    """The id that the checkpoint keeps, of the query that runs this batch."""
    query_id = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    assert query_id is not None, "a batch belongs to a query"
    return query_id

"""`format("barnabas")`: what Spark makes of an option list, a reader or a writer.

Spark pickles this object and sends it to several short-lived Python processes; so it holds the options only, and
imports what it needs where it is needed. Options, and Spark's version, are checked in each of them: Spark skips
`schema` when the user gives one, and an older Spark lacks what the modules behind import.
"""

import re
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from barnabas.base.errors import BarnabasError

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

    from barnabas.spark.options import SourceOptions

FORMAT: Final = "barnabas"
VERSION_MIN: Final = (4, 2)


class SparkUnavailable(BarnabasError):  # noqa: N818 - named as the fact that it is
    """Spark cannot be started here, or used; the message says what to install."""


def require_version(version: str) -> None:
    """SparkUnavailable when this Spark is too old."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < VERSION_MIN:
        wanted = ".".join(map(str, VERSION_MIN))
        raise SparkUnavailable(
            f"format('{FORMAT}') needs Spark {wanted} or newer, and this is {version}: pip install 'barnabas[spark]'"
        )


class BarnabasDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        require_version(pyspark.__version__)
        from barnabas.spark.rows import record_schema

        return record_schema(str(self.options.get("includeHeaders", "false")).strip().lower() == "true")

    def reader(self, schema: StructType) -> "DataSourceReader":
        options = self._checked(schema, is_streaming=False)
        from barnabas.spark.batch import BarnabasReader

        return BarnabasReader(options, schema)

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":  # noqa: N802 - Spark's name
        options = self._checked(schema, is_streaming=True)
        from barnabas.spark.stream import BarnabasStreamReader

        return BarnabasStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        require_version(pyspark.__version__)
        from barnabas.spark.sink import make_writer

        return make_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":  # noqa: N802
        require_version(pyspark.__version__)
        from barnabas.spark.sink import make_stream_writer

        return make_stream_writer(schema, self.options, overwrite)

    def _checked(self, schema: StructType, *, is_streaming: bool) -> "SourceOptions":
        require_version(pyspark.__version__)
        from barnabas.spark.options import parse_source_options
        from barnabas.spark.rows import check_schema

        options = parse_source_options(dict(self.options), is_streaming=is_streaming)
        check_schema(schema, options.has_headers)
        return options

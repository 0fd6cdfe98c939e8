"""`format("barnabas")`: what Spark makes of an option list, a reader or a writer.

Spark pickles this object and sends it to several short-lived Python processes; so it holds the options only, and
imports what it needs where it is needed. Options are checked in each of them: Spark skips `schema` when the user gives
one.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from barnabas.spark.options import SourceOptions

FORMAT = "barnabas"


class BarnabasDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from barnabas.spark.rows import record_schema

        return record_schema(str(self.options.get("includeHeaders", "false")).strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.batch import BarnabasReader

        return BarnabasReader(self._checked(schema, is_streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from barnabas.spark.stream import BarnabasStreamReader

        return BarnabasStreamReader(self._checked(schema, is_streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from barnabas.spark.sink import make_writer

        return make_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from barnabas.spark.sink import make_stream_writer

        return make_stream_writer(schema, self.options, overwrite)

    def _checked(self, schema: StructType, *, is_streaming: bool) -> "SourceOptions":
        from barnabas.spark.options import parse_source_options
        from barnabas.spark.rows import check_schema

        options = parse_source_options(dict(self.options), is_streaming=is_streaming)
        check_schema(schema, options.has_headers)
        return options

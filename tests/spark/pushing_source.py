"""A source that takes filters, in a module of its own so that Spark's Python processes can import it."""

from collections.abc import Iterable, Iterator

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import IntegerType, StructField, StructType


class PushingSource(DataSource):
    """Ten numbers, of which it reads only the one that Spark asks for."""

    @classmethod
    def name(cls) -> str:
        return "pushing"

    def schema(self) -> StructType:
        return StructType([StructField("number", IntegerType())])

    def reader(self, schema: StructType) -> "PushingReader":
        return PushingReader()


class PushingReader(DataSourceReader):
    def __init__(self) -> None:
        self.wanted: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            if isinstance(one, EqualTo):
                self.wanted = one.value
            else:
                yield one

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((number,) for number in range(10) if self.wanted in (None, number))

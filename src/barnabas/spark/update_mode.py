"""Streams in update mode, which Spark does not give to Python data sources: each micro-batch is written as a batch.

```python
query = (
    write_stream(counts, {"kafka.bootstrap.servers": "localhost:9092", "topic": "counts"})
    .option("checkpointLocation", "/data/checkpoints/counts")
    .start()
)
```

It serves append and complete mode too. Guarantee and columns are the sink's; options are checked before the query
starts.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.spark.callbacks import ensure_callbacks
from barnabas.spark.sink import make_stream_writer
from barnabas.spark.source import BarnabasDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_stream(frame: "DataFrame", options: Mapping[str, str], *, output_mode: str = "update") -> "DataStreamWriter":
    """A stream writer that is ready but for its checkpoint and trigger: go on with `.option`, `.trigger`, `.start`."""
    make_stream_writer(frame.schema, options, overwrite=False)
    given = dict(options)

    def write_batch(batch: "DataFrame", batch_id: int) -> None:
        batch.sparkSession.dataSource.register(BarnabasDataSource)
        batch.write.format(BarnabasDataSource.name()).options(**given).mode("append").save()

    ensure_callbacks(frame.sparkSession)
    return frame.writeStream.outputMode(output_mode).foreachBatch(write_batch)

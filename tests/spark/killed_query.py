"""A program with a streaming query that kills its own process in the first batch that has records.

`python -m tests.spark.killed_query BOOTSTRAP TOPIC DIRECTORY`
"""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from barnabas.spark import session
from tests.spark.conftest import SPARK_SETTINGS
from tests.spark.topics import stream

STARTED = "started"
"""A file that is there when the start of the query is in its checkpoint."""


def main(bootstrap: str, topic: str, directory: Path) -> None:
    spark = session("killed", master="local[1]", settings=SPARK_SETTINGS)

    def die(rows: DataFrame, batch: int) -> None:
        if batch > 0 and rows.count():
            os.kill(os.getpid(), signal.SIGKILL)
        (directory / STARTED).touch()

    rows = stream(spark, bootstrap, topic, startingOffsets="latest")
    writer = rows.writeStream.foreachBatch(die).option("checkpointLocation", str(directory / "checkpoint"))
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

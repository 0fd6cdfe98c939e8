"""Spark on Barnabas and on Apache Kafka: `format("barnabas")`, a session that has it, and update-mode writing.

```python
from barnabas.spark import session

spark = session()
options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
orders = spark.read.format("barnabas").options(**options).load()
```

Nothing of Spark is imported until it is used: Spark's own processes import this package for one module of it.

Importing the package lets Spark run its Python processes by this interpreter, unless `PYSPARK_PYTHON` names another: a
plain `SparkSession` then finds the format, also where the virtual environment is not activated.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.spark.format_session import session
    from barnabas.spark.update_mode import write_stream

__all__ = ["session", "write_stream"]


def prefer_this_interpreter() -> None:
    """For sessions that start later: Spark asks the environment once, when it starts."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])


prefer_this_interpreter()


def __getattr__(name: str) -> Any:
    if name == "session":
        from barnabas.spark.format_session import session

        return session
    if name == "write_stream":
        from barnabas.spark.update_mode import write_stream

        return write_stream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

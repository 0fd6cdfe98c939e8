"""The thread through which Spark calls Python for `foreachBatch`: started once, watched, and replaced when it died.

PySpark starts py4j's callback server with the first `foreachBatch`, without a lock. Its thread ends for good at the
first error, for instance when its socket has a descriptor of 1024 or more, which `select` cannot take, or when the
process is out of descriptors for a moment. The socket still listens then, so Spark connects and waits forever:
every query hangs, and none fails. So the server is started with the session, while few descriptors are open, and code
that starts or watches a query checks here that the thread is alive. A dead server is closed, which aborts the batches
that wait for it; their queries fail with a reason and can be restarted.
"""

import logging
import threading
from typing import Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from barnabas.base.errors import BarnabasError

logger = logging.getLogger(__name__)

DESCRIPTORS_OF_SELECT: Final = 1024

_starting: Final = threading.Lock()
"""PySpark's own check and start are two steps, and queries may be started by several threads."""


class CallbacksFailed(BarnabasError):  # noqa: N818 - named as the fact that it is
    """Spark cannot call this process; the message says what to do."""


def ensure_callbacks(spark: SparkSession) -> bool:
    """Whether the server's thread had died and was replaced; when this returns, Spark can call Python."""
    if not isinstance(spark, SparkSession):
        return False  # a session of Spark Connect, whose server has Python workers of its own for this
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a session that is not stopped has one"
    with _starting:
        # The gateway looks for attributes that it has not in the JVM.
        server = gateway.__dict__.get("_callback_server")
        if server is not None and server.thread is not None and server.thread.is_alive():
            return False
        if server is not None:
            logger.warning("the thread that Spark calls Python through has died; it is started again")
            if server.server_socket is not None:
                server.server_socket.close()
            gateway._callback_server = None
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        listening = gateway._callback_server.server_socket
        descriptor = listening.fileno()
        if descriptor >= DESCRIPTORS_OF_SELECT:
            listening.close()
            gateway._callback_server = None
            raise CallbacksFailed(
                f"Spark cannot call this process: it has {descriptor} open files, and py4j needs one of the first "
                f"{DESCRIPTORS_OF_SELECT}; create the session with barnabas.spark.session() before opening them"
            )
        return server is not None

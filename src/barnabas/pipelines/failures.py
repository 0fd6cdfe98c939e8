"""What the errors of a query mean, out of Spark's many lines. Pure."""

import re
from typing import Final

_RAISED: Final = re.compile(
    r"^([A-Za-z_]\w*\.)*\w*(Error|Exception|TooLarge|DataLost|Unreachable|UnknownTopic|Refused): "
)
_CODE: Final = re.compile(r"^(\[[A-Z0-9_.]+\]\s*)+")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")
_WORKER_LATE: Final = "Python worker failed to connect back"


def failure_line(error: Exception) -> str:
    """Why a query failed, in one line: what the innermost cause says, without the names of classes and codes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # A Python worker's own error stands at the end of its traceback, which Spark quotes.
    raised = [line for line in lines if _RAISED.match(line)]
    ours = [line for line in raised if line.startswith("barnabas.")]
    chosen = (ours or raised or lines[:1])[-1]
    return _STATE.sub("", _CODE.sub("", _RAISED.sub("", chosen))) or chosen


def is_worker_late(error: Exception) -> bool:
    """Whether a Python process did not come up within Spark's ten seconds, as on a busy machine."""
    return _WORKER_LATE in str(error)

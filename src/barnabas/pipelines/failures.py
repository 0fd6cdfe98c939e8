"""What the errors of a query mean, out of Spark's many lines, and where in the file they come from. Pure."""

import re
from typing import Final

from barnabas.pipelines.spec import Pipeline, Sink

_RAISED: Final = re.compile(
    r"^([A-Za-z_]\w*\.)*\w*(Error|Exception|TooLarge|DataLost|Unreachable|UnknownTopic|Refused): "
)
_CODE: Final = re.compile(r"^(\[[A-Z0-9_.]+\]\s*)+")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")
_WORKER_LATE: Final = "Python worker failed to connect back"
_IN_SQL: Final = re.compile(r"== SQL \(line (\d+), position \d+\) ==\n(.*)\n")
_IN_PYTHON: Final = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')


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


def failure_place(error: Exception, pipeline: Pipeline, sink: Sink) -> str:
    """Where a query failed, in the words of the file: the sink, and the step with its line where Spark tells."""
    text = str(error)
    place = f"sink '{sink.name}'"
    in_sql = _IN_SQL.search(text)
    for step in pipeline.steps:
        lines = step.code.splitlines()
        if step.kind == "sql" and in_sql is not None:
            number = int(in_sql[1])
            if number <= len(lines) and in_sql[2].strip() == lines[number - 1].strip():
                line = step.entry.text_lines.get("sql", step.entry.line_of("sql")) + number - 1
                return f"{place}, step '{step.name}' (line {line})"
        elif step.kind != "sql":
            module = step.code.partition(":")[0].replace(".", "/")
            frames = [frame for frame in _IN_PYTHON.findall(text) if frame[0].endswith(f"{module}.py")]
            if frames:
                path, number, name = frames[-1]
                return f"{place}, step '{step.name}' ({path}, line {number}, in {name})"
    return f"{place} (line {sink.entry.line})"


def is_worker_late(error: Exception) -> bool:
    """Whether a Python process did not come up within Spark's ten seconds, as on a busy machine."""
    return _WORKER_LATE in str(error)

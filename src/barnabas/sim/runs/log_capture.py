"""The log lines of a history, each with the virtual time and the node that wrote it."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.base.logs import fields_of
from barnabas.sim.runs.story import Kind, StoryLine
from barnabas.sim.world.loop import VirtualLoop
from barnabas.sim.world.process import PROCESS

_formatter = logging.Formatter()


class LogCapture(logging.Handler):
    """Keeps what is logged while a virtual loop runs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[StoryLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if not isinstance(loop, VirtualLoop):
            return
        process = PROCESS.get()
        who = "simulation" if process is None else process.name.partition("/")[0]
        pairs = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        text = f"{record.levelname:<7} {record.getMessage()}{pairs and f' {pairs}'}"
        if record.exc_info:
            text = f"{text}\n{_formatter.formatException(record.exc_info)}"
        self.lines.append(StoryLine(loop.time(), who, text, Kind.LOG))


@contextmanager
def captured_logs(level: int = logging.DEBUG) -> Iterator[list[StoryLine]]:
    """Nothing of it reaches the program's own log."""
    capture = LogCapture()
    root = logging.getLogger()
    handlers, root_level = root.handlers[:], root.level
    root.handlers[:] = [capture]
    root.setLevel(level)
    try:
        yield capture.lines
    finally:
        root.handlers[:] = handlers
        root.setLevel(root_level)


@contextmanager
def silent_logs() -> Iterator[None]:
    """For histories whose log nobody reads."""
    earlier = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(earlier)

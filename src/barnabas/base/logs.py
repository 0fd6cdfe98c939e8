"""How the process writes its log: lines for people, or one JSON object per line for machines.

    12:31:05.123 INFO    orders-0: truncated to offset 17                           on a terminal
    2026-05-01T12:31:05.123+02:00 INFO    orders-0: truncated to offset 17         text elsewhere
    {"time": "2026-05-01T10:31:05.123Z", "level": "INFO", "logger": "barnabas.storage.log.log",
     "message": "orders-0: truncated to offset 17", "topic": "orders", "partition": 0}     JSON

Modules log with the standard library's loggers and pass ids as fields, so that machines need not parse prose:

    logger.info("group %s is stable", group_id, extra=fields(group=group_id, generation=7))

A `TopicPartition` among the arguments of a message gives the fields `topic` and `partition` by itself. They are for
machines: a person has read them in the message.

Each transition is logged once, by the driver that made it; an error once, where it is handled. What may come in floods
goes through a `RepeatedWarning`.

Names and texts of strangers end up in messages, so a line of text stays one line: what does not print is escaped, and
no client can forge a line or send commands to the terminal. Only the trace of an error takes lines of its own, and
those are indented.

Loggers are the process's, not a broker's: `configure_logging` is for the program's start, and nobody else calls it.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, TextIO

from barnabas.base.ids import TopicPartition

_FIXED_KEYS: Final = ("time", "level", "logger", "message", "exception")
_FIELDS: Final = "barnabas_fields"
_RECORD_ATTRIBUTES: Final = frozenset({*vars(logging.makeLogRecord({})), "asctime", "message", "taskName", _FIELDS})
_COLOURS: Final = {
    logging.DEBUG: "\x1b[2m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}
_COLOUR_END: Final = "\x1b[0m"


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """As the standard library counts."""
        return int(getattr(logging, self.name))


class LogHandler(logging.StreamHandler[TextIO]):
    """The one handler that `configure_logging` installs, so that it can find it again."""


def configure_logging(log_format: LogFormat, level: int, stream: TextIO) -> LogHandler:
    """Sends what is logged at `level` and above to `stream`; calling it again replaces the earlier choice."""
    handler = LogHandler(stream)
    if log_format is LogFormat.JSON:
        handler.setFormatter(JsonFormatter())
    else:
        is_terminal = stream.isatty()
        handler.setFormatter(
            TextFormatter(is_terminal=is_terminal, has_colour=is_terminal and not os.environ.get("NO_COLOR"))
        )
    root = logging.getLogger()
    for earlier in root.handlers[:]:
        if isinstance(earlier, LogHandler):
            root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level)
    return handler


def fields(**values: object) -> dict[str, object]:
    """Ids for `extra=`. They travel under one name: `extra` itself refuses names such as `name` and `module`."""
    assert values.keys().isdisjoint(_FIXED_KEYS), f"{_FIXED_KEYS} are taken"
    return {_FIELDS: values}


def _partition_in(record: logging.LogRecord) -> Mapping[str, object]:
    """The partition that a message is about: the first one among its arguments."""
    if isinstance(record.args, tuple):
        for argument in record.args:
            if isinstance(argument, TopicPartition):
                return argument._asdict()
    return {}


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """What was given by `fields`, and what others, libraries for one, gave in `extra` directly."""
    extra = {name: value for name, value in vars(record).items() if name not in _RECORD_ATTRIBUTES}
    given: Mapping[str, object] = getattr(record, _FIELDS, {})
    return {**extra, **given}


class TextFormatter(logging.Formatter):
    """Time, level, message, fields. On a terminal the time of day is enough; a file is read on other days too."""

    def __init__(self, *, is_terminal: bool, has_colour: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self._has_colour = has_colour

    def format(self, record: logging.LogRecord) -> str:
        local_time = _time_of(record).astimezone()
        time_text = local_time.isoformat(timespec="milliseconds")
        if self._is_terminal:
            time_text = time_text[11:23]
        message = _on_one_line(record.getMessage())
        level = f"{record.levelname:<7}"
        colour = _COLOURS.get(record.levelno) if self._has_colour else None
        if colour is not None:
            level = f"{colour}{level}{_COLOUR_END}"
        line = f"{time_text} {level} {message}"
        pairs = " ".join(f"{name}={_field_text(value)}" for name, value in fields_of(record).items())
        if pairs:
            line = f"{line}  {pairs}"
        trace = _trace_of(self, record)
        return "\n".join([line, *(f"    {_on_one_line(part)}" for part in trace.split("\n"))]) if trace else line


class JsonFormatter(logging.Formatter):
    """One object per line. Beyond ASCII everything is escaped, so any stream and any text will do."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time_of(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = _trace_of(self, record)
        if trace:
            line["exception"] = trace
        for name, value in (*fields_of(record).items(), *_partition_in(record).items()):
            line.setdefault(name, value)
        return json.dumps(line, default=str)


def _time_of(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    trace = formatter.formatException(record.exc_info) if record.exc_info else ""
    stack = formatter.formatStack(record.stack_info) if record.stack_info else ""
    return "\n".join(part for part in (trace, stack) if part)


def _on_one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _field_text(value: object) -> str:
    text = _on_one_line(str(value))
    return json.dumps(text, ensure_ascii=False) if not text or " " in text or "=" in text or '"' in text else text


class RepeatedWarning:
    """A warning that may come in floods: the first is logged at once, then at most one in `interval_seconds`, with the
    number of those that were left out. One object for each kind of warning, so that memory does not grow with them.

    `monotonic` is a clock's, or an event loop's `time`.
    """

    __slots__ = ("_interval_seconds", "_logger", "_monotonic", "_quiet_until", "_unsaid_count")

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float], interval_seconds: float = 10.0) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._interval_seconds = interval_seconds
        self._quiet_until: float | None = None
        self._unsaid_count = 0

    def warn(self, message: str, *arguments: object, **ids: object) -> None:
        """Logs as `logger.warning` would, with `ids` as fields, or counts."""
        now = self._monotonic()
        if self._quiet_until is not None and now < self._quiet_until:
            self._unsaid_count += 1
            return
        if self._unsaid_count:
            ids["more_before"] = self._unsaid_count
        self._logger.warning(message, *arguments, extra=fields(**ids))
        self._unsaid_count = 0
        self._quiet_until = now + self._interval_seconds

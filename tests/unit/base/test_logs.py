import io
import json
import logging
import sys

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.ids import TopicPartition
from barnabas.base.logs import (
    JsonFormatter,
    LogFormat,
    LogHandler,
    LogLevel,
    RepeatedWarning,
    TextFormatter,
    configure_logging,
    fields,
)

CREATED = 1_700_000_000.1235  # 2023-11-14T22:13:20.123Z


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def root():
    """The root logger, left afterwards as it was."""
    logger = logging.getLogger()
    level, handlers = logger.level, logger.handlers[:]
    yield logger
    logger.setLevel(level)
    logger.handlers[:] = handlers


def record(message="it happened", *arguments, level=logging.INFO, exc_info=None, extra=None):
    made = logging.getLogger("barnabas.test").makeRecord(
        "barnabas.test", level, "file.py", 1, message, arguments, exc_info, extra=extra
    )
    made.created = CREATED
    return made


def text_of(made, *, is_terminal=True, has_colour=False):
    return TextFormatter(is_terminal=is_terminal, has_colour=has_colour).format(made)


def error_info(message):
    try:
        raise ValueError(message)
    except ValueError:
        return sys.exc_info()


def test_text_on_a_terminal_has_time_level_message_and_fields():
    time, line = text_of(record("%s: truncated", "a-0", extra=fields(topic="a", partition=0))).split(" ", 1)
    assert line == "INFO    a-0: truncated  topic=a partition=0"
    assert time.endswith(":20.123")
    assert len(time) == len("22:13:20.123")


def test_partition_in_the_message_gives_json_its_fields_and_text_no_second_reading():
    made = record("%s: truncated to offset %d", TopicPartition("a", 3), 17)
    assert text_of(made).endswith("INFO    a-3: truncated to offset 17")
    line = json.loads(JsonFormatter().format(made))
    assert (line["message"], line["topic"], line["partition"]) == ("a-3: truncated to offset 17", "a", 3)
    given = json.loads(JsonFormatter().format(record("%s", TopicPartition("a", 3), extra=fields(topic="b"))))
    assert (given["topic"], given["partition"]) == ("b", 3)
    assert "topic" not in json.loads(JsonFormatter().format(record("%(x)s", {"x": TopicPartition("a", 3)})))


@pytest.mark.parametrize(("level", "number"), [("debug", 10), ("info", 20), ("warning", 30), ("error", 40)])
def test_level_is_the_standard_librarys(level, number):
    assert LogLevel(level).number == number


def test_text_in_a_file_has_the_date_and_the_offset_from_utc():
    time = text_of(record(), is_terminal=False).split(" ", 1)[0]
    assert time.startswith("2023-11-1")
    assert len(time) == len("2023-11-14T22:13:20.123+00:00")


def test_text_colours_the_level_only():
    assert "\x1b[31mERROR  \x1b[0m it happened" in text_of(record(level=logging.ERROR), has_colour=True)
    assert "\x1b" not in text_of(record(level=logging.INFO), has_colour=True)


def test_text_of_a_hostile_message_stays_on_one_line_without_controls():
    hostile = "x\n22:13:20 INFO forged\x1b[2J\u2028\ud800"
    line = text_of(record("client %s", hostile, extra=fields(client_id=hostile)))
    assert line.isprintable()
    assert "client x\\n22:13:20 INFO forged\\x1b[2J\\u2028\\ud800" in line


def test_text_quotes_fields_that_would_run_together():
    line = text_of(record(extra=fields(path="/data/a b", plain="x", empty="", equation="a=b", quote='"')))
    assert line.endswith(r'path="/data/a b" plain=x empty="" equation="a=b" quote="\""')


def test_text_of_a_trace_is_indented_so_that_it_cannot_pass_for_a_line():
    lines = text_of(record(level=logging.ERROR, exc_info=error_info("bad\n22:13:20 INFO forged\x1b[2J"))).split("\n")
    assert lines[0].endswith("ERROR   it happened")
    assert lines[1] == "    Traceback (most recent call last):"
    assert lines[-1] == "    22:13:20 INFO forged\\x1b[2J"
    assert all(line.startswith("    ") for line in lines[1:])


def test_json_has_fields_as_keys_on_one_line():
    line = JsonFormatter().format(record("%s\nopened", "a-0", extra=fields(topic="ä", partition=0, name="of a record")))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "INFO",
        "logger": "barnabas.test",
        "message": "a-0\nopened",
        "topic": "ä",
        "partition": 0,
        "name": "of a record",
    }


def test_json_takes_what_libraries_give_as_extra_without_losing_its_own_keys():
    line = json.loads(JsonFormatter().format(record(extra={"peer": ("::1", 5), "level": "mine", "object": Terminal})))
    assert line["peer"] == ["::1", 5]
    assert line["level"] == "INFO"
    assert "Terminal" in line["object"]


def test_json_of_an_error_has_its_trace():
    line = json.loads(JsonFormatter().format(record(exc_info=error_info("bad"))))
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: bad")


def test_fields_named_like_a_fixed_key_are_refused():
    with pytest.raises(AssertionError):
        fields(message="x")


def test_configured_text_goes_to_the_stream_from_the_level_on(root):
    stream = io.StringIO()
    configure_logging(LogFormat.TEXT, logging.INFO, stream)
    logging.getLogger("barnabas.test").debug("unheard")
    logging.getLogger("barnabas.test").info("heard", extra=fields(topic="a"))
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("INFO    heard  topic=a")


def test_configured_twice_leaves_one_handler(root):
    first, second = io.StringIO(), io.StringIO()
    configure_logging(LogFormat.TEXT, logging.INFO, first)
    handler = configure_logging(LogFormat.JSON, logging.WARNING, second)
    assert [each for each in root.handlers if isinstance(each, LogHandler)] == [handler]
    logging.getLogger("barnabas.test").info("unheard")
    logging.getLogger("barnabas.test").warning("heard")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["message"] == "heard"


@pytest.mark.parametrize(("no_colour", "is_coloured"), [("", True), ("1", False)])
def test_configured_terminal_has_colour_unless_it_is_not_wanted(root, monkeypatch, no_colour, is_coloured):
    monkeypatch.setenv("NO_COLOR", no_colour)
    stream = Terminal()
    configure_logging(LogFormat.TEXT, logging.INFO, stream)
    logging.getLogger("barnabas.test").warning("look")
    assert ("\x1b[33m" in stream.getvalue()) is is_coloured


def test_repeated_warning_is_said_at_once_and_then_once_an_interval(caplog):
    clock = ManualClock()
    refused = RepeatedWarning(logging.getLogger("barnabas.test"), clock.monotonic, interval_seconds=10)

    def lines():
        return [json.loads(JsonFormatter().format(each)) for each in caplog.records]

    refused.warn("refused %s", "a", host="a")
    for _ in range(1000):
        refused.warn("refused %s", "b", host="b")
    assert [(line["message"], line["host"]) for line in lines()] == [("refused a", "a")]
    clock.advance(9_999)
    refused.warn("refused %s", "c", host="c")
    assert len(lines()) == 1
    clock.advance(1)
    refused.warn("refused %s", "d", host="d")
    assert lines()[1]["message"] == "refused d"
    assert lines()[1]["more_before"] == 1001


def test_repeated_warning_after_a_quiet_time_has_no_count(caplog):
    clock = ManualClock()
    refused = RepeatedWarning(logging.getLogger("barnabas.test"), clock.monotonic, interval_seconds=1)
    refused.warn("once")
    clock.advance(5_000)
    refused.warn("twice")
    assert [text_of(each).endswith(each.getMessage()) for each in caplog.records] == [True, True]

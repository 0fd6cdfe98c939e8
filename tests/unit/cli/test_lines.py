"""Lines of any length, however the chunks fall."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.lines import LineSplitter, LineTooLong


def split(*chunks: bytes, line_bytes_max: int = 1 << 20) -> list[bytes]:
    splitter = LineSplitter(line_bytes_max)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.finish()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n\na", [b"", b"", b"a"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\n\r\r\n", [b"a\rb", b"\r"]),
        (b"\r\n", [b""]),
        (b"a\r", [b"a\r"]),
    ],
)
def test_line_ends_at_a_line_feed_and_loses_the_carriage_return_before_it(text: bytes, lines: list[bytes]) -> None:
    assert split(text) == lines


@given(st.lists(st.text("a\r\n", max_size=6).map(str.encode), max_size=8))
def test_chunks_may_fall_anywhere(chunks: list[bytes]) -> None:
    assert split(*chunks) == split(b"".join(chunks))


def test_line_that_is_too_long_is_refused_before_the_rest_is_read() -> None:
    assert split(b"x" * 10, b"\n", line_bytes_max=10) == [b"x" * 10]
    with pytest.raises(LineTooLong, match="without a line feed; is this text"):
        split(b"x" * 6, b"x" * 5, line_bytes_max=10)
    with pytest.raises(LineTooLong):
        split(b"y\nx" + b"x" * 9, b"x\n", line_bytes_max=10)


def test_long_line_costs_as_much_as_its_length() -> None:
    """A copy of what is there with each chunk takes minutes for this one."""
    chunk = b"x" * 1024
    splitter = LineSplitter(64 << 20)
    began = time.process_time()
    for _ in range(64 << 10):
        splitter.feed(chunk)
    with pytest.raises(LineTooLong):
        splitter.feed(chunk)
    assert time.process_time() - began < 10

"""Bytes to lines, for `barnabas produce`. Pure.

A line ends with a line feed; a carriage return before it goes with it, as Kafka's console producer has it, so that
files from Windows have the same values. Everything else is kept, whatever the bytes. What a line costs grows with its
length and not with its square, and one that is too long is refused before the rest of it is read.
"""

from barnabas.base.errors import BarnabasError


class LineTooLong(BarnabasError):  # noqa: N818 - a fact about the line
    """A line that no broker would take; probably the input is not text."""


class LineSplitter:
    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._pieces: list[bytes] = []
        """Of the line that has not ended yet."""
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk; LineTooLong as soon as one is."""
        end = chunk.rfind(b"\n")
        first_bytes = chunk.find(b"\n") if end >= 0 else len(chunk)
        if self._size_bytes + first_bytes > self._line_bytes_max:
            raise LineTooLong(f"more than {self._line_bytes_max >> 20} MiB without a line feed; is this text?")
        if end < 0:
            self._keep(chunk)
            return []
        ended = b"".join((*self._pieces, chunk[:end]))
        self._pieces = []
        self._size_bytes = 0
        self._keep(chunk[end + 1 :])
        lines = ended.split(b"\n")
        return [line.removesuffix(b"\r") for line in lines] if b"\r" in ended else lines

    def finish(self) -> list[bytes]:
        """The last line, if it has no line feed."""
        return [b"".join(self._pieces)] if self._size_bytes else []

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._size_bytes += len(piece)

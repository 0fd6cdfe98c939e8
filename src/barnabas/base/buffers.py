"""Bytes in memory, whichever object holds them."""

from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

BUFFER_TYPES: Final = (bytes, bytearray, memoryview)
"""For `isinstance`: a union would be built again at each call."""

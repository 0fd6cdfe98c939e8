"""`send_framed_range`, where it could be built (`_framed_range.pyx`); else None, and replies go out piece by piece."""

try:
    from barnabas.net._framed_range import send_framed_range
except ImportError:
    send_framed_range = None  # type: ignore[assignment]

__all__ = ["send_framed_range"]

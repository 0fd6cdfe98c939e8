"""Names and values of strangers, as they are repeated in a message: short, whatever they are."""

from typing import Final

SHOWN_LENGTH_MAX: Final = 100


def shortened(text: str) -> str:
    """The text, or its beginning when it is long."""
    if len(text) <= SHOWN_LENGTH_MAX:
        return text
    return f"{text[:SHOWN_LENGTH_MAX]}… ({len(text)} characters)"

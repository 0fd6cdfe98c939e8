"""What an exception means in an answer: the one place where errors get their code."""

from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError, CorruptBatch, DiskFailed, InvalidRecords, InvalidSetting
from barnabas.metadata.errors import SessionLost
from barnabas.wire.errors import ErrorCode, KafkaError

_MESSAGE_LENGTH_MAX: Final = 500
"""A message may repeat several names, and one that nobody shortened."""


class Refusal(NamedTuple):
    code: ErrorCode
    message: str | None


def refusal_of(error: BarnabasError) -> Refusal:
    """The code, and the words for APIs that have room for them."""
    if isinstance(error, KafkaError):
        code, message = error.code, error.message
    else:
        code, message = _code_of(error), str(error)
    return Refusal(code, message[:_MESSAGE_LENGTH_MAX] or None)


def _code_of(error: BarnabasError) -> ErrorCode:
    match error:
        case InvalidRecords():
            return ErrorCode.INVALID_RECORD
        case CorruptBatch():
            return ErrorCode.CORRUPT_MESSAGE
        case DiskFailed():
            return ErrorCode.KAFKA_STORAGE_ERROR
        case SessionLost():  # the metadata store is away for a moment: clients of a controller ask again
            return ErrorCode.NOT_CONTROLLER
        case InvalidSetting():
            return ErrorCode.INVALID_CONFIG
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR

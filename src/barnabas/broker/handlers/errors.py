"""What an exception means in an answer: the one place where errors get their code."""

from typing import NamedTuple

from barnabas.base.errors import BarnabasError, CorruptBatch, DiskFailed, InvalidRecords, InvalidSetting
from barnabas.metadata.errors import SessionLost
from barnabas.wire.errors import ErrorCode, KafkaError


class Refusal(NamedTuple):
    code: ErrorCode
    message: str | None


def refusal_of(error: BarnabasError) -> Refusal:
    """The code, and the words for APIs that have room for them."""
    match error:
        case KafkaError():
            return Refusal(error.code, error.message or None)
        case InvalidRecords():
            return Refusal(ErrorCode.INVALID_RECORD, str(error))
        case CorruptBatch():
            return Refusal(ErrorCode.CORRUPT_MESSAGE, str(error))
        case DiskFailed():
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        case SessionLost():  # the metadata store is away for a moment: clients of a controller ask again
            return Refusal(ErrorCode.NOT_CONTROLLER, str(error))
        case InvalidSetting():
            return Refusal(ErrorCode.INVALID_CONFIG, str(error))
        case _:
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))

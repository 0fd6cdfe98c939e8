"""The levels of the process's loggers, which clients may look at and change as those of a broker.

Names are Python's, below `barnabas`, and `root` for all others; levels are Kafka's words. Loggers belong to the
process: brokers that share one share them, too. A changed level is forgotten when the process ends.
"""

import logging
from typing import Final

from barnabas.base.errors import InvalidSetting
from barnabas.base.texts import shortened

ROOT: Final = "root"

_PACKAGE: Final = "barnabas"
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_WORDS: Final = {level: word for word, level in _LEVELS.items()}


def logger_levels() -> dict[str, str]:
    """By name; a logger without a level of its own has that of the next one above it."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == _PACKAGE]
    return {ROOT: _word(logging.root), **{name: _word(logging.getLogger(name)) for name in sorted(names)}}


def check_level(name: str, level: str | None) -> None:
    """Refuses an unknown logger or level."""
    if name not in logger_levels():
        raise InvalidSetting(f"there is no logger {shortened(name)}")
    if level is not None and level not in _LEVELS:
        raise InvalidSetting(f"the level of {name} must be one of {', '.join(_LEVELS)}, not {shortened(level)}")


def set_level(name: str, level: str | None) -> None:
    """None gives the logger the level of the next one above it again."""
    check_level(name, level)
    logger = logging.getLogger(None if name == ROOT else name)
    logger.setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _word(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next(word for level, word in sorted(_WORDS.items(), reverse=True) if effective >= level or level <= 10)

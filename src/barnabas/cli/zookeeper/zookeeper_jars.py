"""Finds what it takes to run a ZooKeeper server here: Java, and ZooKeeper's jars. Nothing is downloaded.

The jars are those of a system package (Debian's `zookeeper`), or else those inside the installed `pyspark`. Only the
ones that a server needs are named: the JVM starts sooner with a short class path.
"""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from barnabas.base.errors import BarnabasError

_SYSTEM_DIRECTORIES: Final = (Path("/usr/share/zookeeper/lib"), Path("/usr/share/zookeeper"), Path("/usr/share/java"))
_NEEDED: Final = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
_LOGGING: Final = (
    ("slf4j-simple",),
    ("log4j-slf4j2-impl", "log4j-api", "log4j-core"),
    ("logback-classic", "logback-core"),
)
"""The first whose jars are all there. Without any, a server logs nothing."""
_INSTALL_JAVA: Final = (
    "install one (on Debian or Ubuntu: apt install default-jre-headless; on macOS: brew install openjdk), "
    "or set JAVA_HOME to it"
)
_INSTALL_ZOOKEEPER: Final = "install it (on Debian or Ubuntu: apt install zookeeper; anywhere: pip install pyspark)"


class ZooKeeperUnavailable(BarnabasError):  # noqa: N818 - named as the fact that it is
    """No ZooKeeper server can run here; the message says what to install."""


@dataclass(frozen=True, slots=True)
class ZooKeeperProgram:
    java: str
    jars: tuple[Path, ...]


def find_program() -> ZooKeeperProgram:
    return ZooKeeperProgram(find_java(), find_jars(jar_directories()))


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if path is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no `java` on the PATH"
        raise ZooKeeperUnavailable(f"ZooKeeper needs Java, but {where}: {_INSTALL_JAVA}")
    return path


def jar_directories() -> list[Path]:
    """Where ZooKeeper's jars may be, in the order of preference."""
    spark = find_spec("pyspark")
    bundled = [] if spark is None or spark.origin is None else [Path(spark.origin).parent / "jars"]
    return [*_SYSTEM_DIRECTORIES, *bundled]


def find_jars(directories: Iterable[Path]) -> tuple[Path, ...]:
    """Of the first directory that has all that is needed."""
    incomplete = ""
    for directory in directories:
        names = sorted(path.name for path in directory.glob("*.jar"))
        found = {part: _jar_of(part, names) for part in _NEEDED}
        missing = [part for part, name in found.items() if name is None]
        if not missing:
            return tuple(directory / name for name in (*found.values(), *_logging_jars(names)) if name is not None)
        if found["zookeeper"] is not None and not incomplete:
            incomplete = f" ({directory} has one, but lacks {', '.join(missing)})"
    raise ZooKeeperUnavailable(f"there is no ZooKeeper on this machine{incomplete}: {_INSTALL_ZOOKEEPER}")


def _logging_jars(names: Sequence[str]) -> list[str | None]:
    for parts in _LOGGING:
        found = [_jar_of(part, names) for part in parts]
        if None not in found:
            return found
    return []


def _jar_of(part: str, names: Sequence[str]) -> str | None:
    """`zookeeper.jar` or `zookeeper-3.9.5.jar`."""
    wanted = re.compile(rf"{re.escape(part)}(-\d[\w.+-]*)?\.jar")
    return next((name for name in reversed(names) if wanted.fullmatch(name)), None)

"""Finds Java where Spark would: in JAVA_HOME, else on the PATH.

`python -m barnabas.pipelines.java` says in one line what to install where there is none, or one too old, and ends with
status 1. It needs the standard library alone, so that it can be asked before anything is installed.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALL: Final = (
    "install one (on Debian or Ubuntu: apt install openjdk-17-jre-headless; on macOS: brew install openjdk@17),"
    " or set JAVA_HOME to it"
)


class JavaUnusable(Exception):  # noqa: N818 - named as the fact that it is
    """Spark cannot run here; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """`description` is all that it says of itself, which differs between any two builds."""

    path: str
    version: int
    description: str


def find_java() -> Java:
    home = os.environ.get("JAVA_HOME")
    name = os.path.join(home, "bin", "java") if home else "java"
    path = shutil.which(name)
    if path is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no `java` on the PATH"
        raise JavaUnusable(f"Spark needs Java {VERSION_MIN} or newer, but {where}: {_INSTALL}")
    try:
        told = subprocess.run([path, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        raise JavaUnusable(f"Spark needs Java {VERSION_MIN} or newer, but {path} does not run: {error}") from error
    version = _VERSION.search(told)
    if version is None:
        raise JavaUnusable(f"Spark needs Java {VERSION_MIN} or newer, but {path} does not say which version it is")
    if int(version[1]) < VERSION_MIN:
        raise JavaUnusable(f"Spark needs Java {VERSION_MIN} or newer, but {path} is version {version[1]}: {_INSTALL}")
    return Java(path, int(version[1]), told)


def main() -> int:
    try:
        find_java()
    except JavaUnusable as reason:
        sys.stderr.write(f"barnabas: {reason}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Builds the compiled modules: the record kernel, the readers of the most frequent requests, the sender of records.

They are optional. Without a C compiler the install succeeds: `barnabas.records.kernel` falls back to its Python
reference, and every request is read and answered the general way. That is several times slower, so a build that lacks
a module says so, and `barnabas --version` and `barnabas up` say it again.

| variable of the environment | effect |
|---|---|
| `BARNABAS_REQUIRE_COMPILED=1` | a module that cannot be built fails the build |
| `BARNABAS_SANITIZE=1` | builds with AddressSanitizer, for the fuzzing run |
"""

import os
import sys
from pathlib import Path
from textwrap import indent

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("src")
SANITIZE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g", "-O1"]
# A level that CFLAGS names wins.
OPTIMIZE = [] if "-O" in os.environ.get("CFLAGS", "") else ["-O3"]
IS_SANITIZED = bool(os.environ.get("BARNABAS_SANITIZE"))
IS_REQUIRED = bool(os.environ.get("BARNABAS_REQUIRE_COMPILED"))


class BuildExtensions(build_ext):
    """Keeps the generated C out of the source tree, and reports the modules that were not built."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.cython_c_in_temp = True
        self.unbuilt: list[str] = []

    def run(self) -> None:
        super().run()
        if self.unbuilt:
            names = indent("\n".join(self.unbuilt), "    ")
            _say_loudly(
                f"""
**************************************************************************
Barnabas is installed WITHOUT its compiled modules. It works, but a broker
is several times slower. Not built:
{names}

To have them, install a C compiler and the headers of this Python (Debian,
Ubuntu: apt install gcc python3-dev), then reinstall:
    pip install --force-reinstall --no-deps --no-cache-dir barnabas
The compiler's message is shown by pip install -v.
**************************************************************************
"""
            )

    def build_extension(self, extension: Extension) -> None:
        self.unbuilt.append(extension.name)
        super().build_extension(extension)
        self.unbuilt.remove(extension.name)


def _say_loudly(text: str) -> None:
    """To standard error, and to the terminal if there is one: pip shows nothing of a build that succeeds."""
    print(text, file=sys.stderr)
    if not sys.stderr.isatty():
        try:
            with open("/dev/tty", "w") as terminal:
                terminal.write(text)
        except OSError:
            pass  # nobody sits there


def _extension(source: Path) -> Extension:
    return Extension(
        ".".join(source.relative_to(SOURCES).with_suffix("").parts),
        [str(source)],
        include_dirs=[str(source.parent)],
        depends=sorted(str(part) for part in SOURCES.glob("barnabas/*/_*") if part.suffix in (".pxi", ".h")),
        extra_compile_args=SANITIZE if IS_SANITIZED else [*OPTIMIZE, "-g0"],
        extra_link_args=SANITIZE if IS_SANITIZED else [],
        optional=not IS_REQUIRED,
    )


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=[_extension(source) for source in sorted(SOURCES.glob("barnabas/*/_*.pyx"))],
)

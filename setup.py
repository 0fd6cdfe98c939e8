"""Builds the compiled modules: the record kernel, the readers of the most frequent requests, the sender of records.

They are optional: without a C compiler the install succeeds, `barnabas.records.kernel` falls back to the Python
reference, and every request is read and answered the general way. `BARNABAS_SANITIZE=1` builds them with
AddressSanitizer, for the fuzzing run.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

SANITIZE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g", "-O1"]
flags = SANITIZE if os.environ.get("BARNABAS_SANITIZE") else ["-O3"]


def compiled(name: str) -> Extension:
    return Extension(
        name,
        [f"src/{name.replace('.', '/')}.pyx"],
        extra_compile_args=flags,
        extra_link_args=SANITIZE if flags is SANITIZE else [],
    )


modules = [
    compiled("barnabas.net._framed_range"),
    compiled("barnabas.records._kernel"),
    compiled("barnabas.wire._sole_commit"),
    compiled("barnabas.wire._sole_fetch"),
    compiled("barnabas.wire._sole_produce"),
]
extensions = cythonize(modules, language_level=3)
for extension in extensions:
    extension.optional = True  # cythonize makes new objects and would drop it
setup(ext_modules=extensions)

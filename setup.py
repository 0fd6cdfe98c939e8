"""Builds the record kernel, the one compiled module.

The extension is optional: without a C compiler the install succeeds, and `barnabas.records.kernel` falls back to the
Python reference. `BARNABAS_SANITIZE=1` builds it with AddressSanitizer, for the fuzzing run.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

SANITIZE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g", "-O1"]
flags = SANITIZE if os.environ.get("BARNABAS_SANITIZE") else ["-O3"]

kernel = Extension(
    "barnabas.records._kernel",
    ["src/barnabas/records/_kernel.pyx"],
    extra_compile_args=flags,
    extra_link_args=SANITIZE if flags is SANITIZE else [],
)
extensions = cythonize([kernel], language_level=3)
for extension in extensions:
    extension.optional = True  # cythonize makes new objects and would drop it
setup(ext_modules=extensions)

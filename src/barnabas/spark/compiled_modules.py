"""Lets Spark's Python processes import pyspark compiled, which saves each kind of process a second at its start.

Spark puts `SPARK_HOME/python/lib/pyspark.zip` in front of their path. It holds only sources, which every process
compiles again: 1.5 s of processor time, against 0.45 from where pip has installed the package. A query starts one
such process for its source, and the first query or write of a session several more. So a session gets a SPARK_HOME that
is pyspark's own directory by links, without that file:

```
$XDG_CACHE_HOME/barnabas/spark-home/DIGEST/     or ~/.cache/barnabas/…; DIGEST: the path of pyspark
    jars -> …/pyspark/jars, bin -> …/pyspark/bin, …
    python/                                     empty
```

Only for a local master, whose processes are those of this machine, and only where Spark runs this interpreter, which
has the package: a cluster gets the zip from the driver, or has its own. A SPARK_HOME that is set stays. The directory
is made under another name and renamed; a crash leaves that one behind. `BARNABAS_COMPILED_MODULES=off` turns it off.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SWITCH: Final = "BARNABAS_COMPILED_MODULES"
_HOME: Final = "SPARK_HOME"
_PARTS: Final = ("bin", "conf", "data", "examples", "jars", "licenses", "sbin", "RELEASE")


@contextlib.contextmanager
def compiled_modules(master: str | None) -> Iterator[None]:
    """For the time in which a session's JVM starts, which keeps the environment that it finds."""
    home = spark_home(master)
    if home is None:
        yield
        return
    os.environ[_HOME] = str(home)
    try:
        yield
    finally:
        os.environ.pop(_HOME, None)


def spark_home(master: str | None) -> Path | None:
    """The directory for SPARK_HOME; None to use Spark's own."""
    if _HOME in os.environ or os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return None
    if not _is_local(master) or not _is_of_this_interpreter():
        return None
    import pyspark

    package = Path(pyspark.__file__).parent
    if not _is_installed(package) or not (package / "jars").is_dir():
        return None
    try:
        return _linked(package)
    except (OSError, RuntimeError):
        return None  # no cache, or not one to write to: Spark starts as it would without this


def _is_local(master: str | None) -> bool:
    if master is not None:
        return master == "local" or (master.startswith("local[") and master.endswith("]"))
    # Without a master Spark's configuration decides, and the default is local.
    return not {"MASTER", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"} & {*os.environ} and not _has_own_configuration()


def _has_own_configuration() -> bool:
    import pyspark

    return (Path(pyspark.__file__).parent / "conf" / "spark-defaults.conf").exists()


def _is_of_this_interpreter() -> bool:
    chosen = {os.environ.get(name) or sys.executable for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    return {shutil.which(name) for name in chosen} == {sys.executable}


def _is_installed(package: Path) -> bool:
    """Whether a new process of this interpreter finds the package by itself."""
    paths = sysconfig.get_paths()
    return package.parent in (Path(paths["purelib"]), Path(paths["platlib"]))


def _linked(package: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas" / "spark-home"
    home = cache / hashlib.sha256(str(package).encode()).hexdigest()[:16]
    if (home / "python").is_dir():
        return home
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".making-", dir=cache))
    try:
        for name in _PARTS:
            if (package / name).exists():
                (made / name).symlink_to(package / name)
        (made / "python").mkdir()
        with contextlib.suppress(OSError):  # another process was first
            made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return home

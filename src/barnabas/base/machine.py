"""Facts about the machine that a process runs on."""

from typing import Final

UNKNOWN_BOOT: Final = ""
"""Of a machine that does not tell: no two boots are known to be the same."""

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """Names the time since the machine was last switched on: as long as it lasts, so does what was written to files.

    A file need not be synced for that: the kernel has it, whatever becomes of the process.
    """
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return UNKNOWN_BOOT

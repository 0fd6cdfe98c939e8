"""How many files the process may have open, and how many of those the logs may keep.

Both calls belong to the composition root: the limit is the process's, and shared by every broker in it.
"""

import resource
from typing import Final

from barnabas.storage.segment.handles import HANDLES_MAX

_HANDLES_MIN: Final = 64


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open files to the hard one; returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return HANDLES_MAX * 2 if soft == resource.RLIM_INFINITY else soft


def handles_capacity(descriptor_limit: int) -> int:
    """Half of the limit is for segments and indexes, the other half for connections, flushes and everything else."""
    return max(_HANDLES_MIN, min(HANDLES_MAX, descriptor_limit // 2))

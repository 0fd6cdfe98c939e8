"""What the names of a segment's files mean, in Apache Kafka's scheme.

```
00000000000000001000.log            KIND of the segment that begins at offset 1000
00000000000000001000.log.deleted    the same with a SUFFIX: .deleted, .cleaned or .swap
00000000000000001000.index.tmp      being written, to replace the file without `.tmp`; so is partition.metadata.tmp
```

Files of other names in a partition's directory are somebody else's.

Pure: text in, values out. `directory` has the names of a log directory.
"""

import re
from typing import Final, NamedTuple

from barnabas.base.ids import Offset

_FILE: Final = re.compile(r"(?P<base>[0-9]{20})(?P<kind>\.[a-z]+)(?P<suffix>\.[a-z]+)?")
_OFFSET_MAX: Final = 2**63 - 1
_KINDS: Final = frozenset({".log", ".index", ".timeindex", ".txnindex", ".snapshot"})
_REPLACED: Final = frozenset({"leader-epoch-checkpoint", "partition.metadata"})


class SegmentFileName(NamedTuple):
    """The parts of `OFFSET.KIND[.SUFFIX]`; kind and suffix begin with their dot, no suffix is an empty text."""

    base_offset: Offset
    kind: str
    suffix: str


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    match = _FILE.fullmatch(name)
    if match is None or int(match["base"]) > _OFFSET_MAX:
        return None
    return SegmentFileName(int(match["base"]), match["kind"], match["suffix"] or "")


def is_temporary(name: str) -> bool:
    """Whether a file of a log was being replaced when the process ended: opening the log removes it."""
    if not name.endswith(".tmp"):
        return False
    target = name.removesuffix(".tmp")
    parsed = parse_segment_file_name(target)
    return target in _REPLACED or (parsed is not None and parsed.kind in _KINDS and not parsed.suffix)

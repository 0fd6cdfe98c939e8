"""Which directories of partitions belong to the topics that the cluster's metadata has. Pure.

A directory's `partition.metadata` names the id of its topic. A name alone proves nothing: a topic may have been deleted
and made again, and the metadata may have been lost.

| topic id in the directory | the metadata | the directory is |
|---|---|---|
| that of the partition, exactly or but for a few damaged characters | has the partition | served |
| recorded as deleted | | deleted |
| any other | | stray |
| none that can be read | has the partition, and nothing contradicts | served; the id is written into it |
| none that can be read | does not have it, or remembers a deleted topic of this name | stray |

A directory without an id comes from Kafka before 2.8, or has lost the small file: Barnabas makes no directory without
one. Setting it aside would hide the records of a living topic because of one damaged file, so its name is believed,
unless another directory has the right id, or files of a deleted topic of this name may still be around. In doubt
nothing is removed: a stray directory is renamed, reported and kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import uuid_text

_DAMAGED_CHARACTERS_MAX: Final = 8
"""Of 22. Two ids that were made at random have fourteen in common once in 10^20 times."""


class Fate(Enum):
    SERVED = "served"
    DELETED = "deleted"
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class KnownPartitions:
    """What the metadata says. `id_of` gives the topic's id of a partition that this broker has to hold, or None."""

    id_of: Callable[[TopicPartition], UUID | None]
    deleted_ids: frozenset[UUID] = frozenset()
    deleted_names: frozenset[str] = frozenset()
    """Of deleted topics whose files may still be around."""

    def fate_of(self, partition: TopicPartition, stored_id: UUID | None, *, is_rivalled: bool = False) -> Fate:
        """What becomes of a directory. It is rivalled when another one of the same name has the right id."""
        wanted_id = self.id_of(partition)
        if stored_id is not None and stored_id == wanted_id:
            return Fate.SERVED
        if stored_id in self.deleted_ids:
            return Fate.DELETED
        if wanted_id is None or is_rivalled:
            return Fate.STRAY
        if stored_id is not None:
            return Fate.SERVED if is_damaged_copy(stored_id, wanted_id) else Fate.STRAY
        return Fate.STRAY if partition.topic in self.deleted_names else Fate.SERVED

    def claimants(self, partition: TopicPartition, stored_ids: Mapping[str, UUID | None]) -> list[str]:
        """Of several directories of one name, by their paths, those that may be the partition's: in doubt several."""
        wanted_id = self.id_of(partition)
        exact = [path for path, stored_id in stored_ids.items() if stored_id is not None and stored_id == wanted_id]
        return exact or [path for path, one in stored_ids.items() if self.fate_of(partition, one) is Fate.SERVED]


def is_damaged_copy(stored_id: UUID, wanted_id: UUID) -> bool:
    """Whether an id is another one with a few characters of its text changed, which no other topic's id is."""
    differing = sum(one != other for one, other in zip(uuid_text(stored_id), uuid_text(wanted_id), strict=True))
    return differing <= _DAMAGED_CHARACTERS_MAX

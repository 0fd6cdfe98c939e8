"""The last registration of a broker, remembered in each of its log directories: did its logs lose anything since?

A broker that registers again says since which of its registrations its logs have lost nothing: a controller may keep it
among the replicas in sync only if that reaches back to the registration that was. Something may be lost in any way but
these two:

- the last stop was clean: everything was synced, and the directory has the mark of it, with the broker epoch;
- the process was killed, and the machine has not been switched off since: the kernel has what was written.

And no write or sync of a directory has failed since, and all the directories of that registration are there: one that
was replaced has another id. The file of a directory that fails is removed, as those of all others of the broker are.

```
.registration    {"version": 1, "broker_epoch": "21", "intact_since": "15", "boot_id": "…", "directory_ids": ["…"]}
```

It is synced at a clean stop only. Until then a power loss may leave an older one, a torn one or none, and none of those
proves anything about the registration that was.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.base.filesystem import FileSystem, read_file, replace_file
from barnabas.base.machine import UNKNOWN_BOOT
from barnabas.base.uuid import parse_uuid, uuid_text
from barnabas.storage.directories.directories import LogDirectories
from barnabas.storage.directories.directory import LogDirectory
from barnabas.storage.work import Job

OnFailure: TypeAlias = Callable[[LogDirectory, DiskFailed], None]

REGISTRATION: Final = ".registration"
"""The name of the file."""

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class LastRegistration:
    broker_epoch: int
    intact_since: int
    """The oldest broker epoch since which nothing was lost; this one's own, where something was."""
    boot_id: str
    directory_ids: tuple[UUID, ...]
    """The directories that were online."""


class Past(NamedTuple):
    """What a broker can say of its last registration when it registers again. None: it knows of none, or cannot prove
    that nothing was lost since."""

    previous_epoch: int | None
    intact_since: int | None


class Remembered(NamedTuple):
    """What one directory says at the start of a broker."""

    directory_id: UUID
    registration: LastRegistration | None
    clean_epoch: int | None
    """Of the mark that the last stop left, if it was a clean one."""


def past_of(remembered: Sequence[Remembered], boot_id: str) -> Past:
    """Pure."""
    known = [one.registration for one in remembered if one.registration is not None]
    if not known:
        return Past(None, None)
    last = max(known, key=lambda one: one.broker_epoch)
    there = {one.directory_id: one for one in remembered}
    is_intact = all(
        directory_id in there and _is_whole(there[directory_id], last, boot_id) for directory_id in last.directory_ids
    )
    return Past(last.broker_epoch, last.intact_since if is_intact else None)


def _is_whole(one: Remembered, last: LastRegistration, boot_id: str) -> bool:
    if one.registration != last:
        return False
    return one.clean_epoch == last.broker_epoch or (boot_id != UNKNOWN_BOOT and boot_id == last.boot_id)


def encode_registration(registration: LastRegistration) -> bytes:
    fields = {
        "version": _VERSION,
        "broker_epoch": str(registration.broker_epoch),
        "intact_since": str(registration.intact_since),
        "boot_id": registration.boot_id,
        "directory_ids": [uuid_text(one) for one in registration.directory_ids],
    }
    return json.dumps(fields).encode()


def decode_registration(content: bytes) -> LastRegistration | None:
    """None for anything that is not one: it proves nothing."""
    try:
        fields = json.loads(content)
        if fields["version"] != _VERSION:
            return None
        return LastRegistration(
            int(fields["broker_epoch"]),
            int(fields["intact_since"]),
            str(fields["boot_id"]),
            tuple([parse_uuid(text) for text in fields["directory_ids"]]),
        )
    except (ValueError, KeyError, TypeError):
        return None


class Registrations:
    """Of one broker. Owner: the log manager's thread."""

    def __init__(self, files: FileSystem, directories: LogDirectories, boot_id: str) -> None:
        self._files = files
        self._directories = directories
        self._boot_id = boot_id
        self._current: LastRegistration | None = None
        self.past = Past(None, None)
        """What the next registration can say."""

    def read(self, on_failure: OnFailure, *, is_whole: bool) -> None:
        """When the logs are open; `is_whole` says that nothing had to be cut from them, and that all are there."""
        remembered: list[Remembered] = []
        for directory in self._directories.online:
            try:
                remembered.append(self._remembered(directory))
            except DiskFailed as error:
                on_failure(directory, error)
        past = past_of(remembered, self._boot_id)
        self.past = past if is_whole else Past(past.previous_epoch, None)

    def _remembered(self, directory: LogDirectory) -> Remembered:
        assert directory.directory_id is not None, "claimed before"
        path = directory.file(REGISTRATION)
        registration = decode_registration(read_file(self._files, path)) if self._files.exists(path) else None
        mark = directory.clean_shutdown
        return Remembered(directory.directory_id, registration, None if mark is None else mark.broker_epoch)

    def remembering(self, broker_epoch: int, on_failure: OnFailure) -> Iterator[Job[None]]:
        """The broker is registered with this epoch: one job for each directory.

        A directory without room keeps an older file, which proves nothing of this registration.
        """
        previous, intact_since = self.past
        # Epochs grow in one store: one that went back was wiped or restored, and what was before means nothing there.
        if intact_since is None or previous is None or broker_epoch <= previous:
            intact_since = broker_epoch
        self._current = LastRegistration(broker_epoch, intact_since, self._boot_id, self._directories.online_ids)
        self.past = Past(broker_epoch, intact_since)
        content = encode_registration(self._current)
        for directory in self._directories.online:
            yield Job(
                f"remember the registration in {directory.path}",
                run=partial(replace_file, self._files, directory.file(REGISTRATION), content, is_synced=False),
                finish=lambda _: None,
                failed=partial(_failed, directory, on_failure),
            )

    def lost(self) -> None:
        """A directory has failed: nothing can be proved about this registration any more."""
        self.past, self._current = Past(self.past.previous_epoch, None), None
        for directory in self._directories:
            with suppress(DiskFailed):
                self._files.remove(directory.file(REGISTRATION))

    def store(self, directory: LogDirectory) -> int | None:
        """At a clean stop, before the mark, whose broker epoch is returned: None when there is none to be marked."""
        if self._current is None:
            return None
        try:
            replace_file(self._files, directory.file(REGISTRATION), encode_registration(self._current))
        except DiskFull:
            return None
        return self._current.broker_epoch


def _failed(directory: LogDirectory, on_failure: OnFailure, error: DiskFailed) -> None:
    if not isinstance(error, DiskFull):
        on_failure(directory, error)

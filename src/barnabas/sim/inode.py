"""What a power cut leaves of one file and of one directory.

Every node has two sides: the volatile one, which the running system sees, and the durable one, which is on
the platter. `FileNode` moves bytes from one to the other at `sync`; `DirectoryNode` moves names.

A file after a power cut:
- bytes that were synced and not written since are there;
- a byte written since has its new value, a value it had before, or, where the file had ended, zero: decided
  page by page, and in the page where the last write was torn, before and after the tear;
- the length is anywhere between the shortest and the longest the file has had since its last sync.

A directory after a power cut is what it was at its last sync plus some of the changes since: a first part of
them, as a file system with one journal leaves it, or any of them; with `PowerCut.is_strict`, none. A rename is one
change: it happened or it did not, and no file ever has two names.

The kernel may write dirty pages back whenever it likes. It matters only before they are overwritten or cut,
when a value is about to be forgotten that a power cut could still bring back; so the model writes back there,
now and then.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from barnabas.base.buffers import Buffer

_DIRTY_RANGES_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class PowerCut:
    """How chance decides what survives."""

    random: Random
    page_bytes: int
    is_strict: bool
    loses_all: bool = False
    """Nothing is left to chance: of each file, what was synced survives, and nothing else."""


@dataclass(frozen=True, slots=True)
class NameChange:
    """One step of a directory's journal: a name goes, a name comes, or (a rename) both at once."""

    gone: str | None
    come: str | None
    node: "Node"
    """What the name stands for."""

    def apply(self, entries: "dict[str, Node]") -> None:
        if self.gone is not None:
            del entries[self.gone]
        if self.come is not None:
            entries[self.come] = self.node

    def survive(self, entries: "dict[str, Node]") -> None:
        """Applies it to what a power cut leaves, where earlier changes may be missing."""
        for name in [name for name, node in entries.items() if node is self.node]:
            del entries[name]
        if self.come is not None:
            entries[self.come] = self.node


class DirectoryNode:
    """Names: those that are seen, those that are durable, and the changes that lead from these to those."""

    __slots__ = ("_durable", "_journal", "entries", "modified_ms")

    def __init__(self, modified_ms: int, entries: "dict[str, Node] | None" = None) -> None:
        self.modified_ms = modified_ms
        self.entries: dict[str, Node] = entries or {}
        self._durable = self.entries.copy()
        self._journal: list[NameChange] = []

    def change(self, *, gone: str | None = None, come: str | None = None, node: "Node | None" = None) -> None:
        """A name alone goes; one that comes brings its node."""
        if node is None:
            assert gone is not None
            node = self.entries[gone]
        step = NameChange(gone, come, node)
        step.apply(self.entries)
        self._journal.append(step)

    def sync(self) -> None:
        for step in self._journal:
            step.apply(self._durable)
        self._journal.clear()

    def after(self, cut: PowerCut) -> "DirectoryNode":
        """This directory and everything below it, as it is found after a power cut."""
        entries = self._durable.copy()
        for step in self._surviving_changes(cut):
            step.survive(entries)
        return DirectoryNode(self.modified_ms, {name: node.after(cut) for name, node in entries.items()})

    def _surviving_changes(self, cut: PowerCut) -> list[NameChange]:
        journal = self._journal
        if cut.is_strict or not journal:
            return []
        if cut.random.getrandbits(1):
            return journal[: cut.random.randint(0, len(journal))]
        coins = cut.random.getrandbits(len(journal))
        return [step for slot, step in enumerate(journal) if coins >> slot & 1]

    def files(self) -> "Iterator[FileNode]":
        for node in self.entries.values():
            if isinstance(node, DirectoryNode):
                yield from node.files()
            else:
                yield node

    def check_invariants(self) -> None:
        replayed = self._durable.copy()
        for step in self._journal:
            step.apply(replayed)
        assert replayed == self.entries, "the journal does not lead to the visible names"
        for node in self.entries.values():
            node.check_invariants()


class FileNode:
    """Bytes: those that are seen, those that are durable, and where they may differ.

    Outside `_dirty`, and below `_shortest`, the two sides are equal, except after a failed sync: the kernel
    then takes the pages that it could not write for clean, so no later sync will write them.
    """

    __slots__ = (
        "_dirty",
        "_durable",
        "_last_write",
        "_mapped_length",
        "_outgrown",
        "_shortest",
        "content",
        "is_linked",
        "modified_ms",
        "reserved_bytes",
    )

    def __init__(self, modified_ms: int, content: bytearray) -> None:
        self.modified_ms = modified_ms
        self.content = content
        self.is_linked = True
        self.reserved_bytes = len(content)
        self._durable = content.copy()
        self._shortest = len(content)
        self._dirty: list[tuple[int, int]] = []  # [start, end) in the order of writing
        self._last_write = (0, 0)
        self._mapped_length = 0
        # Buffers that live maps look at: a bytearray cannot grow while it is exported, so the file moved on.
        self._outgrown: list[tuple[bytearray, int]] = []

    def write(self, data: Buffer, position: int, cut: PowerCut) -> None:
        if not data:
            return
        size = len(self.content)
        end = position + len(data)
        if position < size and any(start < end and position < stop for start, stop in self._dirty):
            self._write_back_perhaps(cut)
        try:
            self._put(data, position)
        except BufferError:
            self._leave_buffer_to_maps()
            self._put(data, position)
        for buffer, _ in self._outgrown:
            if position < len(buffer):
                buffer[position:end] = memoryview(data)[: len(buffer) - position]
        self._mark_dirty(min(position, size), end)
        self._last_write = (position, end)

    def _put(self, data: Buffer, position: int) -> None:
        gap = position - len(self.content)
        if gap > 0:
            self.content.extend(bytes(gap))
        self.content[position : position + len(data)] = data

    def resize(self, size: int, cut: PowerCut) -> None:
        before = len(self.content)
        if size < before:
            self._cut(size, cut)
        elif size > before:
            try:
                self.content.extend(bytes(size - before))
            except BufferError:
                self._leave_buffer_to_maps()
                self.content.extend(bytes(size - before))
            self._mark_dirty(before, size)

    def _cut(self, size: int, cut: PowerCut) -> None:
        for buffer, length in [*self._outgrown, (self.content, self._mapped_length)]:
            assert length <= size or not _is_exported(buffer), "cut below a live map: a SIGBUS for its reader"
        self._write_back_perhaps(cut)
        try:
            del self.content[size:]
        except BufferError:
            self._leave_buffer_to_maps()
            del self.content[size:]
        self._shortest = min(self._shortest, size)
        self._dirty = [(start, min(end, size)) for start, end in self._dirty if start < size]
        self._last_write = (min(self._last_write[0], size), min(self._last_write[1], size))

    def sync(self) -> None:
        durable, content, shortest = self._durable, self.content, self._shortest
        for start, end in self._dirty:
            if start < shortest:
                end = min(end, shortest)
                durable[start:end] = content[start:end]
        # Above, all was written or zeroed since the file was that short.
        durable[shortest:] = content[shortest:]
        self._take_for_clean()

    def sync_failed(self, cut: PowerCut) -> None:
        """Either the pages stay dirty, or those that could not be written are forgotten and never will be."""
        if cut.random.getrandbits(1):
            return
        size = len(self.content)
        durable = self._survivor(cut)
        del durable[size:]
        durable.extend(bytes(size - len(durable)))
        self._durable = durable
        self._take_for_clean()

    def _take_for_clean(self) -> None:
        self._dirty.clear()
        self._shortest = len(self.content)
        self._last_write = (0, 0)

    def map(self, length: int) -> memoryview:
        self._mapped_length = max(self._mapped_length, length) if _is_exported(self.content) else length
        return memoryview(self.content)[:length].toreadonly()

    def flip(self, position: int) -> None:
        """A bit changes, in memory as on the disk."""
        for side in (self.content, self._durable):
            if position < len(side):
                side[position] ^= 1 << position % 8

    def forget_maps(self) -> None:
        """The process that made them is gone."""
        self._outgrown.clear()
        if self._mapped_length:
            self.content = self.content.copy()
            self._mapped_length = 0

    def _leave_buffer_to_maps(self) -> None:
        self._outgrown = [outgrown for outgrown in self._outgrown if _is_exported(outgrown[0])]
        self._outgrown.append((self.content, self._mapped_length))
        self.content = self.content.copy()
        self._mapped_length = 0

    def _mark_dirty(self, start: int, end: int) -> None:
        dirty = self._dirty
        if dirty and dirty[-1][1] == start:
            dirty[-1] = (dirty[-1][0], end)
            return
        dirty.append((start, end))
        if len(dirty) > _DIRTY_RANGES_MAX:  # what lies between is clean: writing it again changes nothing
            self._dirty = [(min(start for start, _ in dirty), max(end for _, end in dirty))]

    def _write_back_perhaps(self, cut: PowerCut) -> None:
        if self._dirty and cut.random.getrandbits(1):
            self._durable = self._survivor(cut)

    def after(self, cut: PowerCut) -> "FileNode":
        node = FileNode(self.modified_ms, self._survivor(cut))
        node.reserved_bytes = min(node.reserved_bytes, self.reserved_bytes)  # holes stay holes
        return node

    def _survivor(self, cut: PowerCut) -> bytearray:
        random, content, shortest = cut.random, self.content, self._shortest
        if cut.loses_all:
            return self._durable.copy()
        if not self._dirty and shortest == len(content) == len(self._durable):
            return self._durable.copy()
        longest = max(len(content), len(self._durable))
        image = self._durable.copy()
        if random.getrandbits(1):  # if the file was cut: the cut reached the disk, what followed did not
            del image[shortest:]
        image.extend(bytes(longest - len(image)))
        torn_at = random.randint(*self._last_write)
        page_start = torn_at - torn_at % cut.page_bytes
        torn_end = min(page_start + cut.page_bytes, self._last_write[1])
        missed = image[torn_at:torn_end]
        for start, end in self._surviving_pieces(cut):
            image[start:end] = content[start:end]
        if random.getrandbits(1):
            torn_start = max(page_start, self._last_write[0])
            image[torn_start:torn_at] = content[torn_start:torn_at]
            image[torn_at:torn_end] = missed
        lengths = (shortest, len(content), len(self._durable), random.randint(shortest, longest))
        del image[random.choice(lengths) :]
        return image

    def _surviving_pieces(self, cut: PowerCut) -> list[tuple[int, int]]:
        """Some of the dirty pages: by a coin for each, or none, all or the first, rare by coins."""
        pieces: list[tuple[int, int]] = []
        for start, end in self._dirty:
            while start < end:
                page_end = min(end, start - start % cut.page_bytes + cut.page_bytes)
                pieces.append((start, page_end))
                start = page_end
        count = len(pieces)
        match cut.random.randrange(4):
            case 0:
                return []
            case 1:
                return pieces
            case 2:
                return pieces[: cut.random.randint(0, count)]
        coins = cut.random.getrandbits(count) if count else 0
        return [piece for slot, piece in enumerate(pieces) if coins >> slot & 1]

    def check_invariants(self) -> None:
        size = len(self.content)
        assert self._shortest <= size
        assert self._shortest <= len(self._durable)
        assert all(0 <= start < end <= size for start, end in self._dirty)
        assert 0 <= self._last_write[0] <= self._last_write[1] <= size


Node: TypeAlias = FileNode | DirectoryNode


def _is_exported(buffer: bytearray) -> bool:
    """Whether a memoryview of it is alive: only then does it refuse to change its length."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False

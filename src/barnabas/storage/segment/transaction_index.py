"""The `.txnindex` of a segment: which transactions were aborted by a marker in this segment.

```
position  bytes  field
       0      2  version               0
       2      8  producer id
      10      8  first offset          of the transaction
      18      8  last offset           of its marker
      26      8  last stable offset    when the marker was written
```

34 bytes an entry, in the order of the markers, so last offsets strictly increase (and last stable offsets
never decrease). The file is made with the first entry: most segments have none, and then nothing here touches
the disk after the first look. No descriptor stays open between calls.

The segment owns it. New entries wait in memory until `store`, so that an append cannot fail here; the log's flush
stores and syncs them. A crash may lose entries, leave a torn last one, or entries for markers that the log has lost:
recovery resets the index of every segment above the recovery point and appends what it finds in the log again.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import File, FileSystem
from barnabas.base.ids import Offset, ProducerId
from barnabas.storage.producers.producers import CompletedTransaction

TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"

_VERSION: Final = 0
_ENTRY = Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size
_CHUNK_ENTRIES: Final = 120
"""Read at once: about a page."""


class CorruptTransactionIndex(BarnabasError):  # noqa: N818 - a fact about bytes, named as one
    """An index of aborted transactions that contradicts itself or its segment. Recovery rebuilds it."""


class AbortedTransaction(NamedTuple):
    """A transaction whose records a `read_committed` reader skips."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset

    @classmethod
    def of(cls, completed: CompletedTransaction) -> "AbortedTransaction":
        assert completed.is_aborted
        return cls(completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset)


@dataclass(frozen=True, slots=True)
class AbortedTransactions:
    """What an index knows of a range of offsets; unless complete, later segments may know more."""

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """One segment's aborted transactions. Owner: the segment's."""

    __slots__ = ("_count", "_files", "_last_offset", "_pending", "base_offset", "path")

    def __init__(self, files: FileSystem, path: str, base_offset: Offset) -> None:
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._count: int | None = None
        self._last_offset: Offset | None = None
        self._pending: tuple[AbortedTransaction, ...] = ()

    @property
    def _stored(self) -> int:
        """How many whole entries the file has."""
        if self._count is None:
            self._count = self._files.size(self.path) // ENTRY_BYTES if self._files.exists(self.path) else 0
        return self._count

    def __len__(self) -> int:
        return self._stored + len(self._pending)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self._since(0)

    def append(self, transaction: AbortedTransaction) -> None:
        """Adds the transaction of a marker that was just appended to the segment."""
        if len(self) and transaction.last_offset <= self._newest_offset():
            raise CorruptTransactionIndex(
                f"{self.path}: a marker at offset {transaction.last_offset} cannot follow "
                f"one at {self._newest_offset()}"
            )
        self._pending += (transaction,)
        self._last_offset = transaction.last_offset

    @property
    def has_unstored_entries(self) -> bool:
        return bool(self._pending)

    def store(self) -> None:
        """Moves the entries in memory to the file."""
        if not self._pending:
            return
        stored = self._stored
        with closing(self._files.open(self.path, write=True, create=True)) as file:
            # A torn entry of an earlier crash, or of a write that failed, is written over.
            content = b"".join(_ENTRY.pack(_VERSION, *transaction) for transaction in self._pending)
            file.write_at([content], stored * ENTRY_BYTES)
        self._count = stored + len(self._pending)
        self._pending = ()

    def collect(self, fetch_offset: Offset, upper_bound_offset: Offset) -> AbortedTransactions:
        """The aborted transactions with records in the range, the upper bound being exclusive.

        It is complete when an entry shows that all was stable up to the bound: transactions with a marker in
        a later segment then began after it.
        """
        found: list[AbortedTransaction] = []
        if len(self):
            for transaction in self._since(fetch_offset):
                if transaction.first_offset < upper_bound_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= upper_bound_offset:
                    return AbortedTransactions(found, is_complete=True)
        return AbortedTransactions(found, is_complete=False)

    def truncate_to(self, offset: Offset) -> None:
        """Drops the transactions whose marker is at this offset or later, and a torn entry at the end."""
        if self.forget_from(offset):
            with closing(self._files.open(self.path, write=True)) as file:
                self._cut(file, self._stored)

    def forget_from(self, offset: Offset) -> bool:
        """`truncate_to` in memory alone; says whether the file has more than `stored_bytes`."""
        self._pending = tuple(entry for entry in self._pending if entry.last_offset < offset)
        self._last_offset = None
        if not self._files.exists(self.path):
            return False
        with closing(self._files.open(self.path)) as file:
            self._count = self._find(file, offset)
            return self.stored_bytes < file.size()

    @property
    def stored_bytes(self) -> int:
        """What the file holds, or should once it is cut."""
        return self._stored * ENTRY_BYTES

    def reset(self) -> None:
        """Drops everything, whatever is in the file."""
        self._pending = ()
        self._last_offset = None
        if self._files.exists(self.path):
            with closing(self._files.open(self.path, write=True)) as file:
                self._cut(file, 0)

    def move(self, path: str) -> None:
        """Follows the file to a new name."""
        if self._files.exists(self.path):
            self._files.rename(self.path, path)
        self.path = path

    def check(self) -> None:
        """Reads the whole file and raises `CorruptTransactionIndex` at the first thing that cannot be."""
        if not self._files.exists(self.path):
            return
        size = self._files.size(self.path)
        if size % ENTRY_BYTES:
            raise CorruptTransactionIndex(f"{self.path}: {size} bytes are not whole entries of {ENTRY_BYTES}")
        newest, stable = self.base_offset - 1, 0
        for index, transaction in enumerate(self):
            first, last, last_stable = transaction[1:]
            if not (0 <= first <= last and newest < last):
                raise CorruptTransactionIndex(
                    f"{self.path}, entry {index}: offsets {first} to {last}, after one that ends at {newest}"
                )
            if not stable <= last_stable <= last + 1:
                raise CorruptTransactionIndex(f"{self.path}, entry {index}: stable to {last_stable} at offset {last}")
            newest, stable = last, last_stable

    def _cut(self, file: File, count: int) -> None:
        self._count = None  # unknown, should the next line fail
        file.truncate(count * ENTRY_BYTES)
        self._count = count

    def _newest_offset(self) -> Offset:
        if self._last_offset is None:
            if self._pending:
                self._last_offset = self._pending[-1].last_offset
            else:
                with closing(self._files.open(self.path)) as file:
                    self._last_offset = self._read_one(file, self._stored - 1).last_offset
        return self._last_offset

    def _since(self, offset: Offset) -> Iterator[AbortedTransaction]:
        """The transactions whose marker is at this offset or later."""
        if self._stored:
            with closing(self._files.open(self.path)) as file:
                yield from self._read(file, self._find(file, offset))
        for transaction in self._pending:
            if transaction.last_offset >= offset:
                yield transaction

    def _find(self, file: File, offset: Offset) -> int:
        """The first entry whose marker is at this offset or later, by binary search."""
        low, high = 0, self._stored
        while low < high:
            middle = (low + high) // 2
            if self._read_one(file, middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _read_one(self, file: File, index: int) -> AbortedTransaction:
        return self._decode(file.read_at(ENTRY_BYTES, index * ENTRY_BYTES), index)[0]

    def _read(self, file: File, index: int) -> Iterator[AbortedTransaction]:
        """Entries from `index` on, a chunk at a time."""
        while index < self._stored:
            count = min(_CHUNK_ENTRIES, self._stored - index)
            yield from self._decode(file.read_at(count * ENTRY_BYTES, index * ENTRY_BYTES), index)
            index += count

    def _decode(self, content: bytes, index: int) -> list[AbortedTransaction]:
        if not content or len(content) % ENTRY_BYTES:
            index += len(content) // ENTRY_BYTES
            raise CorruptTransactionIndex(f"{self.path}: it ends within entry {index}")
        transactions = []
        for place, (version, *fields) in enumerate(_ENTRY.iter_unpack(content), start=index):
            if version != _VERSION:
                raise CorruptTransactionIndex(f"{self.path}, entry {place}: version {version}")
            transactions.append(AbortedTransaction(*fields))
        return transactions

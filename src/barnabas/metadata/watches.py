"""The one-shot watches of one session. Pure."""

from barnabas.metadata.store import EventType, Watch, WatchEvent


class Watches:
    """Each watch is called once, in the order of registration, and forgotten before it is called."""

    __slots__ = ("_children", "_data")

    def __init__(self) -> None:
        # Tuples, because nearly every path has exactly one watch, and there are as many paths as partitions.
        self._data: dict[str, tuple[Watch, ...]] = {}
        self._children: dict[str, tuple[Watch, ...]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._data.values())) + sum(map(len, self._children.values()))

    def add_data(self, path: str, watch: Watch) -> None:
        _add(self._data, path, watch)

    def add_children(self, path: str, watch: Watch) -> None:
        _add(self._children, path, watch)

    def fire(self, event: WatchEvent) -> None:
        due: tuple[Watch, ...] = ()
        if event.type is not EventType.CHILDREN:
            due = self._data.pop(event.path, ())
        if event.type in (EventType.CHILDREN, EventType.DELETED):
            # A node that is watched for both, by the same function, says once that it is gone.
            due += tuple(watch for watch in self._children.pop(event.path, ()) if watch not in due)
        for watch in due:
            watch(event)

    def clear(self) -> None:
        self._data.clear()
        self._children.clear()


def _add(watches: dict[str, tuple[Watch, ...]], path: str, watch: Watch) -> None:
    present = watches.get(path, ())
    if watch not in present:
        watches[path] = (*present, watch)

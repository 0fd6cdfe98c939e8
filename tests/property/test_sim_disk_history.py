"""The crashable disk against a model that knows, for any history, everything a power cut may leave."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.base.filesystem import read_file
from barnabas.sim.disk import SimulatedDisk


class ModelFile:
    """For each position the set of what its byte may be after a power cut, and the lengths that may be."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced()

    def synced(self) -> None:
        self.possible: list[set[int]] = [{value} for value in self.content]
        self.shortest = self.longest = len(self.content)

    def written(self, data: bytes, position: int) -> None:
        self.resized(max(len(self.content), position + len(data)))
        self.content[position : position + len(data)] = data
        for slot, value in enumerate(data, position):
            self.possible[slot].add(value)

    def resized(self, size: int) -> None:
        for slot in range(size, len(self.possible)):
            self.possible[slot].add(0)
        self.possible.extend({0} for _ in range(size - len(self.possible)))
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))
        self.shortest = min(self.shortest, size)
        self.longest = max(self.longest, size)

    def allows(self, found: bytes) -> bool:
        is_length_possible = self.shortest <= len(found) <= self.longest
        return is_length_possible and all(map(set.__contains__, self.possible, found))


Names = dict[str, ModelFile]


class DiskHistory(RuleBasedStateMachine):
    """Files of one directory, its names as the list of all states since the last sync of the directory."""

    names = st.sampled_from(["a", "b", "c"])
    positions = st.integers(0, 80)

    @initialize(seed=st.integers(0, 2**32), page_bytes=st.sampled_from([1, 8, 512]), strict=st.booleans())
    def start(self, seed: int, page_bytes: int, strict: bool) -> None:
        self.disk = SimulatedDisk(Random(seed), page_bytes=page_bytes, strict=strict)
        self.states: list[Names] = [{}]

    @property
    def files(self) -> Names:
        return self.states[-1]

    @rule(name=names, data=st.binary(max_size=40), position=positions)
    def write(self, name: str, data: bytes, position: int) -> None:
        if name not in self.files:
            self.states.append(self.files | {name: ModelFile()})
        file = self.disk.open(f"/{name}", write=True, create=True)
        file.write_at([data[:7], data[7:]], position)
        file.close()
        if data:
            self.files[name].written(data, position)

    @precondition(lambda self: self.files)
    @rule(name=names, size=positions)
    def truncate(self, name: str, size: int) -> None:
        if name in self.files:
            self.disk.open(f"/{name}", write=True).truncate(size)
            self.files[name].resized(size)

    @precondition(lambda self: self.files)
    @rule(name=names)
    def sync(self, name: str) -> None:
        if name in self.files:
            self.disk.open(f"/{name}").sync()
            self.files[name].synced()

    @precondition(lambda self: self.files)
    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        if old in self.files and old != new:
            self.disk.rename(f"/{old}", f"/{new}")
            left = {name: file for name, file in self.files.items() if name != old}
            self.states.append(left | {new: self.files[old]})

    @precondition(lambda self: self.files)
    @rule(name=names)
    def remove(self, name: str) -> None:
        if name in self.files:
            self.disk.remove(f"/{name}")
            self.states.append({other: file for other, file in self.files.items() if other != name})

    @rule()
    def sync_directory(self) -> None:
        self.disk.sync_directory("/")
        del self.states[:-1]

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.kill()

    @rule()
    def crash(self) -> None:
        self.disk = self.disk.crash()
        self.states = [{name: ModelFile(content) for name, content in self.shown_by(self.disk).items()}]

    @staticmethod
    def shown_by(disk: SimulatedDisk) -> dict[str, bytes]:
        return {name: read_file(disk, f"/{name}") for name in disk.list("/")}

    @invariant()
    def disk_shows_what_was_written(self) -> None:
        self.disk.check_invariants()
        assert self.shown_by(self.disk) == {name: file.content for name, file in self.files.items()}

    @invariant()
    def power_cut_leaves_what_it_may(self) -> None:
        states = self.states[:1] if self.disk.cut.is_strict else self.states
        for _ in range(3):
            found = self.shown_by(self.disk.power_loss_image())
            for name in {*found, *(name for state in states for name in state)}:
                possible = [state.get(name) for state in states]
                assert any(allows(file, found.get(name)) for file in possible), f"{name} cannot be {found.get(name)!r}"


def allows(file: ModelFile | None, found: bytes | None) -> bool:
    """Whether a name that stood for this file, or for none, may be found like that."""
    return found is None if file is None else found is not None and file.allows(found)


TestDiskHistory = DiskHistory.TestCase
TestDiskHistory.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)

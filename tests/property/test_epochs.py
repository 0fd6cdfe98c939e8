"""`LeaderEpochs` against a model that keeps, for every offset of the log, the epoch it was written in."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.checkpoints import decode_leader_epochs, encode_leader_epochs
from barnabas.storage.log.epochs import EpochEnd, EpochEntry, LeaderEpochs

operations = st.one_of(
    st.tuples(st.just("lead"), st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.just("cut end"), st.integers(0, 40), st.just(0)),
    st.tuples(st.just("cut start"), st.integers(0, 40), st.just(0)),
)


@given(st.lists(operations, max_size=25))
def test_history_equals_the_epochs_of_the_records(steps):
    epochs = LeaderEpochs()
    log: list[int] = []
    log_start = 0
    leader = 0
    for kind, first, second in steps:
        if kind == "lead":
            leader += first
            epochs.assign(leader, len(log))
            log += [leader] * second
        elif kind == "cut end" and log_start < first <= len(log):
            del log[first:]
            epochs.truncate_from_end(first)
        elif kind == "cut start" and log_start <= first < len(log):
            log_start = first
            epochs.truncate_from_start(first)
        epochs.check_invariants()
        check_history(epochs, log, log_start)


def check_history(epochs: LeaderEpochs, log: list[int], log_start: int) -> None:
    for offset in range(log_start, len(log)):
        assert epochs.epoch_for_offset(offset) == log[offset]
    known = log[log_start:]
    for epoch in {*known, *(epoch + 1 for epoch in known)}:
        answer = epochs.end_offset_for(epoch, len(log))
        if known and epoch > max(known):
            assert answer == EpochEnd(-1, -1)
        else:
            below = [other for other in known if other <= epoch]
            end_offset = next((log_start + place for place, other in enumerate(known) if other > epoch), len(log))
            assert answer == EpochEnd(max(below), end_offset)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))))
def test_any_assignments_leave_a_history_that_survives_its_file(entries):
    epochs = LeaderEpochs(EpochEntry(*entry) for entry in entries)
    epochs.check_invariants()
    assert epochs.is_dirty == ([tuple(entry) for entry in epochs.entries] != entries)
    reread = LeaderEpochs(decode_leader_epochs(encode_leader_epochs(epochs.entries), "file"))
    assert reread.entries == epochs.entries
    assert not reread.is_dirty

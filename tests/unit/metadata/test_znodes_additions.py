"""What our nodes say beyond Kafka's: written only where it says something, and never needed to read a node."""

import json
from uuid import UUID

import pytest

from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.image import RegisteredBroker
from barnabas.metadata.znodes import (
    BARNABAS,
    BARNABAS_VERSIONS,
    BrokerRegistration,
    Endpoint,
    PartitionState,
    VersionRange,
)

ENDPOINTS = (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),)
LARGE = 2**63 - 1
STATE = b'{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":7,"isr":[1,2]}'
REGISTRATION = (
    b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5","endpoints":["PLAINTEXT://h:9092"],'
    b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}'
)


def added(data: bytes, additions: object) -> bytes:
    return json.dumps({**json.loads(data), "barnabas": additions}).encode()


def test_state_without_additions_has_the_bytes_it_always_had() -> None:
    state = PartitionState(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=7)
    assert state.encode() == STATE
    assert PartitionState.decode("p", STATE) == state
    assert state.broker_epoch_of(1) is None


def test_state_with_additions_comes_back_whole() -> None:
    state = PartitionState(
        1, 4, (1, 2), 7, isr_epochs=(LARGE, 15), elr=(3,), elr_epochs=(9,), min_insync_replicas=3, is_recovering=True
    )
    assert json.loads(state.encode()) == {
        **json.loads(STATE),
        "leader_recovery_state": 1,
        "barnabas": {
            "isr_epochs": [str(LARGE), "15"],
            "elr": [3],
            "elr_epochs": ["9"],
            "min_insync_replicas": 3,
        },
    }
    assert PartitionState.decode("p", state.encode()) == state
    assert [state.broker_epoch_of(broker) for broker in (1, 2, 3, 4)] == [LARGE, 15, 9, None]


def test_state_whose_isr_is_empty_may_have_eligible_replicas() -> None:
    state = PartitionState(-1, 4, (), 7, elr=(3, 1), elr_epochs=(9, 8))
    assert PartitionState.decode("p", state.encode()) == state
    assert state.broker_epoch_of(1) == 8


@pytest.mark.parametrize(
    "additions",
    [
        [],
        None,
        {"isr_epochs": ["21"]},
        {"isr_epochs": [21, 15]},
        {"isr_epochs": ["21", "late"]},
        {"isr_epochs": ["21", "15"], "elr": [3]},
        {"isr_epochs": ["21", "15"], "elr": [3], "elr_epochs": ["9", "8"]},
        {"isr_epochs": ["21", "15"], "elr": [2], "elr_epochs": ["9"]},
        {"isr_epochs": ["21", "15"], "elr": [3, 3], "elr_epochs": ["9", "9"]},
        {"isr_epochs": ["21", "15"], "elr_epochs": ["9"]},
        {"elr": [3], "elr_epochs": ["9"]},
        {"min_insync_replicas": 0},
        {"min_insync_replicas": "2"},
    ],
)
def test_state_with_additions_that_contradict_it_is_corrupt(additions: object) -> None:
    with pytest.raises(CorruptNode):
        PartitionState.decode("p", added(STATE, additions))


@pytest.mark.parametrize(
    "state",
    [
        PartitionState(1, 4, (1, 2), 7, isr_epochs=(21,)),
        PartitionState(1, 4, (1,), 7, isr_epochs=(21,), elr=(2,)),
        PartitionState(1, 4, (1,), 7, isr_epochs=(21,), elr=(1,), elr_epochs=(21,)),
        PartitionState(1, 4, (1,), 7, elr=(2,), elr_epochs=(21,)),
    ],
)
def test_state_that_contradicts_itself_is_never_written(state: PartitionState) -> None:
    with pytest.raises(AssertionError):
        state.encode()


def test_unknown_additions_are_skipped() -> None:
    assert PartitionState.decode("p", added(STATE, {"later": 1})) == PartitionState.decode("p", STATE)
    assert BrokerRegistration.decode(1, added(REGISTRATION, {"later": 1})) == BrokerRegistration.decode(1, REGISTRATION)


def test_registration_without_additions_has_the_bytes_it_always_had() -> None:
    registration = BrokerRegistration(1, ENDPOINTS, timestamp_ms=5)
    assert registration.encode() == REGISTRATION
    assert BrokerRegistration.decode(1, REGISTRATION) == registration
    assert not registration.is_barnabas


def test_registration_with_additions_comes_back_whole() -> None:
    directory = UUID(int=17)
    registration = BrokerRegistration(
        1,
        ENDPOINTS,
        timestamp_ms=5,
        features={BARNABAS: BARNABAS_VERSIONS},
        previous_epoch=LARGE,
        intact_since=15,
        directory_ids=(directory,),
    )
    assert json.loads(registration.encode()) == {
        **json.loads(REGISTRATION),
        "features": {"barnabas": {"min_version": 0, "max_version": 2}},
        "barnabas": {
            "previous_epoch": str(LARGE),
            "intact_since": "15",
            "directory_ids": ["AAAAAAAAAAAAAAAAAAAAEQ"],
        },
    }
    assert BrokerRegistration.decode(1, registration.encode()) == registration
    assert registration.is_barnabas


def test_registration_is_intact_since_epochs_from_the_oldest_to_its_previous_one() -> None:
    broker = RegisteredBroker.of(BrokerRegistration(1, ENDPOINTS, previous_epoch=21, intact_since=15), 25)
    assert [epoch for epoch in range(30) if broker.is_intact_since(epoch)] == list(range(15, 22))


def test_registration_that_lost_data_is_intact_since_none() -> None:
    registration = BrokerRegistration(1, ENDPOINTS, previous_epoch=21)
    assert BrokerRegistration.decode(1, registration.encode()) == registration
    broker = RegisteredBroker.of(registration, 25)
    assert not any(broker.is_intact_since(epoch) for epoch in range(30))


@pytest.mark.parametrize(
    "additions",
    [
        [],
        {"previous_epoch": 21},
        {"previous_epoch": "late"},
        {"intact_since": "15"},
        {"intact_since": "22", "previous_epoch": "21"},
        {"directory_ids": "AAAAAAAAAAAAAAAAAAAAEQ"},
        {"directory_ids": ["short"]},
    ],
)
def test_registration_with_additions_that_make_no_sense_is_corrupt(additions: object) -> None:
    with pytest.raises(CorruptNode):
        BrokerRegistration.decode(1, added(REGISTRATION, additions))


def test_registration_that_claims_too_much_is_never_written() -> None:
    for registration in (
        BrokerRegistration(1, ENDPOINTS, intact_since=3),
        BrokerRegistration(1, ENDPOINTS, intact_since=3, previous_epoch=2),
    ):
        with pytest.raises(AssertionError):
            registration.encode()


def test_version_ranges_overlap_when_they_share_a_version() -> None:
    assert VersionRange(1, 3).overlaps(VersionRange(3, 4))
    assert VersionRange(3, 4).overlaps(VersionRange(1, 3))
    assert not VersionRange(1, 2).overlaps(VersionRange(3, 4))
    assert not VersionRange(3, 4).overlaps(VersionRange(1, 2))

"""Quotas and credentials, as far as the nodes of a real Kafka do not show it (`test_kafka_nodes.py`)."""

import pytest

from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.znodes_configs import (
    DEFAULT,
    ClientEntity,
    ScramCredential,
    decode_quotas,
    encode_quota,
)


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (ClientEntity(user="a"), "/config/users/a"),
        (ClientEntity(user=DEFAULT), "/config/users/<default>"),
        (ClientEntity(user="<default>"), "/config/users/%3Cdefault%3E"),
        (ClientEntity(user="a", client_id="b/c"), "/config/users/a/clients/b%2Fc"),
        (ClientEntity(user=DEFAULT, client_id=DEFAULT), "/config/users/<default>/clients/<default>"),
        (ClientEntity(client_id="b"), "/config/clients/b"),
        (ClientEntity(ip="::1"), "/config/ips/%3A%3A1"),
    ],
)
def test_entity_and_path_say_the_same(entity: ClientEntity, path: str) -> None:
    assert entity.path == path
    assert ClientEntity.of_path(path) == entity


@pytest.mark.parametrize("path", ["/config/users", "/config/topics/t", "/config/users/a/clients", "/config/ips/a/b"])
def test_path_of_something_else_is_no_entity(path: str) -> None:
    with pytest.raises(CorruptNode):
        ClientEntity.of_path(path)


@pytest.mark.parametrize(
    "entity", [ClientEntity(), ClientEntity(user="a", ip="b"), ClientEntity(client_id="a", ip="b")]
)
def test_entity_that_is_nobody_has_no_path(entity: ClientEntity) -> None:
    with pytest.raises(AssertionError):
        _ = entity.path


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1.0, "1.0"),
        (200.0, "200.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (9_999_999.5, "9999999.5"),
        (10_000_000.0, "1.0E7"),
        (123_456_789.25, "1.2345678925E8"),
        (1e300, "1.0E300"),
    ],
)
def test_fractional_quota_is_written_as_java_prints_it(value: float, text: str) -> None:
    assert encode_quota("request_percentage", value) == text
    assert decode_quotas("p", {"request_percentage": text}) == {"request_percentage": value}


def test_whole_quota_is_written_without_a_point() -> None:
    assert encode_quota("producer_byte_rate", 1e15) == "1000000000000000"


def test_other_configs_are_no_quotas_and_a_quota_is_a_number() -> None:
    assert decode_quotas("p", {"SCRAM-SHA-256": "salt=", "consumer_byte_rate": "5"}) == {"consumer_byte_rate": 5}
    with pytest.raises(CorruptNode):
        decode_quotas("p", {"consumer_byte_rate": "fast"})


def test_credential_in_any_order_is_read_and_never_shown() -> None:
    credential = ScramCredential(b"s", b"stored", b"server", 4096)
    text = credential.encode()
    assert text == "salt=cw==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
    assert ScramCredential.decode("p", ",".join(reversed(text.split(",")))) == credential
    assert repr(credential) == "ScramCredential(iterations=4096)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "salt=cw==,stored_key=c3RvcmVk,server_key=c2VydmVy",
        "salt=cw==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=many",
        "salt=secret!,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=1",
        "salt=cw==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=1,more=secret",
    ],
)
def test_damaged_credential_is_corrupt_and_not_repeated(text: str) -> None:
    with pytest.raises(CorruptNode) as refused:
        ScramCredential.decode("p", text)
    assert "secret" not in str(refused.value)

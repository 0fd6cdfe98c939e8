"""How an ensemble is named, and who may do what with which node."""

import subprocess
import sys

import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.metadata.zookeeper.zookeeper_options import (
    SESSION_KEYS,
    Access,
    SessionKey,
    TlsFiles,
    ZooKeeperOptions,
)


@pytest.mark.parametrize(
    ("connect", "hosts", "chroot"),
    [
        ("a:2181", "a:2181", ""),
        ("a,b:2182,c/kafka", "a,b:2182,c", "/kafka"),
        ("a/", "a", ""),
        ("a:1/deep/er/", "a:1", "/deep/er"),
        ("[::1]:2181,10.0.0.1:2181/x", "[::1]:2181,10.0.0.1:2181", "/x"),
    ],
)
def test_connect_string_has_hosts_and_chroot(connect: str, hosts: str, chroot: str) -> None:
    options = ZooKeeperOptions.from_connect(connect)

    assert (options.hosts, options.chroot, options.host_count) == (hosts, chroot, hosts.count(",") + 1)
    assert options.full_path("/") == (chroot or "/")
    for path in ("/", "/a/b"):
        assert options.own_path(options.full_path(path)) == path


@pytest.mark.parametrize("connect", ["", "a:b", "a:70000", "a,,b", "a b", "::1", "a:1:2", "a//x", "a/x/../y"])
def test_bad_connect_string_is_refused(connect: str) -> None:
    with pytest.raises(InvalidSetting):
        ZooKeeperOptions.from_connect(connect)


def test_ipv6_address_without_brackets_is_explained() -> None:
    with pytest.raises(InvalidSetting, match="brackets"):
        ZooKeeperOptions("::1")


def test_long_chroot_is_refused() -> None:
    ZooKeeperOptions("a", chroot="/" + "é" * 63)
    with pytest.raises(InvalidSetting, match="longer than 128 bytes"):
        ZooKeeperOptions("a", chroot="/" + "é" * 64)


def test_access_lists_need_an_identity() -> None:
    with pytest.raises(InvalidSetting, match="need an identity"):
        ZooKeeperOptions("a", has_access_lists=True)
    with pytest.raises(InvalidSetting, match="USER:PASSWORD"):
        ZooKeeperOptions("a", identity=":secret")
    ZooKeeperOptions("a", identity="user:secret", has_access_lists=True)
    ZooKeeperOptions("a", tls=TlsFiles(certificate="certificate.pem"), has_access_lists=True)


def test_secrets_are_not_shown() -> None:
    tls = TlsFiles(key="key.pem", key_password="secret")
    shown = repr((ZooKeeperOptions("a", identity="user:secret", tls=tls), SessionKey(1, b"secret")))

    assert "secret" not in shown


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/brokers/ids/1", Access.READABLE),
        ("/config/topics/t", Access.READABLE),
        ("/config/users", Access.SECRET),
        ("/config/users/alice", Access.SECRET),
        ("/config/brokers/1", Access.SECRET),
        ("/kafka-acl/Topic/t", Access.SECRET),
        ("/kafka-acl-extended/prefixed", Access.SECRET),
        ("/delegation_token/tokens/t", Access.SECRET),
        ("/consumers", Access.OPEN),
    ],
)
def test_access_is_kafkas(path: str, access: Access) -> None:
    options = ZooKeeperOptions("a", identity="user:secret", has_access_lists=True)

    assert options.access_to(path) is access
    assert ZooKeeperOptions("a", identity="user:secret").access_to(path) is Access.OPEN


@pytest.mark.parametrize("has_access_lists", [True, False])
def test_keys_of_sessions_are_for_their_identity_alone(has_access_lists: bool) -> None:
    options = ZooKeeperOptions("a", identity="user:secret", has_access_lists=has_access_lists)

    assert options.keeps_secrets
    assert options.access_to(f"{SESSION_KEYS}/1") is Access.SECRET
    assert options.access_to(SESSION_KEYS) is (Access.READABLE if has_access_lists else Access.OPEN)


def test_without_an_identity_there_are_no_secrets() -> None:
    assert not ZooKeeperOptions("a").keeps_secrets


def test_kazoo_is_not_imported_before_a_session_is_opened() -> None:
    program = (
        "import sys, barnabas.metadata.zookeeper.zookeeper_store, barnabas.metadata.zookeeper.session_end;"
        "sys.exit('kazoo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

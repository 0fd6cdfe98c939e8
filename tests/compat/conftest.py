"""Fixtures that need Apache Kafka, and brokers that read requests by one codec or the other.

Where Apache Kafka cannot be had, the tests that need it are skipped, never failed.
"""

import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from barnabas.wire.codecs import CODECS_VARIABLE, COMPILED, REFERENCE, default_codecs
from tests.support.codec_runs import check_codecs
from tests.support.franz_go_program import FranzGoUnavailable, franz_go_program
from tests.support.kafka import KafkaUnavailable, kafka_jars
from tests.support.kafka_classes import make_class_archive
from tests.support.kafka_directory import KafkaDirectories, kafka_directories


@pytest.fixture(autouse=True, scope="module")
def _sockets_of_kafka_python() -> Iterator[None]:
    """The library leaves sockets of failed connections to the collector: no later test is to blame for them."""
    yield
    if "kafka" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(scope="session")
def kafka() -> Path:
    """The directory of Kafka's jars: ask for it before starting a node or running a tool."""
    try:
        make_class_archive()
        return kafka_jars()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def franz_go() -> Path:
    """The Go program."""
    try:
        return franz_go_program()
    except FranzGoUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def kafka_directory(kafka: Path) -> KafkaDirectories:
    """What Kafka wrote, after a clean stop and after a kill; shared, so copy it before writing to it."""
    return kafka_directories()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Modules that say `BOTH_CODECS` run twice: with the compiled codecs, and with the reference."""
    has_own = any("codecs" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "codecs" in metafunc.fixturenames and not has_own:
        is_twice = COMPILED is not None and getattr(metafunc.module, "BOTH_CODECS", False)
        names = [COMPILED.name, REFERENCE.name] if COMPILED is not None and is_twice else [default_codecs().name]
        metafunc.parametrize("codecs", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def codecs(request: pytest.FixtureRequest) -> Iterator[str]:
    """The codecs of every broker that the module starts, here or in a process."""
    name: str = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CODECS_VARIABLE, name)
        yield name


@pytest.fixture(scope="module")
def barnabas_session_broker(codecs: str) -> Iterator[Broker]:
    """In place of the session's: which codecs read its requests is the module's."""
    with Broker() as broker:
        yield broker
        check_codecs(broker, codecs)

"""The listeners of a broker, from the settings that describe them together. Pure.

`listeners` has the bound addresses, `advertised.listeners` those for clients, `listener.security.protocol.map` the
protocols; what `controller.listener.names` lists is a Kafka controller's, and left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from barnabas.base.errors import InvalidSetting
from barnabas.base.settings import SettingValue
from barnabas.broker.setting_rules import PORT_MAX, HostAndPort
from barnabas.net.server import ListenerSpec
from barnabas.net.stream import ListenAddress

PLAINTEXT: Final = "PLAINTEXT"

_ADDRESS: Final = re.compile(r"(?P<name>[^:/]+)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:/]*)):(?P<port>\d{1,5})")


def listen_address(text: str | None) -> ListenAddress | None:
    """Of HOST:PORT."""
    address = None if text is None else HostAndPort.split(text)
    return None if address is None else ListenAddress(*address)


class _Address(NamedTuple):
    host: str
    port: int


def listener_specs(values: Mapping[str, SettingValue]) -> tuple[ListenerSpec, ...]:
    """In the order of `listeners`; InvalidSetting for what cannot be served."""
    controllers = {name.upper() for name in cast(tuple[str, ...], values["controller.listener.names"])}
    bound = _addresses("listeners", cast(tuple[str, ...], values["listeners"]))
    advertised = _addresses("advertised.listeners", cast(tuple[str, ...], values["advertised.listeners"] or ()))
    advertised = {name: address for name, address in advertised.items() if name not in controllers}
    served = {name: address for name, address in bound.items() if name not in controllers}
    if not served:
        raise InvalidSetting("listeners has no listener for clients")
    for name in advertised:
        if name not in served:
            raise InvalidSetting(f"advertised.listeners names {name}, which listeners does not have")
        if advertised[name].host in ("", "0.0.0.0", "::"):
            raise InvalidSetting(f"advertised.listeners needs a host for {name} that clients can reach")
    _check_protocols(served, str(values["listener.security.protocol.map"]))
    _check_ports(served)
    return tuple(
        [
            ListenerSpec(
                name,
                address.host,
                address.port,
                advertised[name].host if name in advertised else None,
                advertised[name].port if name in advertised else None,
            )
            for name, address in served.items()
        ]
    )


def _addresses(setting: str, texts: Iterable[str]) -> dict[str, _Address]:
    addresses: dict[str, _Address] = {}
    for text in texts:
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > PORT_MAX:
            raise InvalidSetting(f"{setting}={text} is not allowed; it must be NAME://HOST:PORT")
        name = match["name"].upper()
        if name in addresses:
            raise InvalidSetting(f"{setting} has two addresses for the listener {name}")
        addresses[name] = _Address(match["host"] if match["v6"] is None else match["v6"], int(match["port"]))
    return addresses


def _check_protocols(served: Iterable[str], protocol_map: str) -> None:
    protocols = {}
    for pair in protocol_map.split(","):
        name, separator, protocol = pair.strip().partition(":")
        if pair.strip() and not (separator and protocol.strip()):
            raise InvalidSetting(f"listener.security.protocol.map={protocol_map} must be pairs NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    for name in served:
        protocol = protocols.get(name, "")
        if not protocol:
            raise InvalidSetting(f"listener {name} needs a protocol: add {name}:PLAINTEXT to the protocol map")
        if protocol != PLAINTEXT:
            raise InvalidSetting(f"listener {name} would need {protocol}; Barnabas serves {PLAINTEXT} only")


def _check_ports(served: Mapping[str, _Address]) -> None:
    names: dict[_Address, str] = {}
    for name, address in served.items():
        if address.port and address in names:
            raise InvalidSetting(f"listeners {names[address]} and {name} have the same address")
        names[address] = name


def inter_broker_listener(name: str | None, listeners: Sequence[ListenerSpec]) -> str:
    """The name of the listener through which brokers reach each other: the first, if none is configured."""
    if not name:
        return listeners[0].name
    if name.upper() not in {listener.name for listener in listeners}:
        names = ", ".join(listener.name for listener in listeners)
        raise InvalidSetting(f"inter.broker.listener.name={name} is none of the listeners ({names})")
    return name.upper()

"""Addresses as people and command lines write them: HOST:PORT, with IPv6 in brackets, `[::1]:9092`."""


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bracket_hint(text: str) -> str:
    """What to add to "this is no HOST:PORT": how to write it, where it is an IPv6 address without brackets."""
    return " (put an IPv6 address in brackets, as in [::1]:9092)" if text.count(":") > 1 and "[" not in text else ""

"""Which names of a host a local HTTP server answers to.

A web page can make a browser send requests to 127.0.0.1 under a name of its own (DNS rebinding). Such a request has
that name in its ``Host``, and no server on the loopback interface should answer it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence

from cachedoctor.knowledge.late_patterns import late

REFUSAL = "Host must be localhost, an IP address or the name given to --listen; --allow-host NAME accepts another name"
_HOST = late(r"(\[[^\[\]]*\]|[^\[\]:@/?#\s]+)(?::[0-9]{0,5})?")
_AUTHORITY = late(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
"""Of a target in absolute form."""


class NamedHosts:
    """The names that pass, or all of them."""

    def __init__(self, listen: str, allowed: Sequence[str] = ()) -> None:
        """``listen``: host to listen on; where other machines reach it, names are checked if some are ``allowed``."""
        self._checks = bool(allowed) or is_loopback(listen)
        self._names = {_plain(name) for name in ("localhost", listen, *allowed)}

    def allow(self, hosts: Sequence[str], target: str) -> bool:
        """Whether a request passes with these values of Host: there must be one, and a target must not name another."""
        if not self._checks:
            return True
        authority = _AUTHORITY.match(target)
        named = [] if authority is None else [authority[1].rpartition("@")[2]]
        return len(hosts) == 1 and all(map(self._is_allowed, (*hosts, *named)))

    def _is_allowed(self, value: str) -> bool:
        found = _HOST.fullmatch(value.strip(" \t"))
        if found is None:
            return False
        host = found[1]
        if host.startswith("["):
            return _is_address(host[1:-1], 6)
        return _plain(host) in self._names or _is_address(host, 4)


def host_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names for ``NamedHosts``; raises ValueError with the first that is not a host's name, or has a port."""
    found = tuple(names)
    for name in found:
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name):
            raise ValueError(name)
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return all(str(address).startswith("127.") or address == "::1" for address in found)


def _plain(name: str) -> str:
    return name.removesuffix(".").lower()


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False

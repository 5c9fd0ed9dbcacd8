"""Which URLs and which network addresses a tenant's endpoint may have: public ones, written plainly. Pure; nothing is resolved here.

A URL is checked at the door (``url_problem``), and each address that its host resolves to again when the connection is made
(``is_public``): only the second look is a wall, since a name may resolve to anything.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

MAX_URL_CHARACTERS = 2000
_HOST = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_LOCAL_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".intranet", ".corp", ".home")
_WEB_PORTS = (80, 443)
_FIRST_FREE_PORT = 1024
# Prefixes whose addresses carry an IPv4 address inside: (network, how many bits lie to the right of it).
_CARRIERS = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped, RFC 4291
    (ipaddress.IPv6Network("::/96"), 0),  # IPv4-compatible, RFC 4291
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated, RFC 2765
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64, RFC 6052
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4, RFC 3056
)
# Never public whatever the standard library of this Python thinks of them: Teredo, locally chosen NAT64, documentation, old site-local,
# protocol assignments, 6to4 relays.
_REFUSED = tuple(
    map(ipaddress.ip_network, ("2001::/32", "64:ff9b:1::/48", "2001:db8::/32", "3fff::/20", "fec0::/10", "192.0.0.0/24", "192.88.99.0/24"))
)


def url_problem(url: str) -> str | None:
    """What keeps ``url`` from being a tenant's endpoint, in words; None when it may be one."""
    if len(url) > MAX_URL_CHARACTERS:
        return f"is longer than {MAX_URL_CHARACTERS} characters"
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "may hold printable ASCII characters only, without blanks; write an international host in its xn-- form"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is no URL: {error}"
    if parts.scheme != "https":
        return "must begin with https://"
    if "@" in parts.netloc:
        return "must not hold a user name or password"
    if parts.fragment:
        return "must not hold a fragment (#…)"
    if port is not None and port not in _WEB_PORTS and port < _FIRST_FREE_PORT:
        return f"names port {port}; 443, 80 and ports from {_FIRST_FREE_PORT} on may be used"
    return _host_problem(parts.hostname or "")


def _host_problem(host: str) -> str | None:
    if not host:
        return "names no host"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return None if is_public(str(address)) else f"{host} is no public address"
    if host == "localhost" or host.endswith(_LOCAL_ENDINGS):
        return f"{host} is a name of a private network"
    if not _HOST.fullmatch(host):
        return f"{host[:80]!r} is no public host name; write it like grader.example.com"
    return None


def is_public(address: str) -> bool:
    """Whether ``address`` (canonical text, as resolvers give it) is a unicast address of the public Internet, also inside its carriers."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if any(found in network for network in _REFUSED if network.version == found.version):
        return False
    if isinstance(found, ipaddress.IPv6Address):
        for network, shift in _CARRIERS:
            if found in network:
                return is_public(str(ipaddress.IPv4Address(int(found) >> shift & 0xFFFF_FFFF)))
        if found.scope_id:
            return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)

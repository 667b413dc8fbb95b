"""Checks the Host and Origin headers, so that web pages of other sites cannot reach the server through a browser.

A page can make the browser of its visitor send requests to 127.0.0.1, and read the responses by DNS rebinding. Such
requests name the other site in Host, Origin or Sec-Fetch-Site. Clients other than browsers send no Origin.
References: RFC 9110 section 7.2, RFC 6454, W3C Fetch Metadata Request Headers.
"""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import Scope

from hetero_tf.base.errors import InputError, shorten_repr

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PORTS = {"http": 80, "https": 443}
SAFE_METHODS = frozenset({"GET", "HEAD"})
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+)(?::([0-9]{0,5}))?")


@dataclass(frozen=True)
class Authority:
    """The host and port of a URL.

    Attributes:
        name: Lower-case host name without a trailing dot, or an IP address in its shortest form, without brackets.
        port: Port number; None if the URL has none.
    """

    name: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> "Authority | None":
        """Parse `host[:port]`; return None if it is malformed."""
        match = _AUTHORITY.fullmatch(text)
        if match is None:
            return None
        return cls(_normalize(match[1]), int(match[2]) if match[2] else None)


def _normalize(name):
    bare = name.strip("[]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return bare.lower().removesuffix(".")
    return str(getattr(address, "ipv4_mapped", None) or address)


def parse_allowed_hosts(values: list[str]) -> tuple[Authority, ...]:
    """Parse the values of --allow_host.

    Raises:
        InputError: A value is not `host` or `host:port`.
    """
    authorities = []
    for value in values:
        # An IPv6 address may come without brackets.
        authority = Authority.parse(value) or Authority.parse(f"[{value}]")
        if authority is None:
            raise InputError(
                "--allow_host must be a host name or address, optionally with a port, such as model.example.org. "
                f"Received: --allow_host={shorten_repr(value)}"
            )
        authorities.append(authority)
    return tuple(authorities)


@dataclass(frozen=True)
class HostPolicy:
    """Names under which clients may address the server.

    Attributes:
        host: Name or address that the server listens on.
        allowed: Additional hosts, such as the public host of a proxy.
    """

    host: str
    allowed: tuple[Authority, ...] = ()

    def check(self, scope: Scope) -> tuple[int, str] | None:
        """Check the headers of a request.

        Args:
            scope: ASGI scope of type "http".

        Returns:
            None if the request is acceptable; otherwise the HTTP status and the error message.
        """
        hosts = _values(scope, b"host")
        # RFC 9112 section 3.2.2: the host of an absolute request target replaces the Host header.
        target = [] if scope["path"].startswith("/") else [urlsplit(scope["path"]).netloc]
        for text in [*hosts, *target] or [""]:
            authority = Authority.parse(text)
            if authority is None:
                return 400, f"the Host header must be a host name or address with an optional port. Received: {text!r}"
            if not self._is_served(authority.name, scope):
                return 403, (
                    f"this server is not {authority.name!r}; start it with --allow_host {authority.name} to accept "
                    "requests for that host"
                )
        for origin in _values(scope, b"origin"):
            if not self._is_served_origin(origin, authority, scope):
                return 403, f"requests from pages of other sites are rejected. Received: Origin {origin!r}"
        sites = _values(scope, b"sec-fetch-site")
        navigates = scope["method"] in SAFE_METHODS and _values(scope, b"sec-fetch-mode") == ["navigate"]
        if not navigates and not set(sites) <= {"same-origin", "none"}:
            return 403, f"requests from pages of other sites are rejected. Received: Sec-Fetch-Site {sites[0]!r}"
        return None

    def _is_served(self, name, scope):
        listening = {_normalize(self.host), _normalize((scope.get("server") or ("",))[0])}
        return name in LOOPBACK or name in listening or any(name == authority.name for authority in self.allowed)

    def _is_served_origin(self, text, host, scope):
        """Return True if an Origin is this server, or an allowed host at its port or the default port."""
        scheme, _, rest = text.lower().partition("://")
        origin = Authority.parse(rest)
        if origin is None or scheme not in PORTS:
            return False
        port = origin.port or PORTS[scheme]
        if port == (host.port or PORTS[scheme]) and scheme == scope["scheme"] and self._is_served(origin.name, scope):
            return True
        return any(
            origin.name == authority.name and port in {authority.port or PORTS[scheme], host.port or PORTS[scheme]}
            for authority in self.allowed
        )


def _values(scope, name):
    return [value.decode("latin-1").strip() for key, value in scope["headers"] if key == name]

"""HTTP to addresses that somebody else chose: the engine's only way to a tenant's endpoint, and to judges that the operator listed.

httpcore with a network backend of our own, since the check and the connection must see the same address: the host is resolved once, each
address of the answer must be allowed, and the connection is made to one of them. (``requests-hardened`` gives the same wall, but blocks
a thread per call; a rollout grades hundreds of completions at once on an event loop.) TLS still verifies the host's name. No redirects,
no proxies, no cookies, no compression; answers are cut off at a size, and everything ends at a deadline.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from socket import SOCK_STREAM, gaierror, getaddrinfo
from typing import Any
from weakref import WeakValueDictionary

import httpcore

from engine.rewards.addresses import is_public

Resolve = Callable[[str, int], Awaitable[list[str]]]

MAX_CONNECTIONS = 256
MAX_CONNECTIONS_PER_OWNER = 16
_MAX_ADDRESSES = 3
# A pool of its own: name servers that never answer must not use up the threads that everything else runs in.
_NAME_SERVICE = ThreadPoolExecutor(max_workers=16, thread_name_prefix="resolve")


class Unreachable(Exception):
    """No answer, or none that counts. ``retry``: it may be there next time."""

    def __init__(self, reason: str, *, retry: bool = True):
        super().__init__(reason)
        self.retry = retry


class Late(Unreachable):
    """No whole answer in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    status: int
    body: bytes


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of ``host`` as the system's resolver gives them. Raises ``Unreachable``."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.run_in_executor(_NAME_SERVICE, lambda: getaddrinfo(host, port, type=SOCK_STREAM))
    except (gaierror, UnicodeError) as error:
        raise Unreachable(f"{host} has no address: {error}") from error
    return list(dict.fromkeys(str(info[4][0]) for info in found))


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects only where ``allowed`` says so, to the very address that was looked at."""

    def __init__(self, *, resolve: Resolve, allowed: Callable[[str], bool], connect: httpcore.AsyncNetworkBackend | None = None):
        self._resolve, self._allowed = resolve, allowed
        self._network = connect or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._resolve(host, port)
        # All of them: a name that leads to a public and to a private address is a trick, whichever comes first.
        if not addresses or not all(map(self._allowed, addresses)):
            raise Unreachable(f"{host} is no public address", retry=False)
        failure: Exception = Unreachable(f"{host} could not be reached")
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.NetworkError, httpcore.TimeoutException) as error:
                failure = error
        raise failure

    async def connect_unix_socket(self, path: str, timeout: float | None = None, socket_options: Any = None) -> httpcore.AsyncNetworkStream:
        raise Unreachable("Unix sockets are nobody's endpoint", retry=False)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Outbound:
    """Posts to endpoints. ``allowed`` decides over addresses; the default is the public Internet."""

    def __init__(
        self,
        *,
        resolve: Resolve = resolve,
        allowed: Callable[[str], bool] = is_public,
        tls: ssl.SSLContext | None = None,
        connect: httpcore.AsyncNetworkBackend | None = None,
    ):
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls or ssl.create_default_context(),
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_CONNECTIONS // 4,
            keepalive_expiry=30.0,
            network_backend=CheckedNetwork(resolve=resolve, allowed=allowed, connect=connect),
        )
        self._owners: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def close(self) -> None:
        await self._pool.aclose()

    async def post(self, url: str, *, body: bytes, headers: Mapping[str, str], seconds: float, max_bytes: int, owner: str = "") -> Reply:
        """The answer, once it is whole. ``owner``: whose turns these are; each has a share of the connections. Raises ``Unreachable``."""
        turn = self._owners.setdefault(owner, asyncio.Semaphore(MAX_CONNECTIONS_PER_OWNER))
        async with turn:
            try:
                async with asyncio.timeout(seconds):
                    return await self._post(url, body, headers, seconds, max_bytes)
            except (TimeoutError, httpcore.TimeoutException):
                raise Late(f"no whole answer within {seconds:g} s") from None
            except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, ssl.SSLError, OSError) as error:
                raise Unreachable(f"no answer: {str(error)[:200] or type(error).__name__}") from error

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], seconds: float, max_bytes: int) -> Reply:
        own = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "marlaas"}
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
        lines = [(name.encode(), value.encode()) for name, value in {**own, **headers}.items()]
        async with self._pool.stream("POST", url, headers=lines, content=body, extensions={"timeout": timeouts}) as response:
            received = bytearray()
            async for part in response.aiter_stream():
                received += part
                if len(received) > max_bytes:
                    raise Unreachable(f"the answer is longer than {max_bytes} bytes", retry=False)
            if 300 <= response.status < 400:
                raise Unreachable(f"answers with a redirect ({response.status}), which is not followed", retry=False)
            return Reply(status=response.status, body=bytes(received))

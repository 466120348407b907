"""A registry of servers: its API, version v0.1.

https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/api/generic-registry-api.md
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from urllib.parse import quote, urlencode

from anyio import move_on_after
from pydantic_core import from_json

from mcp_host.config.registry.server_json import SERVER_NAME, RegistryServer, read_server_json
from mcp_host.errors import HttpStatusError, McpError, McpTimeout, RegistryError, excerpt, quoted
from mcp_host.limits import Limits, MiB, check_seconds
from mcp_host.transports._http.backend import RELEASE_TIME, HttpBackend, own_backend
from mcp_host.transports._http.response import JSON
from mcp_host.transports._http.url import display_url, parse_url

PUBLIC_REGISTRY = "https://registry.modelcontextprotocol.io"
LATEST = "latest"
MAX_ANSWER = 4 * MiB  # bytes: a page of 100 servers has a few hundred thousand
MAX_SEARCHED = 100  # servers: the most that one page of the public registry has
SIMILAR = 3  # names that are proposed in place of one that is not there

logger = logging.getLogger(__name__)


class Registry:
    """The registry at *url*: by default the public one. Others that speak its API do, too.

    *timeout* is for one request as a whole, in seconds. Proxies come from the environment. It needs no closing.

    Raises:
        ValueError: The URL or the timeout cannot be used.
    """

    def __init__(self, url: str = PUBLIC_REGISTRY, *, timeout: float = 30.0) -> None:
        base = parse_url(url)
        if base.query:
            raise ValueError("the URL of a registry has no query")
        self._base = base.copy_with(raw_path=base.raw_path.rstrip(b"/").removesuffix(b"/v0.1"))
        self._timeout = check_seconds("timeout", timeout)

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return excerpt(display_url(self._base)).rstrip("/")

    async def get_server(self, name: str, version: str = LATEST) -> RegistryServer:
        """The server *name*, such as "io.github.owner/name". Nothing is started.

        Raises:
            RegistryError: There is no such server or version, it was deleted, or what the registry says cannot be read.
            ConnectionClosed, HttpStatusError, McpTimeout: The registry cannot be reached, or answers with an error.
        """
        if not SERVER_NAME.fullmatch(name):
            raise RegistryError(f"{quoted(name)} is no name of a server: it must look like io.github.owner/name")
        try:
            answer = await self._get(f"/v0.1/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}")
        except HttpStatusError as exc:
            if exc.status != 404:
                raise
            answer = None
        if answer is None:
            raise await self._not_found(name, version)
        server = read_server_json(answer)
        if server.name != name or version not in (LATEST, server.version):
            found = f"{quoted(server.name)} {quoted(server.version)}"
            raise RegistryError(f"{self.url} answers with another server than was asked for: {found}")
        if server.status == "deleted":
            raise RegistryError(f"{quoted(name)} was deleted from {self.url}{_because(server)}")
        return server

    async def search(self, text: str, *, limit: int = 20) -> list[RegistryServer]:
        """At most *limit* servers (up to 100), in their latest versions, with *text* in their names. Those that cannot be read are left out.

        Raises:
            RegistryError: The answer cannot be read.
            ConnectionClosed, HttpStatusError, McpTimeout: As `get_server`.
        """
        query = {"search": text, "version": LATEST, "limit": min(limit, MAX_SEARCHED)}
        answer = await self._get(f"/v0.1/servers?{urlencode(query)}")
        listed = answer.get("servers")
        if not isinstance(listed, list):
            raise RegistryError(f"{self.url} answers without a list of servers")
        servers: list[RegistryServer] = []
        for each in listed[:limit]:
            try:
                servers.append(read_server_json(each))
            except RegistryError as exc:
                logger.debug("a server of %s is left out: %s", self.url, exc)
        return servers

    async def _not_found(self, name: str, version: str) -> RegistryError:
        what = f"{quoted(name)}" if version == LATEST else f"{quoted(name)} of the version {quoted(version)}"
        similar: list[str] = []
        with suppress(McpError):  # they are a help only
            names = [server.name for server in await self.search(name.partition("/")[2], limit=MAX_SEARCHED)]
            similar = get_close_matches(name, dict.fromkeys(names), SIMILAR)
        text = f"{self.url} has no server {what}"
        if version != LATEST and name in similar:
            return RegistryError(f"{text}, but other versions of it")
        return RegistryError(f"{text}; did you mean {' or '.join(similar)}?" if similar else text)

    async def _get(self, path: str) -> Mapping[str, object]:
        url = self._base.copy_with(raw_path=self._base.raw_path.rstrip(b"/") + path.encode())
        name = excerpt(display_url(url))
        with move_on_after(self._timeout):
            backend = own_backend(url, {}, name, Limits(connect_timeout=self._timeout))
            return _decoded(await _body(backend), name)
        raise McpTimeout(f"{name}: no answer within {self._timeout:g} seconds")


async def _body(backend: HttpBackend) -> bytes:
    """The body of what *backend* gets, which is closed then."""
    try:
        async with await backend.send("GET", {"Accept": JSON}) as response:
            if not response.is_success:
                raise await response.error()
            return await response.read_all(MAX_ANSWER)
    finally:
        with move_on_after(RELEASE_TIME, shield=True):
            await backend.aclose()


def _decoded(body: bytes, name: str) -> Mapping[str, object]:
    try:
        answer = from_json(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RegistryError(f"{name}: the answer is no JSON object")
    return answer


def _because(server: RegistryServer) -> str:
    return f": {excerpt(server.status_message)}" if server.status_message else ""

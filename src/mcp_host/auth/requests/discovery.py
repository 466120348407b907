"""Discovery: from an MCP server to its authorization server, in the order of the specification.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING

from anyio import move_on_after

from mcp_host.auth.errors import AuthError, DiscoveryFailed
from mcp_host.auth.requests.challenges import OTHER_SCHEMES, Challenge
from mcp_host.auth.requests.metadata import (
    NO_URL,
    RESOURCE_FIELDS,
    S256,
    SERVER_FIELDS,
    AuthorizationServer,
    ParentResource,
    Resource,
    metadata_urls,
    read_resource,
    read_server,
    resource_urls,
    unusable_endpoints,
)
from mcp_host.auth.requests.steps import Step, Steps
from mcp_host.auth.requests.urls import canonical, origin_of, shown
from mcp_host.errors import excerpt

if TYPE_CHECKING:
    from mcp_host.auth.requests.client import AuthClient
    from mcp_host.types import JSONObject

WITHOUT_METADATA = "default endpoints of 2025-03-26"
"""The action of the step that a server without any metadata of authorization leads to."""

BASIC = "httpx.BasicAuth(user, password)"
NOT_USED = "no metadata of its authorization server can be used"

DISCOVERY_TIME = 60.0  # seconds; a server may name 18 places that never answer, and the clocks of calls stop meanwhile
MAX_SERVERS = 5  # authorization servers of one resource that are tried
NO_ALIASES: Mapping[str, str] = MappingProxyType({})
# "MCP clients SHOULD include the header [...] during Server Metadata Discovery": in that revision only, whose
# authorization server is the MCP server itself.
OF_2025_03_26 = {"MCP-Protocol-Version": "2025-03-26"}


async def discover(
    client: AuthClient,
    server_url: str,
    challenge: Challenge,
    steps: Steps,
    *,
    issuer: str | None = None,
    aliases: Mapping[str, str] = NO_ALIASES,
    shared: Sequence[str] = (),
    for_person: bool = True,
) -> tuple[Resource, AuthorizationServer]:
    """The protected resource at *server_url*, and its authorization server.

    Of several authorization servers it is the one of *issuer*, if given, else the first that can be used. *aliases* are
    issuers by another name that a protected resource may have for them. *shared* is for `read_resource`, *for_person*
    for `read_server`.

    Raises:
        DiscoveryFailed: There is none, or not within `DISCOVERY_TIME`. The text names each step.
    """
    discovery = _Discovery(client, server_url, steps, shared, for_person=for_person)
    with move_on_after(DISCOVERY_TIME):
        return await discovery.run(challenge, issuer, aliases)
    raise discovery.failed(f"its authorization server is not found within {DISCOVERY_TIME:g} seconds")


async def discover_server(client: AuthClient, issuer: str) -> AuthorizationServer:
    """The authorization server *issuer*, for which no person logs in.

    Raises:
        DiscoveryFailed: It has no metadata that can be used. The text names each step.
    """
    discovery = _Discovery(client, issuer, Steps(), (), for_person=False)
    if (server := await discovery.server((issuer,))) is None:
        raise discovery.failed("no metadata of this authorization server can be used")
    return server


class _Discovery:
    """One discovery, for the MCP server at *server_url*."""

    def __init__(
        self, client: AuthClient, server_url: str, steps: Steps, shared: Sequence[str], *, for_person: bool
    ) -> None:
        self._client = client
        self._server_url = server_url
        self._steps = steps
        self._shared = shared
        self._for_person = for_person
        self._has_refused = False
        """There are metadata, or may be, that must not be used or were not reached: so the server is not one without any."""

    async def run(
        self, challenge: Challenge, issuer: str | None, aliases: Mapping[str, str]
    ) -> tuple[Resource, AuthorizationServer]:
        resource = await self._resource(challenge)
        if resource is None:
            found = await self._server_of_2025_03_26(challenge)
            if issuer not in (None, found[1].issuer):  # its client would show its secret to any server without metadata
                own = f"{shown(self._server_url)} is its own authorization server"
                raise DiscoveryFailed(f"{own}, not {excerpt(issuer)}")
            return found
        candidates = [(name, aliases.get(name, name)) for name in resource.authorization_servers]
        if issuer is not None:
            candidates = [candidate for candidate in candidates if issuer in candidate]
            if not candidates:
                named = f"the authorization server {excerpt(', '.join(resource.authorization_servers))}"
                raise DiscoveryFailed(f"{shown(self._server_url)} has {named}, not {excerpt(issuer)}")
        for names in candidates[:MAX_SERVERS]:
            server = await self.server(names)
            if server is not None:
                return resource, server
        raise self.failed(NOT_USED)

    def failed(self, problem: str) -> DiscoveryFailed:
        return DiscoveryFailed("\n  ".join([f"{shown(self._server_url)}: {problem}", *map(str, self._steps)]))

    async def _resource(self, challenge: Challenge) -> Resource | None:
        refused: Step | None = None
        for url in resource_urls(self._server_url, challenge):
            document = await self._get("metadata of the protected resource", url, RESOURCE_FIELDS)
            if document is None:
                continue
            try:
                return read_resource(document, self._server_url, at=url, shared=self._shared)
            except ParentResource as exc:  # the well-known place of the origin may say the same
                refused = self._steps.refuse_last(str(exc))
            except ValueError as exc:
                raise DiscoveryFailed(str(self._steps.refuse_last(str(exc)))) from None
        if refused is not None:
            raise DiscoveryFailed(str(refused))
        return None

    async def server(
        self, issuers: Sequence[str], headers: Mapping[str, str] | None = None
    ) -> AuthorizationServer | None:
        """The authorization server with one of *issuers*; its metadata are where the first of them says.

        Of its documents it is the first that offers PKCE, if a person logs in: some have that in one of them only.
        """
        action = "metadata of the authorization server"
        without_pkce: AuthorizationServer | None = None
        try:
            urls = metadata_urls(issuers[0])
        except ValueError:
            self._steps.add(action, issuers[0], "refused: it is no URL")
            return None
        for url in urls:
            document = await self._get(action, url, SERVER_FIELDS, headers)
            if document is None:
                continue
            try:
                server = read_server(document, issuers, for_person=self._for_person)
            except ValueError as exc:
                self._steps.refuse_last(str(exc))
                self._has_refused = True
                continue
            for name in unusable_endpoints(document):
                self._steps.add(action, url, f"{NO_URL.format(name)}: not used")
            if S256 in server.code_challenge_methods or not self._for_person:
                return server
            without_pkce = without_pkce or server
        return without_pkce

    async def _server_of_2025_03_26(self, challenge: Challenge) -> tuple[Resource, AuthorizationServer]:
        """A server without metadata of a protected resource is its own authorization server.

        https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization#fallbacks-for-servers-without-metadata-discovery
        """
        origin = origin_of(self._server_url)
        resource = Resource(canonical(self._server_url), (origin,), None)
        issuers = (origin, f"{origin}/")  # no one has stated which of the two it is
        server = await self.server(issuers, OF_2025_03_26)
        if server is None:
            if self._has_refused:
                raise self.failed(NOT_USED)
            if challenge.scheme in OTHER_SCHEMES:
                auth = BASIC if challenge.scheme == "basic" else "another httpx.Auth"
                raise self.failed(f"it wants {challenge.wanted}, not a token: pass {auth} as auth")
            self._steps.add(WITHOUT_METADATA, origin, "used, because there is no metadata")
            server = AuthorizationServer(
                issuer=origin,
                authorization_endpoint=f"{origin}/authorize",
                token_endpoint=f"{origin}/token",
                registration_endpoint=f"{origin}/register",
                code_challenge_methods=(S256,),  # "PKCE is REQUIRED for all clients" in that revision
                is_assumed=True,
            )
        return resource, server

    async def _get(
        self, action: str, url: str, fields: Set[str], headers: Mapping[str, str] | None = None
    ) -> JSONObject | None:
        """The document at *url* with any of *fields*. None if there is none, for any reason: the next place is tried."""
        try:
            answer = await self._client.get_json(url, headers)
        except AuthError as exc:
            self._steps.add(action, url, f"refused or not reached: {exc}")
            self._has_refused = True
            return None
        if answer.is_busy:
            self._has_refused = True
        found = answer.json if answer.status == 200 else None
        is_other = found is not None and not fields & found.keys()  # an error, perhaps, of a server that has no others
        outcome = "another JSON object" if is_other else answer.problem if found is None else "found"
        self._steps.add(action, url, outcome)
        return None if is_other else found

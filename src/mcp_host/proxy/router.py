"""Several servers as one host sees them: each of its requests goes to the server that its name, URI or method is of."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from anyio import create_task_group, current_time, move_on_after

from mcp_host.errors import quoted
from mcp_host.group.instructions import instructions_of_all
from mcp_host.group.names import SEPARATOR, own_names, server_prefix
from mcp_host.protocol.eras import LISTEN, ROOTS_CHANGED
from mcp_host.protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    Notification,
    Params,
    Request,
)
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.proxy.relay import MAX_SUSPENDED, Relay
from mcp_host.proxy.several import URI, ResourceOwners, declares, split_id
from mcp_host.proxy.translation import capabilities_of_all, check_method, check_params
from mcp_host.proxy.upstream import LISTS
from mcp_host.serving.errors import RequestError, refuse
from mcp_host.serving.remote_client import ReceivedRequest, RemoteClient
from mcp_host.serving.service import Ask, Handler, Peer, Prepare, Service
from mcp_host.types import Implementation, JSONObject
from mcp_host.version import __version__

logger = logging.getLogger(__name__)

WAIT = 5.0  # seconds for all servers to connect, once one has: as long as a `ClientGroup` waits
PROGRESS = "notifications/progress"
TASK_STATUS = "notifications/tasks/status"
ANSWER_TIMEOUT = 20.0  # seconds for each server, of a request to all: hosts wait for 30 to 60
NAMED = ("tools/call", "prompts/get")
"""Requests that name their server, which connects with them if need be."""


@dataclass(slots=True, kw_only=True, eq=False)
class Router(Service):
    """The servers of one host, by their names. One that cannot be reached is left out until it can."""

    servers: Mapping[str, Relay]
    by_prefix: Mapping[str, str]
    """The servers by what the names of their tools begin with."""
    prompts: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The names that each server has for the prompts of its last list, by those that the host sees."""
    resources: ResourceOwners = field(default_factory=ResourceOwners)

    relays = True

    @classmethod
    def of(
        cls, servers: Mapping[str, Relay], *, name: str, resume_timeout: float, state_key: bytes | None = None
    ) -> Self:
        """A router to *servers*, which is called *name*.

        Raises:
            ValueError: Two of them would have tools of the same names.
        """
        by_prefix = dict[str, str]()
        for server in servers:
            if (other := by_prefix.setdefault(server_prefix(server), server)) != server:
                raise ValueError(f"the servers {quoted(other)} and {quoted(server)} would have tools of the same names")
        router = cls(
            info=Implementation(name=name, version=__version__),
            instructions=None,
            versions=VERSIONS,
            ttl=0.0,
            resume_timeout=resume_timeout,
            max_suspended=MAX_SUSPENDED,
            state_key=state_key,
            servers=servers,
            by_prefix=by_prefix,
        )
        for relay in servers.values():
            relay.subscriptions = router.subscriptions
        return router

    def begin(self, peer: Peer | None, principal: Hashable = None) -> Router:
        relays = {name: relay.begin(peer, principal) for name, relay in self.servers.items()}
        return Router.of(relays, name=self.info.name, resume_timeout=self.resume_timeout, state_key=self.state_key)

    def end(self) -> None:
        for relay in self.servers.values():
            relay.end()

    async def aclose(self) -> None:
        async with create_task_group() as tasks:  # each may take its `close_timeout`
            for relay in self.servers.values():
                tasks.start_soon(relay.aclose)

    def capabilities(self) -> Params:
        return capabilities_of_all([relay.declared for relay in self.servers.values()])

    def check(self, method: str) -> None:
        """The server itself refuses what it does not have."""

    def input_schema(self, tool: str) -> JSONObject | None:
        server = self.by_prefix.get(tool.partition(SEPARATOR)[0])
        return None if server is None else self.servers[server].input_schema(tool)

    def find(self, method: str, params: Params, client: RemoteClient) -> Handler:
        check_method(method, client)
        return partial(self._request, method, params)

    @asynccontextmanager
    async def listening(self, uris: Sequence[str], client: RemoteClient) -> AsyncIterator[Set[str]]:
        agreed, own = set[str](), dict[str, list[str]]()
        if self._only("resources/read") is None and any(self.resources.of(uri) is None for uri in uris):
            call = ReceivedRequest(Request(0, LISTEN, {}), client, lambda method, params: None)
            with suppress(RequestError):  # those that are listed are announced
                await self._list_resources(call, refuse)
        for uri in uris:
            if (owner := self.resources.of(uri) or self._only("resources/read")) is not None:
                own.setdefault(owner, []).append(uri)
        async with AsyncExitStack() as listening:
            for server, some in own.items():
                agreed |= await listening.enter_async_context(self.servers[server].listening(some, client))
            yield agreed

    def notified(self, notification: Notification) -> None:
        for server, params in self._recipients(notification.method, notification.params):
            self.servers[server].notified(Notification(notification.method, params))

    def _recipients(self, method: str, params: Params) -> list[tuple[str, Params]]:
        """The servers that a notification of the host is for, and its params there."""
        if method == PROGRESS:
            with suppress(ValueError, KeyError):  # the token is of no request
                prefix, token = split_id(str(params.get("progressToken")))
                return [(self.by_prefix[prefix], params | {"progressToken": token})]
            return []
        if method == TASK_STATUS:
            servers = list(filter(None, [self._only(method)]))
        else:
            servers = [*self.servers] if method == ROOTS_CHANGED else self._declaring(method)
        return [(server, params) for server in servers]

    # Connecting

    def prepare(self, client: RemoteClient) -> Prepare:
        return partial(self._prepare, client)

    async def _prepare(self, client: RemoteClient) -> None:
        """Have servers to ask. Those that have been down, or are slow, connect meanwhile, and are announced.

        Raises:
            RequestError: None can be reached.
        """
        if any(relay.connected(client) for relay in self.servers.values()):
            for relay in self.servers.values():
                if not relay.connected(client):
                    relay.start(client)
        else:
            await self._connect(client)
        connected = {name: relay for name, relay in self.servers.items() if relay.connected(client)}
        self.instructions = instructions_of_all({name: each.instructions or "" for name, each in connected.items()})

    async def _connect(self, client: RemoteClient) -> None:
        began, errors = current_time(), dict[str, str]()

        async def reach(server: str, relay: Relay) -> None:
            try:
                await relay.reach(client)
                tasks.cancel_scope.deadline = began + WAIT
            except RequestError as exc:  # it has been logged
                errors[server] = exc.message

        async with create_task_group() as tasks:
            for server, relay in self.servers.items():
                tasks.start_soon(reach, server, relay)
        if len(errors) == len(self.servers):
            raise RequestError(INTERNAL_ERROR, "; ".join(errors[server] for server in self.servers))

    # Requests

    async def _request(self, method: str, params: Params, call: ReceivedRequest, ask: Ask) -> Params:
        check_params(method, params)
        if method in LISTS:
            return {LISTS[method][0]: await self._list(method, params, call, ask)}
        if method not in NAMED:
            await self._prepare(call.client)
        if method == "logging/setLevel":
            _, errors = await self._ask_each(self._declaring(method), method, params, call, ask)
            for server, error in errors.items():
                logger.warning("%s: its log level cannot be set: %s", server, error.message)
            return {}
        server, params = await self._route(method, params, call, ask)
        result = await self.servers[server].find(method, params, call.client)(call, ask)
        self.resources.link(server, result)
        return result

    async def _list(self, method: str, params: Params, call: ReceivedRequest, ask: Ask) -> list[Params]:
        """What all servers list, under the names and URIs that the host gets.

        Raises:
            RequestError: None of them can list.
        """
        await self._prepare(call.client)
        asked = [name for name in self._declaring(method) if self.servers[name].connected(call.client)]
        results, errors = await self._ask_each(asked, method, params, call, ask)
        member = LISTS[method][0]
        for server, error in errors.items():
            if error.code == METHOD_NOT_FOUND:  # such as that of templates, which not all have
                results[server] = {member: []}
            else:
                logger.warning("%s: what %s lists is left out: %s", server, method, error.message)
        lists = {server: results[server][member] for server in asked if server in results}
        if asked and not lists:
            raise errors[asked[0]]
        if method == "prompts/list":
            lists = {server: self._renamed(server, items) for server, items in lists.items()}
        if method in URI:
            return self.resources.keep(method, lists)
        return [item for items in lists.values() for item in items]  # the policy has named the tools

    async def _ask_each(
        self, servers: Sequence[str], method: str, params: Params, call: ReceivedRequest, ask: Ask
    ) -> tuple[dict[str, Params], dict[str, RequestError]]:
        """The results of *servers*, and the errors of the others. None waits for another one."""
        results, errors = dict[str, Params](), dict[str, RequestError]()

        async def ask_one(server: str) -> None:
            try:
                with move_on_after(ANSWER_TIMEOUT) as waiting:
                    results[server] = await self.servers[server].find(method, params, call.client)(call, ask)
            except RequestError as exc:
                errors[server] = exc
            except Exception as exc:  # of middleware: the others are listed
                logger.error("%s: %s failed", server, method, exc_info=exc)
                errors[server] = RequestError(INTERNAL_ERROR, "Internal error")
            else:
                if waiting.cancelled_caught:
                    errors[server] = RequestError(INTERNAL_ERROR, f"no answer within {ANSWER_TIMEOUT:g} seconds")

        async with create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(ask_one, server)
        return results, errors

    async def _list_resources(self, call: ReceivedRequest, ask: Ask) -> None:
        for method in URI:
            await self._list(method, {}, call, ask)

    def _renamed(self, server: str, prompts: list[Params]) -> list[Params]:
        self.prompts[server] = own = own_names(server, [prompt["name"] for prompt in prompts])
        listed = {prompt["name"]: prompt for prompt in prompts}
        return [listed[name] | {"name": shown} for shown, name in own.items()]

    async def _route(self, method: str, params: Params, call: ReceivedRequest, ask: Ask) -> tuple[str, Params]:
        """The server that a request is for, and its params there.

        Raises:
            RequestError: It is for none.
        """
        match method, params:
            case "tools/call", {"name": name}:
                return self._server_of(name), params  # the policy knows its own name
            case "prompts/get", {"name": name}:
                server, own = await self._prompt(name, call, ask)
                return server, params | {"name": own}
            case "completion/complete", {"ref": {"type": "ref/prompt", "name": str(name)} as ref}:
                server, own = await self._prompt(name, call, ask)
                return server, params | {"ref": ref | {"name": own}}
            case (("resources/read" | "resources/subscribe" | "resources/unsubscribe"), {"uri": uri}) | (
                "completion/complete",
                {"ref": {"type": "ref/resource", "uri": str(uri)}},
            ):
                return await self._owner_of(uri, call, ask), params
        if (only := self._only(method)) is not None:
            return only, params
        servers = ", ".join(map(quoted, self._declaring(method))) or "none"
        raise RequestError(
            METHOD_NOT_FOUND, f"{method} does not say which server it is for. Those that may know it are: {servers}"
        )

    def _declaring(self, method: str) -> list[str]:
        return [server for server, relay in self.servers.items() if declares(relay.declared, method)]

    def _only(self, method: str) -> str | None:
        """The only server that may know *method*."""
        declaring = [*self.servers] if len(self.servers) == 1 else self._declaring(method)
        return declaring[0] if len(declaring) == 1 else None

    def _server_of(self, name: str) -> str:
        """The server of a tool or prompt."""
        prefix, separator, _ = name.partition(SEPARATOR)
        if separator and (server := self.by_prefix.get(prefix)) is not None:
            return server
        servers = ", ".join(map(quoted, self.servers))
        raise RequestError(INVALID_PARAMS, f"{quoted(name)} is of none of the servers {servers}")

    async def _prompt(self, name: str, call: ReceivedRequest, ask: Ask) -> tuple[str, str]:
        """The server of a prompt, and the name that it has there. The host may have listed it in another process."""
        server = self._server_of(name)
        if server not in self.prompts:
            with suppress(RequestError):
                listed = await self.servers[server].find("prompts/list", {}, call.client)(call, ask)
                self._renamed(server, listed["prompts"])
        return server, self.prompts.get(server, {}).get(name) or name.partition(SEPARATOR)[2]

    async def _owner_of(self, uri: str, call: ReceivedRequest, ask: Ask) -> str:
        """The server of a resource or template."""
        if (only := self._only("resources/read")) is not None:
            return only
        if self.resources.of(uri) is None:
            await self._list_resources(call, ask)
        if (owner := self.resources.of(uri)) is None:
            code = INVALID_PARAMS if call.client.stateless else RESOURCE_NOT_FOUND  # "replaced by -32602" (2026-07-28)
            raise RequestError(code, f"no server lists the resource {quoted(uri)}", {"uri": uri})
        return owner

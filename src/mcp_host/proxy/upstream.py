"""The connection of a proxy to the real server, for one host."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from mcp_host.client.client import Client
from mcp_host.concurrency.tasks import HandlerTasks, spawn
from mcp_host.errors import CallerError, McpError, UrlElicitationRequired
from mcp_host.middleware import AnyRequest, AroundServerRequests, CallNext, ClientRequest
from mcp_host.protocol.eras import DISCOVER, INITIALIZE, LOG_LEVEL
from mcp_host.protocol.jsonrpc import Notification, Params
from mcp_host.protocol.negotiation import MODERN_VERSIONS
from mcp_host.proxy.answers import Answers, HostCall, announcement, elicitation_of, sampling_of
from mcp_host.proxy.call_lock import CallLock
from mcp_host.proxy.mirrored import MirroredParameters
from mcp_host.proxy.settings import Settings
from mcp_host.proxy.several import unique_id
from mcp_host.proxy.subscriptions import ANSWER_TIMEOUT, Subscriptions
from mcp_host.proxy.translation import (
    ELICIT,
    amount_of,
    capabilities_downstream,
    check_params,
    error_downstream,
    is_writable,
    params_upstream,
    result_downstream,
)
from mcp_host.serving.errors import RequestError
from mcp_host.serving.remote_client import SEVERITY, RemoteClient, meta_of
from mcp_host.serving.service import Peer
from mcp_host.serving.subscriptions import LISTED, UPDATED
from mcp_host.transports.http import StreamableHttp
from mcp_host.types import Implementation, JSONObject, LoggingMessageNotificationParams
from mcp_host.types.base import Model

if TYPE_CHECKING:
    from mcp_host.session.changes import Change
    from mcp_host.session.state import ClientState

logger = logging.getLogger(__name__)

SUBSCRIBING = {
    "resources/subscribe": Client.subscribe_resource,
    "resources/unsubscribe": Client.unsubscribe_resource,
}

LISTS: Mapping[str, tuple[str, Callable[[Client], Awaitable[Sequence[Model]]]]] = {
    "tools/list": ("tools", Client.list_tools),
    "prompts/list": ("prompts", Client.list_prompts),
    "resources/list": ("resources", Client.list_resources),
    "resources/templates/list": ("resourceTemplates", Client.list_resource_templates),
}
"""The lists: the member of the result that has the items, and what lists those of all pages."""

CONNECTING = (INITIALIZE, DISCOVER)

UNWRITABLE = "there are infinite numbers in them, or they nest too deeply"

Announce: TypeAlias = Callable[[str, Params], Awaitable[None]]


class MissedChanges:
    """Announces all that a host knows of the server as changed, after changes may have been missed: it knows nothing of such a gap.

    These are the lists, and the resources to which the client of this *state* has subscribed.
    """

    capabilities: Collection[str] = ()  # for those that it hears of, the client has `on_change`

    def __init__(self, announce: Announce, state: ClientState) -> None:
        self._announce = announce
        self._state = state
        self._connected = False

    def start(self, handlers: HandlerTasks) -> None:
        """There is nothing to wait for."""

    def notify(self, notification: Notification) -> None:
        """It has not been missed."""

    def connected(self, capabilities: Collection[str]) -> None:
        if self._connected:
            self.missed(capabilities)
        self._connected = True

    def missed(self, capabilities: Collection[str]) -> None:
        spawn(partial(self._announce_all, sorted(LISTED.intersection(capabilities))))

    async def _announce_all(self, kinds: Sequence[str]) -> None:
        for kind in kinds:
            await self._announce(f"notifications/{kind}/list_changed", {})
        for uri in [*self._state.subscriptions]:
            await self._announce(UPDATED, {"uri": uri})


class Upstream:
    """A client of the real server, with the capabilities of *host* and those of the proxy. It declares the *extensions*.

    *peer* is the host outside of its requests, if its revision has that. *announce* gets the changes of the server.
    """

    def __init__(
        self, settings: Settings, host: RemoteClient, peer: Peer | None, announce: Announce, extensions: JSONObject
    ) -> None:
        self._settings = settings
        self._host = host
        self._peer = None if host.stateless else peer
        self._announce = announce
        self._calls: list[HostCall] = []
        self._lock = CallLock[HostCall]()
        self._answers = Answers(settings, host, self._peer, self._lock)
        self.mirrored = MirroredParameters()
        self._level: str | None = None
        """The level that a server with a handshake was told, for a host whose requests each name one."""
        declared = host.capabilities
        self._announced = announcement(settings, declared)
        announcing = [self._announce_models] if self._announced else []
        self.client = Client(
            settings.server,
            name=settings.name,
            sampling=sampling_of(settings, declared),
            elicitation=elicitation_of(settings, declared, self._elicited),
            roots=None if declared.roots is None else [],
            extensions=extensions,
            tools=settings.tools,
            lazy=True,  # a server that has ended is connected to again
            era=settings.era,
            era_cache=settings.era_cache,
            middleware=[*settings.middleware, *announcing, AroundServerRequests(self._answers.answer)],
            on_log=self._log,
            on_change=self._change,
            on_notification=self._notification,
            client_info=host.info,
            limits=settings.limits,
            cache=False,
        )
        self.client._state.list_watcher = MissedChanges(announce, self.client._state)
        self.subscriptions = Subscriptions(self.client)

    async def request(self, method: str, params: Params, caller: HostCall) -> Params:
        """Pass on a request of the host.

        Raises:
            RequestError: The server's error, or why there is no answer.
        """
        host = caller.call.client
        check_params(method, params)
        meta = meta_of(params)
        most = -math.inf

        def report(progress: Params) -> None:
            nonlocal most
            if self.stateless and not host.stateless:  # a tool may run again for each answer, and report from its start
                if (amount := amount_of(progress)) <= most:
                    return
                most = amount
            token = meta_of(caller.call.request.params).get("progressToken", meta["progressToken"])  # that of a retry
            with self._passing_on("notifications/progress"):
                caller.call.notify("notifications/progress", {**progress, "progressToken": token})

        # Over a pipe a handshake server does not say to which call its request belongs. A host of 2026-07-28 can only
        # be asked within a call, so the server works on one at a time.
        is_ambiguous = host.stateless and not (self.stateless or isinstance(self._settings.server, StreamableHttp))
        self._calls.append(caller)
        try:
            async with self._lock.held(caller) if is_ambiguous else nullcontext():
                if method == "logging/setLevel":
                    await self.client.set_log_level(params["level"])
                    return {}
                if method in SUBSCRIBING:
                    await SUBSCRIBING[method](self.client, params["uri"])
                    return {}
                level = meta.get(LOG_LEVEL) if host.stateless else None
                if level is not None and level != self._level and not self.stateless:
                    self._level = level
                    with suppress(McpError):  # without a log, or an answer, it is asked for the rest all the same
                        await self.client.set_log_level(level, timeout=ANSWER_TIMEOUT)
                if method in LISTS and (
                    self._settings.tools is not None if method == "tools/list" else self._settings.shared
                ):
                    member, listing = LISTS[method]
                    result = {member: [item.to_wire() for item in await listing(self.client)]}
                else:
                    result = await self.client.relay(
                        method,
                        params_upstream(params),
                        caller=caller,
                        on_report=report if "progressToken" in meta else None,
                        headers=self.mirrored.headers(params) if method == "tools/call" and self._mirrors else {},
                        leaves_input=partial(self._answers.leaves_input, host) if host.stateless else None,
                    )
        except McpError as exc:
            raise self._error_for(host, exc) from exc
        finally:
            self._calls.remove(caller)
        if method == "tools/list" and (self._mirrors or host.stateless):
            valid = self.mirrored.note(result, first="cursor" not in params)
            result = valid if self._mirrors else result
        return self._result_for(host, method, result)

    def _without_unwritable(self, member: str, result: Params) -> Params:
        """A list without the items that could be read and cannot be written: each would cost all others, also of other servers."""
        items = result.get(member)
        if not isinstance(items, list) or is_writable(items):
            return result
        kept = [item for item in items if is_writable([item])]
        logger.warning(
            "%s: %d of its %s are left out: %s", self._settings.shown_name, len(items) - len(kept), member, UNWRITABLE
        )
        return result | {member: kept}

    @property
    def stateless(self) -> bool:
        """Whether the server speaks a revision without a handshake."""
        return self.client.protocol_version in MODERN_VERSIONS

    @property
    def _mirrors(self) -> bool:
        """Whether HTTP headers repeat parameters of calls."""
        return self.stateless and isinstance(self._settings.server, StreamableHttp)

    def capabilities(self) -> Params:
        """What the host gets to see of the server's capabilities."""
        received = self.client.server_capabilities.to_wire()
        declared = capabilities_downstream(received, stateless=self.stateless, host_stateless=self._host.stateless)
        return self._writable("capabilities", declared)

    def others(self) -> Params | None:
        """What the server says when it is connected to that no revision names. None if it is nothing."""
        others = self.client._lifetime.session.others
        return None if others is None else self._writable("members", params_upstream(others))

    def _writable(self, what: str, members: Params) -> Params:
        kept = {name: value for name, value in members.items() if is_writable({name: value})}
        if len(kept) < len(members):
            logger.warning("%s: some of its %s are left out: %s", self._settings.shown_name, what, UNWRITABLE)
        return kept

    def server_info(self) -> Implementation:
        """What the server says of itself, without more than its name and version if that cannot be written."""
        info = self.client.server_info
        return info if is_writable(info.to_wire()) else Implementation(name=info.name, version=info.version)

    # What the server sends

    async def _announce_models(self, request: AnyRequest, call_next: CallNext) -> Params:
        """Tell the server of the proxy's models wherever it is told the capabilities."""
        connecting = isinstance(request, ClientRequest) and request.method in CONNECTING
        if isinstance(request, ClientRequest) and (connecting or request.protocol_version in MODERN_VERSIONS):
            request = request.with_meta(self._announced)
        return await call_next(request)

    def _result_for(self, host: RemoteClient, method: str, result: Params) -> Params:
        if method in LISTS:
            result = self._without_unwritable(LISTS[method][0], result)
        if self.stateless and not host.stateless:
            return result_downstream(method, result)
        if not self._settings.shared or result.get("resultType") != "input_required":
            return result
        named = {
            key: each | {"params": self._answers.asked(each["method"], each.get("params") or {})}
            for key, each in (result.get("inputRequests") or {}).items()
        }
        return result | {"inputRequests": named}

    def _error_for(self, host: RemoteClient, error: McpError) -> RequestError:
        refusal = error_downstream(error, stateless=host.stateless)
        is_shared = self._settings.shared
        if is_shared and isinstance(error, UrlElicitationRequired) and isinstance(refusal.data, dict):
            asked = [self._answers.asked(ELICIT, url.to_wire()) for url in error.elicitations]
            refusal.data = {**refusal.data, "elicitations": asked}
        return refusal

    async def _elicited(self, elicitation_id: str) -> None:
        settings = self._settings
        given = unique_id(settings.shown_name, elicitation_id) if settings.shared else elicitation_id
        self._tell("notifications/elicitation/complete", {"elicitationId": given})

    async def _log(self, message: LoggingMessageNotificationParams) -> None:
        """Pass a message on if it is severe enough. A host without a handshake gets those that can only be of its call."""
        severity, wire = SEVERITY[message.level], message.to_wire()
        with self._passing_on("notifications/message"):
            if severity >= self._host.min_severity:
                self._tell("notifications/message", wire)
            for caller in self._calls if len(self._calls) == 1 and self._peer is None else ():
                if severity >= caller.call.client.min_severity:
                    caller.call.notify("notifications/message", wire)

    async def _change(self, change: Change) -> None:
        wire: Params = change.to_wire()
        with self._passing_on(wire["method"]):
            await self._announce(wire["method"], wire.get("params", {}))

    async def _notification(self, notification: Notification) -> None:
        with self._passing_on(notification.method):
            self._tell(notification.method, notification.params)

    @contextmanager
    def _passing_on(self, method: str) -> Iterator[None]:
        """Drop a notification that was read and cannot be written: it has an infinite number in it, or nests too deeply."""
        try:
            yield
        except CallerError as exc:
            logger.warning("%s: %s is not passed on: %s", self._settings.shown_name, method, exc)

    def _tell(self, method: str, params: Params) -> None:
        """Notify the host, if its revision has notifications outside of requests."""
        if self._peer is not None:
            self._peer.notify(method, params)

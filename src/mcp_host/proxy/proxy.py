"""What applications hold of a proxy."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

from mcp_host.client.client import Client
from mcp_host.elicitation import Elicitation
from mcp_host.limits import Limits
from mcp_host.middleware import Middleware
from mcp_host.protocol.negotiation import EraCache
from mcp_host.proxy.relay import Relay
from mcp_host.proxy.settings import SamplingChoice, Settings
from mcp_host.sampling import Sampling
from mcp_host.serving import in_process
from mcp_host.serving.request_state import KEY_SIZE
from mcp_host.serving.service import Service
from mcp_host.transports.in_process import Inbox, InProcess, Outbox
from mcp_host.transports.infer import Connectable, infer_transport

if TYPE_CHECKING:
    from mcp_host.client.tool_policy import ToolPolicy
    from mcp_host.group import ServerOptions
    from mcp_host.proxy.router import Router
    from mcp_host.serving.http.access import ProtectedResource
    from mcp_host.serving.http.app import HttpApp

NAME = "mcp-host"
TOKEN_BYTES = 32  # of a token that is drawn; OWASP asks for 8 at least in what must not be guessed
STATE_KEY_SIZE = KEY_SIZE
CLOSE_TIMEOUT = 3.0  # seconds. Hosts wait two before they end the proxy with a signal: the server gets its own by then
LIMITS = Limits(timeout=math.inf, idle_timeout=math.inf, close_timeout=CLOSE_TIMEOUT)
"""Those of a proxy by default: it is the host that gives up."""


class Proxy:
    """A server for hosts, in front of another server: it answers what the host cannot, and passes on everything else.

    >>> proxy = Proxy(["uvx", "planner-server"], sampling=Sampling(with_tools=model, approve=ask_host))
    >>> proxy.run_stdio()

    *server*, *name* and *era* are as for `Client`. *sampling* answers the server's requests for a model: with
    ``answer_sampling="auto"`` where the host cannot, "always" also where it could, "never" at no time. *models* are the
    names of its models, the default first: a server whose host cannot sample finds them in ``_meta``, as
    ``sampling_models`` and ``sampling_default_model``, for its hints. *elicitation* answers forms and URLs of hosts
    that cannot.

    *tools* says which tools of the server a host sees and may call, under which names, and whether a tool that changes
    is blocked. Results are checked only if its *output* says how.

    A mapping of names to servers, or to `ServerOptions`, is a proxy of several: `ClientGroup.prepare` has those of a
    file. A host sees them as one, which *name* is for. Tools and prompts have the names that a `ClientGroup` gives them,
    such as ``github__create_issue``, for *tools* and `allow_tools`, too. A server that cannot be reached is left out until it can.

    Either side may speak any revision. A call of a server with a handshake that asks a host of 2026-07-28 becomes
    `input_required`, and the host's retry continues it; a server of 2026-07-28 that requires input sends requests to a
    host with a handshake. Where both are of 2026-07-28, any process with the same *state_key*, of 32 random bytes, takes the retry.
    By default it is drawn. Each host has a connection of its own to the server, with the host's capabilities and those
    of the proxy. Results, errors, unknown methods and members are passed on as they came.

    A host's call has no *timeout* here by default: it is the host that cancels. *limits* may set one.

    Raises:
        TypeError, ValueError: As `Client`; *answer_sampling*, *models* or *state_key* is something else.
    """

    def __init__(
        self,
        server: Connectable | Mapping[str, Connectable | ServerOptions],
        *,
        name: str | None = None,
        sampling: Sampling | None = None,
        answer_sampling: SamplingChoice = "auto",
        models: Sequence[str] = (),
        elicitation: Elicitation | None = None,
        tools: ToolPolicy | None = None,
        era: str = "auto",
        middleware: Sequence[Middleware] = (),
        limits: Limits | None = None,
        state_key: bytes | None = None,
    ) -> None:
        if answer_sampling not in get_args(SamplingChoice):
            raise ValueError(f'answer_sampling is "auto", "always" or "never", not {answer_sampling!r}')
        if isinstance(models, str):
            raise TypeError("models is a list of names")
        if state_key is not None and len(state_key) < STATE_KEY_SIZE:
            raise ValueError(f"state_key has {len(state_key)} bytes, and needs {STATE_KEY_SIZE} at least")
        settings = partial(
            Settings,
            sampling=sampling,
            sampling_choice=answer_sampling,
            models=tuple(models),
            elicitation=elicitation,
            era=era,
            era_cache=EraCache(),
            middleware=tuple(middleware),
            state_key=state_key,
        )
        self._service: Service
        if isinstance(server, Mapping):
            self.name = NAME if name is None else name
            self._service = _router(server, self.name, tools, limits or LIMITS, state_key, settings)
        else:
            relay = _relay(settings(server=infer_transport(server), name=name, tools=tools, limits=limits or LIMITS))
            self.name, self._service = relay.settings.shown_name, relay

    def in_process(self) -> InProcess:
        """A transport to this proxy in this process: ``Client(proxy)`` uses it. Every connection is a host of its own."""
        return InProcess(self._serve, name=self.name)

    async def _serve(self, inbox: Inbox, outbox: Outbox) -> None:
        await in_process.serve(self._service, inbox, outbox.send_nowait)

    async def aclose(self) -> None:
        """Close the connections to the server, of all hosts."""
        await self._service.aclose()

    def run_stdio(self, *, backend: Literal["asyncio", "trio"] = "asyncio") -> None:
        """Serve one host over stdin and stdout until stdin ends, then end the server."""
        from mcp_host.serving.stdio import run  # here, because only a program needs it

        run(self._service, backend)

    def asgi(
        self,
        *,
        token: str | None = None,
        issuer: str | None = None,
        resource: str | None = None,
        required_scopes: Collection[str] = (),
        hosts: Collection[str] | None = (),
        json_response: bool = False,
        path: str = "/mcp",
    ) -> HttpApp:
        """This proxy as a plain ASGI application, with its MCP endpoint at *path*.

        With a *token*, each request has to send it (``Authorization: Bearer ...``). With an *issuer*, it has to be a JWT of that
        authorization server with *resource* as its audience, which is the URL of this proxy for its clients. They find both in its
        metadata (RFC 9728), with the *required_scopes*: a token needs all of them. Each user has sessions, calls and connections to the server that no other reaches, but not a login there.

        The headers Host and Origin may name this machine, *resource*'s, and each of *hosts*: names or addresses without a
        port, such as that of a server of yours in front. With None, Host may name any, which is safe only with a *token* or an *issuer*.

        Raises:
            ImportError: *issuer* needs joserfc, which comes with the extra ``mcp-host[oauth]``.
            ValueError: *token* cannot be sent as a bearer token, *issuer* or *resource* is no URL that can be used, a scope is none, or they are not given together.
        """
        from mcp_host.serving.http.app import HttpApp  # here, because most proxies serve stdio

        if isinstance(required_scopes, str):
            raise TypeError("required_scopes is a list of scopes")
        if required_scopes and issuer is None:
            raise ValueError("required_scopes are for an issuer: it says what a token is good for")
        protected = None
        if issuer is not None or resource is not None:
            if issuer is None or resource is None or token is not None:
                raise ValueError(
                    "an issuer needs a resource, the URL of this proxy for its clients, and no token beside it"
                )
            protected = _protected(issuer, resource, required_scopes)
            hosts = None if hosts is None else (*hosts, urlsplit(resource).hostname or "")
        return HttpApp(
            self._service, json_response=json_response, path=path, token=token, hosts=hosts, protected=protected
        )

    @asynccontextmanager
    async def http(
        self, *, token: str | None = None, json_response: bool = False, uds: str | os.PathLike[str] | None = None
    ) -> AsyncIterator[str]:
        """Serve over Streamable HTTP under uvicorn, on a free port of 127.0.0.1 or at *uds*; the value is the URL.

        *token* is as for `asgi`.

        Raises:
            ImportError: uvicorn is missing; it comes with the extra ``mcp-host[testing]``.
            ValueError: As `asgi`.
        """
        from mcp_host.serving.http.uvicorn_server import serve  # here, because only this needs uvicorn

        path = None if uds is None else os.fspath(uds)
        async with serve(self.asgi(token=token, json_response=json_response), path) as url:
            yield url

    def run_http(
        self,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        token: str | None = None,
        issuer: str | None = None,
        resource: str | None = None,
        required_scopes: Collection[str] = (),
        json_response: bool = False,
    ) -> None:
        """Serve over Streamable HTTP under uvicorn until a signal comes, then end the server.

        The first line on stdout is the URL. *host* is a name or an address of this machine, and by default any free
        *port* of it is taken. Requests have to name that host or its address, or this machine as 127.0.0.1, ::1 or
        localhost; at 0.0.0.0 and :: they may name any.
        *token*, *issuer*, *resource* and *required_scopes* are as for `asgi`; by default *resource* is that URL, but at 0.0.0.0 and :: it has to
        be given. Where other machines can connect, a token is always needed: without an *issuer* it is drawn at random by
        default, and printed once to stderr.

        Raises:
            ImportError: As `http`.
            OSError: It cannot listen there.
            ValueError: As `asgi`.
        """
        from mcp_host.serving.http.access import hosts_at, is_exposed  # here, because most proxies serve stdio
        from mcp_host.serving.http.uvicorn_server import listen, run, url_of

        with listen(port, host) as listener:
            address = listener.getsockname()[0]
            hosts = hosts_at(host, address)
            if issuer is not None and hosts is not None:
                resource = resource or url_of(listener, host)
            if token is None and issuer is None and is_exposed(address):
                token = token_urlsafe(TOKEN_BYTES)
                print("each request has to send this header: Authorization: Bearer", token, file=sys.stderr, flush=True)
            app = self.asgi(
                token=token,
                issuer=issuer,
                resource=resource,
                required_scopes=required_scopes,
                hosts=hosts,
                json_response=json_response,
            )
            run(app, listener, host)


def _protected(issuer: str, resource: str, scopes: Collection[str]) -> ProtectedResource:
    from mcp_host.auth.access_tokens import TokenVerifier  # here, because most proxies serve stdio
    from mcp_host.auth.requests.challenges import NO_CHALLENGE
    from mcp_host.auth.requests.metadata import resource_urls
    from mcp_host.serving.http.access import ProtectedResource

    verifier = TokenVerifier(issuer, resource, scopes)
    return ProtectedResource(resource, issuer, resource_urls(resource, NO_CHALLENGE), verifier.verify, [*scopes])


def _relay(settings: Settings) -> Relay:
    """A relay to the server of *settings*, which are checked."""
    Client(  # checks them, and is never connected
        settings.server,
        name=settings.name,
        sampling=settings.sampling,
        elicitation=settings.elicitation,
        tools=settings.tools,
        era=settings.era,
        middleware=settings.middleware,
        limits=settings.limits,
    )
    return Relay.of(settings)


def _router(
    servers: Mapping[str, Connectable | ServerOptions],
    name: str,
    tools: ToolPolicy | None,
    limits: Limits,
    state_key: bytes | None,
    settings: Callable[..., Settings],
) -> Router:
    from mcp_host.group import ServerOptions  # here, because most proxies have one server
    from mcp_host.proxy.router import Router
    from mcp_host.proxy.several import policy_of

    if tools is not None and tools.rename is not None:
        raise ValueError("several servers have the names of a group: ServerOptions(tools=...) may rename")
    relays = dict[str, Relay]()
    for own_name, given in servers.items():
        options = given if isinstance(given, ServerOptions) else ServerOptions(given)
        if options.enabled:
            relays[own_name] = _relay(
                settings(
                    server=infer_transport(options.server),
                    name=own_name,
                    tools=policy_of(own_name, options.tools, tools),
                    limits=options.limits or limits,
                    shared=True,
                )
            )
    if not relays:
        raise ValueError("there are no servers")
    return Router.of(relays, name=name, resume_timeout=limits.input_timeout, state_key=state_key)

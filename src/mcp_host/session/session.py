"""What a client offers its server, the session that connecting settles, and the answers to the server's requests."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_host.concurrency.deadlines import Timeout
from mcp_host.errors import InputRefused, excerpt
from mcp_host.handlers import call_handler
from mcp_host.protocol.eras import (
    ELICITATION_FORM,
    ELICITATION_URL,
    EXTENSIONS,
    SAMPLING_CONTEXT,
    SAMPLING_TOOLS,
    Era,
    optional_capabilities,
    write_answer,
)
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND, Id, Params
from mcp_host.protocol.negotiation import Offers
from mcp_host.types import Implementation, ServerCapabilities

if TYPE_CHECKING:  # few clients use them, and importing them takes time
    from mcp_host.elicitation import Elicitation
    from mcp_host.middleware import MiddlewareStack, ServerRequest
    from mcp_host.roots import Roots
    from mcp_host.sampling import Sampling, SamplingSession
    from mcp_host.sampling.own_tools import ServerTools
    from mcp_host.sampling.request import AroundModel
    from mcp_host.server_requests import OuterCall, ProgressReporter
    from mcp_host.slots import SemaphoreShare
    from mcp_host.types import InputResponse

logger = logging.getLogger(__name__)

FAILED = "this client failed to answer"  # all that a server is told when a handler raises


class ClientFeatures:
    """The handlers of the application, and the capabilities that they stand for."""

    def __init__(
        self,
        sampling: Sampling | None,
        elicitation: Elicitation | None,
        roots: Roots | None,
        server_tools: ServerTools | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        self.sampling = sampling
        self.elicitation = elicitation
        self.roots = roots
        self.server_tools = server_tools
        """Runs tools of the server inside its sampling requests."""
        self.extensions = extensions or {}
        """What the client declares of extensions, by their names."""
        self.has_callers = False
        """Whether a call had a `caller`: the application may have several users."""

    def offers(self, version: str) -> list[Offers]:
        """The offers to try, the largest first; *version* is the newest that may begin with a handshake."""
        sampling = {} if self.sampling is None else self.sampling.capability()
        elicitation = self.elicitation
        registered = {
            SAMPLING_TOOLS: "tools" in sampling,
            SAMPLING_CONTEXT: "context" in sampling,
            ELICITATION_URL: elicitation is not None and bool(elicitation.capability()),
            ELICITATION_FORM: elicitation is not None and elicitation.form is not None,
            EXTENSIONS: bool(self.extensions),
        }
        most = optional_capabilities(version).intersection(name for name in registered if registered[name])
        known = most - {EXTENSIONS}
        plain = known - {SAMPLING_TOOLS, SAMPLING_CONTEXT}
        return list(dict.fromkeys([most, known, plain, plain - {ELICITATION_URL}, frozenset()]))

    def capabilities(self, offers: Offers) -> dict[str, Any]:
        """The client capabilities to advertise: those with a handler, and of the optional ones the *offers*."""
        capabilities: dict[str, Any] = {}
        if self.sampling is not None:
            sampling = self.sampling.capability()
            capabilities["sampling"] = {name: sampling[name] for name in sampling if f"sampling.{name}" in offers}
        if self.elicitation is not None and offers & {ELICITATION_URL, ELICITATION_FORM}:
            capabilities["elicitation"] = self.elicitation.capability() if ELICITATION_URL in offers else {}
        if self.roots is not None:
            capabilities["roots"] = self.roots.capability()
        if EXTENSIONS in offers:
            capabilities[EXTENSIONS] = dict(self.extensions)
        return capabilities

    def sampling_session(
        self, era: Era, server: str, server_info: Implementation | None, offers: Offers
    ) -> SamplingSession | None:
        """The handlers of a session's sampling requests, if there are any.

        If tools were offered, they are accepted in any revision: servers of SEP-1577's drafts speak older ones.
        """
        if self.sampling is None:
            return None
        accepts_context = SAMPLING_CONTEXT not in optional_capabilities(era.version) - offers
        return self.sampling.session(
            server=server,
            server_info=server_info,
            knows_tools=SAMPLING_TOOLS in offers,
            accepts_context=accepts_context,
            server_tools=self.server_tools,
        )

    def elicitation_share(self) -> SemaphoreShare | None:
        """The slots of a session's elicitations, if they have handlers."""
        return None if self.elicitation is None else self.elicitation.share()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Session:
    """What connecting settled, and the handlers for the server's requests.

    It holds until the next handshake, whose session has the next *epoch*. Stateless servers have no
    session: what `server/discover` returned holds as long as the connection.
    """

    epoch: int = 1
    era: Era
    server: str
    """The name of the server: the host's, or else that of the transport."""
    server_info: Implementation | None
    """What the server calls itself, if it does."""
    server_capabilities: ServerCapabilities
    capabilities: Mapping[str, Any]
    """The server's capabilities as received: these may be more than our types name."""
    instructions: str | None
    features: ClientFeatures
    sampling: SamplingSession | None
    elicitation_share: SemaphoreShare | None
    middleware: MiddlewareStack | None = None
    others: Params | None = None
    """What the server said in members that our types do not name, and in ``_meta``. None if it is nothing."""

    async def answer(
        self,
        method: str,
        params: Params,
        call: OuterCall | None,
        *,
        id: Id | None = None,
        size: float = math.inf,
        move_on_after: Timeout,
        always_wait: bool = False,
        reporter: ProgressReporter | None = None,
        around_model: Sequence[AroundModel] = (),
    ) -> dict[str, Any]:
        """Answer one request of the server, in the form that the session's revision prescribes.

        *id* is that of the request, if it is a message. *size* is an upper bound in bytes of *params*.
        *move_on_after* bounds the answer of a model. With *always_wait* a sampling request waits for its turn,
        however many others do. *reporter* sends progress, if the server asked for it. *around_model* is what
        middleware has put around the handler.

        Raises:
            InputRefused: There is no handler, a person or a rule refused, or middleware failed.
        """
        if self.middleware is not None:
            without = replace(self, middleware=None)

            async def send(request: ServerRequest) -> dict[str, Any]:
                return await without.answer(
                    request.method,
                    dict(request.params),
                    call,
                    size=size if request.params is params else math.inf,
                    move_on_after=move_on_after,
                    always_wait=always_wait,
                    reporter=reporter,
                    around_model=request.around_model,
                )

            received = self.middleware.server_request(
                method, params, server_info=self.server_info, protocol_version=self.era.version, outer=call, id=id
            )
            run = partial(self.middleware.run, received, send)
            return await call_handler(run, subject=f"middleware for {excerpt(method)}", failed=FAILED)
        elicitation, roots = self.features.elicitation, self.features.roots
        answer: InputResponse
        if method == "sampling/createMessage" and self.sampling is not None:
            answer = await self.sampling.answer(
                params,
                call,
                size=size,
                move_on_after=move_on_after,
                always_wait=always_wait,
                reporter=reporter,
                around_model=around_model,
                has_callers=self.features.has_callers,
            )
        elif method == "elicitation/create" and elicitation is not None:
            answer = await elicitation.answer(
                params,
                call,
                server=self.server,
                server_info=self.server_info,
                revision=self.era.version,
                reporter=reporter,
                share=self.elicitation_share,
            )
        elif method == "roots/list" and roots is not None:
            answer = await roots.answer(call, server=self.server, server_info=self.server_info)
        else:
            raise InputRefused(METHOD_NOT_FOUND, f"this client does not offer {method}")
        try:
            with_tools = method == "sampling/createMessage" and "tools" in params
            return write_answer(answer, self.era.version, with_tools=with_tools)
        except InputRefused as exc:
            logger.error("an answer was withheld from %s: %s", excerpt(self.server), exc.__cause__)
            raise

"""The client's features: sampling, elicitation and roots, as advertised and as requested by the server."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from mcp_host.concurrency import Timeout
from mcp_host.errors import InputRefused, excerpt
from mcp_host.protocol.eras import (
    ELICITATION_FORM,
    ELICITATION_URL,
    SAMPLING_CONTEXT,
    SAMPLING_TOOLS,
    optional_capabilities,
    write_answer,
)
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND, Params
from mcp_host.protocol.negotiation import Offers

if TYPE_CHECKING:  # few clients use them, and importing them takes time
    from mcp_host.elicitation import Elicitation
    from mcp_host.roots import Roots
    from mcp_host.sampling import OuterCall, Sampling, SamplingMode, SamplingSession
    from mcp_host.sampling.progress import ProgressReporter
    from mcp_host.types import InputResponse

logger = logging.getLogger(__name__)

FAILED = "this client failed to answer"  # all that a server is told when a handler raises


class ClientFeatures:
    """The handlers of the application."""

    def __init__(self, sampling: Sampling | None, elicitation: Elicitation | None, roots: Roots | None) -> None:
        self.sampling = sampling
        self.elicitation = elicitation
        self.roots = roots

    def offers(self, version: str) -> list[Offers]:
        """The offers to try, the largest first; *version* is the newest that may begin with a handshake."""
        sampling = {} if self.sampling is None else self.sampling.capability()
        elicitation = self.elicitation
        registered = {
            SAMPLING_TOOLS: "tools" in sampling,
            SAMPLING_CONTEXT: "context" in sampling,
            ELICITATION_URL: elicitation is not None and bool(elicitation.capability()),
            ELICITATION_FORM: elicitation is not None and elicitation.form is not None,
        }
        most = optional_capabilities(version).intersection(name for name in registered if registered[name])
        plain = most - {SAMPLING_TOOLS, SAMPLING_CONTEXT}
        return list(dict.fromkeys([most, plain, plain - {ELICITATION_URL}, frozenset()]))

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
        return capabilities

    def session(self, version: str, server: str, offers: Offers) -> SessionFeatures:
        """Choose the handlers of a session.

        If tools were offered, they are accepted in any revision: servers of SEP-1577's drafts speak older ones.
        """
        sampling = None
        if self.sampling is not None:
            refuses_context = SAMPLING_CONTEXT in optional_capabilities(version) - offers
            sampling = self.sampling.session(
                server=server, knows_tools=SAMPLING_TOOLS in offers, refuses_context=refuses_context
            )
        return SessionFeatures(self, version, server, sampling)


class SessionFeatures:
    """The handlers of one session."""

    def __init__(self, features: ClientFeatures, version: str, server: str, sampling: SamplingSession | None) -> None:
        self._features = features
        self._version = version
        self._server = server
        self._sampling = sampling

    @property
    def sampling_mode(self) -> SamplingMode:
        return "none" if self._sampling is None else self._sampling.mode

    async def answer(
        self,
        method: str,
        params: Params,
        call: OuterCall | None,
        *,
        size: float = math.inf,
        timeout: Timeout,
        reporter: ProgressReporter | None = None,
    ) -> dict[str, Any]:
        """Answer one request of the server, in the form that the session's revision prescribes.

        *size* is an upper bound in bytes of *params*. *timeout* bounds the answer of a model.
        *reporter* sends progress, if the server asked for it.

        Raises:
            InputRefused: There is no handler, or a person or a rule refused.
        """
        elicitation, roots = self._features.elicitation, self._features.roots
        answer: InputResponse
        if method == "sampling/createMessage" and self._sampling is not None:
            answer = await self._sampling.answer(params, call, size=size, timeout=timeout, reporter=reporter)
        elif method == "elicitation/create" and elicitation is not None:
            answer = await elicitation.answer(
                params, call, server=self._server, revision=self._version, reporter=reporter
            )
        elif method == "roots/list" and roots is not None:
            answer = await roots.answer(call, server=self._server)
        else:
            raise InputRefused(METHOD_NOT_FOUND, f"this client does not offer {method}")
        try:
            with_tools = method == "sampling/createMessage" and "tools" in params
            return write_answer(answer, self._version, with_tools=with_tools)
        except InputRefused as exc:
            logger.error("an answer was withheld from %s: %s", excerpt(self._server), exc.__cause__)
            raise

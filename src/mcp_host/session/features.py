"""Answering what a server asks of us, whichever way it asks."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anyio import CancelScope

from mcp_host.errors import InputRefused, excerpt
from mcp_host.protocol.eras import Answer, Era, Legacy, Modern
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND, Params
from mcp_host.sampling import OuterCall, Sampling, SamplingMode, SamplingSession
from mcp_host.sampling.progress import ProgressReporter
from mcp_host.session.attempts import Offers

if TYPE_CHECKING:
    from mcp_host.elicitation import Elicitation
    from mcp_host.roots import Roots

logger = logging.getLogger(__name__)


class ClientFeatures:
    """What this client answers, as registered. Lives as long as the client, through every reconnect."""

    def __init__(self, sampling: Sampling | None, elicitation: Elicitation | None, roots: Roots | None) -> None:
        self.sampling = sampling
        self.elicitation = elicitation
        self.roots = roots

    def offers(self, era: Legacy | type[Modern]) -> list[Offers]:
        """What of it to advertise where *era* is the newest that may be spoken, and then what instead, the most first."""
        sampling = {} if self.sampling is None else self.sampling.capability()
        modes = self.elicitation is not None and bool(self.elicitation.capability())
        most = Offers(
            sampling_tools="tools" in sampling,
            sampling_context="context" in sampling,
            elicitation_modes=modes,
            elicitation_forms=self.elicitation is not None and self.elicitation.form is not None,
        ).within(era)
        plain = replace(most, sampling_tools=False, sampling_context=False)
        return list(dict.fromkeys([most, plain, replace(plain, elicitation_modes=False), Offers()]))

    def capabilities(self, offers: Offers) -> dict[str, Any]:
        """The client capabilities to advertise: exactly what has a handler, as far as *offers* goes."""
        capabilities: dict[str, Any] = {}
        if self.sampling is not None:
            is_offered = {"tools": offers.sampling_tools, "context": offers.sampling_context}
            capabilities["sampling"] = {k: v for k, v in self.sampling.capability().items() if is_offered[k]}
        if self.elicitation is not None and (offers.elicitation_modes or offers.elicitation_forms):
            capabilities["elicitation"] = self.elicitation.capability() if offers.elicitation_modes else {}
        if self.roots is not None:
            capabilities["roots"] = self.roots.capability()
        return capabilities

    def session(self, era: Era, server: str, offers: Offers) -> SessionFeatures:
        """Choose, once for a session, which handlers answer it.

        Tools that were offered are taken in any revision: servers of SEP-1577's drafts speak older ones.
        """
        sampling = None
        if self.sampling is not None:
            refuses_context = era.declares_context_support and not offers.sampling_context
            sampling = self.sampling.session(
                server=server, knows_tools=offers.sampling_tools, refuses_context=refuses_context
            )
        return SessionFeatures(self, era, server, sampling)


class SessionFeatures:
    """The handlers of one session."""

    def __init__(self, inputs: ClientFeatures, era: Era, server: str, sampling: SamplingSession | None) -> None:
        self._inputs = inputs
        self._era = era
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
        within: CancelScope | None = None,
        reporter: ProgressReporter | None = None,
    ) -> dict[str, Any]:
        """Answer one request, as the session's revision writes it.

        *size* is of how many bytes it was read, at most; *within* is a scope that this alone runs in, if there is one;
        *reporter* is there if the server wants to be told of the progress.

        Raises:
            InputRefused: There is no handler, or somebody or some rule refused.
        """
        if method == "sampling/createMessage" and self._sampling is not None:
            answer = await self._sampling.answer(params, call, size=size, within=within, reporter=reporter)
            return self._write(answer, with_tools="tools" in params)
        if method == "elicitation/create" and self._inputs.elicitation is not None:
            return self._write(
                await self._inputs.elicitation.answer(
                    params, call, server=self._server, revision=self._era.version, reporter=reporter
                )
            )
        if method == "roots/list" and self._inputs.roots is not None:
            return self._write(await self._inputs.roots.answer(call, server=self._server))
        raise InputRefused(METHOD_NOT_FOUND, f"this client does not offer {method}")

    def _write(self, answer: Answer, *, with_tools: bool = False) -> dict[str, Any]:
        try:
            return self._era.write(answer, with_tools=with_tools)
        except InputRefused as exc:
            logger.error("an answer was withheld from %s: %s", excerpt(self._server), exc.__cause__)
            raise

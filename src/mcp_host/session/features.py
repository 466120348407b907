"""Sampling, elicitation and roots: the registered handlers, and what the client advertises for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_host.protocol.eras import (
    ELICITATION_FORM,
    ELICITATION_URL,
    SAMPLING_CONTEXT,
    SAMPLING_TOOLS,
    Era,
    optional_capabilities,
)
from mcp_host.protocol.negotiation import Offers

if TYPE_CHECKING:  # few clients use them, and importing them takes time
    from mcp_host.elicitation import Elicitation
    from mcp_host.roots import Roots
    from mcp_host.sampling import Sampling, SamplingSession


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

    def sampling_session(self, era: Era, server: str, offers: Offers) -> SamplingSession | None:
        """The handlers of a session's sampling requests, if there are any.

        If tools were offered, they are accepted in any revision: servers of SEP-1577's drafts speak older ones.
        """
        if self.sampling is None:
            return None
        accepts_context = SAMPLING_CONTEXT not in optional_capabilities(era.version) - offers
        return self.sampling.session(
            server=server, knows_tools=SAMPLING_TOOLS in offers, accepts_context=accepts_context
        )

"""Whether a server may use the model for a request: the host's say, before any token is spent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from mcp_host.errors import InputRefused
from mcp_host.handlers import call_handler
from mcp_host.protocol.codes import USER_REJECTED
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR
from mcp_host.sampling.request import REJECTION, SamplingRequest

logger = logging.getLogger(__name__)

FAILED = "this client failed to ask for approval"  # what a server is told, and nothing of the reason


@dataclass(frozen=True, slots=True)
class Allow:
    """The request may go to the model, as it is."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The request is refused. The server is told *reason*, with the code -1."""

    reason: str = REJECTION


Approve: TypeAlias = Callable[[SamplingRequest], Awaitable[Allow | Deny]]
"""Decides on one request. An approver that fails has not allowed anything: the server is told -32603."""


async def always(request: SamplingRequest, /) -> Allow:
    """Allow every request: for servers that may spend the host's tokens without asking anybody.

    "There SHOULD always be a human in the loop with the ability to deny sampling requests"
    (client/sampling); this is the explicit way to do without.
    """
    return Allow()


async def require_approval(approve: Approve, request: SamplingRequest, *, subject: str) -> None:
    """Return if *approve* allows the request. What goes wrong is logged under *subject*.

    Raises:
        InputRefused: It denies the request, failed, or returned neither `Allow` nor `Deny`.
    """
    decision: object = await call_handler(partial(approve, request), subject=subject, failed=FAILED)
    match decision:
        case Allow():
            return
        case Deny(reason=reason):
            raise InputRefused(USER_REJECTED, reason)
        case _:  # True, say, which must not pass for a yes that nobody gave
            kind = type(decision).__name__
            logger.error("%s: the approver returned %s, no Allow or Deny", subject, kind)
            raise InputRefused(INTERNAL_ERROR, FAILED)

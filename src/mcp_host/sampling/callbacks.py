"""Calling what the host gave us: nothing of its errors reaches a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import get_cancelled_exc_class

from mcp_host.errors import InputRefused, excerpt
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR
from mcp_host.sampling.request import SamplingRequest

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def call_host(function: Callable[[SamplingRequest], Awaitable[T]], request: SamplingRequest, *, failed: str) -> T:
    """Await a function of the host's in place. What it raises is logged here in full.

    Raises:
        InputRefused: The function raised it itself, or anything else: then the
            server is told -32603 and *failed*, and `__cause__` is what was raised.
    """
    try:
        return await function(request)
    except InputRefused:
        raise
    except Exception as exc:
        raise _hidden(exc, request, failed) from exc
    except get_cancelled_exc_class() as exc:
        if not _nobody_cancelled_us(exc):
            raise
        raise _hidden(exc, request, failed) from exc


def _hidden(exc: BaseException, request: SamplingRequest, failed: str) -> InputRefused:
    logger.error("sampling for %s: %s", excerpt(request.server), failed, exc_info=exc)
    return InputRefused(INTERNAL_ERROR, failed)


def _nobody_cancelled_us(exc: BaseException) -> bool:
    """Whether *exc* is not our cancellation, but that of a task which the function awaited.

    Only asyncio mixes the two up. Passed on, it would end our task in silence,
    and the server would wait for ever.
    """
    if not isinstance(exc, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and not task.cancelling()

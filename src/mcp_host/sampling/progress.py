"""Telling a server how far the answer to one of its requests has come."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from mcp_host.types import ProgressNotificationParams
from mcp_host.types.messages import ProgressToken

SendProgress: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]


class ProgressReporter:
    """Reports on one request to the server, which asked for it with *token*."""

    def __init__(self, token: ProgressToken, send: SendProgress) -> None:
        self._token = token
        self._send = send
        self._last = -math.inf

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Send one report, unless *progress* has not grown.

        Raises:
            ValueError: A number is not finite, or an argument has the wrong type.
        """
        if not (math.isfinite(progress) and math.isfinite(total or 0)):
            raise ValueError("progress and total are finite numbers")
        optional: dict[str, Any] = {"total": total, "message": message}
        params = ProgressNotificationParams(
            progress_token=self._token,
            progress=progress,
            **{name: value for name, value in optional.items() if value is not None},
        )
        if progress <= self._last:
            return  # "The `progress` value MUST increase with each notification"
        self._last = progress
        await self._send(params.to_wire())


class ReportsProgress:
    """A request that came from a server, which may have asked to be told how far the answer to it has come."""

    reporter: ProgressReporter | None

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the server how far the answer has come, if it asked for that (``_meta.progressToken``), else nothing.

        *progress* has to grow: a report that does not is not sent, and neither is one after the answer.
        How often to report is up to you. A server of revision 2026-07-28 never asks.

        Raises:
            ValueError: A number is not finite, or an argument has the wrong type.
        """
        if self.reporter is not None:
            await self.reporter.report(progress, total, message)

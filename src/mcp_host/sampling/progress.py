"""Progress reports to a server about the answer to one of its requests."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from mcp_host.types import ProgressNotificationParams
from mcp_host.types.messages import ProgressToken

SendProgress: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]


class ProgressReporter:
    """Reports the progress of one request to the server, which asked for it with *token*."""

    def __init__(self, token: ProgressToken, send: SendProgress) -> None:
        self._token = token
        self._send = send
        self._last = -math.inf

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Send one report, if *progress* has increased.

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
    """A request from a server, which may have asked for progress reports."""

    reporter: ProgressReporter | None

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the server, if it asked for that (``_meta.progressToken``).

        *progress* has to increase. Reports that do not increase it, and reports after the answer, are not sent.
        Report as often as you like. Servers of revision 2026-07-28 never ask for reports.

        Raises:
            ValueError: A number is not finite, or an argument has the wrong type.
        """
        if self.reporter is not None:
            await self.reporter.report(progress, total, message)

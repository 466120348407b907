"""What a handler learns of any server request: the call that it belongs to, and how to report progress."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mcp_host.protocol.jsonrpc import Id
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


class WeakKey:
    """An object for weak references; a plain `object` allows none."""


@dataclass(frozen=True, slots=True)
class OuterCall:
    """Our call that a server request belongs to.

    *name* is the tool, prompt or URI of the call, if it has one. *request_id* is the
    JSON-RPC id of our request. A call may need several requests (2026-07-28: one for each round
    of input); *call_id* is the same for all of them, and unique in this process.
    *inferred* means that the server did not name the call: its request came over a pipe, and this
    was the only call in flight. A call that was cancelled or timed out counts as in flight until it is
    answered, for `Limits.idle_timeout` at most.

    *caller* is what the application passed as ``call_tool(..., caller=...)``. It is not sent, logged,
    compared, or shown in the repr.

    *weak_key* is an object that lives as long as the call: the key of a `weakref.WeakKeyDictionary`
    with what is decided for the whole call. `dataclasses.replace` keeps it.
    """

    method: str
    name: str | None
    request_id: Id
    call_id: int | str = field(kw_only=True)
    inferred: bool = field(default=False, kw_only=True)
    caller: object = field(default=None, kw_only=True, repr=False, compare=False)
    weak_key: object = field(default_factory=WeakKey, kw_only=True, repr=False, compare=False)

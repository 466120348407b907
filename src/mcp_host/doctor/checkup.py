"""Carrying out the exchanges with one host, a few in each of its calls."""

from __future__ import annotations

from functools import partial

from anyio import CancelScope, create_task_group, move_on_after

from mcp_host.doctor.checks import CHECKS, Outcome, decide, omitted
from mcp_host.doctor.exchanges import EXCHANGES, is_notification
from mcp_host.doctor.seen import Host, Refused, Seen
from mcp_host.protocol.jsonrpc import Params
from mcp_host.serving.errors import ClientError
from mcp_host.serving.remote_client import ReceivedRequest, meta_of
from mcp_host.serving.service import Ask

PER_CALL = 8  # exchanges: hosts limit how long a call may take, and how often one may ask for input


class Checkup:
    """The check-up of one host in one revision. A request of it is given up after *timeout* seconds.

    A call that was left is over when the next one comes: the exchange that it left has got no answer.
    """

    def __init__(self, host: Host, timeout: float) -> None:
        self.host = host
        self.seen: dict[str, Seen] = {}
        """What was seen in each exchange that has begun, by its name."""
        self._timeout = timeout
        self._call = CancelScope()

    @property
    def remaining(self) -> list[str]:
        """The exchanges that have not begun."""
        return [name for name in EXCHANGES if name not in self.seen and omitted(name, self.host) is None]

    def outcomes(self) -> list[Outcome]:
        """What has come of each check of this revision so far."""
        checks = [check for check in CHECKS if check.applies(stateless=self.host.stateless)]
        return [decide(check, self.host, self.seen.get(check.exchange)) for check in checks]

    async def proceed(self, call: ReceivedRequest, ask: Ask) -> None:
        """Carry out the next exchanges, within a *call* of the host."""
        self._call.cancel()
        with CancelScope() as self._call:
            for name in self.remaining[:PER_CALL]:
                if (token := meta_of(call.request.params).get("progressToken")) is not None:
                    progress = {"progressToken": token, "progress": len(self.seen), "message": name}
                    call.notify("notifications/progress", progress)
                await self._exchange(name, call, ask)

    async def _exchange(self, name: str, call: ReceivedRequest, ask: Ask) -> None:
        exchange = EXCHANGES[name]
        seen = Seen(self.host, [None] * exchange.requests, unexpected_before=len(self.host.unexpected))
        self.seen[name] = seen
        index = 0
        async with create_task_group() as tasks:
            for method, params in exchange.messages:
                if is_notification(method):
                    call.notify(method, params)
                    continue
                request = partial(self._request, seen, index, method, params, call, ask)
                if exchange.together:
                    tasks.start_soon(request)
                else:
                    with CancelScope() as scope:
                        if exchange.cancels and index == 0:
                            scope.cancel()  # the request is sent, and its cancellation
                        await request()
                index += 1
        seen.unexpected_at_end, seen.notifications_at_end = len(self.host.unexpected), len(self.host.notifications)

    async def _request(
        self, seen: Seen, index: int, method: str, params: Params, call: ReceivedRequest, ask: Ask
    ) -> None:
        before = call.request.id
        with move_on_after(self._timeout):
            try:
                seen.answers[index] = await ask(method, _for_revision(params, stateless=self.host.stateless))
            except ClientError as exc:
                seen.answers[index] = Refused(exc.code, exc.message)
            seen.answered_by.append(call.request.id)
            if self.host.stateless:
                self.host.retries.append((before, call.request.id))


def _for_revision(params: Params, *, stateless: bool) -> Params:
    """The params without what 2026-07-28 has removed."""
    return {name: value for name, value in params.items() if not (stateless and name == "elicitationId")}

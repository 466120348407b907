"""`OAuth` in any order of calls, ends of tokens, refusals, failures, cancellations and logouts, in two processes."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_host.auth import AuthError, MemoryTokens
from tests.auth.world import World
from tests.clock import with_fake_clock
from tests.extent import THOROUGH

LIFETIME = 40.0
HOUR = 3600.0  # on the fake clock: no wait is as long

Action = tuple[str, int]
"""What happens, and a number: of a process, a call, seconds, a status, or turns of the event loop."""

ACTIONS = st.one_of(
    st.tuples(st.just("call"), st.integers(0, 1)),
    st.tuples(st.just("calls"), st.integers(0, 1)),
    st.tuples(st.just("cancel"), st.integers(0, 3)),
    st.tuples(st.just("pass"), st.sampled_from([5, 25])),  # seconds; a request for a token takes 30 at most
    st.tuples(st.just("revoke"), st.just(0)),
    st.tuples(st.just("answer"), st.sampled_from([200, 200, 500, 400])),
    st.tuples(st.just("slow"), st.integers(0, 5)),
    st.tuples(st.just("logout"), st.integers(0, 1)),
    st.tuples(st.just("saved"), st.integers(0, 1)),
    st.tuples(st.just("turns"), st.sampled_from([2, 5, 8, 12])),
)

WHOLE: list[Action] = [("turns", 12)] * 3
CANCELLED: list[Action] = [
    ("call", 0),
    *WHOLE,
    ("pass", 25),
    ("pass", 25),
    ("call", 0),
    ("turns", 8),
    ("cancel", 0),
    *WHOLE,
]
"""A refresh whose call is cancelled when the server has answered."""
BOTH: list[Action] = [
    ("call", 0),
    *WHOLE,
    ("call", 1),
    *WHOLE,
    ("pass", 25),
    ("pass", 25),
    ("call", 0),
    ("turns", 5),
    ("call", 1),
]
"""Two processes that refresh at once."""


class Schedule:
    """Two processes of one user, with one store."""

    def __init__(self) -> None:
        self.world = World(lifetime=LIFETIME)
        store = MemoryTokens()
        self.processes = [self.world.oauth(tokens=store, login=self._person) for _ in range(2)]
        self.calls: list[anyio.CancelScope] = []
        self.ended = 0
        self.faults: list[str] = []
        self.status, self.delay = 200, 5
        self.ends: dict[str, float] = {}
        self.chosen = self.world.now
        """When the tokens that are sent now were chosen, at the earliest: time may pass on their way."""
        self.used: set[str] = set()
        self.world.apps[1002] = self._protected
        self.world.server.answers["token"] = self._token

    async def _protected(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        if token and self.ends[token] <= self.chosen:
            self.faults.append("a token that has ended was sent")
        if token in self.world.server.tokens:
            self.used.add(token)
        await self.world.site(scope, receive, send)

    async def _person(self, url: str) -> str:
        for _ in range(self.delay):
            await checkpoint()
        return await self.world.person(url)

    async def _token(self, request: Request) -> Response:
        for _ in range(self.delay):
            await checkpoint()
        if self.status != 200:
            return Response(status_code=self.status)
        response = await self.world.server._token(request)
        self.ends |= {token: issued.expires_at for token, issued in self.world.server.tokens.items()}
        for _ in range(self.delay):
            await checkpoint()
        return response

    async def _call(self, process: int, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                status = await self.world.call(self.processes[process])
            except AuthError:
                pass  # the token endpoint may have failed
            else:
                if status not in (200, 401):
                    self.faults.append(f"HTTP {status}")
        self.ended += 1

    async def _act(self, tasks: TaskGroup, what: str, number: int) -> None:
        match what:
            case "call" | "calls":
                for _ in range(1 if what == "call" else 20):
                    self.calls.append(anyio.CancelScope())
                    tasks.start_soon(self._call, number, self.calls[-1])
            case "cancel" if self.calls:
                self.calls[-1 - number % len(self.calls)].cancel()
            case "pass":
                self.world.now += number
            case "revoke":
                tokens = self.world.server.tokens  # one that was never taken is not renewed
                self.world.server.tokens = {token: tokens[token] for token in tokens.keys() - self.used}
            case "answer":
                self.status = number
            case "slow":
                self.delay = number
            case "logout" | "saved":
                tasks.start_soon(getattr(self.processes[number], what), self.world.site.url)
        for _ in range({"turns": number, "pass": 100}.get(what, 0)):
            await checkpoint()  # a request for a token has half of the time of its lease
        self.chosen = self.world.now

    async def run(self, actions: Sequence[Action]) -> None:
        with anyio.fail_after(HOUR):
            async with anyio.create_task_group() as tasks:
                for what, number in actions:
                    await self._act(tasks, what, number)
            self.status = 200
            statuses = [await self.world.call(auth) for auth in self.processes]

        assert (statuses, self.faults, self.world.server.revoked) == ([200, 200], [], [])
        assert self.ended == len(self.calls)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@example(actions=CANCELLED)
@example(actions=BOTH)
@example(actions=[("call", 0), ("turns", 8), ("pass", 25), ("pass", 25)])  # the answer with the token comes late
@given(actions=st.lists(ACTIONS, max_size=30))
@settings(max_examples=200 if THOROUGH else 25)
def test_no_token_is_used_after_its_end_no_refresh_token_twice_and_no_call_hangs(
    backend: str, actions: list[Action]
) -> None:
    name, options = with_fake_clock(backend)

    async def main() -> None:
        await Schedule().run(actions)

    anyio.run(main, backend=name, backend_options=options)

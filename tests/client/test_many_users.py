"""One client for many users, as in a web application: what one of them decides, or leaves open, concerns only that user."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import Literal

import anyio
import pytest

from mcp_host import Allow, Deny, Sampling, SamplingLimits, SamplingRequest
from mcp_host.errors import InputNotGiven
from mcp_host.middleware import ClientRequest, approve_tool_calls
from mcp_host.sampling.approval import MAX_CALL_GRANTS, CallApprovals
from mcp_host.testing import ScriptedPeer
from mcp_host.types import Tool
from tests.client.rounds import SAMPLE, wants
from tests.client.support import QUESTION, Era, answering, asking_server, connected, say_paris
from tests.extent import on_both


class Users:
    """Who is asked, who has answered, and whose question was withdrawn."""

    def __init__(self, limits: SamplingLimits | None = None) -> None:
        self.asked: list[str] = []
        self.withdrawn: list[str] = []
        self.answers: dict[str, Allow | Deny] = {}
        self._answered = anyio.Event()
        self.sampling = Sampling(with_tools=say_paris, approve=self.approve, limits=limits)

    async def approve(self, request: SamplingRequest) -> Allow | Deny:
        assert request.outer is not None
        return await self._ask(str(request.outer.caller))

    async def approve_call(self, request: ClientRequest) -> Allow | Deny:
        return await self._ask(str(request.caller))

    async def _ask(self, user: str) -> Allow | Deny:
        self.asked.append(user)
        try:
            while user not in self.answers:
                await self._answered.wait()
        except BaseException:
            self.withdrawn.append(user)
            raise
        return self.answers[user]

    def answer(self, **answers: Allow | Deny) -> None:
        self.answers |= answers
        self._answered.set()
        self._answered = anyio.Event()


async def test_an_approval_for_the_session_is_one_for_every_user() -> None:
    """So an application with many users must not give it. One for the call is for one call of one user."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        for rounds in (2, 1):
            for _ in range(rounds):
                await peer.reply(await peer.receive("tools/call"), wants(None, a=SAMPLE))
            await peer.reply(await peer.receive("tools/call"), {"content": []})

    asked: dict[str, list[str]] = {}
    scopes: list[Literal["request", "call", "session"]] = ["request", "call", "session"]
    for scope in scopes:
        users = Users()
        users.answer(ada=Allow(scope), bob=Allow(scope))
        async with connected(ScriptedPeer(script), sampling=users.sampling) as client:
            await client.call_tool("x", caller="ada")
            await client.call_tool("x", caller="bob")
        asked[scope] = users.asked

    assert asked == {"request": ["ada", "ada", "bob"], "call": ["ada", "bob"], "session": ["ada"]}


@on_both
async def test_a_tool_that_one_user_allows_for_the_session_is_asked_about_for_the_others(era: Era) -> None:
    """Their open questions stay. Calls without a caller are those of one more user."""
    users = Users()
    peer = answering(era, {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}, {"content": []})

    async def call(user: str | None) -> None:
        await client.call_tool("pay", caller=user)

    async with connected(peer, middleware=[approve_tool_calls(users.approve_call)]) as client:
        await client.list_tools()
        async with anyio.create_task_group() as tasks:
            for user in ("ada", "bob", None):
                tasks.start_soon(call, user)
            await anyio.wait_all_tasks_blocked()
            users.answer(ada=Allow("session"))
            await anyio.wait_all_tasks_blocked()
            assert (sorted(users.asked), users.withdrawn) == (["None", "ada", "bob"], [])
            await call("ada")
            users.answer(**{"bob": Allow("session"), "None": Allow("session")})
        for user in ("ada", "bob", None):
            await call(user)

    assert sorted(users.asked) == ["None", "ada", "bob"]


@on_both
@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        (SamplingLimits(), 4),
        (SamplingLimits(at_once=100), 4),
        (SamplingLimits(at_once=100, at_once_per_server=100), 20),
    ],
    ids=["default", "at_once alone", "both"],
)
async def test_users_who_do_not_answer_block_the_others_unless_the_limits_are_raised(
    limits: SamplingLimits, asked: int
) -> None:
    users = Users(limits)
    async with (
        connected(asking_server(), sampling=users.sampling, era="modern") as client,
        anyio.create_task_group() as tasks,
    ):
        for number in range(20):
            tasks.start_soon(lambda user: client.call_tool("ask", caller=user), f"user {number}")
        await anyio.wait_all_tasks_blocked()
        assert len(users.asked) == asked
        tasks.cancel_scope.cancel()


@on_both
async def test_a_denial_ends_the_call_of_that_user_alone_and_a_cancelled_call_withdraws_its_question_alone() -> None:
    users = Users()
    ended: list[str] = []

    async def call(user: str) -> None:
        with suppress(InputNotGiven):
            await client.call_tool("ask", caller=user)
        ended.append(user)

    async with (
        connected(asking_server(), sampling=users.sampling, era="modern") as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(call, "ada")
        tasks.start_soon(call, "bob")
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(call, "cleo")
            await anyio.wait_all_tasks_blocked()
            users.answer(bob=Deny())
            await anyio.wait_all_tasks_blocked()
            assert (sorted(users.asked), ended, users.withdrawn) == (["ada", "bob", "cleo"], ["bob"], [])
            leaving.cancel_scope.cancel()
        assert (ended, users.withdrawn) == (["bob"], ["cleo"])
        users.answer(ada=Allow())

    assert (ended, users.withdrawn) == (["bob", "ada"], ["cleo"])


@on_both
async def test_a_call_that_is_cancelled_while_its_user_is_asked_is_cancelled_at_the_server_if_that_waits(
    era: Era,
) -> None:
    """Since 2026-07-28 the request has ended with the question, so there is nothing to cancel."""
    users = Users()

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        call = await peer.receive("tools/call")
        if era.meta:
            await peer.reply(call, wants(None, a=SAMPLE))
        else:
            await peer.send({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": QUESTION})

    peer = ScriptedPeer(script)
    async with connected(peer, sampling=users.sampling) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: client.call_tool("x", caller="ada"))
            await anyio.wait_all_tasks_blocked()
            assert users.asked == ["ada"]
            tasks.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()

    said = [message.get("method", message.get("error")) for message in era.said_to(peer)]
    ended = {"code": -32012, "message": "the call that this belonged to has ended"}
    assert said[0] == "tools/call"
    assert sorted(map(str, said[1:])) == ([] if era.meta else ["notifications/cancelled", str(ended)])
    assert users.withdrawn == ["ada"]


FORKED = """
import os
import anyio
from mcp_host import Client
from mcp_host.testing import Server

server = Server("s")

@server.tool
def pid() -> int:
    return os.getpid()

clients = {backend: Client(server, lazy=True) for backend in ("asyncio", "trio")}
child = os.fork()

async def main(client: Client) -> None:
    async with client:
        assert (await client.call_tool("pid")).text == str(os.getpid())

for backend, client in clients.items():
    anyio.run(main, client, backend=backend)
if child:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked on POSIX only")
def test_a_client_that_was_made_before_the_workers_were_forked_connects_in_each() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_what_most_users_allow_for_the_session_is_kept_and_the_oldest_is_forgotten() -> None:
    tool, session, asked = Tool(name="pay", input_schema={"type": "object"}), Users(), list[int]()

    async def ask(user: int) -> Allow:
        asked.append(user)
        return Allow("session")

    approvals = CallApprovals(ask)
    for user in (*range(MAX_CALL_GRANTS + 1), 1, 0):
        await approvals.decide(user, tool, session=session, caller=user)

    assert asked == [*range(MAX_CALL_GRANTS + 1), 0]

"""How soon and how often a server that has died is started again, and for whom."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Change, Client
from mcp_host.client import revival
from mcp_host.errors import ConnectionClosed
from mcp_host.testing import ScriptedPeer
from mcp_host.types import ToolListChangedNotification
from tests.client.support import EMPTY


class Mortal(ScriptedPeer):
    """A server that can be started again: its script is one life of it."""

    @property
    def restart(self) -> bool:
        return True


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before a server is started again, which take no time here."""
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)
        await checkpoint()

    monkeypatch.setattr(revival, "sleep", sleep)
    return taken


async def good_for_one_call(peer: ScriptedPeer) -> None:
    await peer.be_discovered()
    await peer.reply(await peer.receive("tools/call"), EMPTY)
    await peer.hang_up()


async def good_for_nothing(peer: ScriptedPeer) -> None:
    await peer.be_discovered()
    await peer.receive("tools/call")
    await peer.hang_up()


async def die_over_a_call(client: Client) -> None:
    with pytest.raises(ConnectionClosed):
        await client.call_tool("x")


async def test_a_server_that_keeps_dying_is_started_again_less_and_less_soon(pauses: list[float]) -> None:
    with anyio.fail_after(5):
        async with Client(Mortal(good_for_nothing)) as client:
            for _ in range(6):
                await die_over_a_call(client)

    assert len(pauses) == 5
    assert pauses == sorted(set(pauses))


async def test_a_server_that_answers_before_it_dies_is_started_again_at_once_and_without_end(
    pauses: list[float],
) -> None:
    peer = Mortal(good_for_one_call)

    with anyio.fail_after(5):
        async with Client(peer) as client:
            for _ in range(20):
                await client.call_tool("x")
                await anyio.wait_all_tasks_blocked()  # until its end is known

    assert [message["method"] for message in peer.heard] == 20 * ["server/discover", "tools/call"]
    assert pauses == 19 * [0.0]


async def test_an_answer_ends_what_was_held_against_the_lives_before(pauses: list[float]) -> None:
    lives = [good_for_nothing, good_for_nothing, good_for_one_call, good_for_nothing, good_for_one_call]

    with anyio.fail_after(5):
        async with Client(Mortal(lambda peer: lives.pop(0)(peer))) as client:
            await die_over_a_call(client)
            await die_over_a_call(client)
            await client.call_tool("x")
            await anyio.wait_all_tasks_blocked()  # until its end is known
            await die_over_a_call(client)
            await client.call_tool("x")

    assert pauses == [0.0, 1.125, 0.0, 1.125]


async def test_who_hears_of_changes_gets_the_server_back_without_calling_it() -> None:
    """Nothing is subscribed to by name: to listen to the lists is enough."""
    lives = iter([1, 2])
    connected, changed = anyio.Event(), anyio.Event()
    changes: list[Change] = []

    async def life(peer: ScriptedPeer) -> None:
        number = next(lives)
        await peer.be_discovered(capabilities={"tools": {"listChanged": True}})
        listen = await peer.receive("subscriptions/listen")
        await peer.acknowledge(listen)
        await connected.wait()
        if number == 1:
            await peer.hang_up()
        else:
            await peer.announce(listen, "notifications/tools/list_changed")

    async def on_change(change: Change) -> None:
        changes.append(change)
        changed.set()

    peer = Mortal(life)
    with anyio.fail_after(5):
        async with Client(peer, on_change=on_change):
            connected.set()
            await changed.wait()

    assert changes == [ToolListChangedNotification()]
    assert [message["method"] for message in peer.heard] == 2 * ["server/discover", "subscriptions/listen"]

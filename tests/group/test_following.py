"""A group follows its files: what they change is changed, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_host.errors import ConnectionClosed
from mcp_host.group import ClientGroup, ServerOptions
from mcp_host.group.following import NEEDS_WATCHFILES, watch_files, watcher
from mcp_host.testing import ScriptedPeer
from tests.extent import on_both
from tests.group.files import DOWN, Approver, running, written
from tests.group.support import Node, Seen, names, states

pytestmark = on_both


class Changes:
    """A *watch* that tells of a change when the test says so."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.following, self.ended = anyio.Event(), anyio.Event()
        self.tell: Callable[[], Awaitable[None]]
        """Tells of a change, and returns when the group has taken it."""

    async def __call__(self, paths: Sequence[Path], changed: Callable[[], Awaitable[None]]) -> None:
        self.paths, self.tell = [*paths], changed
        self.following.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended.set()


@asynccontextmanager
async def following(path: Path, **options: Any) -> AsyncIterator[tuple[ClientGroup, Callable[..., Any]]]:
    """An open group that follows the file at *path*, and a function that writes other servers into it."""
    changes = Changes()

    async def change(**servers: object) -> None:
        written(path, servers)
        await changes.tell()

    with anyio.fail_after(200):
        async with ClientGroup.from_file(path, watch=changes, **options, wait="all") as group:
            await changes.following.wait()
            assert changes.paths == [path]
            yield group, change


async def test_only_what_a_file_changes_is_touched_and_its_order_is_kept(project: Path) -> None:
    """What is for people only, or is not obeyed, changes no server."""
    seen = Seen()
    path = written(project / "mcp.json", {"a": running(), "b": DOWN, "c": DOWN})
    async with following(path, on_status=seen) as (group, change):
        first = dict(group.clients)
        await change(
            d={**DOWN, "args": ["-v"]}, c={**DOWN, "args": ["-v"]}, a=running(description="x", autoApprove=["echo"])
        )
        await seen.until("c", "down", times=2)
        await seen.until("d", "down")
        assert list(group.status()) == ["d", "c", "a"]
        assert group.clients["a"] is first["a"]
        assert await names(group) == ["a__drop", "a__echo"]
        assert group.warnings == ["a: autoApprove: no approval is taken from a file: your own approver decides"]

    assert seen.of("a") == ["connecting", "ready"]
    assert seen.of("b") == ["connecting", "down", "disabled"]


async def test_servers_are_enabled_and_disabled_as_the_file_says(project: Path) -> None:
    seen = Seen()
    path = written(project / "mcp.json", {"a": running(), "b": DOWN, "c": DOWN})
    async with following(path, on_status=seen) as (group, change):
        first = group.clients["a"]
        await group.disable("c")
        await change(a=running(disabled=True), b=DOWN, c=DOWN)
        await seen.until("a", "disabled")
        assert states(group) == {"a": "disabled", "b": "down", "c": "disabled"}
        await group.enable("b")
        await change(a=running(), b=DOWN, c=DOWN, d={**DOWN, "disabled": True})
        await seen.until("a", "ready", times=2)
        assert states(group) == {"a": "ready", "b": "down", "c": "disabled", "d": "disabled"}
        assert group.clients["a"] is not first
        await group.enable("d")
        await change(a=running(), b=DOWN, c=DOWN, d=DOWN)
        assert seen.of("d") == ["connecting", "down"]  # the host has been first
        await change(a=running(), b=DOWN, c={**DOWN, "disabled": True})
        await change(a=running(), b=DOWN, c=DOWN)
        await seen.until("c", "down", times=2)

    assert seen.of("b") == ["connecting", "down"]


async def test_what_the_application_has_disabled_or_removed_stays_so_when_its_entry_changes(project: Path) -> None:
    """And what it has enabled: until the file itself enables, disables or adds it."""
    seen, changed = Seen(), {**DOWN, "args": ["-v"]}
    path = written(project / "mcp.json", {"a": DOWN, "b": DOWN, "c": {**DOWN, "disabled": True}, "d": DOWN})
    async with following(path, on_status=seen) as (group, change):
        await group.disable("a")
        await group.remove("b")
        await group.enable("c")
        await group.disable("d")
        await change(a=running(), b=changed, c={**changed, "disabled": True}, d={**changed, "disabled": True})
        found = states(group)
        assert found.pop("c") != "disabled"
        assert found == {"a": "disabled", "d": "disabled"}
        await seen.until("c", "down", times=2)
        assert (await group.enable("a")).state == "ready"  # as the file has it now
        await change(a=running(), d=DOWN)
        await seen.until("d", "down", times=2)
        await change(a=running(), b=changed, d=DOWN)
        await seen.until("b", "down", times=2)

    assert seen.of("c") == ["connecting", "down", "connecting", "down", "disabled"]


SLOW = """
waiting = []
while True:
    request = read()
    if request["method"] == "tools/list":
        reply(request, {"tools": [{"name": each, "inputSchema": {"type": "object"}} for each in ("wait", "answer")]})
    elif request["method"] == "tools/call":
        waiting.append(request)
        while waiting and request["params"]["name"] == "answer":
            reply(waiting.pop(), text("done"))
"""


async def test_a_server_that_is_disabled_as_it_is_replaced_is_reported_so(project: Path) -> None:
    seen = Seen()
    path = written(project / "mcp.json", {"a": DOWN, "b": DOWN})
    async with following(path, on_status=seen) as (group, change):
        await change(a={**DOWN, "args": ["-v"], "disabled": True}, b=DOWN)
        await group.replace("b", ServerOptions(Node("x"), enabled=False))
        await seen.until("a", "disabled")
        await seen.until("b", "disabled")
        assert states(group) == {"a": "disabled", "b": "disabled"}
        assert seen.of("a") == seen.of("b") == ["connecting", "down", "disabled"]


async def test_calls_in_flight_of_a_server_that_changes_have_the_grace(
    project: Path, subtests: pytest.Subtests
) -> None:
    for way, servers, grace, outcome in (
        ("changed, no grace", {"a": DOWN}, 0.0, "ConnectionClosed"),
        ("changed", {"a": DOWN}, 200.0, "done"),
        ("removed", {}, 200.0, "done"),
        ("disabled", {"a": running(SLOW, disabled=True)}, 200.0, "done"),
    ):
        path, results, seen = written(project / "mcp.json", {"a": running(SLOW)}), list[str](), Seen()

        async def call(group: ClientGroup, results: list[str] = results) -> None:
            try:
                results.append((await group.call_tool("a__wait")).text)
            except ConnectionClosed as exc:
                results.append(type(exc).__name__)

        with subtests.test(way):
            async with following(path, grace=grace, on_status=seen) as (group, change):
                old = group.clients["a"]
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call, group)
                    await anyio.wait_all_tasks_blocked()
                    await change(**servers)
                    await anyio.wait_all_tasks_blocked()
                    assert await names(group) == []
                    if grace:
                        await old.call_tool("answer")
            assert results == [outcome]


async def test_a_projects_servers_are_asked_about_as_at_the_start(project: Path) -> None:
    """A server that goes on is not asked about, although its entry is written differently: it is when it is started again."""
    approver, seen = Approver(), Seen()
    path = written(project / ".mcp.json", {"a": running()})
    async with following(path, approve_servers=approver, on_status=seen) as (group, change):
        await change(a=running(), b=DOWN)
        await seen.until("b", "down")
        await change(a=running(), b={**DOWN, "args": ["-v"]})
        await seen.until("b", "down", times=2)
        assert [(each.name, each.previous) for each in approver.asked] == [
            ("a", None),
            ("b", None),
            ("b", "no-such-program"),
        ]
        await change(a=running(description="x"), b={**DOWN, "args": ["-v"]})
        assert (states(group), len(approver.asked)) == ({"a": "ready", "b": "down"}, 3)
        approver.refused = ("a",)
        await group.disable("a")
        assert (await group.enable("a")).state == "needs_consent"
        for entry in (running(description="y"), running(description="z")):  # what is shown is what the file has
            (shown,) = group.proposed_servers
            await change(a=entry)
            await seen.until("a", "needs_consent", times=seen.count(("a", "needs_consent")) + 1)
            assert group.proposed_servers[0].digest != shown.digest


async def test_a_file_that_cannot_be_read_leaves_everything_as_it_is(
    project: Path, subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    """An editor may be writing it, or be about to put another in its place."""
    path, changes = written(project / "mcp.json", {"a": running()}), Changes()
    group = ClientGroup.from_file(path, watch=changes, wait="all")
    with anyio.fail_after(200):
        async with group:
            await changes.following.wait()
            client = group.clients["a"]
            for name, content, reason in (
                ("gone", None, "there is no such file"),
                ("empty", "", "it is empty"),
                ("half", '{"mcpServers": {', "line 1"),
            ):
                with subtests.test(name):
                    path.unlink()
                    if content is not None:
                        path.write_text(content)
                    await changes.tell()
                    await changes.tell()
                    (warning,) = group.warnings
                    assert str(path) in warning
                    assert reason in warning
                    assert warning.endswith("all servers stay as they are")
                    assert caplog.text.count(warning) == 1
                    assert states(group) == {"a": "ready"}
                    if content is None:
                        path.write_text("")
            written(path, {"a": running(), "b": DOWN}, inputs=[7])
            await changes.tell()
            assert (group.clients["a"], list(group.status())) == (client, ["a", "b"])
            assert group.warnings == [f"{path}: inputs[0]: it has no id, and is ignored"]


async def test_servers_of_the_application_are_not_touched(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()
    path = written(project / "mcp.json", {"a": DOWN, "b": DOWN, "c": DOWN})
    async with following(path, on_status=seen) as (group, change):
        await group.add("mine", Node("x"))
        await group.replace("a", Node("x"))
        await group.remove("b")
        await change(mine=DOWN, a={**DOWN, "args": ["-v"]}, b=DOWN, c=DOWN, d=DOWN)
        await seen.until("d", "down")
        assert states(group) == {"mine": "ready", "a": "ready", "c": "down", "d": "down"}
        warning = "'mine' of a file is left out: the server 'mine' of the application is used"
        assert group.warnings == [warning, warning.replace("mine", "a")]
        assert warning in caplog.text
        await change(b={**DOWN, "args": ["-v"]}, mine=DOWN)
        assert states(group) == {"mine": "ready", "a": "ready"}
        assert group.warnings == [warning]
        await group.remove("mine")
        await change(mine={**DOWN, "args": ["-v"]})
        assert (states(group), group.warnings) == ({"a": "ready"}, [])
        await change(a=DOWN)
        await change(mine=DOWN)
        await seen.until("mine", "down")
        assert states(group) == {"mine": "down", "a": "ready"}


async def test_what_has_changed_while_the_group_was_closed_is_taken_when_it_is_opened(project: Path) -> None:
    seen = Seen()
    path = written(project / "mcp.json", {"a": DOWN})
    group = ClientGroup.from_file(path, watch=Changes(), on_status=seen, wait="all")
    with anyio.fail_after(200):
        async with group:
            assert states(group) == {"a": "down"}
        written(path, {"b": DOWN})
        async with group:
            await seen.until("b", "down")
            assert states(group) == {"b": "down"}


async def test_files_that_cannot_be_followed_any_more_cost_nothing_else(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failed = anyio.Event()

    async def fail(paths: Sequence[Path], changed: Callable[[], Awaitable[None]]) -> None:
        await changed()
        failed.set()
        raise OSError("no more watches")

    path = written(project / "mcp.json", {"a": running()})
    with anyio.fail_after(200):
        async with ClientGroup.from_file(path, watch=fail, wait="all") as group:
            await failed.wait()
            await anyio.wait_all_tasks_blocked()
            assert await names(group) == ["a__drop", "a__echo"]
            assert group.warnings == ["the files of servers are not followed any more: OSError: no more watches"]

    assert "not followed any more" in caplog.text


@pytest.mark.backends("asyncio")
async def test_so_do_files_whose_watch_awaits_what_was_cancelled(project: Path) -> None:
    """On asyncio that looks as if the group were cancelled."""

    async def fail(paths: Sequence[Path], changed: Callable[[], Awaitable[None]]) -> None:
        cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        await cancelled

    path = written(project / "mcp.json", {"a": running()})
    with anyio.fail_after(200):
        async with ClientGroup.from_file(path, watch=fail, wait="all") as group:
            assert await names(group) == ["a__drop", "a__echo"]
            assert group.warnings == [
                "the files of servers are not followed any more: McpError: watch awaited a task that was cancelled"
            ]


class SlowlyClosing(Node):
    """A server whose connection is closed when the test says so."""

    def __init__(self) -> None:
        super().__init__("x")
        self.closing, self.may_close = anyio.Event(), anyio.Event()

    async def _serve_one(self, peer: ScriptedPeer) -> None:
        try:
            await super()._serve_one(peer)
        finally:
            self.closing.set()
            with anyio.CancelScope(shield=True):
                await self.may_close.wait()


async def test_a_change_that_is_read_while_the_group_is_closed_is_taken_when_it_is_opened(project: Path) -> None:
    changes, node = Changes(), SlowlyClosing()
    path = written(project / "mcp.json", {"a": DOWN})
    with anyio.fail_after(200):
        async with anyio.create_task_group() as tasks, ClientGroup.from_file(path, watch=changes, wait="all") as group:
            await group.add("mine", node)
            await changes.following.wait()
            tasks.start_soon(group.aclose)
            await node.closing.wait()
            written(path, {"b": DOWN})
            await changes.tell()
            node.may_close.set()

        assert list(group.status()) == ["a", "mine"]
        changes.following = anyio.Event()
        async with group:
            await changes.following.wait()
            assert list(group.status()) == ["b", "mine"]


async def test_a_group_that_follows_a_file_and_is_dropped_is_closed(project: Path) -> None:
    changes = Changes()
    path = written(project / "mcp.json", {"a": DOWN})

    async def open_and_drop() -> None:
        group = ClientGroup.from_file(path, watch=changes, wait="all")
        await group.__aenter__()
        await changes.following.wait()
        del group
        gc.collect()

    with anyio.fail_after(200):
        with pytest.warns(ResourceWarning, match="a group of the servers 'a' was dropped without being closed"):
            await open_and_drop()
        await changes.ended.wait()


def test_watching_needs_watchfiles(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watcher(True) is watch_files
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(ImportError, match=r"mcp-host\[watch\]") as caught:
        ClientGroup.from_file(written(project / "mcp.json", {"a": DOWN}), watch=True)

    assert str(caught.value) == NEEDS_WATCHFILES
    with pytest.raises(ValueError, match="grace"):
        ClientGroup.from_file(project / "mcp.json", grace=-1)


async def test_editors_that_replace_a_file_or_write_it_anew_are_noticed(project: Path) -> None:
    """With watchfiles and the system's own events, of the file itself and of what a link leads to."""
    seen, other = Seen(), project.parent / "dotfiles"
    other.mkdir()
    written(other / "mcp.json", {"a": DOWN})
    (path := project / "mcp.json").symlink_to(other / "mcp.json")
    begun = anyio.Event()

    async def watch(paths: Sequence[Path], changed: Callable[[], Awaitable[None]]) -> None:
        begun.set()
        await watch_files(paths, changed)

    with anyio.fail_after(200):
        async with ClientGroup.from_file(path, watch=watch, on_status=seen, wait="all") as group:
            await begun.wait()
            await anyio.wait_all_tasks_blocked()
            for step, name in enumerate("bcdefgh"):
                if step == 1:  # another file in its place
                    os.replace(written(project / "mcp.json.new", {name: DOWN}), path)
                elif step == 2:
                    path.unlink()
                    written(path, {name: DOWN})
                elif step == 3:  # again a link, into a folder that is new
                    (folder := project.parent / "newer").mkdir()
                    written(folder / "mcp.json", {name: DOWN})
                    path.unlink()
                    path.symlink_to(project / "current/mcp.json")
                    (project / "current").symlink_to(folder)
                elif step == 5:  # a link on the way to it leads elsewhere, as for a file that is mounted
                    written(other / "mcp.json", {name: DOWN})
                    (project / "next").symlink_to(other)
                    os.replace(project / "next", project / "current")
                else:  # written in place, behind the link
                    written(path, {name: DOWN})
                await seen.until(name, "down")
            assert states(group) == {"h": "down"}

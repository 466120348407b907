"""Approval of our own tool calls in a real (pseudo-)terminal: what the person sees, and what each key decides."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, fail_after, get_cancelled_exc_class, wait_all_tasks_blocked

from mcp_host import Allow, Client, Deny, ask_in_terminal
from mcp_host.errors import CallDenied
from mcp_host.middleware import ClientRequest, approve_tool_calls
from mcp_host.terminal import device
from mcp_host.testing import Server
from mcp_host.types import Tool
from tests.extent import on_both
from tests.terminal.screens import Screen

LISTED = "May your client call it? [y/s/v/N] "
NOT_LISTED = "May your client call it? [y/v/N] "
REFUSED = Deny("the user refused it")
ADD: dict[str, Any] = {
    "name": "add",
    "description": "Adds two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "number", "description": "The first."}, "b": {"type": "number", "default": 1}},
        "required": ["a"],
    },
}


def call(tool: dict[str, Any] | None = ADD, /, *, server: str = "calculator", **params: object) -> ClientRequest:
    found = None if tool is None else Tool.from_wire(tool)
    return ClientRequest(
        "tools/call", {"name": "add", "arguments": {}, **params}, server=server, find_tool=lambda name: found
    )


async def decision(screen: Screen, *keys: str, asked: ClientRequest) -> Allow | Deny:
    """Ask, press *keys* at each question, and return the decision."""
    question = NOT_LISTED if asked.tool is None else LISTED
    return await screen.outcome(partial(ask_in_terminal, asked), question, *keys)


@pytest.mark.parametrize(
    ("keys", "decided"),
    [
        ("y\n", Allow()),
        ("YES\n", Allow()),
        ("s\n", Allow("session")),
        ("n\n", REFUSED),
        ("\n", REFUSED),
        ("\x04", REFUSED),
    ],
    ids=["y", "YES", "s", "n", "Enter", "Ctrl-D"],
)
async def test_a_key_allows_or_denies_a_call(keys: str, decided: Allow | Deny, screen: Screen) -> None:
    assert await decision(screen, keys, asked=call()) == decided


@pytest.mark.parametrize("columns", [80, 40])
async def test_the_person_sees_the_server_the_tool_and_the_arguments(columns: int, screen: Screen) -> None:
    screen.resize(columns)
    asked = call(arguments={"a": 1.5, "note": "two\nlines", "deep": {"list": [1, None]}})

    assert await decision(screen, "y\n", asked=asked) == Allow()

    tool = ["  | add(a: number, b: number = 1): Adds two numbers."]
    if columns == 40:
        tool = ["  | add(a: number, b: number = 1): Adds", "  |     two numbers."]
    assert screen.rows == [
        "",
        "Your client wants to call a tool of",
        "  | calculator",
        "tool, as the server lists it",
        *tool,
        "  |     a: The first.",
        "arguments",
        '  | "a": 1.5',
        '  | "note": "two\\nlines"',
        '  | "deep": {"list":[1,null]}',
        "",
        "y: yes, this call",
        "s: yes, this tool for the session",
        "v: view the whole call",
        "A changed tool is asked about again.",
        f"{LISTED}y",
    ]


@pytest.mark.parametrize(
    ("arguments", "row"),
    [({}, "{}"), (None, "null"), ([1], "[1]"), ({"a": ...}, '"a": Ellipsis')],
    ids=["none", "null", "a list", "no JSON"],
)
async def test_a_tool_that_is_not_listed_is_shown_by_its_name_and_allowed_for_one_call_only(
    arguments: object, row: str, screen: Screen
) -> None:
    """The second key is no answer here."""
    assert await decision(screen, "s\n", "y\n", asked=call(None, arguments=arguments)) == Allow()

    assert screen.rows == [
        "",
        "Your client wants to call a tool of",
        "  | calculator",
        "tool, not listed",
        "  | add",
        "arguments",
        f"  | {row}",
        "",
        "y: yes, this call",
        "v: view the whole call",
        "Each call of this tool is asked about.",
        f"{NOT_LISTED}s",
        "Press one of y/v/n and Enter. Enter alone means n.",
        f"{NOT_LISTED}y",
    ]


async def test_three_typos_deny_the_call(screen: Screen) -> None:
    """ "a" is a key of other questions."""
    assert await decision(screen, "a\n", "all\n", "yep\n", asked=call()) == REFUSED
    assert screen.rows[-1] == "There was no clear answer, so nothing is allowed or sent."


async def test_v_shows_the_arguments_that_were_cut(screen: Screen) -> None:
    """A long argument does not hide the next."""
    asked = call(arguments={"text": "word " * 2000, **{f"n{number}": number for number in range(100)}})

    assert await decision(screen, "v\n", "y\n", asked=asked) == Allow()

    first, whole = "\n".join(screen.rows).split(f"{LISTED}v\n")
    assert '  | "n0": 0\n' in first
    assert '"n99": 99' not in first
    assert first.count("word") < 200 < 2000 == whole.count("word")
    assert '  | "n99": 99\n' in whole


FAKE = f"{LISTED.strip()}y"
EVIL = f"\x1b[2J\x1b[1;1H\r\n{FAKE}\n\u202e{'x' * 500} \x9b1m{FAKE}"


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not listed"])
async def test_no_name_description_or_argument_looks_like_our_question(
    listed: bool, columns: int, screen: Screen
) -> None:
    screen.resize(columns)
    schema = {"type": "object", "properties": {EVIL: {"type": EVIL, "description": EVIL, "default": EVIL}}}
    tool = {"name": EVIL, "description": EVIL * 20, "inputSchema": schema} if listed else None
    arguments = {EVIL: EVIL, "deep": {EVIL: [EVIL]}, "broken": "\ud800" + EVIL}
    asked = call(tool, name=EVIL, server=EVIL, arguments=arguments)

    assert await decision(screen, "v\n", "n\n", asked=asked) == REFUSED

    keys = ["y: yes, this call", "s: yes, this tool for the session", "v: view the whole call"]
    after = "A changed tool is asked about again." if listed else "Each call of this tool is asked about."
    page = [
        "Your client wants to call a tool of",
        "tool, as the server lists it" if listed else "tool, not listed",
        "arguments",
    ]
    legend = ["", *(keys if listed else [keys[0], keys[2]]), after]
    question = LISTED if listed else NOT_LISTED
    ours = [row for row in screen.rows if not row.startswith("  |")]
    assert ours == ["", *page, *legend, f"{question}v", *page, *legend, f"{question}n"]


@on_both
async def test_a_question_that_is_cancelled_is_withdrawn(screen: Screen) -> None:
    ended: list[str] = []

    async def ask() -> None:
        try:
            await ask_in_terminal(call())
        except get_cancelled_exc_class():
            ended.append("cancelled")
            raise

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask)
            await screen.shows(LISTED)
            tasks.cancel_scope.cancel()

    assert ended == ["cancelled"]
    assert "(the question was withdrawn)" in screen.rest()


# Through a client


server = Server("calculator")


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def remove(path: str) -> str:
    """Remove a file."""
    return f"{path} is gone"


@on_both
async def test_a_tool_allowed_for_the_session_is_not_asked_about_again(screen: Screen) -> None:
    results: list[str] = []

    async def use() -> None:
        async with Client(server, middleware=[approve_tool_calls(ask_in_terminal)]) as client:
            await client.list_tools()
            for b in range(3):
                results.append((await client.call_tool("add", {"a": 1, "b": b})).text)
            try:
                await client.call_tool("remove", {"path": "/etc"})
            except CallDenied as exc:
                results.append(str(exc))

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(use)
            await screen.shows(LISTED)
            screen.press("s\n")
            assert '  | "path": "/etc"\r\n' in await screen.shows(LISTED)
            screen.press("\n")

    assert results == ["1", "2", "3", "the call of 'remove' was denied: the user refused it"]


@on_both
async def test_a_question_about_a_tool_that_another_answer_allows_is_not_asked(screen: Screen) -> None:
    """Models call a tool several times at once. Another tool still has its question."""
    results: list[str] = []

    async def use(client: Client, name: str, arguments: Mapping[str, object]) -> None:
        results.append((await client.call_tool(name, arguments)).text)

    with fail_after(25):
        async with (
            Client(server, middleware=[approve_tool_calls(ask_in_terminal)]) as client,
            create_task_group() as tasks,
        ):
            await client.list_tools()
            for b in range(3):
                tasks.start_soon(use, client, "add", {"a": 1, "b": b})
            await screen.shows(LISTED)
            tasks.start_soon(use, client, "remove", {"path": "/etc"})
            await wait_all_tasks_blocked()
            screen.press("s\n")
            assert '  | "path": "/etc"\r\n' in await screen.shows(LISTED)
            screen.press("y\n")

    assert sorted(results) == ["/etc is gone", "1", "2", "3"]
    assert "calculator" not in screen.rest()


async def test_without_a_terminal_a_call_is_denied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device, "terminal_path", lambda: str(tmp_path / "nothing"))

    with fail_after(25):
        async with Client(server, middleware=[approve_tool_calls(ask_in_terminal)]) as client:
            with pytest.raises(CallDenied) as caught:
                await client.call_tool("add", {"a": 1, "b": 2})

    assert caught.value.reason == "this client has no terminal to ask its user in"

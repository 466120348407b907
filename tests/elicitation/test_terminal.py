"""Forms and URLs in a real (pseudo-)terminal: what the person sees, and what the server gets."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked, wait_readable

from mcp_host import (
    Allow,
    Deny,
    Elicitation,
    FormRequest,
    OuterCall,
    ask_in_terminal,
    fill_in_terminal,
    open_in_browser,
)
from mcp_host.elicitation.terminal import FormDialog
from mcp_host.terminal import device
from mcp_host.terminal.device import open_terminal
from mcp_host.types import ElicitRequestFormParams, ElicitResult
from tests.elicitation.asking import SEND, filled_in, form
from tests.extent import on_both
from tests.sampling.asking import request
from tests.terminal.screens import Screen

NAME = {"type": "string", "title": "Name", "description": "How we call you.", "minLength": 2}
NIGHTS = {"type": "integer", "minimum": 1, "maximum": 14, "default": 2}
ROOM = {
    "type": "string",
    "title": "Room",
    "oneOf": [{"const": "s", "title": "Single"}, {"const": "d", "title": "Double"}],
}
CALL = OuterCall("tools/call", "book", 7, call_id=1)


async def test_a_form_is_asked_field_by_field_and_shown_before_it_is_sent(screen: Screen) -> None:
    params = form("name", name=NAME, nights=NIGHTS, room=ROOM)

    result = await filled_in(screen, params, "A", "Ann", "", "double", "y", outer=CALL)

    assert result == ElicitResult(action="accept", content={"name": "Ann", "nights": 2, "room": "d"})
    assert screen.rows == [
        "",
        "A server asks you to fill in a form, and gets what you enter",
        "  | shop",
        "while it works on",
        "  | tools/call book",
        "message",
        "  | Who are you?",
        "",
        "3 fields. Enter takes a default, or leaves out what is optional.",
        "Type no passwords or keys: a server must not ask for them here.",
        "Commands: /back /skip /view /decline /cancel",
        "",
        "1 of 3: text, at least 2 characters",
        "  | Name",
        "  | How we call you.",
        "> A",
        "This does not fit the form:",
        "  | shorter than 2 characters",
        "> Ann",
        "",
        "2 of 3, optional: a whole number, 1 to 14",
        "  | nights",
        "Enter takes",
        "  | 2",
        ">",
        "",
        "3 of 3, optional: one of these",
        "  | Room",
        "  |   1  Single",
        "  |   2  Double",
        "> double",
        "",
        "Your answers",
        "  | 1  Name: Ann",
        "  | 2  nights: 2",
        "  | 3  Room: Double",
        "go to",
        "  | shop",
        "",
        "y: send",
        "e: edit all, or press the number of one",
        "v: view what was cut",
        "n: decline: you refuse to answer",
        "c: cancel: you do not decide now",
        f"{SEND}y",
    ]


@pytest.mark.parametrize(
    ("keys", "action"),
    [
        (["/decline"], "decline"),
        (["/cancel"], "cancel"),
        (["\x04"], "cancel"),
        (["Ann", "n"], "decline"),
        (["Ann", "c"], "cancel"),
        (["Ann", "\x04"], "cancel"),
        (["Ann", "what?", "", "yep"], "cancel"),
    ],
    ids=["/decline", "/cancel", "Ctrl-D", "n in the end", "c in the end", "Ctrl-D in the end", "three typos"],
)
async def test_to_decline_is_not_to_cancel_and_nothing_is_sent(keys: list[str], action: str, screen: Screen) -> None:
    assert (await filled_in(screen, form("name", name=NAME), *keys)).to_wire() == {"action": action}


async def content(screen: Screen, params: dict[str, Any], *keys: str) -> object:
    """What the server gets."""
    return (await filled_in(screen, params, *keys)).to_wire().get("content")


OPTIONAL = {"type": "string", "default": "none"}

CORRECTIONS: dict[str, tuple[dict[str, Any], list[str], object]] = {
    "Enter takes the default": ({"a": OPTIONAL}, ["", "y"], {"a": "none"}),
    "a default is skipped": ({"a": OPTIONAL}, ["/skip", "y"], {}),
    "spaces around": ({"a": OPTIONAL}, ["  some  ", "y"], {"a": "some"}),
    "Enter leaves out": ({"a": {"type": "string"}}, ["", "y"], {}),
    "edited": ({"a": {"type": "string"}}, ["", "e", "x", "y"], {"a": "x"}),
    "edited and skipped": ({"a": {"type": "string"}}, ["x", "e", "/skip", "y"], {}),
    "Enter leaves out what was skipped": ({"a": OPTIONAL}, ["/skip", "e", "", "y"], {}),
    "Enter keeps the answer": ({"a": OPTIONAL}, ["x", "1", "", "y"], {"a": "x"}),
    "back from the summary": ({"a": OPTIONAL}, ["x", "/back", "z", "y"], {"a": "z"}),
    "back and view in the first field": ({"a": OPTIONAL}, ["/back", "/view", "x", "y"], {"a": "x"}),
    "a default that does not fit": ({"a": {"type": "integer", "default": "many"}}, ["", "y"], {}),
    "another value than that": ({"a": {"type": "integer", "default": "many"}}, ["3", "y"], {"a": 3}),
    "no as the default": ({"a": {"type": "boolean", "default": False}}, ["", "y"], {"a": False}),
    "zero as the default": ({"a": {"type": "number", "default": 0}}, ["", "y"], {"a": 0}),
    "a pattern": ({"a": {"type": "string", "pattern": "^[a-z]+$"}}, ["A1", "abc", "y"], {"a": "abc"}),
    "a pattern that cannot be checked": ({"a": {"type": "string", "pattern": "(?<=x)y"}}, ["abc", "y"], {"a": "abc"}),
    "a reference to nothing": ({"a": {"$ref": "#/$defs/x"}}, ["abc", "y"], {"a": "abc"}),
    "no fields": ({}, ["y"], {}),
    "back and forth": ({"a": OPTIONAL, "b": OPTIONAL}, ["1", "/back", "2", "3", "y"], {"a": "2", "b": "3"}),
    "the second is edited": ({"a": OPTIONAL, "b": OPTIONAL}, ["1", "2", "2", "3", "YES"], {"a": "1", "b": "3"}),
    "the first is edited": ({"a": OPTIONAL, "b": OPTIONAL}, ["1", "2", "1", "4", "y"], {"a": "4", "b": "2"}),
    "back while one is edited": (
        {"a": OPTIONAL, "b": OPTIONAL},
        ["1", "2", "2", "/back", "5", "", "y"],
        {"a": "5", "b": "2"},
    ),
    "a number of no field": ({"a": OPTIONAL}, ["1", "2", "y"], {"a": "1"}),
}


@pytest.mark.parametrize(("fields", "keys", "sent"), CORRECTIONS.values(), ids=CORRECTIONS)
async def test_answers_can_be_corrected_before_they_are_sent(
    fields: dict[str, Any], keys: list[str], sent: object, screen: Screen
) -> None:
    assert await content(screen, form(**fields), *keys) == sent


async def test_a_required_field_cannot_be_left_out(screen: Screen) -> None:
    params = form("a", "b", a={"type": "string"}, b={"type": "array", "items": {"type": "string"}})

    assert await content(screen, params, "", "/skip", "x", "", "y") == {"a": "x", "b": []}

    assert "This field is required. /decline and /cancel leave the form." in screen.rows
    assert "This field is required." in screen.rows


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("caf\ufffd", "This came in an encoding other than UTF-8."),
        ("ab\x1b[D", "This has a control character, such as that of an arrow key."),
        ("x" * 5000, "This is too long for one line of the terminal, which has cut it."),
    ],
    ids=["another encoding", "an arrow key", "too long"],
)
async def test_a_line_that_did_not_arrive_as_it_was_typed_is_asked_for_again(
    typed: str, told: str, screen: Screen
) -> None:
    assert await content(screen, form(a={"type": "string"}), typed, "abc", "y") == {"a": "abc"}
    assert told in screen.rows


async def test_a_rule_about_several_fields_is_explained_and_the_answers_can_be_edited(screen: Screen) -> None:
    params = form(a={"type": "string"}, b={"type": "string"})
    params["requestedSchema"]["minProperties"] = 2

    assert await content(screen, params, "x", "", "y", "2", "z", "y") == {"a": "x", "b": "z"}

    at = screen.rows.index("This does not fit the form:")
    assert screen.rows[at + 1] == "  | not what the server asked for: an object of 1 members does not have enough"


@on_both
@pytest.mark.adjustable_clock
async def test_a_paste_answers_one_field(screen: Screen) -> None:
    results: list[ElicitResult] = []
    params = ElicitRequestFormParams.from_wire(form(a={"type": "string"}, b={"type": "string"}))

    async def ask() -> None:
        async with open_terminal(quiet=1000) as terminal:
            results.append(await FormDialog(FormRequest("shop", params), terminal).run())

    async with create_task_group() as tasks:
        tasks.start_soon(ask)
        for prompt, keys in (("\n> ", "one\ntwo\nthree"), ("\n> ", "typed\n"), (SEND, "y\n")):
            await screen.asks_after_paste(prompt, 1000)
            screen.press(keys)

    assert results == [ElicitResult(action="accept", content={"a": "one", "b": "typed"})]


@on_both
async def test_a_form_that_is_withdrawn_leaves_no_reader_behind(screen: Screen) -> None:
    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(filled_in, screen, form(a=NAME))
            await screen.asks("> ")
            tasks.cancel_scope.cancel()
        await screen.shows("(the question was withdrawn)")
        screen.press("for the host itself\n")
        with os.fdopen(os.open(screen.path, os.O_RDONLY | os.O_NOCTTY), "rb", buffering=0) as host:
            await wait_readable(host)
            assert host.read(100) == b"for the host itself\n"


async def test_without_a_terminal_a_form_and_a_url_are_cancelled_with_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device, "terminal_path", lambda: str(tmp_path / "nothing"))
    elicitation = Elicitation(form=fill_in_terminal, url=open_in_browser)

    results = [await elicitation.answer(params, server="shop") for params in (form(a=NAME), URL)]

    assert results == [ElicitResult(action="cancel")] * 2
    line = "elicitation for shop is cancelled: this client has no terminal to ask its user in"
    assert caplog.messages == [line] * 2


@on_both
async def test_two_servers_ask_one_after_the_other(screen: Screen) -> None:
    """A form is one conversation: the question for the model waits until it has ended."""
    approved: list[Allow | Deny] = []
    results: list[ElicitResult] = []

    async def approve() -> None:
        approved.append(await ask_in_terminal(request(server="second")))

    async def ask() -> None:
        results.append(await Elicitation(form=fill_in_terminal).answer(form(a=NAME, b=NAME), server="first"))

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask)
            await wait_all_tasks_blocked()
            tasks.start_soon(approve)
            for key in ["y y", "y y", "y"]:
                assert "second" not in await screen.asks("> ", SEND)
                screen.press(f"{key}\n")
            assert "| second\r\n" in await screen.asks("May your model answer? [y/s/v/N] ")
            screen.press("n\n")

    assert results == [ElicitResult(action="accept", content={"a": "y y", "b": "y y"})]
    assert approved == [Deny()]


EVIL = f"\x1b[2J\x1b[1;1H\r\n{SEND}y\n\u202e{'x' * 300} \x9b1m> "


@pytest.mark.parametrize("columns", [80, 40])
async def test_no_text_of_a_server_looks_like_ours(columns: int, screen: Screen) -> None:
    screen.resize(columns)
    text = {"type": "string", "title": EVIL, "description": EVIL * 50, "default": EVIL}
    choice = {"oneOf": [{"const": f"{EVIL}{n}", "title": f"{EVIL}{n}"} for n in range(30)], "description": EVIL}
    params = form(message=EVIL * 20, **{EVIL: text, f"{EVIL}2": choice})

    result = await filled_in(
        screen, params, "/view", "x", "", "n", server=EVIL, outer=OuterCall(EVIL, EVIL, 1, call_id=1)
    )

    assert result == ElicitResult(action="decline")
    ours = " ".join(row for row in screen.rows if not row.startswith("  |"))
    assert " ".join(ours.split()) == (
        "A server asks you to fill in a form, and gets what you enter while it works on message"
        " 2 fields. Enter takes a default, or leaves out what is optional."
        " Type no passwords or keys: a server must not ask for them here."
        " Commands: /back /skip /view /decline /cancel"
        " 1 of 2, optional: text Enter takes > /view"
        " A server asks you to fill in a form, and gets what you enter while it works on message"
        " 1 of 2, optional: text Enter takes > x"
        " 2 of 2, optional: one of these >"
        " Your answers go to y: send e: edit all, or press the number of one v: view what was cut"
        " n: decline: you refuse to answer c: cancel: you do not decide now"
        f" {SEND}n"
    )


async def test_many_choices_are_cut_until_they_are_viewed(screen: Screen) -> None:
    colors = [f"color {n}" for n in range(1, 101)]

    assert await content(screen, form(a={"enum": colors}), "/view", "100", "y") == {"a": "color 100"}

    shown = [row for row in screen.rows if "color" in row or "more" in row]
    assert shown == [
        *(f"  |   {n}  color {n}" for n in range(1, 21)),
        "  | ... and 80 more: /view shows them",
        *(f"  |   {n}  color {n}" for n in range(1, 101)),
        "  | 1  a: color 100",
    ]


LONG = "\n".join([f"line {n}" for n in range(1, 51)])


async def test_choices_that_are_numbers_are_side_by_side(screen: Screen) -> None:
    square = {"type": "string", "enum": [str(number) for number in range(1, 24)]}

    result = await filled_in(screen, form("square", square=square), "/view", "21", "y")

    assert result == ElicitResult(action="accept", content={"square": "21"})
    assert screen.rows[5:13] == [
        "",
        "1 field.",
        "Type no passwords or keys: a server must not ask for them here.",
        "Commands: /back /skip /view /decline /cancel",
        "",
        "1 of 1: one of these",
        "  | square",
        "  |   1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20",
    ]
    assert screen.rows[13:15] == ["  | ... and 3 more: /view shows them", "> /view"]
    assert "  |   1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21," in screen.rows
    assert "  |   22, 23" in screen.rows


async def test_a_long_message_is_cut_until_it_is_viewed(screen: Screen) -> None:
    params = form(message=LONG, a={"type": "string"})

    assert await content(screen, params, "/view", "x", "v", "y") == {"a": "x"}

    assert [screen.rows.count(f"  | {line}") for line in ("line 12", "line 13", "line 50")] == [3, 2, 2]
    assert screen.rows.count("  | ... and 38 more lines") == 1


async def test_a_form_without_fields_only_asks_to_accept(screen: Screen) -> None:
    assert await filled_in(screen, form(), "e", "y") == ElicitResult(action="accept", content={})

    at = screen.rows.index("There is nothing to fill in. Do you accept?")
    assert screen.rows[at + 1 : at + 4] == ["", "y: accept", "v: view what was cut"]


async def test_wide_and_combining_characters_fit_the_rows(screen: Screen) -> None:
    screen.resize(40)
    accented = "e\u0301"
    title, description = "\u540d\u524d" * 12, " ".join([accented * 30, accented * 9])

    params = form(a={"type": "string", "title": title, "description": description})
    assert await content(screen, params, "\u6f22\u5b57", "y") == {"a": "\u6f22\u5b57"}

    at = screen.rows.index("1 of 1, optional: text")
    rows = [row.replace(" ", "") for row in screen.rows[at + 1 : at + 6]]  # the emulator has a space after a wide one
    assert rows == [
        *("|" + "\u540d\u524d" * 9, "|" + "\u540d\u524d" * 3),
        *("|" + "\u00e9" * 30, "|" + "\u00e9" * 9),
        ">\u6f22\u5b57",
    ]


async def test_corrections_and_defaults_have_colors(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(filled_in, screen, form(a={"type": "boolean", "title": "Sure", "default": True}))
            shown = await screen.shows("\x1b[1m> \x1b[0m")
            screen.press("maybe\n")
            told = await screen.shows("\x1b[1m> \x1b[0m")
            tasks.cancel_scope.cancel()

    assert shown.endswith(
        "\x1b[36m1 of 1, optional: yes or no\x1b[0m\r\n\x1b[2m  | \x1b[0m\x1b[1mSure\x1b[0m\r\n"
        "\x1b[36mEnter takes\x1b[0m\r\n\x1b[2m  | \x1b[0myes\r\n"
    )
    assert told == "maybe\r\n\x1b[33mEnter y for yes or n for no.\x1b[0m\r\n"


URL = {"mode": "url", "message": "Please sign in.", "url": "https://bank.example@Id.example:8443/go?x=1"}
OPEN = "Open it? [y/m/v/N] "


class Browser:
    """Keeps what it opens, if it *works*."""

    def __init__(self, works: object = True) -> None:
        self.opened: list[str] = []
        self._works = works

    def __call__(self, url: str) -> bool:
        self.opened.append(url)
        if isinstance(self._works, Exception):
            raise self._works
        return self._works is True


async def visited(screen: Screen, browser: Browser, params: dict[str, Any], *keys: str) -> ElicitResult:
    results: list[ElicitResult] = []
    handler = partial(open_in_browser, opener=browser)

    async def ask() -> None:
        results.append(await Elicitation(url=handler).answer(params, CALL, server="shop"))

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask)
            for key in keys:
                await screen.asks(OPEN)
                assert browser.opened == []
                screen.press(key)
    screen.rest()
    (result,) = results
    return result


@on_both
async def test_a_url_is_opened_after_a_yes(screen: Screen) -> None:
    browser = Browser()

    assert await visited(screen, browser, URL, "y\n") == ElicitResult(action="accept")

    assert browser.opened == [URL["url"]]
    assert screen.rows == [
        "",
        "A server asks you to visit a page in your browser",
        "  | shop",
        "while it works on",
        "  | tools/call book",
        "message",
        "  | Please sign in.",
        "host",
        "  | id.example",
        "whole URL",
        "  | https://bank.example@Id.example:8443/go?x=1",
        "",
        "y: open it in the browser",
        "m: I open it myself",
        "v: view the whole message",
        "n: decline",
        f"{OPEN}y",
    ]


@pytest.mark.parametrize(
    ("keys", "action"),
    [
        (["n\n"], "decline"),
        (["\n"], "decline"),
        (["yep\n", "No\n"], "decline"),
        (["\x04"], "cancel"),
        (["yep\n"] * 3, "cancel"),
    ],
    ids=["n", "Enter", "no after a typo", "Ctrl-D", "three typos"],
)
async def test_a_url_is_not_opened_without_a_yes(keys: list[str], action: str, screen: Screen) -> None:
    browser = Browser()

    assert (await visited(screen, browser, URL, *keys)).to_wire() == {"action": action}
    assert browser.opened == []


@pytest.mark.parametrize(
    ("key", "works"),
    [("m\n", True), ("y\n", False), ("y\n", OSError("no browser"))],
    ids=["wanted", "no browser", "an error"],
)
async def test_a_url_to_open_oneself_is_shown_after_a_blank_margin_to_copy(
    key: str, works: object, screen: Screen
) -> None:
    assert await visited(screen, Browser(works), URL, key) == ElicitResult(action="accept")
    assert screen.rows[-2:] == ["Open this in your browser:", f"  {URL['url']}"]


async def test_the_message_of_a_url_is_cut_until_it_is_viewed(screen: Screen) -> None:
    assert await visited(screen, Browser(), {**URL, "message": LONG}, "v\n", "n\n") == ElicitResult(action="decline")
    assert [screen.rows.count(f"  | {line}") for line in ("line 12", "line 13")] == [2, 1]


async def test_a_host_with_letters_of_other_alphabets_is_pointed_out(screen: Screen) -> None:
    await visited(screen, Browser(), {**URL, "url": "https://xn--pple-43d.example/"}, "n\n")

    at = screen.rows.index("host")
    assert screen.rows[at + 1 : at + 3] == [
        "  | xn--pple-43d.example",
        "This host has letters that may look like others: is it the one that you know?",
    ]

"""Forms and URLs in a real (pseudo-)terminal: what the person sees, and what the server gets."""

from __future__ import annotations

import pytest

from mcp_host import OuterCall
from mcp_host.types import ElicitResult
from tests.elicitation.asking import SEND, filled_in, form
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
        "y: send them",
        "e: edit all, or press the number of one",
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

"""A person in a pseudo-terminal answers what server-everything asks: its form with every kind of field, and its page."""

from __future__ import annotations

import json
from functools import partial

import pytest
from anyio import create_task_group, fail_after

from mcp_host import Client, Elicitation, fill_in_terminal, open_in_browser
from tests.interop.heard import texts
from tests.interop.processes import AnyTransport
from tests.terminal.screens import Screen

IN_TIME = 30.0  # seconds for a test; each takes a few at most when the machine is idle
FIELD, SEND, OPEN = "> ", "Send this? [y/e/v/n/c] ", "Open it? [y/m/v/N] "


async def answered(everything: AnyTransport, screen: Screen, tool: str, *keys: str) -> list[str]:
    """Call *tool*, answer each question with the next of *keys*, and return the texts of the result."""
    opened: list[str] = []

    def browser(url: str) -> bool:
        opened.append(url)
        return True

    elicitation = Elicitation(form=fill_in_terminal, url=partial(open_in_browser, opener=browser))
    results: list[str] = []

    async def call() -> None:
        async with Client(everything, elicitation=elicitation) as client:
            url = {"url": "https://example.org/consent", "elicitationId": "visit-1"}
            results.extend(texts(await client.call_tool(tool, url if "url" in tool else None)))

    with fail_after(IN_TIME):
        async with create_task_group() as tasks:
            tasks.start_soon(call)
            for key in keys:
                await screen.asks(FIELD, SEND, OPEN)
                screen.press(f"{key}\n")
    screen.rest()
    return [*results, *opened]


def raw_result(shown: list[str]) -> object:
    """What the server says that it got."""
    raw = shown[-1]
    return json.loads(raw[raw.index("{") :])


async def test_a_person_fills_in_every_kind_of_field(everything: AnyTransport, screen: Screen) -> None:
    shown = await answered(
        everything,
        screen,
        "trigger-elicitation-request",
        *("", "Ada Lovelace"),  # required
        "y",
        "",  # the default
        *("ada", "ada@example.org"),  # an e-mail address
        *("example.org", "https://example.org/ada"),
        *("10 December", "1815-12-10"),
        *("101", "7.5", "7"),  # a whole number, at most 100
        "0.5",
        *("Emily", "ross"),
        *("1,2,3,4", "2, drums"),  # one to three
        *("/back", "", "Wonder Woman"),
        "3",
        "dogs",
        "y",
    )

    assert raw_result(shown) == {
        "action": "accept",
        "content": {
            "name": "Ada Lovelace",
            "check": True,
            "firstLine": "It was a dark and stormy night.",
            "email": "ada@example.org",
            "homepage": "https://example.org/ada",
            "birthdate": "1815-12-10",
            "integer": 7,
            "number": 0.5,
            "untitledSingleSelectEnum": "Ross",
            "untitledMultipleSelectEnum": ["Piano", "Drums"],
            "titledSingleSelectEnum": "hero-3",
            "titledMultipleSelectEnum": ["fish-3"],
            "legacyTitledEnum": "pet-2",
        },
    }


async def test_a_person_skips_everything_optional(everything: AnyTransport, screen: Screen) -> None:
    keys = ["Ada", *["/skip"] * 12, "y"]

    shown = await answered(everything, screen, "trigger-elicitation-request", *keys)

    assert raw_result(shown) == {"action": "accept", "content": {"name": "Ada"}}


@pytest.mark.parametrize(
    ("keys", "action"), [(["/decline"], "decline"), (["Ada", "/cancel"], "cancel")], ids=["decline", "cancel"]
)
async def test_a_person_leaves_the_form(keys: list[str], action: str, everything: AnyTransport, screen: Screen) -> None:
    shown = await answered(everything, screen, "trigger-elicitation-request", *keys)

    assert raw_result(shown) == {"action": action}


async def test_a_page_is_opened_after_a_yes(everything: AnyTransport, screen: Screen) -> None:
    *shown, opened = await answered(everything, screen, "trigger-url-elicitation", "y")

    assert shown[0].startswith("✅ User completed the URL elicitation flow.")
    assert opened == "https://example.org/consent"
    assert "  | example.org" in screen.rows


async def test_a_page_is_not_opened_after_a_no(everything: AnyTransport, screen: Screen) -> None:
    shown = await answered(everything, screen, "trigger-url-elicitation", "n")

    assert "https://example.org/consent" not in shown
    assert raw_result(shown) == {"action": "decline"}

"""What a person sees of a request: enough to decide, and no terminal escapes."""

from __future__ import annotations

import unicodedata

import pytest

from mcp_host.sampling import OuterCall
from mcp_host.sampling.display import describe
from tests.sampling.asking import ADD, assistant, request, result, text, use, user


def test_a_request_is_shown_from_the_asking_server_to_the_last_message() -> None:
    asked = request(
        user(text("What is 1+2?"), {"type": "image", "data": "AAAA", "mimeType": "image/png"}),
        assistant(text("I will add."), use("1", a=1, b=2)),
        user(
            result(
                "1",
                text("3"),
                {"type": "resource_link", "name": "log", "uri": "file:///log"},
                {"type": "resource", "resource": {"uri": "file:///sum", "text": "three\nin words"}},
                {"type": "resource", "resource": {"uri": "file:///image", "blob": "AAAA"}},
            )
        ),
        assistant(use("2")),
        user(result("2", text("overflow"), isError=True)),
        systemPrompt="Be brief.\nBe right.",
        tools=[{**ADD, "description": "Adds two numbers."}, {**ADD, "name": "multiply"}],
        toolChoice={"mode": "required"},
        outer=OuterCall("tools/call", "research", 7, call_id=1),
    )

    assert describe(asked) == (
        "A server asks for your model, to answer\n"
        "in up to 100 tokens\n"
        "  | calculator\n"
        "while it works on\n"
        "  | tools/call research\n"
        "system prompt\n"
        "  | Be brief.\n"
        "  | Be right.\n"
        "tools, run by the server (2; required)\n"
        "  | add: Adds two numbers.\n"
        "  | multiply\n"
        "user\n"
        "  | What is 1+2?\n"
        "  | [image/png, 4 characters of base64]\n"
        "assistant\n"
        "  | I will add.\n"
        '  | calls add {"a":1,"b":2}\n'
        "user\n"
        "  | result of a tool:\n"
        "  | 3\n"
        "  | [link to file:///log]\n"
        "  | three\n"
        "  | in words\n"
        "  | [contents of file:///image, 4 characters of base64]\n"
        "assistant\n"
        "  | calls add {}\n"
        "user\n"
        "  | error of a tool:\n"
        "  | overflow"
    )


@pytest.mark.parametrize(
    ("outer", "shown"),
    [
        (
            OuterCall("tools/call", "add", 1, call_id=1, inferred=True),
            "probably while it works on\n  | tools/call add\n",
        ),
        (OuterCall("prompts/list", None, 1, call_id=1), "while it works on\n  | prompts/list\n"),
        (None, ""),
    ],
    ids=["inferred", "a call without a name", "unknown"],
)
def test_the_call_that_caused_the_request_is_shown_if_it_is_known(outer: OuterCall | None, shown: str) -> None:
    assert describe(request(outer=outer)) == (
        f"A server asks for your model, to answer\nin up to 100 tokens\n  | calculator\n{shown}user\n  | hello"
    )


NASTY = "\x1b[2J\x1b]0;title\x07\r\b\x9b1m\u202e\u2066\u200b\u2028\x00\ud800"


def test_no_control_character_reaches_the_terminal() -> None:
    asked = request(
        user(text(NASTY), {"type": "audio", "data": "", "mimeType": NASTY}),
        assistant(use(NASTY, NASTY, **{NASTY[:-1]: NASTY[:-1]})),
        user(
            result(
                NASTY,
                text(NASTY),
                {"type": "resource_link", "name": NASTY, "uri": NASTY},
                {"type": "resource", "resource": {"uri": NASTY, "blob": ""}},
            )
        ),
        server=NASTY,
        outer=OuterCall(NASTY, NASTY, NASTY, call_id=NASTY),
        systemPrompt=NASTY,
        tools=[{"name": NASTY, "description": NASTY, "inputSchema": {}}],
    )

    shown = describe(asked)

    assert {char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} == {"\n"}
    assert "\\x1b[2J" in shown


def test_a_server_cannot_forge_a_line_of_the_question() -> None:
    """Neither by a line break nor by a line long enough to be wrapped: each row keeps the margin."""
    fake = "May your model answer this? [y/a/s/N] y"

    shown = describe(request(user(text(f"\n{fake}\n{' ' * 95}{fake}")), systemPrompt="x" * 200), columns=100)

    assert all(len(line) <= 100 for line in shown.split("\n"))
    assert [line for line in shown.split("\n") if line.startswith(fake)] == []


def test_no_line_is_wider_than_the_narrowest_terminal() -> None:
    asked = request(
        *[user(text("hello"))] * 262,
        maxTokens=2**53 - 1,
        tools=[{**ADD, "name": f"tool{number}"} for number in range(999)],
        toolChoice={"mode": "required"},
        systemPrompt="x" * 100,
        outer=OuterCall("resources/templates/list", "x" * 50, 7, call_id=1, inferred=True),
    )

    lines = describe(asked, columns=40).splitlines()

    assert lines[:3] == [
        "A server asks for your model, to answer",
        "in up to 9007199254740991 tokens",
        "  | calculator",
    ]
    assert [line for line in lines if len(line) > 40] == []


def test_wide_characters_count_for_two_columns() -> None:
    shown = describe(request(user(text("漢" * 40))), columns=44)

    assert shown.split("\n")[-2:] == ["  | " + "漢" * 20] * 2


def test_a_tiny_terminal_is_treated_as_a_narrow_one() -> None:
    assert describe(request(user(text("x" * 37))), columns=3).endswith(f"user\n  | {'x' * 36}\n  | x")


def test_long_texts_are_cut_and_the_rest_is_counted() -> None:
    shown = describe(request(user(text("\n".join(str(n) for n in range(1, 101)))), systemPrompt="x" * 10_000))

    lines = shown.split("\n")
    assert lines[4:18] == ["  | " + "x" * 76] * 12 + ["  | ... and 42 more", "user"]
    assert lines[-2:] == ["  | 12", "  | ... and 88 more"]


def test_a_text_of_4000_characters_is_shown_whole() -> None:
    assert describe(request(user(text("x" * 4000))), columns=5000).endswith("user\n  | " + "x" * 4000)
    assert describe(request(user(text("x" * 4001))), columns=5000).endswith("x" * 4000 + "\n  | ... of 4001 characters")


def test_a_longer_text_is_cut_and_its_length_is_shown() -> None:
    shown = describe(request(user(text("\n" * 3 + "x" * 5000))), columns=2000)

    assert shown.endswith("  | ... of 5003 characters")


def test_no_earlier_messages_are_counted_if_all_are_shown() -> None:
    said = [user(text(f"message {n}")) for n in range(7)]

    assert "earlier" not in describe(request(*said[:6]))
    assert describe(request(*said)).split("\n")[3:5] == ["(1 earlier message)", "user"]


def test_only_the_last_messages_and_the_first_tools_are_shown() -> None:
    tools = [{**ADD, "name": f"tool_{n}"} for n in range(20)]

    shown = describe(request(*[user(text(f"message {n}")) for n in range(10)], tools=tools))

    assert "tools, run by the server (20; auto)" in shown
    assert "  | tool_15\n  | ... and 4 more\n(4 earlier messages)\nuser\n  | message 4\n" in shown
    assert shown.endswith("message 9")


def test_a_tool_that_is_required_by_name_is_shown() -> None:
    tools = [ADD, {**ADD, "name": "multiply"}]

    shown = describe(request(tools=tools, toolChoice={"type": "tool", "name": "multiply"}))

    assert shown.split("\n")[3:8] == [
        "tools, run by the server (2; required)",
        "  | add",
        "  | multiply",
        "the model has to call",
        "  | multiply",
    ]

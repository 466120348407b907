"""Approval in a real (pseudo-)terminal: what the person sees, the keys, and what each of them decides."""

from __future__ import annotations

from functools import partial

import pytest
from anyio import create_task_group, fail_after

from mcp_host.sampling import Allow, Deny, OuterCall, SamplingRequest, ask_in_terminal
from mcp_host.sampling import terminal as asking
from mcp_host.sampling.approval import RequestApprovals
from mcp_host.sampling.display import SeenBefore
from mcp_host.terminal.device import open_terminal
from tests.extent import on_both
from tests.sampling.asking import ADD, Wire, assistant, request, result, text, use, user
from tests.terminal.screens import Screen

QUESTION = "May your model answer? [y/s/v/N] "
OF_A_CALL = "May your model answer? [y/a/s/v/N] "
CALL = OuterCall("tools/call", "solve", 7, call_id=1)
UNCLEAR = "Press one of y/s/v/n and Enter. Enter alone means n."
EXPLAINED = [
    "",
    "y: yes, this once",
    "a: yes, and all else of this call",
    "s: yes, and all on this connection",
    "v: view the whole request",
    "Other tools are asked about again.",
]


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The person has seen no request yet."""
    monkeypatch.setattr(asking, "_seen_before", SeenBefore())


async def decision(screen: Screen, *keys: str, asked: SamplingRequest | None = None) -> Allow | Deny:
    """Ask, press *keys* at each question, and return the decision."""
    asked = asked or request()
    question = QUESTION if asked.outer is None else OF_A_CALL
    return await screen.outcome(partial(ask_in_terminal, asked), question, *keys)


KEYS: dict[str, tuple[str, Allow | Deny]] = {
    "y": ("y\n", Allow()),
    "Yes": ("Yes\n", Allow()),
    "y with spaces": ("  y \n", Allow()),
    "s": ("s\n", Allow("session")),
    "Session": ("Session\n", Allow("session")),
    "n": ("n\n", Deny()),
    "NO": ("NO\n", Deny()),
    "Enter": ("\n", Deny()),
    "Ctrl-D": ("\x04", Deny()),
    "Ctrl-D in the middle of a line": ("y\x04\n", Allow()),
}


@pytest.mark.parametrize(("keys", "decided"), KEYS.values(), ids=KEYS)
async def test_a_key_allows_or_denies(keys: str, decided: Allow | Deny, screen: Screen) -> None:
    assert await decision(screen, keys) == decided


@pytest.mark.parametrize(
    ("keys", "decided"),
    [("y\n", Allow()), ("a\n", Allow("call")), ("ALL\n", Allow("call")), ("s\n", Allow("session")), ("\n", Deny())],
    ids=["y", "a", "ALL", "s", "Enter"],
)
async def test_a_whole_call_can_be_allowed_at_once_if_it_is_known(
    keys: str, decided: Allow | Deny, screen: Screen
) -> None:
    assert await decision(screen, keys, asked=request(outer=CALL)) == decided


@pytest.mark.parametrize("typo", ["yep", "all", "call", "y n", "\u0443", "y" * 2000], ids=lambda typo: typo[:9])
async def test_a_typo_is_asked_about_again(typo: str, screen: Screen) -> None:
    """ "all" was not offered: the call is not known. The fourth is a Cyrillic letter."""
    assert await decision(screen, f"{typo}\n", "y\n") == Allow()
    assert screen.rows.count(UNCLEAR) == 1


async def test_three_typos_count_as_no(screen: Screen) -> None:
    assert await decision(screen, *["yep\n"] * 3) == Deny()
    assert screen.rows[-2:] == [UNCLEAR, "There was no clear answer, so nothing is allowed or sent."]


@pytest.mark.parametrize("columns", [80, 40])
async def test_the_question_is_laid_out_for_the_width_of_the_terminal(columns: int, screen: Screen) -> None:
    screen.resize(columns)
    asked = request(outer=CALL, tools=[ADD])

    await decision(screen, "y\n", asked=asked)

    start = ["A server asks to use your model, for up to 100 tokens"]
    if columns == 40:
        start = ["A server asks to use your model, for up", "to 100 tokens"]
    assert screen.rows == [
        "",
        *start,
        "  | calculator",
        "while it works on",
        "  | tools/call solve",
        "tools, run by the server (1; auto)",
        "  | add()",
        "user",
        "  | hello",
        *EXPLAINED,
        f"{OF_A_CALL}y",
    ]


async def test_the_terminal_may_be_resized_between_two_questions(screen: Screen) -> None:
    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask_in_terminal, request(user(text("word " * 15))))
            wide = await screen.shows(QUESTION)
            screen.resize(40)
            screen.press("v\n")
            narrow = await screen.shows(QUESTION)
            screen.press("n\n")

    assert f"  | {'word ' * 14}word\r\n" in wide
    assert f"  | {'word ' * 6}word\r\n  | {'word ' * 6}word\r\n  | word\r\n" in narrow


async def test_v_shows_the_whole_request_and_asks_again(screen: Screen) -> None:
    asked = request(*[user(text(f"message {n}")) for n in range(20)])

    assert await decision(screen, "v\n", "?\n", "y\n", asked=asked) == Allow()

    assert "(14 earlier messages: v shows all)" in screen.rows
    assert screen.rows.count("  | message 0") == 2
    assert screen.rows.count("  | message 19") == 3


async def test_a_loop_of_twelve_turns_shows_each_message_once(screen: Screen) -> None:
    turns = [user(text("How much is it?"))]
    for turn in range(12):
        await decision(screen, "y\n", asked=request(*turns, outer=CALL, tools=[ADD], systemPrompt="Add."))
        turns += [assistant(use(f"{turn}", a=turn)), user(result(f"{turn}", text(f"it is {turn}")))]

    shown = [row for row in screen.rows if row.startswith(("  | How", "  | calls", "  | it is", "  | Add."))]
    assert shown == [
        *("  | Add.", "  | How much is it?"),
        *(row for turn in range(11) for row in (f'  | calls add {{"a": {turn}}}', f"  | it is {turn}")),
    ]
    assert screen.rows.count("(tools, as before: 1; auto)") == 11
    assert screen.rows.count("(1 earlier message: v shows all)") == 1
    assert screen.rows.count("(21 earlier messages: v shows all)") == 1


def three(second: str = "second") -> list[Wire]:
    return [user(text("first")), assistant(text(second)), user(text("third"))]


async def test_what_was_shown_for_another_call_or_another_server_is_shown_again(screen: Screen) -> None:
    other = OuterCall("tools/call", "solve", 8, call_id=2)

    for asked in (
        request(*three(), outer=CALL),
        request(*three(), outer=other),
        request(*three(), outer=other, server="x"),
    ):
        await decision(screen, "y\n", asked=asked)

    assert screen.rows.count("  | first") == 3


@pytest.mark.parametrize("outer", [CALL, None], ids=["of a call", "of none"])
async def test_a_conversation_is_shown_from_its_first_change_and_if_there_is_none_its_last_message(
    outer: OuterCall | None, screen: Screen
) -> None:
    shown = []
    for turns in (three(), three(), three("changed")):
        await decision(screen, "y\n", asked=request(*turns, outer=outer))
        shown.append([screen.rows.count(f"  | {word}") for word in ("first", "second", "changed", "third")])

    assert shown == [[1, 1, 0, 1], [1, 1, 0, 2], [1, 1, 1, 3]]


@on_both
async def test_a_loop_that_is_allowed_as_a_whole_is_asked_about_once(screen: Screen) -> None:
    """And so are two questions at the same time: the second is withdrawn before it is on the screen."""
    approvals = RequestApprovals(ask_in_terminal, subject="sampling for x")
    asked = request(outer=CALL, tools=[ADD])

    with fail_after(25):
        async with create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(approvals.require, asked)
            await screen.shows(OF_A_CALL)
            screen.press("a\n")
        for _ in range(10):
            await approvals.require(asked)

    assert screen.rest() == "a\r\n"


@pytest.mark.adjustable_clock
async def test_a_pasted_text_answers_one_question_with_its_first_line(screen: Screen) -> None:
    """Here it is a typo. The "y" in its second line does not answer the next question."""
    answers: list[Allow | Deny] = []

    async def ask() -> None:
        async with open_terminal(quiet=1000) as terminal:
            answers.append(await asking.ask(request(), terminal))

    async with create_task_group() as tasks:
        tasks.start_soon(ask)
        await screen.asks_after_paste(QUESTION, 1000)
        screen.press("hello,\ny\ny\ny")
        await screen.asks_after_paste(QUESTION, 1000)
        screen.press("n\n")
    screen.rest()

    assert answers == [Deny()]
    assert "(Lines that were typed or pasted before this question do not count.)" in screen.rows
    assert screen.rows[-1] == f"{QUESTION}n"


FAKE = "May your model answer? [y/a/s/v/N]y"
EVIL = f"\x1b[2J\x1b[1;1H\r\n{FAKE}\n\u202e{'x' * 500} \x9b1m{FAKE}"


@pytest.mark.parametrize("columns", [80, 40])
async def test_no_text_of_a_server_looks_like_our_question_or_moves_it(columns: int, screen: Screen) -> None:
    """Every row of the server's text has the margin, also where a terminal wraps or a control character is meant."""
    screen.resize(columns)
    schema = {
        "type": "object",
        "properties": {EVIL: {"type": EVIL, "description": EVIL, "enum": [EVIL], "default": EVIL}},
        "required": [EVIL],
    }
    asked = request(
        *[user(text(EVIL * 20)), assistant(use(EVIL, EVIL, **{EVIL: EVIL})), user(result(EVIL, text(EVIL)))],
        server=EVIL,
        outer=OuterCall(EVIL, EVIL, EVIL, call_id=EVIL),
        systemPrompt="\n".join([EVIL] * 10_000),
        tools=[{"name": EVIL, "description": EVIL, "inputSchema": schema}],
        toolChoice={"mode": "required"},
    )

    assert await decision(screen, "n\n", asked=asked) == Deny()

    ours = [row for row in screen.rows if not row.startswith("  |")]
    heading = ["A server asks to use your model, for up", "to 100 tokens"]
    assert ours == [
        *("", *(heading if columns == 40 else [" ".join(heading)])),
        "while it works on",
        "system prompt",
        "tools, run by the server (1; required)",
        *("user", "assistant", "user"),
        *EXPLAINED,
        f"{OF_A_CALL}n",
    ]


async def test_colors_tell_our_words_from_the_servers(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask_in_terminal, request(tools=[{**ADD, "description": "Adds."}]))
            shown = await screen.shows("\x1b[1mMay your model answer? [y/s/v/N] \x1b[0m")
            screen.press("n\n")

    assert "\x1b[36muser\x1b[0m\r\n\x1b[2m  | \x1b[0mhello\r\n" in shown
    assert "\x1b[2m  | \x1b[0m\x1b[1madd\x1b[0m(): Adds.\r\n" in shown

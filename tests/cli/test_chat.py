"""`mcp-host chat` in a real terminal: a child process, Anthropic's SDK, and a local server of Anthropic's API."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after, open_process, sleep_forever, to_thread
from anyio.abc import Process
from pydantic import BaseModel

from mcp_host.cli.chat import next_line
from mcp_host.testing import Context, Server
from tests.elicitation.asking import FIELD, SEND
from tests.providers.conftest import Serve
from tests.providers.scripted import Called, Failed, Said, Stalled
from tests.providers.servers.anthropic import AnthropicServer
from tests.terminal.screens import Screen

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")

IN_TIME = 60.0  # seconds for processes that import everything, on a busy machine
ROOT = Path(__file__).parents[2]
MODEL = "claude-sonnet-5"
PROMPT, TOOL, ANSWER = "> ", "May your client call it? [y/s/v/N] ", "May your model answer? [y/a/s/v/N] "
CLEAR = "\x1b[2J"  # clears a terminal
CTRL_C = "\x03"
PYTHON = Path(sys.executable).name
LOGIN = "import os, sys; os.login_tty(0); from mcp_host.cli import main; sys.exit(main(sys.argv[1:]))"
"""The command, in a session whose terminal is its stdin: Ctrl-C is sent to it."""

server = Server("desk")


class Order(BaseModel):
    size: int


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def order(context: Context) -> str:
    answer = await context.elicit("Which size?", Order)
    return f"ordered: {answer.content and answer.content['size']}"


@server.tool
async def opinion(context: Context) -> str:
    return (await context.sample("What do you think?", max_tokens=50)).text


def mark(path: str) -> None:
    Path(path).touch()


@server.tool
async def hang(context: Context, path: str) -> None:
    """Say so, and never return. If it is cancelled, there is a file at *path*."""
    await context.log("info", "hanging")
    try:
        await sleep_forever()
    finally:
        mark(path)


@server.tool
def die() -> str:
    os._exit(3)


@pytest.fixture
def anyio_backend() -> str:
    """That of the test. The command runs on asyncio in any case."""
    return "asyncio"


def command_of(*argv: str) -> list[str]:
    target = ["--", sys.executable, "-c", "from tests.cli.test_chat import server; server.run_stdio()"]
    return ["chat", "--model", f"anthropic:{MODEL}", *argv, "-e", f"PYTHONPATH={ROOT}", *target]


def environment_of(api: AnthropicServer, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "TERM": "dumb",  # readline writes no escapes there
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": api.key,
        **more,
    }


@asynccontextmanager
async def chatting(screen: Screen, api: AnthropicServer, *argv: str) -> AsyncIterator[Process]:
    """The command on *screen*, when it has asked for the first prompt."""
    end = os.open(screen.path, os.O_RDWR | os.O_NOCTTY)
    try:
        command = [sys.executable, "-c", LOGIN, *command_of(*argv)]
        with fail_after(IN_TIME):
            async with await open_process(
                command, stdin=end, stdout=end, stderr=end, cwd=ROOT, env=environment_of(api)
            ) as process:
                await screen.asks(PROMPT)
                yield process
                screen.press("\x04")  # Ctrl-D
                assert await process.wait() == 0
    finally:
        os.close(end)


def conversation(body: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """Roles and texts, calls and results of a request."""
    return [(message["role"], list(map(_block, message["content"]))) for message in body["messages"]]


def _block(block: dict[str, Any]) -> object:
    match block["type"]:
        case "text":
            return block["text"]
        case "tool_use":
            return block["name"], block["input"]
        case "tool_result":
            return [part["text"] for part in block["content"]]
    return block


async def test_an_answer_streams_and_a_call_is_approved_and_shown(screen: Screen, serve: Serve) -> None:
    api = serve(
        AnthropicServer, Said(text="Let me see.", calls=[Called("add", {"a": 1, "b": 2})]), Said(text="It is 3.")
    )

    async with chatting(screen, api, "--system", "Be brief.", "--max-tokens", "99"):
        screen.press("What is 1 + 2?\n")
        await screen.asks(TOOL)
        screen.press("y\n")
        await screen.asks(PROMPT)

    assert screen.rows == [
        "anthropic:claude-sonnet-5, with the tools of 'desk'. Ctrl-C stops an answer.",
        "/clear forgets the conversation. /quit and Ctrl-D end it.",
        "> What is 1 + 2?",
        "    Let me see.",
        '    calls         add {"a": 1, "b": 2}',
        "",
        "Your client wants to call a tool of",
        f"  | {PYTHON}",
        "tool, as the server lists it",
        "  | add(a: integer, b: integer)",
        "arguments",
        '  | "a": 1',
        '  | "b": 2',
        "",
        "y: yes, this call",
        "s: yes, this tool for the session",
        "v: view the whole call",
        "A changed tool is asked about again.",
        f"{TOOL}y",
        "    result        add: 3",
        "    It is 3.",
        "(22 tokens in, 14 out)",
        "",
        ">",
    ]
    assert (api.last["system"], api.last["max_tokens"], api.last["stream"]) == ("Be brief.", 99, True)
    assert conversation(api.last) == [
        ("user", ["What is 1 + 2?"]),
        ("assistant", ["Let me see.", ("add", {"a": 1, "b": 2})]),
        ("user", [["3"]]),
    ]


async def test_the_next_turn_has_the_conversation_and_what_was_allowed_for_the_session(
    screen: Screen, serve: Serve
) -> None:
    adds = Said(calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, adds, Said(text="3"), adds, Said(text="3 again"), Said(text="What conversation?"))

    async with chatting(screen, api):
        screen.press("Add.\n")
        await screen.asks(TOOL)
        screen.press("s\n")
        await screen.asks(PROMPT)
        screen.press("Again.\n")
        await screen.asks(PROMPT)

        call = ("assistant", [("add", {"a": 1, "b": 2})])
        first = [("user", ["Add."]), call, ("user", [["3"]]), ("assistant", ["3"])]
        assert conversation(api.last) == [*first, ("user", ["Again."]), call, ("user", [["3"]])]

        screen.press("/clear\n")
        await screen.asks(PROMPT)
        screen.press("Where were we?\n")
        await screen.asks(PROMPT)

    assert conversation(api.last) == [("user", ["Where were we?"])]


async def test_a_call_that_the_person_refuses_is_a_result_for_the_model(screen: Screen, serve: Serve) -> None:
    api = serve(AnthropicServer, Said(calls=[Called("add", {"a": 1, "b": 2})]), Said(text="As you like."))

    async with chatting(screen, api):
        screen.press("Add.\n")
        await screen.asks(TOOL)
        screen.press("\n")
        await screen.asks(PROMPT)

    assert screen.rows[-6:-4] == [TOOL.strip(), "    error         add: This call was denied: the user refused it"]
    assert conversation(api.last)[-1] == ("user", [["This call was denied: the user refused it"]])


async def test_ctrl_c_in_the_middle_of_an_answer_stops_the_turn_and_keeps_what_was_said(
    screen: Screen, serve: Serve
) -> None:
    api = serve(AnthropicServer, Stalled(said=Said(text="Once upon a time there was a very long story."), events=6))

    async with chatting(screen, api):
        screen.press("Tell me a story.\n")
        await screen.shows("    Once")
        screen.press(CTRL_C)
        await screen.asks(PROMPT)
        assert await to_thread.run_sync(api.unfinished.wait, 10.0)

        api.say(Said(text="Sure."))
        screen.press("Shorter, please.\n")
        await screen.asks(PROMPT)

    story, answer, reply = conversation(api.last)
    assert story == ("user", ["Tell me a story."])
    assert answer[0] == "assistant"
    (said,) = answer[1]
    assert said.startswith("Once")
    assert said.endswith("\n(The user stopped this answer.)")
    assert reply == ("user", ["Shorter, please."])
    assert "Stopped." in screen.rows


async def test_ctrl_c_in_the_middle_of_a_call_stops_the_turn_and_the_conversation_stays_balanced(
    screen: Screen, serve: Serve, tmp_path: Path
) -> None:
    cancelled = tmp_path / "cancelled"
    api = serve(AnthropicServer, Said(text="Wait.", calls=[Called("hang", {"path": str(cancelled)})]))

    async with chatting(screen, api, "--yes", "--verbose"):
        screen.press("Hang.\n")
        await screen.shows("info: hanging")
        screen.press(CTRL_C)
        await screen.asks(PROMPT)

        api.say(Said(calls=[Called("add", {"a": 1, "b": 2})]), Said(text="3"))
        screen.press("Add.\n")
        await screen.asks(PROMPT)
        assert cancelled.exists()

    assert conversation(api.last) == [
        ("user", ["Hang."]),
        ("assistant", ["Wait.\n(The user stopped this answer. It called hang, which may have run.)"]),
        ("user", ["Add."]),
        ("assistant", [("add", {"a": 1, "b": 2})]),
        ("user", [["3"]]),
    ]


async def test_ctrl_c_at_a_question_stops_the_turn_and_nothing_is_called(screen: Screen, serve: Serve) -> None:
    api = serve(AnthropicServer, Said(calls=[Called("add", {"a": 1, "b": 2})]))

    async with chatting(screen, api):
        screen.press("Add.\n")
        await screen.asks(TOOL)
        screen.press(CTRL_C)
        await screen.asks(PROMPT)

    assert screen.rows[-5:] == [f"{TOOL}^C", "(the question was withdrawn)", "Stopped.", "", ">"]
    assert len(api.heard) == 1


async def test_ctrl_c_at_the_prompt_drops_the_line(screen: Screen, serve: Serve) -> None:
    api = serve(AnthropicServer, Said(text="Yes."))

    async with chatting(screen, api):
        screen.press("Never min")
        await screen.shows("Never min")
        screen.press(f"{CTRL_C}\n")  # Python may miss a signal between two reads: then the next key tells it
        await screen.shows("Ctrl-C again or Ctrl-D ends the conversation.")
        screen.press("Hello?\n")
        await screen.shows("    Yes.")
        await screen.asks(PROMPT)

    assert [conversation(heard.body) for heard in api.heard] == [[("user", ["Hello?"])]]


@pytest.mark.parametrize(
    ("keys", "lines", "hints"),
    [
        (["a", "b"], ["a", "b"], 0),
        (["a", EOFError], ["a", None], 0),
        ([KeyboardInterrupt, "a", KeyboardInterrupt, "b"], ["a", "b"], 2),
        ([KeyboardInterrupt, KeyboardInterrupt], [None], 1),
        ([KeyboardInterrupt, EOFError], [None], 1),
    ],
    ids=["lines", "Ctrl-D", "Ctrl-C and a line", "Ctrl-C twice", "Ctrl-C and Ctrl-D"],
)
def test_ctrl_c_twice_or_ctrl_d_at_the_prompt_is_the_end(
    keys: list[str | type[BaseException]],
    lines: list[str | None],
    hints: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed = iter(keys)

    def read(prompt: str) -> str:
        key = next(typed)
        if isinstance(key, str):
            return key
        raise key

    assert [next_line(read) for _ in lines] == lines
    assert capsys.readouterr().err.count("Ctrl-C again or Ctrl-D ends the conversation.") == hints


async def test_quit_ends_the_conversation(screen: Screen, serve: Serve) -> None:
    async with chatting(screen, serve(AnthropicServer)) as process:
        screen.press("/quit\n")
        assert await process.wait() == 0


async def test_a_failure_of_the_provider_is_a_line_and_the_turn_is_forgotten(screen: Screen, serve: Serve) -> None:
    api = serve(AnthropicServer, Failed(status=400), Said(text="Better."))

    async with chatting(screen, api):
        screen.press("One.\n")
        await screen.asks(PROMPT)
        screen.press("Two.\n")
        await screen.asks(PROMPT)

    (failure,) = [row for row in screen.rows if row.startswith("mcp-host: ")]
    assert "anthropic" in failure
    assert conversation(api.last) == [("user", ["Two."])]


async def test_a_server_that_dies_in_a_call_is_restarted_and_the_conversation_goes_on(
    screen: Screen, serve: Serve
) -> None:
    adds = Said(calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, Said(calls=[Called("die")]), Said(text="It is dead."), adds, Said(text="3"))

    async with chatting(screen, api, "--yes"):
        screen.press("Die.\n")
        await screen.asks(PROMPT)
        screen.press("Add.\n")
        await screen.asks(PROMPT)

    assert "    error         die: the tool die failed: its server is not available" in screen.rows
    assert "    result        add: 3" in screen.rows
    assert conversation(api.last)[-1] == ("user", [["3"]])


async def test_a_form_and_a_request_for_the_model_are_asked_about_within_the_call(screen: Screen, serve: Serve) -> None:
    calls = [Said(calls=[Called("order")]), Said(calls=[Called("opinion")])]
    api = serve(AnthropicServer, *calls, Said(text="I think not."), Said(text="Done."))

    async with chatting(screen, api):
        screen.press("Order, and think.\n")
        for question, key in ((TOOL, "y"), (FIELD, "7"), (SEND, "y"), (TOOL, "y")):
            await screen.asks(question)
            screen.press(f"{key}\n")
        shown = await screen.asks(ANSWER)
        assert "  | What do you think?" in shown
        screen.press("y\n")
        await screen.asks(PROMPT)

    assert [row for row in screen.rows if row.startswith("    ")] == [
        "    calls         order {}",
        "    result        order: ordered: 7",
        "    calls         opinion {}",
        "    model         asked by desk",
        "    result        opinion: I think not.",
        "    Done.",
    ]


@pytest.mark.parametrize("hostile", [f"a{CLEAR}b", "a\x9b2Jb", "a\rb"], ids=["CSI", "C1", "a return"])
async def test_what_the_model_says_cannot_control_the_terminal(hostile: str, screen: Screen, serve: Serve) -> None:
    api = serve(AnthropicServer, Said(text=hostile))

    async with chatting(screen, api):
        screen.press("Clear.\n")
        shown = await screen.asks(PROMPT)

    assert hostile not in shown
    assert f"    {hostile.encode('unicode_escape').decode()}" in screen.rows


# Without a terminal


def piped(api: AnthropicServer, prompt: str, *argv: str, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mcp_host", *command_of(*argv)],
        input=prompt,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment_of(api, **environment),
        timeout=IN_TIME,
        check=False,
        start_new_session=True,
    )
    return done.returncode, done.stdout, done.stderr


CALLS = '    calls         add {"a": 1, "b": 2}\n'


def test_stdin_that_is_no_terminal_is_one_prompt_and_stdout_is_the_answer(serve: Serve) -> None:
    adds = Said(text="I add.", calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, adds, Said(text=f"It is\n3{CLEAR}."))

    done = piped(api, "Add one\nand two.\n", "--yes")

    assert done == (0, "I add.\nIt is\n3\\x1b[2J.\n", f"{CALLS}    result        add: 3\n(22 tokens in, 14 out)\n")
    assert conversation(api.heard[0].body) == [("user", ["Add one\nand two."])]


def test_without_a_terminal_calls_are_denied_and_the_flag_that_allows_them_is_named(serve: Serve) -> None:
    api = serve(AnthropicServer, Said(calls=[Called("add", {"a": 1, "b": 2})]), Said(text="I cannot."))

    code, out, err = piped(api, "Add.")

    assert (code, out) == (0, "I cannot.\n")
    assert err == (
        f"{CALLS}mcp-host: the call of 'add' is denied, because there is no terminal to ask in; --yes allows it\n"
        "    error         add: This call was denied: this client has no terminal to ask\n"
        "                  its user in\n"
        "(22 tokens in, 14 out)\n"
    )


def test_a_failure_of_the_provider_is_the_exit_code(serve: Serve) -> None:
    code, out, err = piped(serve(AnthropicServer, Failed(status=400)), "Hello.")

    assert (code, out) == (9, "")
    assert err.startswith("mcp-host: anthropic")
    assert err.count("\n") == 1


def test_an_empty_stdin_is_an_error_of_usage(serve: Serve) -> None:
    done = piped(serve(AnthropicServer), " \n")

    assert done == (2, "", "mcp-host: stdin is empty; it is the prompt if it is no terminal\n")

"""`mcp-host chat` in a real terminal: a child process, Anthropic's SDK, and a local server of Anthropic's API."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from anyio.abc import Process

from mcp_host.cli.chat import next_line
from tests.cli.terminals import IN_TIME, ROOT, running
from tests.elicitation.asking import FIELD, SEND
from tests.providers.conftest import Serve
from tests.providers.scripted import Called, Failed, Said, Stalled
from tests.providers.servers.anthropic import AnthropicServer
from tests.providers.servers.openai_chat import OpenAIChatServer
from tests.terminal.screens import Screen

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")

MODEL = "claude-sonnet-5"
PROMPT, TOOL, ANSWER = "> ", "May your client call it? [y/s/v/N] ", "May your model answer? [y/a/s/v/N] "
CLEAR = "\x1b[2J"  # clears a terminal
CTRL_C = "\x03"
PYTHON = Path(sys.executable).name
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY")
WITHOUT_KEYS = {name: value for name, value in os.environ.items() if name not in KEYS}


def command_of(*argv: str, verb: str = "chat", model: str = f"anthropic:{MODEL}") -> list[str]:
    target = ["--", sys.executable, "-c", "from tests.cli.desk import server; server.run_stdio()"]
    return [verb, "--model", model, *argv, "-e", f"PYTHONPATH={ROOT}", *target]


def environment_of(api: AnthropicServer) -> dict[str, str]:
    return {
        **WITHOUT_KEYS,
        "TERM": "dumb",  # readline writes no escapes there
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": api.key,
    }


@asynccontextmanager
async def chatting(screen: Screen, api: AnthropicServer, *argv: str) -> AsyncIterator[Process]:
    """The command `chat`, when it has asked for the first prompt."""
    async with running(screen, *command_of(*argv), environment=environment_of(api)) as process:
        await screen.asks(PROMPT)
        yield process
        screen.press("\x04")  # Ctrl-D
        assert await process.wait() == 0


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
    screen: Screen, serve: Serve
) -> None:
    api = serve(AnthropicServer, Said(text="Wait.", calls=[Called("hang", {})]))

    async with chatting(screen, api, "--yes", "--verbose"):
        screen.press("Hang.\n")
        await screen.shows("info: hanging")
        screen.press(CTRL_C)
        await screen.asks(PROMPT)

        api.say(Said(calls=[Called("until_hang_ends", {})]), Said(text="It has ended."))
        screen.press("Has it ended?\n")
        await screen.asks(PROMPT)

    assert conversation(api.last) == [
        ("user", ["Hang."]),
        ("assistant", ["Wait.\n(The user stopped this answer. It called hang, which may have run.)"]),
        ("user", ["Has it ended?"]),
        ("assistant", [("until_hang_ends", {})]),
        ("user", [["cancelled"]]),
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


async def test_stdout_that_is_no_terminal_has_the_answers_alone(screen: Screen, serve: Serve) -> None:
    """The prompt is on the terminal nonetheless."""
    api = serve(AnthropicServer, Said(text="Yes."))

    async with running(screen, *command_of(), environment=environment_of(api), stdout=subprocess.PIPE) as process:
        await screen.asks(PROMPT)
        screen.press("Hello?\n")
        await screen.asks(PROMPT)
        screen.press("\x04")
        assert process.stdout is not None
        answers = [piece async for piece in process.stdout]

    assert b"".join(answers) == b"Yes.\n"


async def test_quit_ends_the_conversation(screen: Screen, serve: Serve) -> None:
    async with chatting(screen, serve(AnthropicServer)) as process:
        screen.press("/quit\n")
        assert await process.wait() == 0


async def test_an_unknown_command_shows_those_that_there_are_and_asks_no_model(screen: Screen, serve: Serve) -> None:
    api = serve(AnthropicServer)

    async with chatting(screen, api):
        screen.press("/help\n")
        shown = await screen.asks(PROMPT)
        screen.press("/Quit\n")
        await screen.asks(PROMPT)

    assert "/clear forgets the conversation. /quit and Ctrl-D end it." in " ".join(shown.split())
    assert api.heard == []


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


async def test_what_was_done_before_a_failure_stays_in_the_conversation(screen: Screen, serve: Serve) -> None:
    adds = Said(calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, adds, Failed(status=400), Said(text="3, as I wanted to say."))

    async with chatting(screen, api, "--yes"):
        screen.press("Add.\n")
        await screen.asks(PROMPT)
        screen.press("Well?\n")
        await screen.asks(PROMPT)

    assert conversation(api.last) == [
        ("user", ["Add."]),
        ("assistant", [("add", {"a": 1, "b": 2})]),
        ("user", [["3"]]),
        ("assistant", ["(This answer failed.)"]),
        ("user", ["Well?"]),
    ]


@pytest.mark.parametrize(
    ("said", "note"),
    [
        (Said(text="Half", stop="max_tokens"), "The answer is cut off: it has as many tokens as --max-tokens allows."),
        (Said(text="No.", stop="refusal"), "The model refused to answer."),
        (Said(), "The model gave no answer."),
    ],
    ids=["cut off", "a refusal", "nothing"],
)
def test_an_answer_that_is_none_has_a_note_and_is_no_success(said: Said, note: str, serve: Serve) -> None:
    code, out, err = piped(command_of(), "Tell me.", environment_of(serve(AnthropicServer, said)))

    assert (code, out) == (9, f"{said.text}\n" if said.text else "")
    assert err == f"{note}\n(11 tokens in, 7 out)\n"


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


def piped(command: Sequence[str], prompt: str, environment: Mapping[str, str]) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mcp_host", *command],
        input=prompt,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=IN_TIME,
        check=False,
        start_new_session=True,
    )
    return done.returncode, done.stdout, done.stderr


CALLS = '    calls         add {"a": 1, "b": 2}\n'


def test_stdin_that_is_no_terminal_is_one_prompt_and_stdout_is_the_answer(serve: Serve) -> None:
    adds = Said(text="I add.", calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, adds, Said(text=f"It is\n3{CLEAR}."))

    done = piped(command_of("--yes"), "Add one\nand two.\n", environment_of(api))

    assert done == (0, "I add.\nIt is\n3\\x1b[2J.\n", f"{CALLS}    result        add: 3\n(22 tokens in, 14 out)\n")
    assert conversation(api.heard[0].body) == [("user", ["Add one\nand two."])]


def test_without_a_terminal_a_denied_call_ends_the_turn_and_the_flag_that_allows_it_is_named(serve: Serve) -> None:
    """The model is not asked again: a script would take its excuse for the answer."""
    adds = Said(text="I add.", calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, adds, Said(text="I cannot."))

    done = piped(command_of(), "Add.", environment_of(api))

    denied = "the call of 'add' is denied, because there is no terminal to ask in; --yes allows it"
    assert done == (7, "I add.\n", f"{CALLS}mcp-host: {denied}\n")
    assert len(api.heard) == 1


def test_a_failure_of_the_provider_is_the_exit_code(serve: Serve) -> None:
    code, out, err = piped(command_of(), "Hello.", environment_of(serve(AnthropicServer, Failed(status=400))))

    assert (code, out) == (9, "")
    assert err.startswith("mcp-host: anthropic")
    assert err.count("\n") == 1


def test_an_empty_stdin_is_an_error_of_usage(serve: Serve) -> None:
    done = piped(command_of(), " \n", environment_of(serve(AnthropicServer)))

    assert done == (2, "", "mcp-host: stdin is empty; it is the prompt if it is no terminal\n")


# Other commands, and other providers


@pytest.mark.parametrize(
    ("key", "code", "says"),
    [("y", 0, "I think not."), ("n", 7, "mcp-host: tools/call: the server asks for")],
    ids=["yes", "no"],
)
async def test_a_model_of_a_provider_answers_a_server_after_a_yes(
    key: str, code: int, says: str, screen: Screen, serve: Serve
) -> None:
    api = serve(AnthropicServer, Said(text="I think not."))

    async with running(screen, *command_of("opinion", verb="call"), environment=environment_of(api)) as process:
        await screen.asks(ANSWER)
        screen.press(f"{key}\n")
        await screen.shows(says)
        assert await process.wait() == code

    assert len(api.heard) == (key == "y")


def test_without_a_terminal_a_server_gets_the_model_by_a_flag_only(serve: Serve) -> None:
    api = serve(AnthropicServer, Said(text="I think not."))
    opinion = partial(command_of, "opinion", verb="call")

    code, out, err = piped(opinion(), "", environment_of(api))
    assert (code, out, len(api.heard)) == (7, "", 0)
    denied = "mcp-host: the request of 'desk' for the model is denied, because there is no terminal to ask in; --yes allows it"
    assert err.splitlines()[0] == denied

    assert piped([*opinion()[:3], "--yes", *opinion()[3:]], "", environment_of(api)) == (0, "I think not.\n", "")


def test_a_model_that_fails_while_it_answers_a_server_is_the_exit_code(serve: Serve) -> None:
    api = serve(AnthropicServer, Failed(status=400))

    code, out, err = piped(command_of("opinion", "--yes", verb="call"), "", environment_of(api))

    assert (code, out) == (9, "")
    assert "this client's model failed: ProviderError: anthropic: BadRequestError (HTTP 400)" in err


def test_the_demo_shows_a_server_that_asks_a_model_of_a_provider(serve: Serve) -> None:
    api = serve(AnthropicServer, Said(text="It is 21."), Said(text="It is 21."))

    code, out, _ = piped(["demo", "--model", f"anthropic:{MODEL}"], "", environment_of(api))

    assert (code, len(api.heard)) == (0, 2)
    assert out.count(f"    model         {MODEL}") == 2
    assert out.count("    content       It is 21.") == 2


def test_a_local_server_needs_no_key(serve: Serve) -> None:
    class KeylessServer(OpenAIChatServer):
        key = "none"

    api = serve(KeylessServer, Said(calls=[Called("add", {"a": 1, "b": 2})]), Said(text="3"))
    environment = {**WITHOUT_KEYS, "OPENAI_BASE_URL": f"{api.url}/v1"}

    code, out, _ = piped(command_of("--yes", model="openai-chat:local"), "Add.", environment)

    assert (code, out, len(api.heard)) == (0, "3\n", 2)


@pytest.mark.parametrize("verb", ["demo", "call", "chat"])
@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            "anthropic:claude",
            "mcp-host: the SDK anthropic finds no key: set the environment variable ANTHROPIC_API_KEY",
        ),
        ("athropic:claude", "mcp-host: there is no provider 'athropic'; did you mean 'anthropic'?"),
        ("anthropic:", "mcp-host: 'anthropic:' names no model of anthropic"),
    ],
    ids=["no key", "no provider", "no name"],
)
def test_a_model_that_cannot_be_made_is_an_error_of_usage_before_a_server_is_started(
    model: str, says: str, verb: str, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    server = [] if verb == "demo" else ["--", sys.executable, "-c", f"open({str(started)!r}, 'w')"]

    code, out, err = piped([verb, "--model", model, *["opinion"][: verb == "call"], *server], "Hello.", WITHOUT_KEYS)

    assert (code, out, started.exists()) == (2, "", False)
    assert err.startswith(says)
    assert err.count("\n") == 1

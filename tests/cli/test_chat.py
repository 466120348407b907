"""`mcp-host chat` at real terminals, with a local server of Anthropic's API."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any, Protocol

import pytest
from anyio import create_task_group, fail_after, to_thread, wait_all_tasks_blocked
from anyio.abc import Process
from anyio.from_thread import start_blocking_portal

from mcp_host import Client
from mcp_host.cli import main
from mcp_host.cli.arguments import parse
from mcp_host.cli.chat import Chat, next_line
from mcp_host.cli.output import Printer
from mcp_host.cli.transcript import Transcript
from mcp_host.sampling import SamplingRequest, ToolCall
from mcp_host.types import CreateMessageResult, ToolResultContent
from tests.cli import desk
from tests.cli.terminals import IN_TIME, ROOT, running, standard_streams
from tests.elicitation.asking import FIELD, SEND
from tests.interop.providers.scripted import Called, Failed, Said, Stalled
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.terminal.screens import Screen

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")

MODEL = "claude-sonnet-5"
PROMPT, TOOL, ANSWER = "> ", "May your client call it? [y/s/v/N] ", "May your model answer? [y/a/s/v/N] "
CLEAR = "\x1b[2J"  # clears a terminal
CTRL_C = "\x03"
PYTHON = Path(sys.executable).name
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY")
DESK = ["-e", f"PYTHONPATH={ROOT}", "--", sys.executable, "-c", "from tests.cli.desk import server; server.run_stdio()"]
WITH_MODEL = ["--model", f"anthropic:{MODEL}"]


CHAT, CALL = ["chat", *WITH_MODEL], ["call", *WITH_MODEL]


# The event loop's thread gets the signal while the main thread waits: the kernel may choose any thread.
ELSEWHERE = """\
import signal, sys, threading
from contextlib import asynccontextmanager
from traceback import walk_stack
from anyio import sleep_forever
from anyio.lowlevel import checkpoint
from mcp_host.cli import chat, main

@asynccontextmanager
async def connected(*args, **kwargs):
    while True:
        calls = [frame.f_code.co_name for frame, _ in walk_stack(sys._current_frames()[threading.main_thread().ident])]
        if calls[0] == "wait" and "start_task_soon" not in calls:
            break
        await checkpoint()
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    await sleep_forever()
    yield

chat.connected = connected
sys.exit(main(["chat", "--model", "arithmetic", "http://localhost/mcp"]))
"""


def command_of(*argv: str) -> list[str]:
    return [*CHAT, *argv, *DESK]


def keys_of(api: AnthropicServer) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": api.key}


def environment_of(api: AnthropicServer) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name not in KEYS}
    return {**ours, "TERM": "dumb", **keys_of(api)}  # readline writes no escapes there


@asynccontextmanager
async def chatting(screen: Screen, api: AnthropicServer, *argv: str) -> AsyncIterator[Process]:
    """The command `chat` in a process of its own, when it has asked for the first prompt."""
    async with running(screen, *command_of(*argv), environment=environment_of(api)) as process:
        await screen.asks(PROMPT)
        yield process
        screen.press("\x04")  # Ctrl-D
        assert await process.wait() == 0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The same server in this process, which imports too much to start for each test."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(desk.server.http()) as url:
        yield url


class Talk(Protocol):
    """`talk(api, "Add.", "y")` is the command `chat` in this process, and what it has shown.

    A person types a line at each prompt and question, and then Ctrl-D, unless the last line is /quit. *server* is by default that of `url`.
    """

    def __call__(
        self, api: AnthropicServer, *lines: str, argv: Sequence[str] = ..., server: Sequence[str] = ...
    ) -> str: ...  # pragma: no cover


@pytest.fixture
def talk(screen: Screen, url: str, monkeypatch: pytest.MonkeyPatch) -> Talk:
    def talk(api: AnthropicServer, *lines: str, argv: Sequence[str] = (), server: Sequence[str] = (url,)) -> str:
        end = [] if lines[-1] == "/quit" else ["\x04"]

        async def person() -> str:
            shown = ""
            try:
                with fail_after(IN_TIME):
                    for keys in [*(f"{line}\n" for line in lines), *end]:
                        shown += await screen.asks(PROMPT, TOOL)
                        screen.press(keys)
            except BaseException:
                screen.unplug()  # else the command would wait
                raise
            return shown

        set_environment(monkeypatch, TERM="dumb", **keys_of(api))
        with standard_streams(screen), start_blocking_portal() as portal:
            sitting = portal.start_task_soon(person)
            code = main([*CHAT, *argv, *server])
            if code != 0:
                sitting.cancel()
            assert code == 0
            return sitting.result()

    return talk


def set_environment(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """An environment with these variables, and no other keys of providers."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


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


def test_the_next_turn_has_the_conversation_and_what_was_allowed_for_the_session(talk: Talk, serve: Serve) -> None:
    adds = Said(calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, adds, Said(text="3"), adds, Said(text="3 again"), Said(text="What conversation?"))

    talk(api, "Add.", "s", "Again.", "/clear", "Where were we?")

    call = ("assistant", [("add", {"a": 1, "b": 2})])
    first = [("user", ["Add."]), call, ("user", [["3"]]), ("assistant", ["3"])]
    assert [conversation(heard.body) for heard in api.heard[-2:]] == [
        [*first, ("user", ["Again."]), call, ("user", [["3"]])],
        [("user", ["Where were we?"])],
    ]


def test_a_call_that_the_person_refuses_is_a_result_for_the_model(screen: Screen, talk: Talk, serve: Serve) -> None:
    api = serve(AnthropicServer, Said(calls=[Called("add", {"a": 1, "b": 2})]), Said(text="As you like."))

    talk(api, "Add.", "")

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
        ("assistant", ["Wait.", ("hang", {})]),
        ("user", [["The user stopped this call, which may have run."]]),
        ("assistant", ["(The user stopped this answer.)"]),
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

    assert screen.rows[-6:] == [
        f"{TOOL}^C",
        "(the question was withdrawn)",
        "    error         add: This call was denied: the user stopped this answer",
        "Stopped.",
        "",
        ">",
    ]
    assert len(api.heard) == 1


async def test_after_ctrl_c_the_model_learns_which_calls_may_have_run_and_which_were_not_made(
    screen: Screen, serve: Serve
) -> None:
    api = serve(AnthropicServer, Said(text="Wait.", calls=[Called("hang"), Called("die"), Called("order")]))

    async with chatting(screen, api):
        screen.press("Do all of it.\n")
        await screen.asks(TOOL)
        screen.press("y\n")
        await screen.asks(TOOL)
        screen.press(CTRL_C)
        await screen.asks(PROMPT)

        api.say(Said(text="I see."))
        screen.press("What did you do?\n")
        await screen.asks(PROMPT)

    denied = ["This call was denied: the user stopped this answer"]
    assert conversation(api.last) == [
        ("user", ["Do all of it."]),
        ("assistant", ["Wait.", ("hang", {}), ("die", {}), ("order", {})]),
        ("user", [["The user stopped this call, which may have run."], denied, denied]),
        ("assistant", ["(The user stopped this answer.)"]),
        ("user", ["What did you do?"]),
    ]


async def test_calls_that_have_ended_before_the_turn_is_stopped_keep_their_results() -> None:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        return request.calls(ToolCall("add", {"a": 1, "b": 2}), ToolCall("hang"))

    options = parse(["chat", "http://localhost/mcp", *WITH_MODEL, "--yes"])
    chat = Chat(lambda **options: model, Transcript(StringIO(), Printer(StringIO())), options)

    with fail_after(IN_TIME):
        async with Client(desk.server) as chat.client, create_task_group() as tasks:
            await chat.begin_prompt()
            tasks.start_soon(chat.turn, "Add, and hang.")
            await wait_all_tasks_blocked()
            chat.stop()

    results = [block.text for block in chat.messages[2].content if isinstance(block, ToolResultContent)]
    assert results == ["3", "The user stopped this call, which may have run."]
    assert chat.messages[-1].text == "(The user stopped this answer.)"


async def test_a_prompt_that_is_stopped_before_any_answer_stays_in_the_conversation(
    screen: Screen, serve: Serve
) -> None:
    api = serve(AnthropicServer, Stalled(said=Said(text="Yes."), events=1))

    async with chatting(screen, api):
        screen.press("My name is Ada.\n")
        assert await to_thread.run_sync(api.stalled.wait, 10.0)
        screen.press(CTRL_C)
        await screen.asks(PROMPT)

        api.say(Said(text="Ada."))
        screen.press("What is it?\n")
        await screen.asks(PROMPT)

    assert conversation(api.last) == [
        ("user", ["My name is Ada."]),
        ("assistant", ["(The user stopped this answer.)"]),
        ("user", ["What is it?"]),
    ]


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


async def test_ctrl_c_while_the_command_still_connects_ends_it(screen: Screen, serve: Serve) -> None:
    """Its server tells on the terminal that it has started, and never answers."""
    silent = f"import sys; open({screen.path!r}, 'w').write('started'); sys.stdin.read()"
    command = [*CHAT, "--", sys.executable, "-c", silent]

    async with running(screen, *command, environment=environment_of(serve(AnthropicServer))) as process:
        await screen.shows("started")
        screen.press(CTRL_C)
        assert await process.wait() == 130

    assert screen.rest() == "^C"


def test_ctrl_c_ends_the_command_while_it_connects_whichever_thread_gets_the_signal(screen: Screen) -> None:
    with open(screen.path, "rb", buffering=0) as keyboard:
        done = subprocess.run([sys.executable, "-c", ELSEWHERE], stdin=keyboard, check=False, timeout=IN_TIME)

    assert done.returncode == 130


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


def test_quit_ends_the_conversation(talk: Talk, serve: Serve) -> None:
    talk(serve(AnthropicServer), "/quit")


def test_an_unknown_command_shows_those_that_there_are_and_asks_no_model(talk: Talk, serve: Serve) -> None:
    api = serve(AnthropicServer)

    shown = talk(api, "/help", "/Quit")

    assert " ".join(shown.split()).count("/clear forgets the conversation. /quit and Ctrl-D end it.") == 3
    assert api.heard == []


def test_a_failure_of_the_provider_is_a_line_and_the_turn_is_forgotten(
    screen: Screen, talk: Talk, serve: Serve
) -> None:
    api = serve(AnthropicServer, Failed(status=400), Said(text="Better."))

    talk(api, "One.", "Two.")

    (failure,) = [row for row in screen.rows if row.startswith("mcp-host: ")]
    assert "anthropic" in failure
    assert conversation(api.last) == [("user", ["Two."])]


def test_verbose_shows_what_the_provider_says_of_a_failure(screen: Screen, talk: Talk, serve: Serve) -> None:
    api = serve(AnthropicServer, Failed(status=400, body='{"error": {"message": "Your credit balance is too low."}}'))

    talk(api, "Hello?", argv=["--verbose"])

    assert "'Your credit balance is too low.'" in " ".join(screen.rows)


def test_a_provider_that_says_when_to_ask_again_is_asked_once_more_if_that_is_soon(
    screen: Screen, talk: Talk, serve: Serve
) -> None:
    api = serve(AnthropicServer, Failed(status=429, retry_after="0.001"), Said(text="Here I am."))

    talk(api, "Hello?")

    waiting = "anthropic: RateLimitError (HTTP 429), rate_limit_error, try again after 0.001 seconds. Waiting."
    assert waiting in " ".join(screen.rows)
    assert "    Here I am." in screen.rows
    assert len(api.heard) == 2


@pytest.mark.parametrize(
    ("failures", "heard"),
    [
        ([Failed(status=429, retry_after="3600")], 1),
        ([Failed(status=529)], 1),
        ([Failed(status=429, retry_after="0.001")] * 2, 2),
    ],
    ids=["in an hour", "at some time", "again and again"],
)
def test_a_provider_that_does_not_answer_soon_is_an_error_at_once(
    failures: list[Failed], heard: int, url: str, piped: Piped, serve: Serve
) -> None:
    """The SDK would wait without a word."""
    api = serve(AnthropicServer, *failures, Said(text="Here I am."))

    code, out, err = piped(*CHAT, url, prompt="Hello?", **keys_of(api))

    assert (code, out, len(api.heard)) == (9, "", heard)
    assert f"(HTTP {failures[0].status})" in err.splitlines()[-1]


def test_what_was_done_before_a_failure_stays_in_the_conversation(talk: Talk, serve: Serve) -> None:
    adds = Said(calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, adds, Failed(status=400), Said(text="3, as I wanted to say."))

    talk(api, "Add.", "Well?", argv=["--yes"])

    assert conversation(api.last) == [
        ("user", ["Add."]),
        ("assistant", [("add", {"a": 1, "b": 2})]),
        ("user", [["3"]]),
        ("assistant", ["(This answer failed.)"]),
        ("user", ["Well?"]),
    ]


def test_a_server_that_dies_in_a_call_is_restarted_and_the_conversation_goes_on(
    screen: Screen, talk: Talk, serve: Serve
) -> None:
    adds = Said(calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, Said(calls=[Called("die")]), Said(text="It is dead."), adds, Said(text="3"))

    talk(api, "Die.", "Add.", argv=["--yes"], server=DESK)

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
def test_what_the_model_says_cannot_control_the_terminal(
    hostile: str, screen: Screen, talk: Talk, serve: Serve
) -> None:
    shown = talk(serve(AnthropicServer, Said(text=hostile)), "Clear.")

    assert hostile not in shown
    assert f"    {hostile.encode('unicode_escape').decode()}" in screen.rows


# Without a terminal


class Piped(Protocol):
    """`piped("tools", url)` runs the command in this process, and returns its exit code and what it has printed.

    Stdin is no terminal, and has the *prompt*. The *environment* has no other keys of providers.
    """

    def __call__(
        self, *argv: str, prompt: str = ..., **environment: str
    ) -> tuple[int, str, str]: ...  # pragma: no cover


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Piped:
    def piped(*argv: str, prompt: str = "", **environment: str) -> tuple[int, str, str]:
        set_environment(monkeypatch, **environment)
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(prompt.encode())))
        return main(argv), *capsys.readouterr()

    return piped


CALLS = '    calls         add {"a": 1, "b": 2}\n'


def test_stdin_that_is_no_terminal_is_one_prompt_and_stdout_is_the_answer(serve: Serve) -> None:
    adds = Said(text="I add.", calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, adds, Said(text=f"It is\n3{CLEAR}."))

    done = subprocess.run(
        [sys.executable, "-m", "mcp_host", *command_of("--yes")],
        input="Add one\nand two.\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment_of(api),
        timeout=IN_TIME,
        check=False,
        start_new_session=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "I add.\nIt is\n3\\x1b[2J.\n",
        f"{CALLS}    result        add: 3\n(22 tokens in, 14 out)\n",
    )
    assert conversation(api.heard[0].body) == [("user", ["Add one\nand two."])]


@pytest.mark.parametrize(
    ("said", "note"),
    [
        (Said(text="Half", stop="max_tokens"), "The answer is cut off: it has as many tokens as --max-tokens allows."),
        (Said(text="No.", stop="refusal"), "The model refused to answer."),
        (Said(), "The model gave no answer."),
    ],
    ids=["cut off", "a refusal", "nothing"],
)
def test_an_answer_that_is_none_has_a_note_and_is_no_success(
    said: Said, note: str, url: str, piped: Piped, serve: Serve
) -> None:
    code, out, err = piped(*CHAT, url, prompt="Tell me.", **keys_of(serve(AnthropicServer, said)))

    assert (code, out) == (9, f"{said.text}\n" if said.text else "")
    assert err == f"{note}\n(11 tokens in, 7 out)\n"


def test_without_a_terminal_a_denied_call_ends_the_turn_and_the_flag_that_allows_it_is_named(
    url: str, piped: Piped, serve: Serve
) -> None:
    """The model is not asked again: a script would take its excuse for the answer."""
    adds = Said(text="I add.", calls=[Called("add", {"a": 1, "b": 2})])
    api = serve(AnthropicServer, adds, Said(text="I cannot."))

    done = piped(*CHAT, url, prompt="Add.", **keys_of(api))

    denied = "the call of 'add' is denied, because there is no terminal to ask in; --yes allows it"
    assert done == (7, "I add.\n", f"{CALLS}mcp-host: {denied}\n")
    assert len(api.heard) == 1


def test_a_failure_of_the_provider_is_the_exit_code(url: str, piped: Piped, serve: Serve) -> None:
    api = serve(AnthropicServer, Failed(status=400))

    code, out, err = piped(*CHAT, url, prompt="Hello.", **keys_of(api))

    assert (code, out) == (9, "")
    assert err.startswith("mcp-host: anthropic")
    assert err.count("\n") == 1


def test_an_empty_stdin_is_an_error_of_usage(url: str, piped: Piped) -> None:
    assert piped(*CHAT, url, prompt=" \n") == (
        2,
        "",
        "mcp-host: stdin is empty: pipe the prompt to it, or run the command at a terminal\n",
    )


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

    async with running(screen, *CALL, "opinion", *DESK, environment=environment_of(api)) as process:
        await screen.asks(ANSWER)
        screen.press(f"{key}\n")
        await screen.shows(says)
        assert await process.wait() == code

    assert len(api.heard) == (key == "y")


def test_without_a_terminal_a_server_gets_the_model_by_a_flag_only(piped: Piped, serve: Serve) -> None:
    api = serve(AnthropicServer, Said(text="I think not."))

    code, out, err = piped(*CALL, "opinion", *DESK, **keys_of(api))
    assert (code, out, len(api.heard)) == (7, "", 0)
    denied = "mcp-host: the request of 'desk' for the model is denied, because there is no terminal to ask in; --yes allows it"
    assert err.splitlines()[0] == denied

    assert piped(*CALL, "--yes", "opinion", *DESK, **keys_of(api)) == (0, "I think not.\n", "")


def test_a_model_that_fails_while_it_answers_a_server_is_the_exit_code(piped: Piped, serve: Serve) -> None:
    api = serve(AnthropicServer, Failed(status=400))

    code, out, err = piped(*CALL, "--yes", "opinion", *DESK, **keys_of(api))

    assert (code, out) == (9, "")
    failed = "the model that answers the server failed: anthropic: BadRequestError (HTTP 400), invalid_request_error"
    assert err == f"mcp-host: {failed}\n"


def test_the_demo_shows_a_server_that_asks_a_model_of_a_provider(piped: Piped, serve: Serve) -> None:
    api = serve(AnthropicServer, Said(text="It is 21."), Said(text="It is 21."))

    code, out, _ = piped("demo", "--yes", *WITH_MODEL, **keys_of(api))

    assert (code, len(api.heard)) == (0, 2)
    assert out.count(f"    model         {MODEL}") == 2
    assert out.count("    content       It is 21.") == 2


def test_the_demo_without_a_terminal_denies_the_requests_for_a_model_of_a_provider(piped: Piped, serve: Serve) -> None:
    api = serve(AnthropicServer, Said(text="It is 21."))

    code, _, err = piped("demo", *WITH_MODEL, **keys_of(api))

    denied = "mcp-host: the request of 'calculator' for the model is denied, because there is no terminal to ask in; --yes allows it"
    assert (code, len(api.heard)) == (7, 0)
    assert err.splitlines()[0] == denied


async def test_the_demo_asks_in_the_terminal_before_each_request_for_a_model_of_a_provider(
    screen: Screen, serve: Serve
) -> None:
    api = serve(AnthropicServer, Said(text="It is 21."))

    async with running(screen, "demo", *WITH_MODEL, environment=environment_of(api)) as process:
        await screen.asks(ANSWER)
        assert len(api.heard) == 0
        screen.press("y\n")
        await screen.asks(ANSWER)
        assert len(api.heard) == 1
        screen.press("n\n")
        assert await process.wait() == 7

    assert len(api.heard) == 1


@pytest.mark.parametrize("verb", ["demo", "call", "chat"])
@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            "anthropic:claude",
            "mcp-host: the SDK anthropic finds no key: set the environment variable ANTHROPIC_API_KEY",
        ),
        ("athropic:claude", "mcp-host: there is no provider 'athropic'; did you mean 'anthropic'?"),
        ("anthropic:", "mcp-host: 'anthropic:' names no model: write anthropic:NAME"),
    ],
    ids=["no key", "no provider", "no name"],
)
def test_a_model_that_cannot_be_made_is_an_error_of_usage_before_a_server_is_started(
    model: str, says: str, verb: str, tmp_path: Path, piped: Piped, sdk: None
) -> None:
    started = tmp_path / "started"
    server = [] if verb == "demo" else ["--", sys.executable, "-c", f"open({str(started)!r}, 'w')"]

    code, out, err = piped(verb, "--model", model, *["opinion"][: verb == "call"], *server, prompt="Hello.")

    assert (code, out, started.exists()) == (2, "", False)
    assert err.startswith(says)
    assert err.count("\n") == 1

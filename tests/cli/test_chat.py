"""`mcp-host chat`: at a terminal, and without one. Its model is of a provider."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Protocol

import pytest
from anyio import create_task_group, fail_after, to_thread, wait_all_tasks_blocked

from mcp_host import Client
from mcp_host.cli.arguments import parse
from mcp_host.cli.commands.chat import Chat, prompts
from mcp_host.cli.output import Printer
from mcp_host.cli.transcript import Transcript
from mcp_host.errors import ConnectionClosed, ProviderError
from mcp_host.sampling import Allow, SamplingRequest, ToolCall
from mcp_host.types import CreateMessageResult, ImageContent, TextContent, ToolResultContent
from tests.asgi import serving_mcp
from tests.cli import desk
from tests.cli.bounded import IN_TIME, ctrl_c, main
from tests.cli.conftest import Run
from tests.cli.models import MODEL, WITH_MODEL, Provider, Turn, conversation, fails, refused, says, stalls
from tests.cli.terminals import DESK, Sitting, needs_terminal, running
from tests.elicitation.asking import FIELD, SEND
from tests.terminal.screens import Screen

pytestmark = needs_terminal

server = desk.server  # at `url`

PROMPT, TOOL, ANSWER = "> ", "May your client call it? [y/s/v/N] ", "May your model answer? [y/a/s/v/N] "
CLEAR = "\x1b[2J"  # clears a terminal
CTRL_C, CTRL_D = "\x03", "\x04"
CHAT, CALL = ["chat", *WITH_MODEL], ["call", *WITH_MODEL]
ADD = ToolCall("add", {"a": 1, "b": 2})

# The event loop's thread gets the signal while the main thread waits: the kernel may choose any thread.
ELSEWHERE = """\
import signal, sys, threading
from contextlib import asynccontextmanager
from traceback import walk_stack
from anyio import sleep_forever
from anyio.lowlevel import checkpoint
from mcp_host.cli import main
from mcp_host.cli.commands import chat

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


@pytest.fixture
def own_url() -> Iterator[str]:
    """For calls that the client gives up: the server waits for it, and ends with the test."""
    with serving_mcp(desk.server) as url:
        yield url


@pytest.fixture
def chat(sit: Sitting, screen: Screen, url: str) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """`chat(person)` is a conversation, which *person* begins at its first prompt and leaves at the last one."""

    def chat(person: Callable[[], Awaitable[None]], *argv: str) -> None:
        async def whole() -> None:
            await screen.asks(PROMPT)
            await person()
            screen.press(CTRL_D)

        assert sit(whole, *CHAT, *argv, url) == 0

    return chat


class Talk(Protocol):
    """`talk("Add.", "y")` is a conversation, and what it has shown.

    A person types a line at each prompt and question, and then Ctrl-D, unless the last line is /quit. *server* is by default that of `url`.
    """

    def __call__(
        self, *lines: str, argv: Sequence[str] = ..., server: Sequence[str] = ...
    ) -> str: ...  # pragma: no cover


@pytest.fixture
def talk(sit: Sitting, screen: Screen, url: str) -> Talk:
    def talk(*lines: str, argv: Sequence[str] = (), server: Sequence[str] = (url,)) -> str:
        shown = ""

        async def person() -> None:
            nonlocal shown
            for keys in [*(f"{line}\n" for line in lines), *([] if lines[-1] == "/quit" else [CTRL_D])]:
                shown += await screen.asks(PROMPT, TOOL)
                screen.press(keys)

        assert sit(person, *CHAT, *argv, *server) == 0
        screen.rest()
        return shown

    return talk


def test_an_answer_streams_and_a_call_is_approved_and_shown(
    screen: Screen, talk: Talk, url: str, provider: Provider
) -> None:
    provider.say(says("Let me see.", ADD), says("It is 3."))

    talk("What is 1 + 2?", "y", argv=["--system", "Be brief.", "--max-tokens", "99"])

    assert screen.rows == [
        f"{MODEL}, with the tools of",
        f'    {url} (calls itself "desk 1.0.0")',
        "Ctrl-C stops an answer. /servers and /tools show what there is. /clear forgets",
        "the conversation. /quit and Ctrl-D end it.",
        "> What is 1 + 2?",
        "    Let me see.",
        '    calls         add {"a": 1, "b": 2}',
        "",
        "Your client wants to call a tool of",
        f'  | {url} (calls itself "desk 1.0.0")',
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
    asked = provider.requests[-1]
    assert (asked.params.system_prompt, asked.params.max_tokens) == ("Be brief.", 99)
    assert conversation(asked) == [
        ("user", ["What is 1 + 2?"]),
        ("assistant", ["Let me see.", ("add", {"a": 1, "b": 2})]),
        ("user", [["3"]]),
    ]


def test_the_next_turn_has_the_conversation_and_what_was_allowed_for_the_session(
    talk: Talk, provider: Provider
) -> None:
    provider.say(says("", ADD), says("3"), says("", ADD), says("3 again"), says("What conversation?"))

    talk("Add.", "s", "Again.", "/clear", "Where were we?")

    call = ("assistant", [("add", {"a": 1, "b": 2})])
    first = [("user", ["Add."]), call, ("user", [["3"]]), ("assistant", ["3"])]
    assert list(map(conversation, provider.requests[-2:])) == [
        [*first, ("user", ["Again."]), call, ("user", [["3"]])],
        [("user", ["Where were we?"])],
    ]


def test_a_call_that_the_person_refuses_is_a_result_for_the_model(
    screen: Screen, talk: Talk, provider: Provider
) -> None:
    provider.say(says("", ADD), says("As you like."))

    talk("Add.", "")

    assert screen.rows[-6:-4] == [TOOL.strip(), "    error         add: This call was denied: the user refused it"]
    assert conversation(provider.requests[-1])[-1] == ("user", [["This call was denied: the user refused it"]])


Chatting = Callable[..., None]


def test_ctrl_c_in_the_middle_of_an_answer_stops_the_turn_and_keeps_what_was_said(
    screen: Screen, chat: Chatting, provider: Provider
) -> None:
    asked = Event()
    provider.say(stalls("Once upon a time "), stalls(reached=asked), says("Ada, there was a story."))

    async def person() -> None:
        screen.press("Tell me a story.\n")
        await screen.shows("    Once upon a time")
        ctrl_c()
        await screen.shows("Stopped.")
        await screen.asks(PROMPT)
        screen.press("My name is Ada.\n")
        assert await to_thread.run_sync(asked.wait, IN_TIME)
        ctrl_c()
        await screen.asks(PROMPT)
        screen.press("What is it?\n")
        await screen.asks(PROMPT)

    chat(person)

    assert conversation(provider.requests[-1]) == [
        ("user", ["Tell me a story."]),
        ("assistant", ["Once upon a time \n(The user stopped this answer.)"]),
        ("user", ["My name is Ada."]),
        ("assistant", ["(The user stopped this answer.)"]),
        ("user", ["What is it?"]),
    ]


def test_ctrl_c_in_the_middle_of_a_call_stops_the_turn_and_the_conversation_stays_balanced(
    screen: Screen, chat: Chatting, provider: Provider
) -> None:
    provider.say(says("Wait.", ToolCall("hang")), says("", ToolCall("until_hang_ends")), says("It has ended."))

    async def person() -> None:
        screen.press("Hang.\n")
        await screen.shows("info: hanging")
        ctrl_c()
        await screen.asks(PROMPT)
        screen.press("Has it ended?\n")
        await screen.asks(PROMPT)

    chat(person, "--yes", "--verbose")

    assert conversation(provider.requests[-1]) == [
        ("user", ["Hang."]),
        ("assistant", ["Wait.", ("hang", {})]),
        ("user", [["The user stopped this call, which may have run."]]),
        ("assistant", ["(The user stopped this answer.)"]),
        ("user", ["Has it ended?"]),
        ("assistant", [("until_hang_ends", {})]),
        ("user", [["cancelled"]]),
    ]


def test_after_ctrl_c_at_a_question_the_model_learns_which_calls_may_have_run_and_which_were_not_made(
    screen: Screen, chat: Chatting, provider: Provider
) -> None:
    provider.say(says("Wait.", ToolCall("hang"), ToolCall("die"), ToolCall("order")), says("I see."))

    async def person() -> None:
        screen.press("Do all of it.\n")
        await screen.asks(TOOL)
        screen.press("y\n")
        await screen.asks(TOOL)
        ctrl_c()
        await screen.shows("(the question was withdrawn)")
        await screen.asks(PROMPT)
        screen.press("What did you do?\n")
        await screen.asks(PROMPT)

    chat(person)

    denied = "This call was denied: the user stopped this answer"
    assert [row for row in screen.rows if row.startswith("    error")] == [
        "    error         hang: The user stopped this call, which may have run.",
        f"    error         die: {denied}",
        f"    error         order: {denied}",
    ]
    assert conversation(provider.requests[-1]) == [
        ("user", ["Do all of it."]),
        ("assistant", ["Wait.", ("hang", {}), ("die", {}), ("order", {})]),
        ("user", [["The user stopped this call, which may have run."], [denied], [denied]]),
        ("assistant", ["(The user stopped this answer.)"]),
        ("user", ["What did you do?"]),
    ]


def chat_with(*calls: ToolCall, argv: Sequence[str] = ()) -> Chat:
    """A conversation with a model that makes *calls*."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        return request.calls(*calls)

    return Chat(lambda **options: model, Transcript(StringIO(), Printer(StringIO())), parse([*CHAT, "http://x", *argv]))


def results_of(chat: Chat) -> list[str]:
    return [block.text for block in chat.messages[2].content if isinstance(block, ToolResultContent)]


async def test_calls_that_have_ended_before_the_turn_is_stopped_keep_their_results() -> None:
    chat = chat_with(ADD, ToolCall("hang"), argv=["--yes"])

    with fail_after(IN_TIME):
        async with Client(desk.server) as chat.client, create_task_group() as tasks:
            await chat.begin_prompt()
            tasks.start_soon(chat.turn, "Add, and hang.")
            await wait_all_tasks_blocked()
            chat.stop()

    assert results_of(chat) == ["3", "The user stopped this call, which may have run."]
    assert chat.messages[-1].text == "(The user stopped this answer.)"


async def test_a_call_that_is_allowed_when_the_turn_has_been_stopped_is_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def allow_too_late(call: object) -> Allow:
        conversing.stop()
        return Allow()

    monkeypatch.setattr("mcp_host.cli.commands.chat.approver", lambda options, console: allow_too_late)
    conversing = chat_with(ADD)

    with fail_after(IN_TIME):
        async with Client(desk.server) as conversing.client:
            await conversing.begin_prompt()
            await conversing.turn("Add.")

    assert results_of(conversing) == ["This call was denied: the user stopped this answer"]


async def test_at_a_real_terminal_ctrl_c_withdraws_a_question_and_drops_a_line(screen: Screen) -> None:
    """The terminal sends the signal to the command, and readline reads the lines."""
    command = ["chat", "--model", "arithmetic", *DESK]
    async with running(screen, *command, environment={**os.environ, "TERM": "dumb"}) as process:
        await screen.asks(PROMPT)
        screen.press("What is 1 + 2?\n")
        await screen.asks(TOOL)
        screen.press(CTRL_C)
        await screen.shows("(the question was withdrawn)")
        await screen.asks(PROMPT)
        screen.press("Never min")
        await screen.shows("Never min")
        screen.press(f"{CTRL_C}\n")  # Python may miss a signal between two reads: then the next key tells it
        await screen.shows("Ctrl-C again or Ctrl-D ends the conversation.")
        screen.press("What is 4 + 5?\n")
        await screen.asks(TOOL)
        screen.press("y\n")
        await screen.shows("    4 + 5 = 9")
        await screen.asks(PROMPT)
        screen.press(CTRL_D)
        assert await process.wait() == 0


async def test_ctrl_c_while_the_command_still_connects_ends_it(screen: Screen) -> None:
    """Its server tells on the terminal that it has started, and never answers."""
    silent = f"import sys; open({screen.path!r}, 'w').write('started'); sys.stdin.read()"
    command = ["chat", "--model", "arithmetic", "--", sys.executable, "-c", silent]

    async with running(screen, *command, environment={**os.environ, "TERM": "dumb"}) as process:
        await screen.shows("started")
        screen.press(CTRL_C)
        assert await process.wait() == 130

    assert screen.rest() == "^C"


def test_a_server_that_cannot_be_started_ends_the_command(screen: Screen, sit: Sitting, provider: Provider) -> None:
    async def person() -> None:
        await screen.shows("mcp-host: cannot start '/no/such'")

    assert sit(person, *CHAT, "--", "/no/such") == 3
    assert provider.requests == []


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
        (["a\n", "\n", "b", EOFError], ["a\n\nb", None], 0),
        (["a\n", EOFError], ["a", None], 0),
        (["a\n", KeyboardInterrupt, "b"], ["b"], 1),
    ],
    ids=[
        *("lines", "Ctrl-D", "Ctrl-C and a line", "Ctrl-C twice", "Ctrl-C and Ctrl-D"),
        *("a paste", "a paste and Ctrl-D", "a paste and Ctrl-C"),
    ],
)
def test_ctrl_c_twice_or_ctrl_d_at_the_prompt_is_the_end(
    keys: list[str | type[BaseException]], lines: list[str | None], hints: int, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(keys)
    has_more = False

    def read(prompt: str) -> str:
        nonlocal has_more
        key = next(typed)
        if isinstance(key, str):
            has_more = key.endswith("\n")  # the next one comes with it
            return key.removesuffix("\n")
        raise key

    found = prompts(read, lambda: has_more)

    assert [next(found, None) for _ in lines] == lines
    assert capsys.readouterr().err.count("Ctrl-C again or Ctrl-D ends the conversation.") == hints


def test_a_pasted_text_of_several_lines_is_one_prompt_and_answers_no_question(
    talk: Talk, url: str, provider: Provider
) -> None:
    provider.say(says("", ADD), says("It is not added."))

    shown = talk("Add these:\n1\n\ny", "n")

    assert "(4 lines pasted)" in shown
    assert conversation(provider.requests[0]) == [("user", ["Add these:\n1\n\ny"])]
    assert len(provider.requests) == 2  # the second with the result of the call, which was denied


def test_stdout_that_is_no_terminal_has_the_answers_alone(
    screen: Screen, sit: Sitting, url: str, provider: Provider
) -> None:
    """The prompt is on the terminal nonetheless."""
    answers = StringIO()
    provider.say(says("Yes."))

    async def person() -> None:
        await screen.asks(PROMPT)
        screen.press("Hello?\n")
        await screen.asks(PROMPT)
        screen.press(CTRL_D)

    assert sit(person, *CHAT, url, stdout=answers) == 0

    assert answers.getvalue() == "Yes.\n"


def test_an_unknown_command_shows_those_that_there_are_and_asks_no_model(talk: Talk, provider: Provider) -> None:
    shown = talk("/help", "", "/Quit", "/quit")

    assert " ".join(shown.split()).count("/clear forgets the conversation. /quit and Ctrl-D end it.") == 3
    assert provider.requests == []


@pytest.mark.parametrize("verbose", [[], ["--verbose"]])
def test_a_failure_of_the_provider_is_a_line_and_the_turn_is_forgotten(
    verbose: list[str], screen: Screen, talk: Talk, provider: Provider
) -> None:
    """What the provider says of it is shown if it is asked for."""
    provider.say(refused(400, "Your credit balance is too low."), says("Better."))

    talk("One.", "Two.", argv=verbose)

    said = ["scripted: RuntimeError: Your credit balance is too low."] if verbose else []
    failures = [row for row in screen.rows if "400" in row or "credit" in row]
    assert failures == [*said, "mcp-host: scripted: Error (HTTP 400)"]
    assert conversation(provider.requests[-1]) == [("user", ["Two."])]


@pytest.mark.parametrize(
    ("failures", "code", "heard"),
    [
        ([refused(429, retry_after=0.001)], 0, 2),
        ([refused(429, retry_after=3600)], 9, 1),
        ([refused(429)], 9, 1),
        ([refused(400, retry_after=0.001)], 9, 1),
        ([refused(429, retry_after=0.001)] * 2, 9, 2),
    ],
    ids=["soon", "in an hour", "at some time", "in vain", "again and again"],
)
def test_a_provider_is_asked_once_more_if_it_says_when_and_that_is_soon(
    failures: list[Turn], code: int, heard: int, url: str, run: Run, provider: Provider
) -> None:
    provider.say(*failures, says("Here I am."))

    done = run(*CHAT, url, prompt="Hello?")

    waits = ["scripted: Error (HTTP 429), try again after 0.001 seconds. Waiting."] * (heard - 1)
    assert (done.code, done.out, len(provider.requests)) == (code, "" if code else "Here I am.\n", heard)
    assert done.err.splitlines()[:-1] == waits
    assert done.err.splitlines()[-1].startswith("mcp-host: scripted: Error (HTTP 4" if code else "(11 tokens in")


def test_a_conversation_that_the_provider_may_refuse_can_be_cleared(
    screen: Screen, talk: Talk, run: Run, url: str, provider: Provider
) -> None:
    """The first prompt that is refused is dropped, other failures pass, and without a terminal there are no commands."""
    too_long = ProviderError("scripted", "the model failed", code="context_length_exceeded")
    provider.say(refused(400), says("One."), refused(413), fails(too_long), refused(401), says("", ADD), refused(400))

    talk(*"12345")
    done = run(*CHAT, url, "--yes", prompt="6")

    failures = [row for row in screen.rows if "scripted: " in row or "too long" in row]
    hint = "If each prompt fails so, the conversation is too long: /clear forgets it."
    errors = [
        f"mcp-host: scripted: {text}"
        for text in ("Error (HTTP 400)", "Error (HTTP 413)", str(too_long)[10:], "Error (HTTP 401)")
    ]
    assert failures == [errors[0], errors[1], hint, errors[2], hint, errors[3]]
    assert (done.code, "/clear" in done.err) == (9, False)


def test_what_was_done_before_a_failure_stays_in_the_conversation(talk: Talk, provider: Provider) -> None:
    cut = ProviderError("scripted", "the stream ended early")
    provider.say(says("", ADD), refused(400), fails(cut, after="It is"), says("3, as I wanted to say."))

    talk("Add.", "Well?", "Go on.", argv=["--yes"])

    assert conversation(provider.requests[-1]) == [
        ("user", ["Add."]),
        ("assistant", [("add", {"a": 1, "b": 2})]),
        ("user", [["3"]]),
        ("assistant", ["(This answer failed.)"]),
        ("user", ["Well?"]),
        ("assistant", ["It is\n(This answer failed.)"]),
        ("user", ["Go on."]),
    ]


def test_a_server_that_dies_in_a_call_is_restarted_and_the_person_sees_how_it_ended(
    screen: Screen, talk: Talk, provider: Provider
) -> None:
    provider.say(says("", ToolCall("die")), says("It is dead."), says("", ADD), says("3"))

    talk("Die.", "Add.", argv=["--yes"], server=DESK)

    died = screen.rows.index("    error         die: the tool die failed: its server is not available; it may")
    ended = f"mcp-host: {Path(sys.executable).name} exited with code 3; its stderr:"
    assert screen.rows[died - 2 : died] == [ended, "  | on fire"]
    assert "    result        add: 3" in screen.rows
    assert conversation(provider.requests[-1])[-1] == ("user", [["3"]])


async def test_a_server_that_ends_between_two_answers_is_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    chat = chat_with(argv=["--yes"])

    with fail_after(IN_TIME):
        async with Client(["env", *DESK[1:2], *DESK[3:]], name="desk") as chat.client:
            with pytest.raises(ConnectionClosed):
                await chat.client.call_tool("die")  # as another program would have it
            await chat.begin_prompt()
            for command in ("/servers", "/servers", "/tools", "/servers"):
                await chat.command(command)

    assert capsys.readouterr().err == "mcp-host: desk exited with code 3; its stderr:\n  | on fire\n"


def test_a_form_and_a_request_for_the_model_are_asked_about_within_the_call(
    screen: Screen, chat: Chatting, url: str, provider: Provider
) -> None:
    provider.say(says("", ToolCall("order")), says("", ToolCall("opinion")), says("I think not."), says("Done."))

    async def person() -> None:
        screen.press("Order, and think.\n")
        for question, key in ((TOOL, "y"), (FIELD, "7"), (SEND, "y"), (TOOL, "y")):
            await screen.asks(question)
            screen.press(f"{key}\n")
        shown = await screen.asks(ANSWER)
        assert "  | What do you think?" in shown
        screen.press("y\n")
        await screen.asks(PROMPT)

    chat(person)

    assert [row for row in screen.rows if row.startswith("    ")] == [
        f'    {url} (calls itself "desk 1.0.0")',
        "    calls         order {}",
        "    result        order: ordered: 7",
        "    calls         opinion {}",
        f'    model         asked by {url} (calls itself "desk',
        '                  1.0.0")',
        "    result        opinion: I think not.",
        "    Done.",
    ]


@pytest.mark.parametrize("hostile", [f"a{CLEAR}b", "a\x9b2Jb", "a\rb"], ids=["CSI", "C1", "a return"])
def test_what_the_model_says_cannot_control_the_terminal(
    hostile: str, screen: Screen, talk: Talk, provider: Provider
) -> None:
    provider.say(says(hostile))

    shown = talk("Clear.")

    assert hostile not in shown
    assert f"    {hostile.encode('unicode_escape').decode()}" in screen.rows


# Without a terminal

CALLS = '    calls         add {"a": 1, "b": 2}\n'


def test_stdin_that_is_no_terminal_is_one_prompt_and_stdout_is_the_answer(
    url: str, run: Run, provider: Provider
) -> None:
    provider.say(says("I add.", ADD), says(f"It is\n3{CLEAR}."))

    assert run(*CHAT, "--yes", url, prompt="Add one\nand two.\n") == (
        0,
        "I add.\nIt is\n3\\x1b[2J.\n",
        f"{CALLS}    result        add: 3\n(22 tokens in, 14 out)\n",
    )
    assert conversation(provider.requests[0]) == [("user", ["Add one\nand two."])]


async def draws(request: SamplingRequest, show: object) -> CreateMessageResult:
    image = ImageContent(data="AAAA", mime_type="image/png")
    return CreateMessageResult(content=[TextContent(text="Here:"), image], model="parrot")


USED = "(11 tokens in, 7 out)\n"
CUT = "The answer is cut off: it has as many tokens as --max-tokens allows."
NOTED: dict[str, tuple[Turn, int, str, str]] = {
    "cut off": (says("Half", stop_reason="maxTokens"), 9, "Half\n", f"{CUT}\n{USED}"),
    "a refusal": (says("No.", stop_reason="refusal"), 9, "No.\n", f"The model refused to answer.\n{USED}"),
    "nothing": (says(""), 9, "", f"The model gave no answer.\n{USED}"),
    "an image": (draws, 0, "Here:\n", "    answer        [image/png, 4 characters of base64]\n"),
}


@pytest.mark.parametrize(("turn", "code", "out", "err"), NOTED.values(), ids=NOTED)
def test_an_answer_that_is_none_or_no_text_has_a_note(
    turn: Turn, code: int, out: str, err: str, url: str, run: Run, provider: Provider
) -> None:
    provider.say(turn)

    assert run(*CHAT, url, prompt="Tell me.") == (code, out, err)


def test_without_a_terminal_a_denied_call_ends_the_turn_and_the_flag_that_allows_it_is_named(
    url: str, run: Run, provider: Provider
) -> None:
    """The model is not asked again: a script would take its excuse for the answer."""
    provider.say(says("I add.", ADD), says("I cannot."))

    done = run(*CHAT, url, prompt="Add.")

    denied = "the call of 'add' is denied, because there is no terminal to ask in; --yes allows it"
    assert done == (7, "I add.\n", f"{CALLS}mcp-host: {denied}\n")
    assert len(provider.requests) == 1


def test_stdin_may_be_any_text(url: str, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    provider.say(says("Yes."))
    monkeypatch.setattr(sys, "stdin", StringIO("Hello?"))

    assert main([*CHAT, url]) == 0

    assert conversation(provider.requests[0]) == [("user", ["Hello?"])]


def test_a_model_that_calls_without_end_is_stopped(url: str, run: Run, provider: Provider) -> None:
    provider.say(*[says("", ADD)] * 51)

    done = run(*CHAT, "--yes", url, prompt="Add.")

    note = "The model was stopped: it has answered 50 times."
    assert (done.code, done.out, len(provider.requests)) == (9, "", 50)
    assert done.err.splitlines()[-2:] == [note, "(550 tokens in, 350 out)"]


class Interrupted(StringIO):
    """A stdin from which nothing comes before a signal."""

    has_ended = False

    def read(self, size: int | None = -1) -> str:
        signal.raise_signal(signal.SIGTERM)
        self.has_ended = True
        return ""


def test_a_signal_ends_the_command_while_it_reads_stdin(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = Interrupted()
    monkeypatch.setattr(sys, "stdin", stdin)

    with pytest.raises(SystemExit, match="143"):
        main([*CHAT, url])

    assert not stdin.has_ended


def test_an_empty_stdin_and_too_many_tools_are_errors_of_usage(url: str, run: Run, provider: Provider) -> None:
    empty = run(*CHAT, url, prompt=" \n")
    too_many = run(*CHAT, "--max-tools", "2", url, prompt="Add.")

    sentences = (
        "stdin is empty: pipe the prompt to it, or run the command at a terminal",
        f"there are 7 tools, 7 of '{url}', and --max-tools is 2: raise it, if the model takes more (OpenAI's take 128)",
    )
    assert [empty, too_many] == [(2, "", f"mcp-host: {sentence}\n") for sentence in sentences]


# Other commands that have a model


@pytest.mark.parametrize(
    ("key", "code", "says_"),
    [("y", 0, "I think not."), ("n", 7, "mcp-host: tools/call: the server asks for")],
    ids=["yes", "no"],
)
def test_a_model_of_a_provider_answers_a_server_after_a_yes(
    key: str, code: int, says_: str, screen: Screen, sit: Sitting, own_url: str, provider: Provider
) -> None:
    provider.say(says("I think not."))

    async def person() -> None:
        await screen.asks(ANSWER)
        screen.press(f"{key}\n")
        await screen.shows(says_)

    assert sit(person, *CALL, own_url, "opinion") == code

    assert len(provider.requests) == (key == "y")


def test_without_a_terminal_a_server_gets_the_model_by_a_flag_only(own_url: str, run: Run, provider: Provider) -> None:
    provider.say(says("I think not."))

    done = run(*CALL, own_url, "opinion")
    assert (done.code, done.out, len(provider.requests)) == (7, "", 0)
    denied = f"mcp-host: the request of {own_url!r} for the model is denied, because there is no terminal to ask in; --yes allows it"
    assert done.err.splitlines()[0] == denied

    assert run(*CALL, "--yes", own_url, "opinion") == (0, "I think not.\n", "")


def test_a_server_gets_no_model_unless_one_is_given(run: Run) -> None:
    note = "mcp-host: a server that asks for a model gets one by --model, such as --model anthropic:claude-sonnet-5\n"

    undeclared = "mcp-host: the server says: the client did not declare sampling (-32021)\n"
    assert run("call", "opinion", *DESK) == (5, "", undeclared + note)
    failed = "mcp-host: the tool reported an error\n  | the client did not declare sampling\n"
    assert run("call", "opinion", "--era", "legacy", *DESK) == (1, "", failed + note)
    assert run("call", "opinion", "--model", "arithmetic", *DESK).code == 0


def test_a_model_that_fails_while_it_answers_a_server_is_the_exit_code(
    own_url: str, run: Run, provider: Provider
) -> None:
    provider.say(refused(400, "No credit."), refused(400, "No credit."))

    failed = "mcp-host: the model that answers the server failed: scripted: Error (HTTP 400)\n"
    said = "  | scripted: RuntimeError: No credit.\n"
    assert run(*CALL, "--yes", own_url, "opinion") == (9, "", failed)
    assert run(*CALL, "--yes", own_url, "opinion", "--verbose") == (9, "", said + failed)


def test_the_demo_without_a_terminal_denies_the_requests_for_a_model_of_a_provider(
    run: Run, provider: Provider
) -> None:
    done = run("demo", *WITH_MODEL)

    assert (done.code, provider.requests) == (7, [])
    assert done.err.splitlines()[0].startswith("mcp-host: the request of 'calculator' for the model is denied")


def test_the_demo_asks_in_the_terminal_before_each_request_for_a_model_of_a_provider(
    screen: Screen, sit: Sitting, provider: Provider
) -> None:
    provider.say(says("It is 21."))
    asked: list[int] = []

    async def person() -> None:
        for key in ("y\n", "n\n"):
            await screen.asks(ANSWER)
            asked.append(len(provider.requests))
            screen.press(key)

    assert sit(person, "demo", *WITH_MODEL) == 7

    assert asked == [0, 1]
    assert len(provider.requests) == 1


@pytest.mark.parametrize("verb", ["demo", "call", "chat"])
def test_a_model_that_cannot_be_made_is_an_error_of_usage_before_a_server_is_started(
    verb: str, tmp_path: Path, run: Run
) -> None:
    started = tmp_path / "started"
    server = [] if verb == "demo" else ["--", sys.executable, "-c", f"open({str(started)!r}, 'w')"]
    problems = {
        "athropic:claude": "there is no provider 'athropic'; did you mean 'anthropic'?",
        "anthropic:": "'anthropic:' names no model: write anthropic:NAME",
    }

    done = {
        model: run(verb, "--model", model, *["opinion"][: verb == "call"], *server, prompt="Hello.")
        for model in problems
    }

    assert done == {model: (2, "", f"mcp-host: {problem}\n") for model, problem in problems.items()}
    assert not started.exists()

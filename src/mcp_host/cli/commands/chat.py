"""The command `chat`: a conversation with a model that uses the tools of a server, or of those of a file.

At a terminal, the event loop runs in a thread of its own. So the connection stays alive while the main thread waits in
`input` for the next line. Ctrl-C also reaches the main thread, which then stops the turn and nothing else.
"""

from __future__ import annotations

import math
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from select import select
from typing import Any

from anyio import CancelScope, Event, Semaphore
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.lowlevel import checkpoint_if_cancelled

from mcp_host import types
from mcp_host.cli.arithmetic import Model
from mcp_host.cli.commands.pins import blocked
from mcp_host.cli.commands.requests import show_tools
from mcp_host.cli.connection import connected
from mcp_host.cli.console import AnswerT, Console, RequestT
from mcp_host.cli.models import approver, make_model
from mcp_host.cli.options import Options
from mcp_host.cli.output import ExitCode, Printer, Report, UsageError, print_aside, print_failure, print_to_stderr
from mcp_host.cli.transcript import Transcript
from mcp_host.client.client import Client
from mcp_host.client.pins import ToolPins
from mcp_host.concurrency import signals
from mcp_host.errors import ConnectionClosed, McpError, NotConnected, ProviderError, escaped
from mcp_host.group import ClientGroup, ServerStatus
from mcp_host.group.instructions import instructions_of_all
from mcp_host.limits import Limits
from mcp_host.providers.exchange.streams import Delta
from mcp_host.sampling import Approvals, LoopResult, ProposedCall, Sampling, SamplingRequest, Step, run_tool_loop
from mcp_host.sampling.approval import Allow, Deny
from mcp_host.sampling.loop.tools import TooManyTools
from mcp_host.terminal.device import QUIET
from mcp_host.types.content import as_text
from mcp_host.types.tool_changes import ToolChange

PROMPT = "> "
HELP = (
    "Ctrl-C stops an answer. /servers and /tools show what there is. /clear forgets the conversation. /quit and Ctrl-D"
    " end it."
)
COMMAND = re.compile(r"/\w*|/login .*")  # any other, such as /help or a mistyped one: it is not sent to the model
CTRL_C_HINT = "Ctrl-C again or Ctrl-D ends the conversation."
SIGNAL_DELAY = 0.2  # seconds; a wait does not end by a signal that came just before it, or to another thread
MAX_TURNS = 50  # answers of the model to one prompt; the person sees them, and can stop it

NOT_MADE = Deny("the user stopped this answer")
STOPPED = "The user stopped this call, which may have run."

REFUSALS = frozenset({400, 413, 422})  # HTTP statuses of providers for a request that is too long, among other things
TOO_LONG = "If each prompt fails so, the conversation is too long: /clear forgets it."

NOTES = {
    "maxTokens": "The answer is cut off: it has as many tokens as --max-tokens allows.",
    "refusal": "The model refused to answer.",
    "content_filter": "The provider withheld the answer.",
}
"""Remarks on an answer that is not complete, by its stop reason."""


def run(options: Options) -> Report:
    """Talk to the model at the terminal. If stdin is not a terminal, all of it is the only prompt.

    Raises:
        UsageError: The URL or a header is invalid, there is no such model, or there is no prompt.
        McpError: The server cannot be reached.
    """
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a lone surrogate could not be sent
    if not sys.stdin.isatty():
        prompt = sys.stdin.read().strip()  # here, because a signal ends the command between two steps of an event loop
        if not prompt:
            raise UsageError("stdin is empty: pipe the prompt to it, or run the command at a terminal")
        return Report(code=signals.run(_answer, prompt, _chat(options)))
    with suppress(ImportError):
        import readline  # noqa: F401  # importing it makes `input` edit lines, and remember them
    chat, opened, ended = _chat(options), Future[None](), Event()
    with start_blocking_portal() as portal:
        connection = portal.start_task_soon(_keep_open, chat, opened, ended)
        _wait(opened, connection)
        try:
            if opened.done():
                _converse(chat, portal)
        finally:
            portal.call(ended.set)
            _wait(connection)
            connection.result()
    return Report()


def _chat(options: Options) -> Chat:
    return Chat(partial(make_model, options), Transcript(sys.stdout, Printer(sys.stderr)), options)


async def _keep_open(chat: Chat, opened: Future[None], ended: Event) -> None:
    async with chat.open():
        opened.set_result(None)
        await ended.wait()


def _wait(*futures: Future[Any]) -> None:
    """Wait for the first of *futures*. Ctrl-C is handled meanwhile."""
    while not wait(futures, SIGNAL_DELAY, FIRST_COMPLETED).done:
        pass


async def _answer(prompt: str, chat: Chat) -> ExitCode:
    async with chat.open():
        return await chat.turn(prompt)


# The person


def _converse(chat: Chat, portal: BlockingPortal) -> None:
    """Take turns until the person ends the conversation."""
    for line in prompts():
        match line:
            case "/quit":
                return
            case "/clear":
                chat.messages.clear()
            case command if COMMAND.fullmatch(command):
                _run(chat, portal, chat.command, command)
            case prompt:
                _run(chat, portal, chat.turn, prompt)
                print_to_stderr("")


def _run(chat: Chat, portal: BlockingPortal, act: Callable[[str], Awaitable[object]], line: str) -> None:
    """Do what a line asks for. Ctrl-C stops it."""
    with _stopped_by_ctrl_c(chat, portal):
        acting = portal.start_task_soon(act, line)
        _wait(acting)
        acting.result()


def read_line(prompt: str) -> str:
    """As `input`, but if stdout is not a terminal, the prompt goes to stderr: stdout has only the answers."""
    if not sys.stdout.isatty():
        print_to_stderr(prompt, end="")
        prompt = ""
    return input(prompt)


def _has_more() -> bool:
    """Whether more was typed with the last line, such as the rest of a paste."""
    if sys.platform == "win32":  # select is for sockets there
        return False
    return bool(select([sys.stdin], [], [], QUIET)[0])


def prompts(read: Callable[[str], str] = read_line, has_more: Callable[[], bool] = _has_more) -> Iterator[str]:
    """The prompts that the person types, until the end. Lines that come together were pasted: they are one prompt.

    Ctrl-C drops what was typed, and a second one ends the conversation.
    """
    interrupted = ended = False
    while not ended:
        lines: list[str] = []
        try:
            while not lines or has_more():
                lines.append(read("" if lines else PROMPT))
        except EOFError:
            print_to_stderr("")
            ended = True
        except KeyboardInterrupt:
            print_to_stderr(f"\n{'' if interrupted else CTRL_C_HINT}".rstrip())
            interrupted, ended = True, interrupted
            continue
        interrupted = False
        text = "\n".join(lines).strip()
        if "\n" in text:
            print_to_stderr(f"({len(text.splitlines())} lines pasted)")
        if text:
            yield text


@contextmanager
def _stopped_by_ctrl_c(chat: Chat, portal: BlockingPortal) -> Iterator[None]:
    """In the block, Ctrl-C stops the turn."""
    before = signal.signal(signal.SIGINT, lambda *_: portal.start_task_soon(chat.stop))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# The conversation


def _may_refuse_conversation(failure: Exception) -> bool:
    """Whether a provider may have failed because of the conversation, so that later prompts fail, too.

    Few have a code for one that is too long; behind HTTP 200 there is only the code.
    """
    return isinstance(failure, ProviderError) and (
        failure.status in REFUSALS or failure.code == "context_length_exceeded"
    )


class Chat(Console):
    """A conversation. *client* is set by `open`, before the first turn."""

    client: Client | ClientGroup

    def __init__(self, make: Callable[..., Model], transcript: Transcript, options: Options) -> None:
        self.messages: list[types.SamplingMessage] = []
        self.approve = approver(options, self)
        self._model = make(show=transcript.note, on_delta=self._on_delta)
        self._transcript = transcript
        self._options = options
        self._approvals = Approvals(self.approve)
        self._keyboard = Semaphore(1)  # taken while the person types a prompt, and by each question
        self._login_scope: CancelScope | None = None
        self._turn_scope: CancelScope | None = None
        self._request: SamplingRequest | None = None  # the one that the model answers in this turn
        self._said = ""  # the text of its answer so far
        self._runs_calls = False  # those of its answer
        self._call_scopes: set[CancelScope] = set()  # of these calls, and of the question about one
        self._stopped = False
        self._end = ""  # how the server has ended, as the person has seen
        self._shown: dict[str, ServerStatus] = {}  # what the person has seen of each server of a file

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connect to its servers, and close them at the end."""
        options, transcript = self._options, self._transcript
        sampling = Sampling(with_tools=self.answer_server, approve=self.approve)
        pins = None if options.pins is None else ToolPins(file=options.pins, on_changed=self.show_change)
        async with connected(options, sampling, pins=pins, console=self) as self.client:
            if sys.stdin.isatty():
                transcript.note(f"{options.model}, with the tools of")
                self.show_servers(since=False)
                transcript.note(HELP)
            await self.begin_prompt()
            try:
                yield
            finally:
                transcript.resume()

    async def turn(self, prompt: str) -> ExitCode:
        """Answer *prompt*, and print what happens. Returns `ExitCode.OK` only if the answer is complete.

        If the turn is stopped or fails, what was said and done in it stays in the conversation. A prompt that failed
        before anything else was is dropped: it may be what the provider refuses.
        """
        steps: list[Step] = []
        failure: Exception | None = None
        result: LoopResult | None = None
        user_message = types.UserMessage(prompt)
        await self._end_prompt()
        with CancelScope() as self._turn_scope:
            try:
                result = await run_tool_loop(
                    self._ask,
                    messages=[*self.messages, user_message],
                    tools=[_StoppableTools(self, self.client)],
                    system_prompt=self._system_prompt(),
                    max_tokens=self._options.max_tokens,
                    approve=self._approve_call,
                    max_tools=self._options.max_tools,
                    max_turns=MAX_TURNS,
                    timeout=math.inf,
                    tool_timeout=self._options.timeout or Limits().timeout,
                    on_turn=partial(self._add, steps),
                )
            except TooManyTools as exc:
                failure = UsageError(
                    f"{exc.counted}, and --max-tools is {exc.most}: raise it, if the model takes more (OpenAI's take 128)"
                )
            except (McpError, ValueError) as exc:  # ValueError: the server's tools cannot be offered
                failure = exc
        self._turn_scope = None
        self._transcript.end_text()
        if result is not None:
            self.messages = result.messages
            code = self._finish(result)
        elif failure is not None:
            if steps or self._said:
                self._keep_unfinished(user_message, steps, "This answer failed.")
            self.show_failure(failure)
            if self.messages and _may_refuse_conversation(failure) and sys.stdin.isatty():
                self._transcript.note(TOO_LONG)
            code = ExitCode.of(failure)
        else:
            self._keep_unfinished(user_message, steps, "The user stopped this answer.")
            self._transcript.note("Stopped.")
            code = ExitCode.INTERRUPTED
        await self.begin_prompt()
        return code

    async def command(self, line: str) -> None:
        """Do what the person asks for with a slash."""
        await self._end_prompt()
        word, _, name = line.partition(" ")
        with CancelScope() as self._turn_scope:
            try:
                match word:
                    case "/servers":
                        self.show_servers()
                    case "/tools":
                        await self._show_tools()
                    case "/login" if isinstance(self.client, ClientGroup):
                        await self._log_in(self.client, name.strip())
                    case _:
                        self._transcript.note(HELP)
            except McpError as exc:
                self.show_failure(exc)
        self._turn_scope = None
        await self.begin_prompt()

    async def _log_in(self, group: ClientGroup, name: str) -> None:
        was_ready = name in group.status() and group.status()[name].state == "ready"
        await group.log_in(name)  # of one that is ready, too: its tools may be others by now
        if was_ready:
            self._transcript.note(f"{escaped(name)} is ready: it needs no login now.")

    async def _end_prompt(self) -> None:
        """The person has typed a line: undo `begin_prompt`, and say if the server has ended meanwhile."""
        self._said, self._runs_calls, self._stopped = "", False, False
        self._keyboard.release()
        self._transcript.resume()
        if isinstance(self.client, Client) and not self.client.connected:
            with suppress(NotConnected):  # it is being opened
                end = await self.client.wait_closed()
                if str(end) != self._end:
                    self.show_end(end)

    async def begin_prompt(self) -> None:
        """Leave the keyboard to the person when no question is open any more. The next turn takes it back."""
        await self._keyboard.acquire()
        self._transcript.pause()

    def stop(self) -> None:
        """Stop the turn, and a login, which may run in a task of the connection and not in the turn.

        Calls are stopped alone: each of them then has a result for the conversation, and the turn ends after them.
        """
        self._stopped = True
        in_turn = self._call_scopes if self._runs_calls else [self._turn_scope]
        for scope in (*in_turn, self._login_scope):
            if scope is not None:
                scope.cancel()

    @contextmanager
    def stoppable_call(self) -> Iterator[None]:
        """In the block, a call of the answer runs or is asked about. `stop` ends this block, and those that begin after it."""
        with CancelScope() as scope:
            if self._stopped:
                scope.cancel()
            self._call_scopes.add(scope)
            try:
                yield
            finally:
                self._call_scopes.remove(scope)

    def with_keyboard(self, ask: Callable[[RequestT], Awaitable[AnswerT]]) -> Callable[[RequestT], Awaitable[AnswerT]]:
        """*ask*, which asks the person in the terminal, but only while no prompt is typed and nothing is printed."""

        async def ask_alone(request: RequestT) -> AnswerT:
            async with self._question():
                return await ask(request)

        return ask_alone

    @asynccontextmanager
    async def login(self) -> AsyncIterator[None]:
        """Log in inside of the block, which begins when no prompt is typed any more.

        Raises:
            LoginFailed: The person stopped it.
        """
        async with self._question():
            with CancelScope() as self._login_scope:
                yield
            if not self._login_scope.cancelled_caught:
                return
            from mcp_host.auth import LoginFailed  # here, because importing it takes a while

            raise LoginFailed("the login was stopped", "access_denied")

    @asynccontextmanager
    async def _question(self) -> AsyncIterator[None]:
        async with self._keyboard:
            self._transcript.pause()
            try:
                yield
            finally:
                self._transcript.resume()

    async def answer_server(self, request: SamplingRequest) -> types.CreateMessageResult:
        """Send a request of the server to the model."""
        self._transcript.server_asks(request)
        return await self._model(request)

    def show_servers(self, *, since: bool = True) -> None:
        """Print which servers there are, and what is known about each."""
        if not isinstance(self.client, ClientGroup):
            self._transcript.server(self.client.name, self.client.server_info)
            return
        clients = self.client.clients
        for status in self.client.status().values():
            info = clients[status.name].server_info if status.state == "ready" else None
            self._shown[status.name] = status
            self._transcript.status(status, info, since=since)

    async def show_status(self, status: ServerStatus) -> None:
        """Print what has changed about a server of a file, unless it has changed again."""
        shown = self._shown.get(status.name)
        if shown is None or not isinstance(self.client, ClientGroup):
            return  # the person will see it at the beginning
        is_news = (status.state, status.restarts) != (shown.state, shown.restarts)
        if is_news and self.client.status()[status.name] == status:
            self._shown[status.name] = status
            self._transcript.status(status)

    async def _show_tools(self) -> None:
        tools = await self.client.list_tools()
        self._transcript.aside(partial(show_tools, tools, self._transcript.printer))

    def _system_prompt(self) -> str | None:
        """What the person has given, and what the servers say about their use, quoted as theirs."""
        client = self.client
        said = client.instructions
        if said and isinstance(client, Client):
            said = instructions_of_all({client.name: said})
        return "\n\n".join(filter(None, [self._options.system, said])) or None

    def show(self, text: str, server: str = "") -> None:
        self._transcript.aside(partial(print_aside, text, server))

    def show_end(self, end: ConnectionClosed) -> None:
        """Print how a server has ended."""
        self._end = str(end)
        self.show_failure(end)

    async def show_change(self, change: ToolChange) -> bool:
        """Print that a tool is blocked."""
        self.show_failure(blocked(change, self._options))
        return False

    def show_failure(self, failure: Exception) -> None:
        """Print why something has failed."""
        self._transcript.aside(partial(print_failure, failure))

    async def _approve_call(self, call: ProposedCall) -> Allow | Deny:
        """Decide on a call. A tool that is allowed for the session is allowed in later turns, too."""
        decision: Allow | Deny = NOT_MADE
        with self.stoppable_call():
            decision = await self._approvals.decide(call)
        return NOT_MADE if self._stopped else decision

    async def _ask(self, request: SamplingRequest) -> types.CreateMessageResult:
        self._request, self._said = request, ""
        answer = await self._model(request)
        if not self._said:  # the model does not stream
            self._said = answer.text
            self._transcript.text(answer.text)
        self._transcript.end_text()
        for block in answer.content:
            if isinstance(block, types.ToolUseContent):
                self._transcript.calls(block)
            elif isinstance(block, types.ImageContent | types.AudioContent):
                self._transcript.content(as_text(block))
        self._runs_calls = bool(answer.tool_uses)
        return answer

    def _on_delta(self, delta: Delta) -> None:
        if delta.request is self._request:  # not one of the server
            self._said += delta.text
            self._transcript.text(delta.text)

    async def _add(self, steps: list[Step], step: Step) -> None:
        steps.append(step)
        self._said, self._runs_calls = "", False
        for call in step.calls:
            self._transcript.result(call)
        if self._stopped:
            self.stop()  # the turn, now that its calls have ended
            await checkpoint_if_cancelled()

    def _finish(self, result: LoopResult) -> ExitCode:
        note = NOTES.get(result.stop_reason or "")
        if self.messages[-1].role == "user":  # the answer is empty
            self.messages.append(types.AssistantMessage("(no answer)"))
            note = note or "The model gave no answer."
        if result.ended == "max_turns":
            note = f"The model was stopped: it has answered {MAX_TURNS} times."
        if note is not None:
            self._transcript.note(note)
        if result.usage is not None:
            self._transcript.usage(result.usage)
        return ExitCode.OK if note is None else ExitCode.MODEL_ERROR

    def _keep_unfinished(self, user_message: types.SamplingMessage, steps: list[Step], why: str) -> None:
        """Keep what was said and done in a turn that did not end. Providers require an answer before the next prompt."""
        kept = [message for step in steps for message in step.messages]
        self.messages += [user_message, *kept, types.AssistantMessage(f"{self._said}\n({why})".strip())]


@dataclass(frozen=True, slots=True)
class _StoppableTools:
    """The tools of a conversation, as a loop takes those of a group. A call that the person stops has a result."""

    chat: Chat
    client: Client | ClientGroup
    approvals: None = None

    @property
    def name(self) -> str:
        return self.client.name

    @property
    def clients(self) -> Mapping[str, Client]:
        return self.client.clients if isinstance(self.client, ClientGroup) else {self.client.name: self.client}

    def server_of(self, name: str) -> str:
        return self.client.server_of(name) if isinstance(self.client, ClientGroup) else self.client.name

    async def list_tools(self, *, timeout: float | None = None) -> list[types.Tool]:
        return await self.client.list_tools(timeout=timeout)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        caller: object = None,
    ) -> types.CallToolResult:
        with self.chat.stoppable_call():
            try:
                return await self.client.call_tool(name, arguments, timeout=timeout, caller=caller)
            except ConnectionClosed as exc:  # the model is not told why: how the server ended is for the person
                self.chat.show_end(exc)
                raise
        return types.CallToolResult(content=[types.TextContent(text=STOPPED)], is_error=True)

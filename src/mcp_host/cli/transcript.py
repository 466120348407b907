"""What `chat` prints: the model's text as it comes, tool calls and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TextIO

from mcp_host.cli.output import INDENT, Printer, as_json, columns_of, writing
from mcp_host.errors import excerpt
from mcp_host.group import ServerStatus
from mcp_host.protocol.server_names import with_claim
from mcp_host.sampling import FinishedCall, SamplingRequest
from mcp_host.terminal.text import NAME_SHOWN, StreamedText, Style
from mcp_host.types import Implementation, ToolUseContent
from mcp_host.types.content import as_text

ARGUMENTS_SHOWN = 300  # characters of one call
RESULT_SHOWN = 600  # characters of one result
LINES_SHOWN = 6


class Transcript:
    """Prints a conversation: the model's text to *answers*, everything else with *printer*.

    While the person types a prompt or the answer to a question, it prints nothing. What comes is printed afterwards.
    """

    def __init__(self, answers: TextIO, printer: Printer) -> None:
        self.printer = printer
        self._answers = answers
        self._text = StreamedText()
        self._in_text = False
        self._pauses = 0
        self._waiting: list[Callable[[], None]] = []

    def text(self, text: str) -> None:
        """The next piece of the model's text."""
        self._print(partial(self._write, text))

    def end_text(self) -> None:
        """The model's text has ended."""
        self._print(self._end_text)

    def calls(self, use: ToolUseContent) -> None:
        """The model calls a tool."""
        arguments = excerpt(as_json(use.input), ARGUMENTS_SHOWN)
        self._field("calls", f"{excerpt(use.name, NAME_SHOWN)} {arguments}", "cyan")

    def result(self, call: FinishedCall) -> None:
        """A call has ended."""
        text = "\n".join(map(as_text, call.result.content)).strip()
        if not text and call.result.structured_content is not None:
            text = as_json(call.result.structured_content)
        lines = text.splitlines()
        shown = "\n".join(lines[:LINES_SHOWN])[:RESULT_SHOWN]
        if len(lines) > LINES_SHOWN or len(text) > RESULT_SHOWN:
            shown += f"\n... ({len(text):,} characters)"
        name = excerpt(call.use.name, NAME_SHOWN)
        self._field("error" if call.result.is_error else "result", f"{name}: {shown}", "cyan", prose=True)

    def content(self, text: str) -> None:
        """A part of an answer that is not text."""
        self._field("answer", text)

    def server_asks(self, request: SamplingRequest) -> None:
        """A request of the server goes to the model."""
        self._field("model", f"asked by {with_claim(excerpt(request.server, NAME_SHOWN), request.server_info)}", "cyan")

    def note(self, text: str) -> None:
        """A remark of the command itself."""
        self.aside(partial(self.printer.line, text, "dim"))

    def server(self, name: str, info: Implementation) -> None:
        """A server, and what it calls itself."""
        shown = with_claim(excerpt(name, NAME_SHOWN), info)
        self.aside(partial(self.printer.paragraph, shown, "dim", indent=len(INDENT)))

    def status(self, status: ServerStatus, info: Implementation | None = None, *, since: bool = True) -> None:
        """What is known about a server of a file, and what it calls itself; *since* when, if the person wants to know."""
        claim, error = with_claim(status.name, info).removeprefix(status.name).strip(), reason(status)
        if error and status.state == "ready":
            error = f"the last error: {error}"
        text = "\n".join(filter(None, [about(status, since=since), claim, error]))
        self._field(excerpt(status.name, NAME_SHOWN), text, "dim")

    def usage(self, usage: Mapping[str, float]) -> None:
        """The tokens that a turn used."""
        if "inputTokens" in usage and "outputTokens" in usage:
            self.note(f"({usage['inputTokens']:,.0f} tokens in, {usage['outputTokens']:,.0f} out)")

    def aside(self, write: Callable[[], None]) -> None:
        """Call *write*, which prints whole rows, after the row of the model's text is ended."""
        self._print(self._end_text)
        self._print(write)

    def pause(self) -> None:
        """Print nothing while the person types something. Each call needs one of `resume`."""
        self._end_text()
        self._pauses += 1

    def resume(self) -> None:
        """Undo one `pause`. After the last, print what came meanwhile."""
        self._pauses -= 1
        if not self._pauses:
            waiting, self._waiting = self._waiting, []
            for action in waiting:
                action()

    def _field(self, label: str, text: str, style: Style | None = None, *, prose: bool = False) -> None:
        self.aside(partial(self.printer.field, label, text, style, prose=prose))

    def _print(self, action: Callable[[], None]) -> None:
        if self._pauses:
            self._waiting.append(action)
        else:
            action()

    def _write(self, text: str) -> None:
        if not self._in_text:
            self._text, self._in_text = StreamedText(indent=INDENT if self._answers.isatty() else ""), True
        self._fold()
        self._put(self._text.add(text))

    def _end_text(self) -> None:
        if self._in_text:
            self._fold()
            self._put(self._text.end())
            self._in_text = False

    def _put(self, text: str) -> None:
        if text:
            with writing(self._answers):
                self._answers.write(text)
                self._answers.flush()

    def _fold(self) -> None:
        """On a terminal, every row of the model's text is indented, so that it cannot look like one of ours."""
        if self._answers.isatty():
            self._text.columns = columns_of(self._answers)


def about(status: ServerStatus, *, since: bool = True) -> str:
    """The state of a server in one line, and *since* when it has that."""
    parts = [status.state.replace("_", " ")]
    if since:
        parts[0] += f" since {status.since.astimezone():%H:%M:%S}"
    if status.state == "ready":
        parts += [f"revision {status.protocol_version}", f"tools: {status.tools}"]
    if status.state == "needs_login":
        parts.append(f"/login {status.name} begins one")
    if status.restarts:
        parts.append(f"restarts: {status.restarts}")
    return ", ".join(parts)


def reason(status: ServerStatus) -> str:
    """The last error of a server, without its name, or nothing."""
    return (status.error or "").removeprefix(f"{status.name}: ")

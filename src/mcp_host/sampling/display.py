"""What a person approves, as text: a sampling request, a tool call of ours or a server of a file, in a few rows or whole."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from typing import Any, Protocol

from anyio.lowlevel import checkpoint
from pydantic_core import PydanticSerializationError, to_json

from mcp_host.errors import excerpt
from mcp_host.sampling.proposed_server import ProposedServer
from mcp_host.sampling.request import SamplingRequest
from mcp_host.sampling.shown import as_json, rest_of, texts_of, unseen
from mcp_host.terminal.browser import lookalike_rows
from mcp_host.terminal.fields import Field, each_field, signature
from mcp_host.terminal.text import NAME_SHOWN, Layout, Rows
from mcp_host.types import (
    Implementation,
    JSONObject,
    SamplingMessage,
    Tool,
    ToolResultContent,
)
from mcp_host.types.base import Model
from mcp_host.types.sampling import SamplingMessageContentBlock

# Few enough to read all of it before saying yes.
MESSAGES_SHOWN = 6
ROWS_SHOWN = 12  # of a message or the system prompt
SETTING_ROWS_SHOWN = 3  # of each, so that a long one does not hide the next
TOOLS_SHOWN = 16
TOOL_ROWS_SHOWN = 60  # of all tools
SIGNATURE_SHOWN = 480  # characters of one tool's name and parameters
PARAMETERS_SHOWN = 8  # of one tool, with what they are for
DESCRIPTION_SHOWN = 160  # characters of what a tool or a parameter is for
TEXT_SHOWN = 4000  # characters of one block or argument, before rows are counted
FIELDS_AT_ONCE = 16  # of a schema, before other tasks run: the first may lead to hundreds of alternatives
ARGUMENT_ROWS_SHOWN = 60  # of all arguments

HINT = "v shows all"

OWN_PLACE = ("messages", "systemPrompt", "maxTokens", "tools", "toolChoice")  # in the page
FOR_PROGRAMS = ("_meta", "task")  # no adapter writes them


class ToolCallRequest(Protocol):
    """A tool call of ours that is to be approved: `mcp_host.middleware.ClientRequest`, which is a layer above."""

    @property
    def server(self) -> str: ...
    @property
    def server_info(self) -> Implementation | None: ...
    @property
    def params(self) -> Mapping[str, Any]: ...
    @property
    def tool(self) -> Tool | None: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What of a request the person has seen before: the first *messages*, the system prompt, the tools."""

    messages: int = 0
    system_prompt: bool = False
    tools: bool = False


NOTHING = Seen()


class SeenBefore:
    """Digests of what was shown, of one call or of one server where the call is not known. The oldest are forgotten."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def seen(self, digests: Sequence[bytes]) -> Seen:
        """What of the request with these *digests* was shown before."""
        *messages, system_prompt, tools = [digest in self._digests for digest in digests]
        count = next((index for index, seen in enumerate(messages) if not seen), len(messages))
        return Seen(count, system_prompt, tools)

    def add(self, digests: Sequence[bytes]) -> None:
        """The request with these *digests* was shown."""
        for digest in digests:
            self._digests[digest] = None
            self._digests.move_to_end(digest)
        while len(self._digests) > self._most:
            self._digests.popitem(last=False)


async def digests_of(request: SamplingRequest) -> list[bytes]:
    """One for the conversation up to each message, one for the system prompt and one for the tools.

    Other tasks can run after each block and each tool.
    """
    call = None if request.outer is None else request.outer.call_id
    start = sha256(json.dumps([request.server, call]).encode())
    conversation, system_prompt, tools = start.copy(), start.copy(), start.copy()
    digests: list[bytes] = []
    for message in request.messages:
        for part in _parts(message):
            conversation.update(_written(part))
            await checkpoint()
        digests.append(conversation.digest())
    system_prompt.update(f"system prompt {request.system_prompt!r}".encode())
    tools.update(b"tools")
    for tool in request.tools:
        tools.update(_written(tool))
        await checkpoint()
    return [*digests, system_prompt.digest(), tools.digest()]


def _parts(message: SamplingMessage) -> Iterator[Model]:
    """A message and its blocks, each without the next."""
    yield message
    for block in message.content:
        yield block
        if isinstance(block, ToolResultContent):
            yield from block.content


def _written(part: Model) -> bytes:
    """What makes the difference between parts: ten times as fast as their JSON, and half of a surrogate pair is no error."""
    return repr([{**vars(part), "content": len(getattr(part, "content", ()))}, part.model_extra]).encode()


def describe(
    request: SamplingRequest, layout: Layout, *, seen: Seen = NOTHING, whole: bool = False, hint: str = HINT
) -> Rows:
    """The request in rows: who asks, the prompt, the tools, the messages.

    Without *whole*, what was *seen* before is only counted, and long parts are cut.
    Control characters, terminal escapes and characters that turn the direction of
    text are written as escapes such as ``\\x1b``. What is left out is counted, with the *hint* how to see it.

    With *whole* everything is there that the server sent, but for files: the bytes of images, sounds and PDF files.
    """
    return _SamplingPage(layout, whole, request, seen, hint=hint).rows()


def describe_call(request: ToolCallRequest, layout: Layout, *, whole: bool = False) -> Rows:
    """The tool call in rows, as `describe` does it: the server, the tool as it is listed, the arguments as they are sent."""
    return _CallPage(layout, whole, request).rows()


def describe_server(proposed: ProposedServer, layout: Layout, *, whole: bool = False) -> Rows:
    """The server of a file in rows, as `describe` does it: its file, its command line or URL, and what it was before."""
    return _ServerPage(layout, whole, proposed).rows()


@dataclass(frozen=True, slots=True)
class _Page:
    layout: Layout
    whole: bool
    _: KW_ONLY
    hint: str = HINT

    def tool(self, tool: Tool) -> Rows:
        fields = list[Field]()
        for field in each_field(tool.input_schema):
            if len(fields) % FIELDS_AT_ONCE == 0:
                yield None
            fields.append(field)
        described = [field for field in fields if field.description]
        name, call = excerpt(tool.name, NAME_SHOWN), signature(tool.name, fields)
        call = call if self.whole else excerpt(call, SIGNATURE_SHOWN)
        yield from self.layout.theirs(call.removeprefix(name) + self.about(tool.description), lead=name, hang=4)
        for field in described[: self.most(PARAMETERS_SHOWN)]:
            lead = excerpt(field.name, NAME_SHOWN)
            yield from self.layout.theirs(self.about(field.description), lead=lead, indent=4, hang=4)
        if self.whole:
            rest = yield from as_json(rest_of(tool, ("name", "description") if name == tool.name else ("description",)))
            yield from self.layout.theirs(f"with {rest}", indent=4, hang=4)
            return
        seen = [call, *(self.about(field.description) for field in described[:PARAMETERS_SHOWN])]
        if hidden := unseen(tool.input_schema, "\n".join(seen)):
            note = f"... and {hidden} more character{'s' * (hidden > 1)} in its schema: {self.hint}"
            yield from self.layout.theirs(note, indent=4, hang=4, style="dim")

    def about(self, description: str | None) -> str:
        if not description:
            return ""
        return f": {description if self.whole else excerpt(' '.join(description.split()), DESCRIPTION_SHOWN)}"

    def text(self, text: str, *, lead: str = "", hang: int = 0) -> Rows:
        yield from self.layout.theirs(text[: self.most(TEXT_SHOWN)], lead=lead, hang=hang)
        if not self.whole and len(text) > TEXT_SHOWN:
            yield from self.layout.theirs(f"... of {len(text)} characters", style="dim")

    def heading(self, text: str) -> Rows:
        return self.layout.ours(text, "cyan")

    def most(self, shown: int) -> int | None:
        """The bound on what is shown."""
        return None if self.whole else shown


@dataclass(frozen=True, slots=True)
class _SamplingPage(_Page):
    request: SamplingRequest
    seen: Seen

    def rows(self) -> Rows:
        request = self.request
        yield from self.layout.ours(f"A server asks to use your model, for up to {request.max_tokens} tokens", "bold")
        yield from self.layout.who_asks(request.server, request.server_info, request.outer)
        if request.system_prompt is not None:
            yield from self.system_prompt(request.system_prompt)
        if request.tools:
            yield from self.tools()
        if request.required_tool is not None:
            yield from self.heading("the model has to call")
            name = request.required_tool
            yield from self.layout.theirs(name if self.whole else excerpt(name, NAME_SHOWN))
        if settings := self.settings():
            yield from self.heading("settings")
            rows = (row for name, value in settings.items() for row in self.setting(name, value))
            yield from self.layout.cut(rows, self.most(ROWS_SHOWN))
        yield from self.messages()

    def settings(self) -> JSONObject:
        """What else the server wants: a temperature, metadata for the provider."""
        params = self.request.params
        settings = rest_of(params, OWN_PLACE if self.whole else (*OWN_PLACE, *FOR_PROGRAMS))
        if params.tool_choice is not None and (choice := rest_of(params.tool_choice, ("mode", "name"))):
            settings["toolChoice"] = choice
        return settings

    def setting(self, name: str, value: object) -> Rows:
        lead = name if self.whole else excerpt(name, NAME_SHOWN)
        written = yield from as_json(value)
        yield from self.layout.cut(self.text(f": {written}", lead=lead, hang=4), self.most(SETTING_ROWS_SHOWN))

    def system_prompt(self, prompt: str) -> Rows:
        if self.seen.system_prompt and not self.whole:
            yield from self.layout.ours("(system prompt, as before)", "dim")
            return
        yield from self.heading("system prompt")
        yield from self.layout.cut(self.text(prompt), self.most(ROWS_SHOWN))

    def tools(self) -> Rows:
        choice = self.request.tool_choice
        mode = choice.mode if choice is not None else None
        tools = self.request.tools
        about = f"{len(tools)}; {mode or 'auto'}"
        if self.seen.tools and not self.whole:
            yield from self.layout.ours(f"(tools, as before: {about})", "dim")
            return
        yield from self.heading(f"tools, run by the server ({about})")
        shown = tools[: self.most(TOOLS_SHOWN)]
        yield from self.layout.cut((row for tool in shown for row in self.tool(tool)), self.most(TOOL_ROWS_SHOWN))
        if len(shown) < len(tools):
            yield from self.layout.theirs(f"... and {len(tools) - len(shown)} more tools", style="dim")

    def messages(self) -> Rows:
        messages = self.request.messages
        first = 0 if self.whole else max(min(self.seen.messages, len(messages) - 1), len(messages) - MESSAGES_SHOWN, 0)
        if first:
            yield from self.layout.ours(self.earlier(first), "dim")
        for message in messages[first:]:
            yield from self.message(message)

    def earlier(self, hidden: int) -> str:
        new = hidden - self.seen.messages
        some = f", {new} of them new" if self.seen.messages and new > 0 else ""
        return f"({hidden} earlier message{'s' * (hidden > 1)}{some}: {self.hint})"

    def message(self, message: SamplingMessage) -> Rows:
        yield from self.heading(message.role)
        yield from self.layout.cut(self.blocks(message.content), self.most(ROWS_SHOWN))
        if self.whole and (rest := rest_of(message, ("role", "content"))):
            written = yield from as_json(rest)
            yield from self.text(f"with {written}")

    def blocks(self, blocks: Sequence[SamplingMessageContentBlock]) -> Rows:
        for block in blocks:
            for text in texts_of(block, whole=self.whole):
                if text is None:
                    yield None
                else:
                    yield from self.text(text)


@dataclass(frozen=True, slots=True)
class _CallPage(_Page):
    request: ToolCallRequest

    def rows(self) -> Rows:
        yield from self.layout.ours("Your client wants to call a tool of", "bold")
        yield from self.layout.server(self.request.server, self.request.server_info)
        tool = self.request.tool
        if tool is None:
            yield from self.heading("tool, not listed")
            yield from self.layout.cut(self.text(str(self.request.params.get("name"))), self.most(ROWS_SHOWN))
        else:
            yield from self.heading("tool, as the server lists it")
            yield from self.layout.cut(self.tool(tool), self.most(TOOL_ROWS_SHOWN))
        yield from self.heading("arguments")
        yield from self.layout.cut(self.arguments(self.request.params.get("arguments")), self.most(ARGUMENT_ROWS_SHOWN))

    def arguments(self, arguments: object) -> Rows:
        """One after the other, so that a long one does not hide the next."""
        if not isinstance(arguments, Mapping) or not arguments:
            yield from self.text(_json(arguments))
            return
        for name, value in arguments.items():
            lead = _json(name) if self.whole else excerpt(_json(name), NAME_SHOWN)
            yield from self.layout.cut(self.text(f": {_json(value)}", lead=lead, hang=4), self.most(ROWS_SHOWN))


WHOSE = {
    "project": "A file of this project brings a server",
    "local": "A file of yours for this project brings a server",
    "user": "A file of yours brings a server",
    "managed": "A file of your administrator brings a server",
    None: "A file brings a server",
}

LOOKALIKE = "It names a host with letters that may look like others: is it the one that you know?"
_HOST = re.compile(r"(?://|@)([^\s/?#'\"]+)")  # in a URL, or git@github.com

SAME = "the same as far as it is shown: a hidden value, or something else in its entry or its files, has changed"


@dataclass(frozen=True, slots=True)
class _ServerPage(_Page):
    proposed: ProposedServer

    def rows(self) -> Rows:
        """What decides most comes last, beside the question: nothing that a file says moves it out of sight."""
        proposed = self.proposed
        changed = "" if proposed.previous is None else ", which has changed since you agreed to it"
        yield from self.layout.ours(f"{WHOSE[proposed.scope]}{changed}", "bold")
        yield from self.text(f" in {proposed.path}", lead=excerpt(proposed.name, NAME_SHOWN), hang=4)
        yield from self.several("what is not obeyed of its entry", proposed.warnings)
        if self.whole:
            yield from self.several("its other settings", proposed.settings)
        if proposed.previous is not None:
            same = proposed.previous == proposed.expanded
            yield from self.part("what you agreed to", SAME if same else proposed.previous)
        if proposed.written != proposed.expanded:
            yield from self.part("as the file has it", proposed.written)
        yield from self.several("values of yours that it gets", proposed.expansions)
        yield from self.surroundings()
        if proposed.host is not None:
            if not _begins_with(proposed.expanded, proposed.host):
                yield from self.part("the host that it connects to", proposed.host)
            yield from lookalike_rows(proposed.host, self.layout)
        if _names_lookalike((*proposed.variables.values(), *([proposed.expanded] if proposed.host is None else []))):
            yield from self.layout.ours(LOOKALIKE, "yellow")
        is_command = proposed.kind == "command"
        yield from self.part("the command that is run on this machine" if is_command else "its URL", proposed.expanded)

    def surroundings(self) -> Rows:
        """What is given to it, and what else decides what is run."""
        proposed = self.proposed
        values = {name: f"{name}={value}" for name, value in proposed.variables.items()}
        deciding = [values.pop(name) for name in proposed.deciding]
        given = "variables of the environment" if proposed.kind == "command" else "headers"
        yield from self.several(f"{given} that the file gives it", values.values())
        if proposed.env_file is not None:
            yield from self.part("the file that more variables are from", proposed.env_file)
        yield from self.several("variables that can decide what is run, or where it sends what it gets", deciding)
        if proposed.cwd is not None:
            yield from self.part("the folder that it is started in", proposed.cwd)

    def several(self, heading: str, texts: Collection[str]) -> Rows:
        """Texts of one kind, if there are any. Each is cut by itself, so that a long one does not hide the next."""
        if texts:
            yield from self.heading(heading)
        most = self.most(SETTING_ROWS_SHOWN)
        rows = (row for text in texts for row in self.layout.cut(self.text(text, hang=4), most))
        yield from self.layout.cut(rows, self.most(ROWS_SHOWN))

    def part(self, heading: str, text: str) -> Rows:
        yield from self.heading(heading)
        yield from self.layout.cut(self.text(text, hang=4), self.most(ROWS_SHOWN))


def _begins_with(url: str, host: str) -> bool:
    """Whether *url* plainly begins with *host*, and all see it there: a user before it may look like a host."""
    return re.match(rf"https?://\[?{re.escape(host)}\]?(:\d+)?([/?#]|$)", url, re.IGNORECASE) is not None


def _names_lookalike(texts: Iterable[str]) -> bool:
    """Whether there is a host in one of *texts* with letters that may look like others."""
    return any(not host.isascii() for text in texts if not text.isascii() for host in _HOST.findall(text))


def _json(value: object) -> str:
    """What is sent. Something that JSON cannot express is shown too: the call then fails when it is sent."""
    try:
        return to_json(value).decode()
    except (PydanticSerializationError, ValueError):
        return repr(value)

"""Elicitation in the terminal: a form is asked field by field, a URL is opened after a yes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias

from mcp_host.elicitation.elicitation import FormRequest, UrlRequest, field_problem
from mcp_host.elicitation.form import are_numbered, display, expected, is_list, read_answer
from mcp_host.errors import excerpt
from mcp_host.handlers import as_async
from mcp_host.terminal.browser import is_opened, lookalike_rows, open_default
from mcp_host.terminal.device import NoTerminal, Terminal, checked_line, open_terminal
from mcp_host.terminal.fields import Choice, Field, read_fields
from mcp_host.terminal.text import NAME_SHOWN, Layout, Rows
from mcp_host.types import ElicitResult

logger = logging.getLogger(__name__)

ROWS_SHOWN = 12  # of a message, a description, a default; `/view` shows all
CHOICES_SHOWN = 20
TITLE_SHOWN = 160  # characters of a choice

Leave: TypeAlias = Literal["decline", "cancel"]

VISIT = {
    **dict.fromkeys(("y", "yes"), "open"),
    **dict.fromkeys(("m", "myself"), "myself"),
    **dict.fromkeys(("v", "view", "?"), "view"),
    **dict.fromkeys(("n", "no", ""), "decline"),
}
"""What to do with a URL, by the answer."""

COMMANDS = "/back /skip /view /decline /cancel"


async def fill_in_terminal(request: FormRequest, /) -> ElicitResult:
    """Ask the person in the terminal to fill in the form: a handler for ``Elicitation(form=fill_in_terminal)``.

    Each field is asked for in turn, with its type, its choices and its default, which Enter takes.
    Input that does not fit the schema is asked for again. In the end the person sees all
    answers, and sends, edits, declines or cancels. Ctrl-D cancels at any time.

    The terminal is found as by `ask_in_terminal`. Without one, or in the background, the form is
    cancelled, with a line in the log. POSIX only: on Windows the form is cancelled.
    """
    try:
        async with open_terminal() as terminal:
            return await FormDialog(request, terminal).run()
    except NoTerminal as exc:
        return _cancelled(request, exc)


def _cancelled(request: FormRequest | UrlRequest, reason: NoTerminal) -> ElicitResult:
    logger.warning("elicitation for %s is cancelled: %s", excerpt(request.server), reason)
    return request.cancel()


class FormDialog:
    """One form in an open terminal."""

    def __init__(self, request: FormRequest, terminal: Terminal) -> None:
        self._request = request
        self._terminal = terminal
        self._fields = read_fields(request.requested_schema)
        self._answers: dict[str, Any] = {}
        self._left_out: set[str] = set()
        self._looked_at: set[str] = set()  # whose defaults are checked: a form may have thousands

    async def run(self) -> ElicitResult:
        """Ask for all fields, then whether to send the answers; and again what the person wants to change."""
        await self._terminal.show(self._introduction(self._terminal.layout))
        fields = range(len(self._fields))
        while True:
            step = await self._ask_fields(fields) or await self._confirm()
            match step:
                case "decline":
                    return self._request.decline()
                case "cancel":
                    return self._request.cancel()
                case "send":
                    try:
                        result = ElicitResult(action="accept", content=self._answers)
                        self._request.check(result)
                    except ValueError as exc:  # a rule about several fields, or a choice that no answer can hold
                        await self._refuse(str(exc))
                        fields = range(0)
                    else:
                        return result
                case _:
                    fields = step

    async def _ask_fields(self, indexes: range) -> Leave | None:
        """Ask for the fields with these *indexes*. None if the person stays in the form."""
        index = indexes.start
        while index < indexes.stop:
            step = await self._ask_field(index)
            if step == "next":
                index += 1
            elif step == "back":
                index = max(index - 1, 0)
            else:
                return step
        return None

    async def _ask_field(self, index: int) -> Leave | Literal["next", "back"]:
        field = self._fields[index]
        await self._terminal.show(self._question(index, self._terminal.layout))
        while True:
            line = await self._terminal.ask("> ")
            match line:
                case None | "/cancel":
                    return "cancel"
                case "/decline":
                    return "decline"
                case "/back":
                    return "back"
                case "/view":
                    await self._terminal.show(self._introduction(self._terminal.layout, whole=True))
                    await self._terminal.show(self._question(index, self._terminal.layout, whole=True))
                case "/skip" if field.required:
                    await self._say("This field is required.")
                case "/skip":
                    self._keep(field, None)
                    return "next"
                case _ if await self._take(field, line):
                    return "next"

    async def _take(self, field: Field, line: str) -> bool:
        """Whether a typed line, or Enter alone, is an answer. If not, the person is told why."""
        try:
            value = read_answer(field, checked_line(line)) if line else self._suggestion(field)
        except ValueError as exc:
            await self._say(str(exc))
            return False
        if value is None and field.required:
            if not is_list(field):
                await self._say("This field is required. /decline and /cancel leave the form.")
                return False
            value = []
        problem = None if value is None else self._problem(field, value)
        if problem is not None:
            await self._refuse(problem)
            return False
        self._keep(field, value)
        return True

    def _keep(self, field: Field, value: object) -> None:
        """Keep the answer to a field; None leaves it out, although it may have a default."""
        if value is None:
            self._answers.pop(field.name, None)
            self._left_out.add(field.name)
        else:
            self._answers[field.name] = value
            self._left_out.discard(field.name)

    def _suggestion(self, field: Field) -> object:
        """What Enter takes: the earlier answer, or the default."""
        if field.name in self._answers:
            return self._answers[field.name]
        if field.default is not None and field.name not in self._looked_at:
            self._looked_at.add(field.name)
            if self._problem(field, field.default) is not None:
                self._left_out.add(field.name)
        return None if field.name in self._left_out else field.default

    def _problem(self, field: Field, value: object) -> str | None:
        return field_problem(self._request.requested_schema, field.schema, value)

    async def _confirm(self) -> Leave | Literal["send"] | range:
        """Show the answers. Returns what to do with them, or the indexes of the fields to ask for again."""
        count = len(self._fields)
        answers: dict[str, Leave | Literal["send", "view"] | range] = {
            **{str(index + 1): range(index, index + 1) for index in range(count)},
            **dict.fromkeys(("y", "yes"), "send"),
            **dict.fromkeys(("e", "edit"), range(count)),
            **dict.fromkeys(("v", "view", "/view"), "view"),
            **dict.fromkeys(("n", "no", "/decline"), "decline"),
            **dict.fromkeys(("c", "cancel", "/cancel"), "cancel"),
            "/back": range(max(count - 1, 0), count),
        }
        whole = False
        while True:
            await self._terminal.show(self._summary(self._terminal.layout, whole=whole))
            step = await self._terminal.choose("Send this?", "y/e/v/n/c", answers)
            if step != "view":
                return "cancel" if step is None else step
            whole = True

    async def _say(self, text: str) -> None:
        await self._terminal.show(self._terminal.layout.ours(text, "yellow"))

    async def _refuse(self, problem: str) -> None:
        await self._say("This does not fit the form:")
        await self._terminal.show(self._terminal.layout.theirs(problem))

    def _introduction(self, layout: Layout, *, whole: bool = False) -> Rows:
        count = len(self._fields)
        yield ""
        yield from layout.ours("A server asks you to fill in a form, and gets what you enter", "bold")
        yield from _message(self._request, layout, whole=whole)
        if count and not whole:
            yield ""
            fields = f"{count} field{'s' * (count > 1)}."
            skippable = any(not field.required or field.default is not None for field in self._fields)
            hint = " Enter takes a default, or leaves out what is optional." * skippable
            yield from layout.ours(fields + hint)
            yield from layout.ours("Type no passwords or keys: a server must not ask for them here.")
            yield from layout.ours(f"Commands: {COMMANDS}", "dim")

    def _question(self, index: int, layout: Layout, *, whole: bool = False) -> Rows:
        field = self._fields[index]
        most = None if whole else ROWS_SHOWN
        optional = "" if field.required else ", optional"
        yield ""
        yield from layout.ours(f"{index + 1} of {len(self._fields)}{optional}: {expected(field)}", "cyan")
        yield from layout.cut(layout.theirs("", lead=field.title), most)
        if field.description:
            yield from layout.cut(layout.theirs(field.description), most)
        yield from _choices(field.choices or (), layout, whole=whole)
        suggestion = self._suggestion(field)
        if suggestion is not None:
            yield from layout.ours("Enter keeps" if field.name in self._answers else "Enter takes", "cyan")
            yield from layout.cut(layout.theirs(display(field, suggestion)), most)

    def _summary(self, layout: Layout, *, whole: bool) -> Rows:
        if whole:
            yield from self._introduction(layout, whole=True)
        yield ""
        if self._fields:
            yield from self._answer_rows(layout, None if whole else ROWS_SHOWN)
        else:
            yield from layout.ours("There is nothing to fill in. Do you accept?", "bold")
        yield ""
        yield from layout.ours("y: send" if self._fields else "y: accept")
        if self._fields:
            yield from layout.ours("e: edit all, or press the number of one")
        yield from layout.ours("v: view what was cut")
        yield from layout.ours("n: decline: you refuse to answer")
        yield from layout.ours("c: cancel: you do not decide now")

    def _answer_rows(self, layout: Layout, most: int | None) -> Rows:
        yield from layout.ours("Your answers", "bold")
        for number, field in enumerate(self._fields, start=1):
            lead = f"{number}  {excerpt(field.title, NAME_SHOWN)}: "
            if field.name in self._answers:
                yield from layout.cut(layout.theirs(display(field, self._answers[field.name]), lead=lead, hang=4), most)
            else:
                yield from layout.theirs("left out", lead=lead, style="dim", hang=4)
        yield from layout.ours("go to", "cyan")
        yield from layout.server(self._request.server, self._request.server_info)


def _choices(choices: Sequence[Choice], layout: Layout, *, whole: bool) -> Rows:
    """A row for each choice. Numbers, which the person types as they are, are side by side."""
    numbered = are_numbered(choices)
    titles = [choice.title if whole else excerpt(choice.title, TITLE_SHOWN) for choice in choices]
    shown = titles if whole else titles[:CHOICES_SHOWN]
    if shown and all(title.isdigit() for title in shown):
        yield from layout.theirs(", ".join(shown), indent=2)
    else:
        for number, title in enumerate(shown, start=1):
            yield from layout.theirs(f"{number if numbered else '-'}  {title}", indent=2, hang=4)
    if len(titles) > len(shown):
        yield from layout.theirs(f"... and {len(titles) - len(shown)} more: /view shows them", style="dim")


def _message(request: FormRequest | UrlRequest, layout: Layout, *, whole: bool) -> Rows:
    """The server, the call and the message."""
    yield from layout.who_asks(request.server, request.server_info, request.outer)
    yield from layout.ours("message", "cyan")
    yield from layout.cut(layout.theirs(request.message), None if whole else ROWS_SHOWN)


async def open_in_browser(request: UrlRequest, /, *, opener: Callable[[str], bool] | None = None) -> ElicitResult:
    """Show the URL in the terminal and open it after a yes: a handler for ``Elicitation(url=open_in_browser)``.

    The person sees the server, the message, the host and the whole URL before. "y" opens the default browser,
    "m" leaves that to the person, "n" and Enter decline, Ctrl-D cancels. The URL is not fetched.

    *opener* opens a URL and returns whether it could; it runs in a thread. By default that is the
    standard library's `webbrowser`, but no browser that would run in this terminal. To set it, pass
    ``functools.partial(open_in_browser, opener=...)``.

    Without a terminal the request is cancelled, as by `fill_in_terminal`.
    """
    try:
        async with open_terminal() as terminal:
            return await _visit(
                request, terminal, open_default if opener is None else as_async(opener, argument="opener")
            )
    except NoTerminal as exc:
        return _cancelled(request, exc)


async def _visit(request: UrlRequest, terminal: Terminal, opener: Callable[[str], Awaitable[bool]]) -> ElicitResult:
    await terminal.show(_invitation(request, terminal.layout, whole=False))
    while (step := await terminal.choose("Open it?", "y/m/v/N", VISIT)) == "view":
        await terminal.show(_invitation(request, terminal.layout, whole=True))
    match step:
        case "open" | "myself":
            if step == "myself" or not await is_opened(request.url, opener):
                await terminal.show(_address(request.url, terminal.layout))
            return request.accept()
        case "decline":
            return request.decline()
    return request.cancel()


def _address(url: str, layout: Layout) -> Rows:
    yield from layout.ours("Open this in your browser:")
    yield from layout.url(url)


def _invitation(request: UrlRequest, layout: Layout, *, whole: bool) -> Rows:
    yield ""
    yield from layout.ours("A server asks you to visit a page in your browser", "bold")
    yield from _message(request, layout, whole=whole)
    yield from layout.ours("host", "cyan")
    yield from layout.theirs("", lead=request.host)
    yield from lookalike_rows(request.host, layout)
    yield from layout.ours("whole URL", "cyan")
    yield from layout.theirs(request.url)
    yield ""
    yield from layout.ours("y: open it in the browser")
    yield from layout.ours("m: I open it myself")
    yield from layout.ours("v: view the whole message")
    yield from layout.ours("n: decline")

"""The person at the terminal: what a command shows them meanwhile, and how it asks them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from mcp_host.cli.output import as_json, print_aside
from mcp_host.client.client import Client
from mcp_host.group import ServerStatus
from mcp_host.sampling import Allow, Deny
from mcp_host.types import LoggingMessageNotificationParams

if TYPE_CHECKING:
    from mcp_host.elicitation import Elicitation  # imported on demand

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
Decide: TypeAlias = Callable[[RequestT], Awaitable[Allow | Deny]]


class Console:
    """How a command shows and asks. A conversation overrides this: it does so between its own lines."""

    def show(self, text: str, server: str = "") -> None:
        """Show what a server tells, with the name of the *server* if there are several."""
        print_aside(text, server)

    async def show_status(self, status: ServerStatus) -> None:
        """Show what has changed about a server of a file."""

    def with_keyboard(self, ask: Callable[[RequestT], Awaitable[AnswerT]]) -> Callable[[RequestT], Awaitable[AnswerT]]:
        """*ask*, which asks the person in the terminal, at a time that suits."""
        return ask

    def decider(self, ask: Decide[RequestT], refuse: Decide[RequestT], *, agrees: bool) -> Decide[RequestT]:
        """*ask*, if there is a person to ask, or else *refuse*. If a person *agrees* to all by an option, all is allowed."""
        if agrees:
            return _allow
        return self.with_keyboard(ask) if sys.stdin.isatty() else refuse

    def login(self) -> AbstractAsyncContextManager[None]:
        """A context in which a person logs in, at a time that suits."""
        return nullcontext()

    def elicitation(self) -> Elicitation | None:
        """How servers ask the person, if there is one."""
        if not sys.stdin.isatty():
            return None
        from mcp_host.elicitation import Elicitation
        from mcp_host.elicitation.terminal import fill_in_terminal, open_in_browser

        return Elicitation(form=self.with_keyboard(fill_in_terminal), url=self.with_keyboard(open_in_browser))


def log_line(message: LoggingMessageNotificationParams) -> str:
    """What a server logs, for a person."""
    text = message.data if isinstance(message.data, str) else as_json(message.data)
    return f"{message.level} {message.logger}: {text}" if message.logger else f"{message.level}: {text}"


async def log_everything(client: Client) -> None:
    """Have the server send all that it logs, if it can."""
    if client.server_capabilities.logging is not None:
        await client.set_log_level("debug")


async def _allow(request: object) -> Allow:
    return Allow()

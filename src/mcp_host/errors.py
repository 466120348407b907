"""Every exception this package raises, named by whose fault it is.

    McpError
    ├── CallerError                 the call was wrong; nothing was sent
    │   ├── CallDenied              the approver of tool calls has denied it
    │   ├── NotConnected            the client is not connected
    │   ├── NotAdvertised           the server did not advertise the feature
    │   └── ToolChanged             the tool is no longer the one that was agreed to
    ├── ConnectionClosed            the connection to the server is closed
    │   ├── ConnectFailed           it could not be opened
    │   └── SessionLost             the server no longer knows our session (HTTP)
    ├── McpTimeout                  something took too long (also a TimeoutError)
    │   ├── ConnectTimeout          connecting, with version negotiation
    │   └── RequestTimeout          one call
    ├── ServerError                 the server answered with an error
    │   ├── HttpStatusError         an HTTP status
    │   │   └── Unauthorized        401 or 403
    │   ├── ResourceNotFound        no such resource
    │   ├── UrlElicitationRequired  the user has to visit a URL first
    │   ├── HeaderMismatch          HTTP headers that contradict the message
    │   ├── MissingRequiredClientCapability   the request needs a capability that this client does not have
    │   └── UnsupportedProtocolVersion        the server does not support this revision
    ├── AuthError                   the client got no authorization: its subclasses are in `mcp_host.auth`
    ├── ProtocolError               the server broke the protocol
    │   ├── MessageTooLarge         a message over the size limit
    │   ├── NoCommonVersion         client and server have no protocol version in common
    │   ├── UncheckableSchema       values cannot be checked against the server's schema
    │   │   ├── InvalidSchema       the schema is no valid JSON Schema
    │   │   └── UnsupportedPattern  a regular expression that cannot be searched safely
    │   └── InvalidToolOutput       a result that does not match the tool's outputSchema
    ├── ToolPinsError               the pins of tools cannot be read or saved
    ├── ConfigError                 a file of servers cannot be read, or a server in it cannot be used
    ├── RegistryError               a registry has no such server, or what it says of it cannot be used
    ├── RoundsExceeded              the server asked for too much input within one call
    ├── InputNotGiven               a call failed because we refused the input that it needs
    ├── InputRefused                we refuse a server's request
    ├── SamplingError               a model gave no usable message
    │   ├── UnusableCalls           it called tools in a way that cannot be read
    │   └── ProviderError           the provider of a model, or the connection to it, failed
    ├── NotDeclared                 a server needs a capability that its client did not declare
    └── EndsLoop                    a tool ends the loop that runs it

A value of the wrong Python type raises TypeError or ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Self

from mcp_host.base_errors import *  # noqa: F403  # all of it belongs here, but for the types beneath this module
from mcp_host.base_errors import McpError, ProtocolError, escaped, excerpt, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_host.types import CallToolResult, CreateMessageResult, ElicitRequestURLParams
    from mcp_host.types.tool_changes import ToolChange

RESULT_SHOWN = 1_000  # characters of the result of a tool in an error


class CallerError(McpError):
    """The call itself was wrong; nothing was sent."""


class CallDenied(CallerError):
    """A person or a policy of yours denied this tool call (`approve_tool_calls`); nothing was sent. *reason* says why."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotConnected(CallerError):
    """The client is not connected: not yet, or no longer."""


class NotAdvertised(CallerError):
    """The server did not advertise this in the handshake, so nothing was sent."""


class ToolChanged(CallerError):
    """The definition of the tool is not the one that is pinned (`ToolPins`), so it was not called.

    *change* has both definitions, and their difference as text. ``pins.accept(error.change)`` agrees to it.
    """

    def __init__(self, message: str, change: ToolChange) -> None:
        super().__init__(message)
        self.change = change


class ToolPinsError(McpError):
    """The pins of tools cannot be read or saved. No pin has changed, and no tool was listed or called."""


class ConfigError(McpError):
    """A file of servers cannot be read, or a server in it cannot be used. The text names all that is known of the place.

    *path* is the file. For wrong syntax, *line* and *column* are set, which count from 1. Otherwise *server* is the name that
    the file has, and *field* what cannot be used, such as ``env.TOKEN``. *reason* is the text without these. It repeats
    no value of the file.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: Path,
        line: int | None = None,
        column: int | None = None,
        server: str | None = None,
        field: str | None = None,
    ) -> None:
        place = escaped(str(path))
        if line is not None:
            place += f", line {line}" if column is None else f", line {line}, column {column}"
        if server is not None:
            place += f": server {quoted(server)}"
        if field is not None:
            place += f": {excerpt(field)}"
        super().__init__(f"{place}: {reason}")
        self.reason = reason
        self.path = path
        self.line = line
        self.column = column
        self.server = server
        self.field = field


class RegistryError(McpError):
    """A registry has no such server, or what its server.json says cannot be used.

    *field* is the place in the server.json, such as ``packages[0].identifier``, if it is about one. *reason* is the text without
    that.
    """

    def __init__(self, reason: str, *, field: str | None = None) -> None:
        super().__init__(reason if field is None else f"{excerpt(field)}: {reason}")
        self.reason = reason
        self.field = field


class ConnectionClosed(McpError):
    """The connection to the server is closed; no response will arrive.

    *may_have_run* is False only if the request was certainly not sent.
    *exit_code* and *stderr* are set for a child process that ended: the last lines, and the first ones if it never sent a message.
    Where your program ignores SIGCHLD, the exit code is unknown: None.
    """

    def __init__(
        self, message: str, *, may_have_run: bool = True, exit_code: int | None = None, stderr: str = ""
    ) -> None:
        super().__init__(message)
        self.may_have_run = may_have_run
        self.exit_code = exit_code
        self.stderr = stderr

    def again(self) -> ConnectionClosed:
        """A copy to raise for another caller: an exception object has one traceback."""
        return copy(self)


class ConnectFailed(ConnectionClosed):
    """The connection could not be opened: no such command, connection refused, or the server exits at once."""


class SessionLost(ConnectionClosed):
    """The server no longer knows our HTTP session, and a new one did not help.

    *may_have_run* is False if the server answered the request itself so (a 404 to its POST).
    """


class McpTimeout(McpError, TimeoutError):
    """A timeout has passed."""


class ConnectTimeout(McpTimeout):
    """Connecting and version negotiation took longer than `Limits.connect_timeout`. No request was sent."""

    may_have_run = False


class RequestTimeout(McpTimeout):
    """One call took longer than its timeout. The server is notified that it is cancelled.

    *may_have_run* is False only if the request was certainly not sent, because it was still
    waiting for its turn.
    """

    def __init__(self, message: str, *, may_have_run: bool = True) -> None:
        super().__init__(message)
        self.may_have_run = may_have_run


class ServerError(McpError):
    """The server answered with an error.

    *code*, *message* and *data* are those of the JSON-RPC error.
    `str()` of the exception has the message cut and escaped for display.
    """

    def __init__(self, code: int | None, message: str, data: object = None) -> None:
        super().__init__(f"{excerpt(message)} ({code})" if code is not None else excerpt(message))
        self.code = code
        self.message = message
        self.data = data


class HttpStatusError(ServerError):
    """The server answered a POST or GET with an HTTP error status. The text names the URL.

    *status* is the HTTP status, *retry_after* the Retry-After header in seconds,
    *body* the beginning of the response's text. *code*, *data* and *rpc_message* are
    set if the body is a JSON-RPC error.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after: float | None = None,
        body: str = "",
        code: int | None = None,
        data: object = None,
        rpc_message: str | None = None,
    ) -> None:
        super().__init__(code, message, data)
        self.rpc_message = rpc_message
        self.status = status
        self.retry_after = retry_after
        self.body = body

    @property
    def transient(self) -> bool:
        """Whether the request may succeed later: 5xx, 408, 425 and 429."""
        return self.status >= 500 or self.status in (408, 425, 429)


class Unauthorized(HttpStatusError):
    """The server requires credentials (401), or rejects those that it got (403).

    *challenges* are the unparsed values of its WWW-Authenticate headers: how to log in, and
    where. They are not in the exception's text, and not logged. *credential_sent* is True if the request
    had an Auth, or a header or URL that may hold a credential.
    """

    challenges: tuple[str, ...] = ()
    credential_sent: bool = False


class AuthError(McpError):
    """The client got no authorization. The text says at which step, where, and what came back.

    *needs_login* is True if a person has to log in: without that, the same request fails again.
    """

    needs_login = False


class ResourceNotFound(ServerError):
    """The server has no resource under that URI (-32002 until 2025-11-25, -32602 since)."""


class UrlElicitationRequired(ServerError):
    """The request cannot continue until the user has visited a URL (-32042, revision 2025-11-25)."""

    def __init__(self, code: int, message: str, data: object, elicitations: list[ElicitRequestURLParams]) -> None:
        super().__init__(code, message, data)
        self.elicitations = elicitations


class HeaderMismatch(ServerError):
    """The server, or a proxy, received HTTP headers that contradict the message (-32020).

    *may_have_run* is True if an earlier round of the same call was served.
    """

    may_have_run = False


class MissingRequiredClientCapability(ServerError):
    """The request needs a capability that this client does not declare (-32021).

    *required_capabilities* are the missing ones, as a client would declare them.
    """

    def __init__(self, code: int, message: str, data: object, required_capabilities: dict[str, object]) -> None:
        super().__init__(code, message, data)
        self.required_capabilities = required_capabilities


class UnsupportedProtocolVersion(ServerError):
    """The server does not support our revision for this request (-32022); *supported* are those that it names."""

    def __init__(self, code: int, message: str, data: object, supported: list[str]) -> None:
        super().__init__(code, message, data)
        self.supported = supported


class MessageTooLarge(ProtocolError):
    """A message was larger than `Limits.max_message`, or had more values than `Limits.max_values` or the parser allows."""


class NoCommonVersion(ProtocolError):
    """Client and server have no protocol version in common, or not the one that the client is pinned to."""


class UncheckableSchema(ProtocolError):
    """A JSON Schema that values cannot be checked against: remote, too deep, too costly or invalid.

    Internal. A result that a *server* sends is then refused with `InvalidToolOutput`, because
    schemas that cannot be resolved "SHOULD be rejected rather than silently treated as permissive"
    (2026-07-28, basic), but for the two subclasses that say otherwise.
    A value that *we* send to the schema's author is sent unchecked, with a line in the log.
    """


class TooManySteps(UncheckableSchema):
    """A check took more steps than allowed. Internal."""


class InvalidSchema(UncheckableSchema):
    """A schema that is no valid JSON Schema, such as one with a type "str", or with a malformed pattern.

    Internal. It says nothing about values. They are not checked, and a warning says so.
    """


class UnsupportedPattern(UncheckableSchema):
    """A regular expression with look-around or back references, which cannot be searched in linear time.

    Internal. Values of such a schema are not checked, and a warning says so.
    """


class InvalidToolOutput(ProtocolError):
    """A tool's structured content does not match the outputSchema that the server listed.

    *result* is the tool's whole result: the tool has run. A traceback shows the beginning of its text as a note.
    """

    def __init__(self, message: str, result: CallToolResult) -> None:
        super().__init__(message)
        self.result = result
        if text := self.text:
            self.add_note(f"the result says: {text}")  # not in the message, which is logged

    @property
    def text(self) -> str:
        """The beginning of what the server says in *result*, in text or else in structured content, escaped. It may be empty."""
        if (text := self.result.text) or self.result.structured_content is None:
            return excerpt(text, RESULT_SHOWN)
        return quoted(self.result.structured_content, RESULT_SHOWN)


class RoundsExceeded(McpError):
    """Within one call the server asked for input too often, or for too much. *limit* is the name in `Limits`."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(f"{message} (Limits.{limit})")
        self.limit = limit


class InputNotGiven(McpError):
    """A call failed because it needs input that a handler, a rule or a user refused.

    *key* is the server's name for the input, *method* the kind of input, such as
    ``sampling/createMessage``. ``__cause__`` is what your handler raised, or the
    `InputRefused` of a rule or a user; the text has it, too. Nothing is sent to the server (2026-07-28,
    client/sampling: Error Handling).
    """

    def __init__(self, message: str, *, key: str, method: str) -> None:
        super().__init__(message)
        self.key = key
        self.method = method


class InputRefused(McpError):
    """Raise it in a handler to refuse a server's request. The server gets *code*, the message and *data*."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class SamplingError(McpError):
    """A model gave no usable message. The text is not sent to the server."""


class UnusableCalls(SamplingError):
    """The model called tools in a way that cannot be read. Tool loops ask it again.

    *answer* is what it said; calls whose arguments cannot be read have none there. *problems* say what is wrong with each of
    these, by the id of the call. They are empty if the provider kept the calls to itself: then the text says what is wrong.
    """

    def __init__(self, message: str, answer: CreateMessageResult, problems: Mapping[str, str]) -> None:
        super().__init__(message)
        self.answer = answer
        self.problems = problems


class ProviderError(SamplingError):
    """The provider of a model, its SDK, or the connection to it failed.

    *provider* is the provider's name. *status* is the HTTP status, if there was one. *code* is the provider's own short
    code, such as ``rate_limit_error``. *retry_after* is the time in seconds after which the provider asks to try again.
    *transient* says whether the same request may succeed later: the connection failed, the provider is overloaded,
    or the status is 5xx, 408, 409, 425 or 429.

    The text has nothing else of the provider: neither keys, nor the prompt, nor the body of the response. *original* is
    what the SDK raised, or the error in a reply with the status 200, and may have all of those: ``str(error.original)``
    usually has the provider's own message. It is not printed, logged, copied or pickled with this error.
    """

    def __init__(
        self,
        provider: str,
        problem: str,
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        transient: bool = False,
        original: Exception | None = None,
    ) -> None:
        said = [f"{problem} (HTTP {status})" if status is not None else problem]
        if code is not None and code != problem:
            said.append(code)
        if retry_after is not None:
            said.append(f"try again after {retry_after:g} second{'' if retry_after == 1 else 's'}")
        super().__init__(f"{provider}: {', '.join(said)}")
        self.provider = provider
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.transient = transient or (status is not None and (status >= 500 or status in (408, 409, 425, 429)))
        self.original = original

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[type[Self]], dict[str, object]]:
        new, kind, state = super().__reduce__()
        return new, kind, {**state, "original": None}


class NotDeclared(McpError):
    """For the authors of servers: the client did not declare the capability that is needed, so nothing was sent.

    If a tool of a `mcp_host.testing.Server` does not catch it, its result is an error; since revision
    2026-07-28 the request is answered with the error -32021.
    """

    def __init__(self, *capability: str) -> None:
        super().__init__(f"the client did not declare {'.'.join(capability)}")
        self.capability = capability

    @property
    def required(self) -> dict[str, object]:
        """The capability as a client would declare it."""
        declared: dict[str, object] = {}
        for name in reversed(self.capability):
            declared = {name: declared}
        return declared


class EndsLoop(McpError):
    """Raised by a tool in a loop, it ends the loop. Any other exception becomes an error result for the model."""

"""Every exception this package raises, named by whose fault it is.

    McpError
    ├── CallerError                 the call was wrong; nothing was sent
    │   ├── NotConnected            the client is not connected (yet, or any more)
    │   └── NotAdvertised           the server never offered what was called
    ├── ConnectionClosed            the link to the server is gone
    │   ├── ConnectFailed           it never came up
    │   └── SessionLost             the server forgot our session (HTTP)
    ├── McpTimeout                  somebody waited too long (also a TimeoutError)
    │   ├── ConnectTimeout          spawning or reaching the server, and agreeing on how to speak
    │   └── RequestTimeout          one call
    ├── ServerError                 the server answered, and the answer is an error
    │   ├── HttpStatusError         by an HTTP status
    │   │   └── Unauthorized        401 or 403
    │   ├── ResourceNotFound        no such resource
    │   ├── UrlElicitationRequired  the user has to visit a URL first
    │   ├── HeaderMismatch          HTTP headers that contradict the message
    │   ├── MissingRequiredClientCapability   something that this client does not offer
    │   └── UnsupportedProtocolVersion        not in this revision
    ├── ProtocolError               the server broke the protocol
    │   ├── MessageTooLarge         a message past the size limit
    │   ├── NoCommonVersion         no protocol version that both speak
    │   ├── UncheckableSchema       no value can be checked against the server's schema
    │   │   └── UnsupportedPattern  for want of an engine that is safe
    │   └── InvalidToolOutput       a result that contradicts the tool's outputSchema
    ├── RoundsExceeded              the server asked too often, or for too much, within one call
    ├── InputNotGiven               a call ended because our side refused what its result asked for
    ├── InputRefused                our side refused what a server asked for
    └── SamplingError               a model could not produce a usable message

A value of the wrong Python type raises TypeError or ValueError instead, as anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_host.base_errors import *  # noqa: F403  # all of it belongs here, but for the types beneath this module
from mcp_host.base_errors import McpError, ProtocolError, excerpt

if TYPE_CHECKING:
    from mcp_host.types import CallToolResult, ElicitRequestURLParams


class CallerError(McpError):
    """The call itself was wrong; nothing was sent."""


class NotConnected(CallerError):
    """The client is not connected: not yet, or not any more."""


class NotAdvertised(CallerError):
    """The server did not advertise this in its handshake, so it was not asked."""


class ConnectionClosed(McpError):
    """The link to the server is gone; no response will arrive.

    *may_have_run* is false only when the request certainly never left.
    *exit_code* and *stderr* (its last lines) are there for a child process that ended.
    """

    def __init__(
        self, message: str, *, may_have_run: bool = True, exit_code: int | None = None, stderr: str = ""
    ) -> None:
        super().__init__(message)
        self.may_have_run = may_have_run
        self.exit_code = exit_code
        self.stderr = stderr

    def again(self) -> ConnectionClosed:
        """An equal error to raise for another caller: one exception object holds one traceback."""
        return type(self)(str(self), may_have_run=self.may_have_run, exit_code=self.exit_code, stderr=self.stderr)


class ConnectFailed(ConnectionClosed):
    """The connection never came up: no such command, connection refused, a server that exits at once."""


class SessionLost(ConnectionClosed):
    """The server no longer knows our HTTP session, and a new one did not help.

    *may_have_run* is false when this was the request's own answer (a 404 to its POST).
    """


class McpTimeout(McpError, TimeoutError):
    """Somebody waited longer than was allowed."""


class ConnectTimeout(McpTimeout):
    """Reaching the server and agreeing on how to speak took longer than `Limits.connect_timeout`."""


class RequestTimeout(McpTimeout):
    """One call took longer than its caller allowed; the server was told that it is cancelled.

    *may_have_run* is false only when the request certainly never left: it still waited for
    its turn, and the server knows nothing of it.
    """

    def __init__(self, message: str, *, may_have_run: bool = True) -> None:
        super().__init__(message)
        self.may_have_run = may_have_run


class ServerError(McpError):
    """The server answered with an error.

    *code* and *data* are the JSON-RPC error's; *message* is its text, whole
    (`str()` of the exception is cut and cleaned for display).
    """

    def __init__(self, code: int | None, message: str, data: object = None) -> None:
        super().__init__(f"{excerpt(message)} ({code})" if code is not None else excerpt(message))
        self.code = code
        self.message = message
        self.data = data


class HttpStatusError(ServerError):
    """The server answered a POST or GET with an HTTP status that is not a success. The text names the URL.

    *status* is the HTTP status, *retry_after* the Retry-After header in seconds,
    *body* the beginning of the response's text. *code*, *data* and *rpc_message* are
    there when the body was a JSON-RPC error.
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
        """Whether the server says "later" rather than "no": 5xx, 408, 425 and 429."""
        return self.status >= 500 or self.status in (408, 425, 429)


class Unauthorized(HttpStatusError):
    """The server wants (401) or refuses (403) credentials.

    *challenges* are the values of its WWW-Authenticate headers, as it wrote them: how to log in, and
    where. They are in no text and no log line.
    """

    challenges: tuple[str, ...] = ()


class ResourceNotFound(ServerError):
    """The server has no resource under that URI (-32002 until 2025-11-25, -32602 since)."""


class UrlElicitationRequired(ServerError):
    """The request cannot go on until the user has visited a URL (-32042, revision 2025-11-25)."""

    def __init__(self, code: int, message: str, data: object, elicitations: list[ElicitRequestURLParams]) -> None:
        super().__init__(code, message, data)
        self.elicitations = elicitations


class HeaderMismatch(ServerError):
    """The server, or something before it, read other HTTP headers than the message calls for (-32020).

    *may_have_run* is true where an earlier round of the same call had been served.
    """

    may_have_run = False


class MissingRequiredClientCapability(ServerError):
    """The request takes something of the client that this client does not offer (-32021).

    *required_capabilities* is what the server wants, as the client would declare it.
    """

    def __init__(self, code: int, message: str, data: object, required_capabilities: dict[str, object]) -> None:
        super().__init__(code, message, data)
        self.required_capabilities = required_capabilities


class UnsupportedProtocolVersion(ServerError):
    """The server does not serve this request in the revision that we speak (-32022); *supported* are those it names."""

    def __init__(self, code: int, message: str, data: object, supported: list[str]) -> None:
        super().__init__(code, message, data)
        self.supported = supported


class MessageTooLarge(ProtocolError):
    """A message was larger than `Limits.max_message`."""


class NoCommonVersion(ProtocolError):
    """The server speaks no protocol version that this client speaks, or may speak where it is pinned to one."""


class UncheckableSchema(ProtocolError):
    """A JSON Schema that no value can be checked against: invalid, remote, too deep or too costly.

    It stays inside the package. What a *server* sent is then refused, in an error that carries
    it (`InvalidToolOutput.result`), for schemas that cannot be resolved "SHOULD be rejected rather
    than silently treated as permissive" (2026-07-28, basic). What *we* send to the schema's own
    author goes out unchecked, with a line in the log: the check would have been a courtesy.
    """


class TooManySteps(UncheckableSchema):
    """A check took more steps than it was given. It stays inside the package."""


class UnsupportedPattern(UncheckableSchema):
    """A regular expression with look-around or back references, which no engine searches for in linear time.

    It stays inside the package. What such a schema describes passes unchecked, and a warning says so.
    """


class InvalidToolOutput(ProtocolError):
    """A tool's structured content contradicts the outputSchema that the server listed.

    *result* is what the tool returned, whole: the tool has run.
    """

    def __init__(self, message: str, result: CallToolResult) -> None:
        super().__init__(message)
        self.result = result


class RoundsExceeded(McpError):
    """Within one call the server asked for input too often, or for too much; *limit* is the name in `Limits`."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(f"{message} (Limits.{limit})")
        self.limit = limit


class InputNotGiven(McpError):
    """The server wanted input before it would finish a call, and our side gave none. The call has ended.

    *key* is the server's name for the input, *method* what it asked for, such as
    ``sampling/createMessage``. ``__cause__`` is why: what your handler raised, or the
    `InputRefused` of a rule or a user; the text says so, too. The server is told nothing (2026-07-28,
    client/sampling: Error Handling).
    """

    def __init__(self, message: str, *, key: str, method: str) -> None:
        super().__init__(message)
        self.key = key
        self.method = method


class InputRefused(McpError):
    """Our side refused what a server asked for. The server is told *code*, the message and *data*."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class SamplingError(McpError):
    """A model could not produce a usable message. The server is never told the text."""

"""What an answer that is no success means: from an HTTP status to an exception."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from mcp_host.errors import HttpStatusError, Unauthorized, excerpt
from mcp_host.protocol.jsonrpc import Failure, decode
from mcp_host.transports._http.headers import JSON
from mcp_host.transports._http.response import HttpResponse

MAX_RETRY_AFTER = 86_400.0  # seconds; a longer one says "not today", whatever it says
MAX_CHALLENGES = 16  # WWW-Authenticate headers that are kept; a server sends one for each way to log in
MAX_CHALLENGE = 8192  # characters of one of them; they hold a URL and some scopes
SENTENCE = 1024  # characters in which a server says what it has to say about a session

_FORGOTTEN = re.compile(
    r"(no valid|no active|no such|invalid|unknown|unrecognized|expired)( or missing| mcp)*[ -]session"
    r"|server not initialized"  # one that was started again, and takes us for its first client
    r"|session( id| with id [^ ]{1,128})?( is| was| has)?"
    r" (not found|not valid|invalid|unknown|expired|terminated|does not exist|no longer exists|not initialized)",
    re.IGNORECASE,
)


def retry_after(value: str | None, now: datetime) -> float | None:
    """The Retry-After header in seconds from *now*, at most a day; None if there is no usable one.

    RFC 9110, section 10.2.3: a number of seconds or a date.
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value), MAX_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    seconds = (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


async def refusal(reply: HttpResponse) -> HttpStatusError:
    """The error for *reply*, with whatever its body has to say."""
    body = await reply.beginning()
    text = body.decode(errors="replace")
    error = _rpc_error(body) if reply.kind == JSON else None
    quoted = reply.kind in (JSON, "text/plain")  # a page of HTML is no sentence
    detail = error.message if error else excerpt(text.strip()) if quoted else ""
    message = ": ".join(filter(None, [reply.failure + _hint(reply), detail]))
    kind = Unauthorized if reply.status in (401, 403) else HttpStatusError
    refused = kind(
        reply.status,
        message,
        retry_after=retry_after(reply.headers.get("retry-after"), datetime.now(UTC)),
        body=text,
        code=error.code if error else None,
        data=error.data if error else None,
        rpc_message=error.message if error else None,
    )
    if isinstance(refused, Unauthorized):
        refused.challenges = _challenges(reply)
    return refused


def _hint(reply: HttpResponse) -> str:
    """What is probably wrong where there is nothing at a URL without a path."""
    path = reply.name.partition("://")[2].partition("/")[2]
    return f" (most servers are at {reply.name.rstrip('/')}/mcp)" if reply.status in (404, 405) and not path else ""


def _challenges(reply: HttpResponse) -> tuple[str, ...]:
    """The values of the WWW-Authenticate headers (RFC 9110, section 11.6.1), but for what no login needs in size."""
    values: list[str] = reply.headers.get_list("www-authenticate")
    return tuple(value for value in values[:MAX_CHALLENGES] if len(value) <= MAX_CHALLENGE)


def forgets_session(error: HttpStatusError) -> bool:
    """Whether this refusal of a request that bore a session id means that the session is gone.

    "The server [...] MUST respond to requests containing that session ID with HTTP
    404 Not Found"; many say it in words under another status.
    """
    if error.status == 401:  # "session expired" is about a login there
        return "session not found" in error.body[:SENTENCE].lower()
    return error.status in (404, 410) or (error.status == 400 and names_lost_session(error.body))


def names_lost_session(text: str) -> bool:
    """Whether *text* is one of the sentences with which servers say that they do not know a session."""
    return _FORGOTTEN.search(text[:SENTENCE]) is not None


def _rpc_error(body: bytes) -> Failure | None:
    """The JSON-RPC error in *body*: about this request, whatever id it bears ("server-error", in one SDK)."""
    return next((message for message in decode(body) if isinstance(message, Failure)), None)

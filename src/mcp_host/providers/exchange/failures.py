"""Failures of a provider and its SDK, as one error.

No SDK is imported: exceptions are recognized by their attributes and by the names of their classes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from json import JSONDecodeError
from socket import gaierror
from ssl import SSLCertVerificationError, SSLError
from traceback import walk_tb
from urllib.parse import SplitResult, urlsplit

from pydantic_core import from_json

from mcp_host.errors import McpError, ProviderError, excerpt
from mcp_host.providers.exchange.clients import KEYS

CODE = re.compile(  # words without digits, so that an API key never matches
    r"(?=.{2,64}$)([a-z]{1,20}([_.][a-z]{1,20})*"  # rate_limit_error
    r"|[A-Z]{1,20}(_[A-Z]{1,20})*"  # RESOURCE_EXHAUSTED
    r"|([A-Z][a-z]{2,20}){1,6}"  # DeploymentNotFound
    r"|[a-z]{2,20}([A-Z][a-z]{2,20}){1,5})"  # throttlingException
)
OVERLOADED = frozenset(
    {
        *("overloaded_error", "api_error", "rate_limit_error", "timeout_error"),  # Anthropic
        *("server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down"),  # OpenAI
        *("service_unavailable_error", "vector_store_timeout"),
        *("internalServerException", "modelNotReadyException", "modelStreamErrorException"),  # Bedrock
        *("modelTimeoutException", "serviceUnavailableException", "throttlingException"),
        *("InternalServerException", "ModelNotReadyException", "ModelStreamErrorException"),  # as its SDKs write them
        *("ModelTimeoutException", "ServiceUnavailableException", "ThrottlingException"),
        *("too_many_requests", "internal_server_error", "over_capacity"),  # Azure, Groq
        *("rate_limited", "service_tier_capacity_exceeded"),  # Mistral
        *("engine_overloaded_error", "rate_limit_reached_error"),  # Moonshot
        *("queue_exceeded", "too_many_requests_error"),  # Cerebras
        *("InternalServerError", "ServiceUnavailableError"),  # vLLM
    }
)
"""Codes of transient errors in the middle of a stream, whose HTTP status was 200."""

IN_STREAM = -1  # what Ollama's SDK has for the status of an error in the middle of a stream

CONNECTION_ERRORS = ("ConnectionError", "Timeout", "TimeoutError", "TransportError")
"""How the names of the classes of connection errors end."""

WRONG_URLS = {  # httpx's; SDKs take them for failed connections, but asking again does not help
    "UnsupportedProtocol": "its URL does not begin with http:// or https://",
    "TooManyRedirects": "its URL leads to redirects without an end",
}

STREAMS = ("text/event-stream", "application/vnd.amazon.eventstream")
"""The content types of streams; the second is Bedrock's."""

NOT_FOUND = "is the model's name right, and the client's base URL?"

EMPTY_KEY = re.compile(r"Illegal header value b'Bearer *'")  # h11's

BAD_HEADER = "a header, such as the key, has a character that HTTP does not allow"
MISUSED = "is the client the SDK's async one, does its method take the options, and is its base URL right?"

PORTS = {"http": 80, "https": 443}

MAX_SECONDS = 7 * 24 * 3600.0  # of `retry_after`; longer times are cut

NOT_PARSED = (
    *("JSONDecodeError", "UnicodeDecodeError", "ValidationError", "UnknownApiResponseError"),
    *("APIResponseValidationError", "UnexpectedModelBehavior"),
    "RecursionError",  # requests are checked for their depth before
)
"""What SDKs raise for a reply that is not in the API's format."""

PARSERS = ("json.decoder", "pydantic_ai.models._decode_errors")
"""Modules whose exceptions say the same. Python's decoder raises a ValueError for a number of too many digits."""

READERS = frozenset({"_process_response", "_process_streamed_response", "_finish_response", "_get_event_iterator"})
"""Functions of SDKs and of pydantic-ai that read a reply."""

DATA_ERRORS = (TypeError, AttributeError, LookupError, ValueError)
"""What such a function raises for a reply that is not in the API's format, where it does not check it."""

CUT = "the stream ended before the answer was complete"


class Unfinished(Exception):
    """A reply that ends before its answer does."""


class Empty(Unfinished):
    """A stream that ended without an event of the API."""


class Unreadable(Exception):
    """A reply that is not in the API's format. The cause says more."""


class ModelFailed(Exception):
    """A reply, or an event, that says that the model failed. Its text is the error that this has, with the provider's message."""


class Interrupted(Exception):
    """A stream that failed after its first event, for this *reason*."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason  # the cause is lost where it is taken out of a group of exceptions


class _Reading:  # a generator with `contextmanager` is slower, and each event enters it
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if exc is not None and isinstance(exc, Exception) and not isinstance(exc, McpError | Unfinished):
            raise Unreadable from exc


READING = _Reading()
"""A context in which a reply is read: any exception there means that it is not in the API's format.

Raises:
    Unreadable: In place of that exception.
"""


@contextmanager
def stream_of(events: object) -> Iterator[None]:
    """A context in which all *events* of an SDK's stream, or of its response, are read.

    Raises:
        Unreadable: There was no event, and the content type is not that of a stream: it may be a proxy's page.
    """
    try:
        yield
    except Empty as exc:
        headers = getattr(getattr(events, "response", events), "headers", {})
        if not headers.get("content-type", STREAMS[0]).lower().startswith(STREAMS):
            raise Unreadable from exc
        raise


def provider_error(
    exc: Exception,
    provider: str,
    *,
    is_stream: bool = False,
    not_found: str = NOT_FOUND,
    handled: BaseException | None = None,
) -> ProviderError:
    """The error to raise in place of *exc*, which an SDK or the reading of a reply raised.

    Its text has nothing that the provider or the SDK wrote. If the connection failed, it has the host, the port and the
    system's reason. A stream that was cut counts as a failed connection. *not_found* says what to check after a 404.
    """
    has_begun = isinstance(exc, Interrupted)
    if isinstance(exc, Interrupted):
        exc = exc.reason
    if handled is not None:  # what the caller was handling is not of this request
        for each in _chain(exc):
            if each.__context__ is handled:
                each.__context__ = None
    if isinstance(exc, ExceptionGroup):  # pydantic-ai's FallbackModel: what the last model raised
        exc = exc.exceptions[-1]
    if mistake := next(filter(None, (_mistake(each, provider) for each in _chain(exc, with_contexts=False))), None):
        return ProviderError(provider, mistake, original=exc)
    if is_stream and (isinstance(exc, Unfinished) or _is_cut(exc)):
        return ProviderError(provider, CUT, transient=True, original=exc)
    status = _status(exc)
    codes = _codes(exc)
    is_connection = status is None and _is_connection(exc) and not _has_wrong_url(exc)
    problem = _problem(exc) if status is None else _advice(status, provider, not_found) or type(exc).__name__
    return ProviderError(
        provider,
        f"{CUT}: {problem}" if is_connection and has_begun else problem,
        status=status,
        code=code_among(codes),
        retry_after=_retry_after(exc),
        transient=is_connection or (status is None and (says_overloaded(codes) or _is_of_stream(exc))),
        original=exc,
    )


def _advice(status: int, provider: str, not_found: str) -> str | None:
    """What to check after some statuses. The body of the response may say more, but is not repeated."""
    variables = " or ".join(KEYS.get(provider, ()))
    key = f"the client's key ({variables})" if variables else "the client's key"
    match status:
        case 401:
            return f"not authenticated: is {key} right?"
        case 403:
            return f"not allowed: may {key} use this model?"
        case 404:
            return f"not found: {not_found}"
    return None


def _problem(exc: Exception) -> str:
    """What failed, if there is no status of a failure."""
    name = type(exc).__name__
    if isinstance(exc, Unfinished):
        return "the reply has no complete answer"
    if _is_unreadable(exc):
        return "the reply cannot be read"
    if _is_connection(exc) or _has_wrong_url(exc):
        return name + _connection(exc)
    if _is_of_stream(exc):
        return "the model failed"
    if isinstance(exc, TypeError | AttributeError):
        return f"{name}: {_unknown_argument(exc) or MISUSED}"
    return name


def _is_unreadable(exc: Exception) -> bool:
    """Whether a reply is not in the API's format. Some SDKs say so, others fail while they read it."""
    if isinstance(exc, Unreadable) or _has_other_status(exc):
        return True
    if isinstance(exc, DATA_ERRORS) and any(frame.f_code.co_name in READERS for frame, _ in walk_tb(exc.__traceback__)):
        return True
    return any(type(error).__name__ in NOT_PARSED or _is_from(error, *PARSERS) for error in _chain(exc))


def _is_of_stream(exc: Exception) -> bool:
    """Whether it is an error in the middle of a stream of Ollama. Without a stream it has the status 500."""
    return getattr(exc, "status_code", None) == IN_STREAM


def _mistake(exc: BaseException, provider: str) -> str | None:
    """What the host did wrong, if *exc* tells. It is in our words, because those of *exc* may have the key."""
    text = str(exc)
    match exc:
        case RuntimeError() if "client has been closed" in text:
            return "the client is closed"
        case RuntimeError() if "Event loop is closed" in text:
            return "the client belongs to an event loop that has ended: make a client in each"
        case UnicodeEncodeError(encoding="ascii"):
            return BAD_HEADER
        case TypeError() | ValueError() if _is_from(exc, "json.encoder"):
            return "the request has a value that JSON does not have: look at the options"
        case TypeError() if "Could not resolve authentication" in text:  # Anthropic's SDK, and OpenAI's
            return _no_key(provider)
    if type(exc).__name__ == "LocalProtocolError" and text.startswith("Illegal header"):
        return _no_key(provider) if EMPTY_KEY.fullmatch(text) else BAD_HEADER
    return None


def _no_key(provider: str) -> str:
    """What to do without a key."""
    variables = " or ".join(KEYS.get(provider, ()))
    return f"the client has no key: {f'set {variables}, or ' if variables else ''}pass it to the client"


def _unknown_argument(exc: BaseException) -> str | None:
    """What to do with an option that the SDK's method does not take."""
    match = re.search(r"unexpected keyword argument '([^']*)'", str(exc))
    name = code_among([match[1]]) if match else None  # so it cannot be a key
    return (
        name and f"the SDK's method takes no {name!r}; a field that it does not know belongs in the option extra_body"
    )


def _is_from(exc: BaseException, *modules: str) -> bool:
    """Whether one of the *modules* raised it."""
    frames = [frame for frame, _ in walk_tb(exc.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__") in modules


def _is_cut(exc: BaseException | None) -> bool:
    """Whether an SDK could not read an event because the stream ended in the middle of it."""
    match exc:
        case None | Unreadable():
            return False
        case UnicodeDecodeError():
            return exc.reason == "unexpected end of data"
        case JSONDecodeError():
            try:
                from_json(exc.doc, allow_partial=True)
            except ValueError:
                # Google's SDK parses a cut "data:" as JSON, and an empty text if the stream was cut before it.
                return "data:".startswith(exc.doc.strip())
            return True
    return _is_cut(exc.__cause__ or exc.__context__)


def _status(exc: Exception) -> int | None:
    return next(filter(None, map(status_in, _statuses(exc))), None)


def _has_other_status(exc: Exception) -> bool:
    """Whether it is for an HTTP status that is neither 200 nor a failure, such as 204."""
    return any(isinstance(value, int) and 200 < value < 400 for value in _statuses(exc))


def _statuses(exc: Exception) -> tuple[object, object]:
    return getattr(exc, "status_code", None), getattr(exc, "code", None)


def _codes(exc: Exception) -> list[object]:
    """What may be the provider's short code, from the most exact place to the broadest."""
    names = ("error_code", "code", "type", "status")
    found = [getattr(exc, name, None) for name in names]
    return found + [error.get(name) for error in _errors(exc) for name in names]


def code_among(values: Iterable[object]) -> str | None:
    """The first of *values* that looks like a short code. Nothing else that a provider wrote is repeated."""
    for value in values:
        if isinstance(value, str) and CODE.fullmatch(value) and value != "error":
            return value
    return None


def says_overloaded(values: Iterable[object]) -> bool:
    """Whether one of *values* is a code of `OVERLOADED`."""
    return any(isinstance(value, str) and value in OVERLOADED for value in values)


def status_in(value: object) -> int | None:
    """*value*, if it is the HTTP status of a failure."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else None


def _errors(exc: Exception) -> Iterator[Mapping[str, object]]:
    """The objects in the provider's JSON of an error, the inner one first."""
    for name in ("body", "details"):
        body = getattr(exc, name, None)
        if isinstance(body, Mapping):
            inner = body.get("error")
            if isinstance(inner, Mapping):
                yield inner
            yield body


def _retry_after(exc: Exception) -> float | None:
    # The error of Ollama's SDK has no response; that of httpx, which it was raised from, has one.
    responses = [getattr(error, "response", None) for error in (exc, exc.__context__)]
    headers = next((response.headers for response in responses if response is not None), None)
    found: list[float | None] = []
    said = getattr(exc, "retry_after", None)  # pydantic-ai's errors have it
    if isinstance(said, int | float) and said >= 0:
        found.append(min(float(said), MAX_SECONDS))
    if isinstance(headers, Mapping):
        found += [_seconds(headers.get("retry-after-ms"), 0.001), _seconds(headers.get("retry-after"))]
        found += [_until(headers.get("retry-after"))]
    for error in _errors(exc):  # google.rpc.RetryInfo: "retryDelay": "38.5s"
        details = error.get("details")
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, Mapping) and isinstance(delay := detail.get("retryDelay"), str):
                found.append(_seconds(delay.removesuffix("s")))
    return next((seconds for seconds in found if seconds is not None), None)


def _seconds(value: object, unit: float = 1.0) -> float | None:
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,12}(\.\d{0,12})?\s*", value, re.ASCII):
        return min(float(value) * unit, MAX_SECONDS)
    return None


def _until(value: object) -> float | None:
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            when = parsedate_to_datetime(value)
            seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)
            return min(max(seconds.total_seconds(), 0.0), MAX_SECONDS)
    return None


def _is_connection(exc: Exception) -> bool:
    """Whether the connection failed. The class names of SDKs, httpx and Python tell."""
    names = {cls.__name__ for cls in type(exc).__mro__}
    return isinstance(exc, OSError) or any(name.endswith(CONNECTION_ERRORS) for name in names)


def _wrong_url(exc: BaseException) -> str | None:
    """Why no request to the URL of the client can ever succeed, if *exc* tells."""
    if (wrong := WRONG_URLS.get(type(exc).__name__)) is not None:
        return wrong
    try:
        has_no_port = isinstance(exc, OverflowError) and "port" in str(exc)  # asyncio's
        _ = _url(exc).port
    except ValueError:
        has_no_port = True
    return "its URL has a port that does not exist" if has_no_port else None


def _has_wrong_url(exc: BaseException) -> bool:
    return any(map(_wrong_url, _chain(exc)))


def _connection(exc: Exception) -> str:
    """Where a connection failed and why, as far as known: `` at 127.0.0.1:8080 (Connection refused)``."""
    chain = list(_chain(exc))
    place = next(filter(None, map(_place, reversed(chain))), None)  # after redirects, the innermost is the last
    reason = next(filter(None, map(_reason, chain)), None)
    return (f" at {place}" if place else "") + (f" ({reason})" if reason else "")


def _chain(exc: BaseException | None, *, with_contexts: bool = True) -> Iterator[BaseException]:
    """*exc* and what it was raised from, the outermost first.

    Contexts count, too: an error that was taken out of a group may have the group as its context. But a context may
    also belong to another request, in whose ``except`` block the caller is.
    """
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        inner = exc.exceptions[0] if isinstance(exc, BaseExceptionGroup) else None
        exc = inner or exc.__cause__ or (exc.__context__ if with_contexts else None)


def _place(exc: BaseException) -> str | None:
    """The host and port that a request went to. The rest of its URL may have secrets."""
    url = _url(exc)
    with suppress(ValueError):  # there is no such port
        if (host := url.hostname) is not None:
            shown = f"[{host}]" if ":" in host else host
            return f"{excerpt(shown)}:{PORTS.get(url.scheme, '?') if url.port is None else url.port}"
    return None


def _url(exc: BaseException) -> SplitResult:
    """The URL that a request went to; an empty one if *exc* does not tell."""
    with suppress(RuntimeError, ValueError):  # errors of httpx may have no request, and other libraries no such URL
        return urlsplit(str(getattr(getattr(exc, "request", None), "url", "")))
    return urlsplit("")


def _reason(exc: BaseException) -> str | None:
    """Why the connection failed, in our words or the system's. Other texts may contain anything."""
    if (wrong_url := _wrong_url(exc)) is not None:
        return wrong_url
    match exc:
        case gaierror():
            return "the host is not found"
        case SSLCertVerificationError():
            return "its certificate is not trusted"
        case SSLError():
            return "TLS failed"
        case OSError(errno=int(errno)):
            return os.strerror(errno)
    return None

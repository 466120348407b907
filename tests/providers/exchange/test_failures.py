"""Failures of providers become one error, which tells what the host needs and prints nothing else."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import os
import socket
import ssl
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from mcp_host.errors import ProviderError, SamplingError
from mcp_host.providers.exchange.failures import (
    BAD_HEADER,
    MISUSED,
    NOT_FOUND,
    OVERLOADED,
    READING,
    Interrupted,
    Unfinished,
    Unreadable,
    code_among,
    provider_error,
)

SECRET = "sk-ant-secret"


def response(status: int, **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=names, request=httpx.Request("POST", f"https://api/v1?key={SECRET}"))


class APIError(Exception):
    """As those of Anthropic's and OpenAI's SDKs: the request, the response if there is one, and its JSON."""

    def __init__(self, *, request: httpx.Request | None = None, body: object = None) -> None:
        super().__init__(SECRET)
        self.request = request or httpx.Request("POST", "https://api")
        self.body = body


class APIConnectionError(APIError):
    pass


class APIStatusError(APIError):
    def __init__(self, response: httpx.Response, body: object = None) -> None:
        super().__init__(request=response.request, body=body)
        self.response = response
        self.status_code = response.status_code


class RateLimitError(APIStatusError):
    """OpenAI's has the *code* and the *type* of the body, too."""

    def __init__(self, response: httpx.Response, body: dict[str, Any]) -> None:
        super().__init__(response, body)
        self.code, self.type = body.get("code"), body.get("type")


class AuthenticationError(APIStatusError):
    pass


class OfGoogle(Exception):
    """As google-genai's: the status as *code*, the provider's code as *status*, the body as *details*."""

    def __init__(self, code: int, body: dict[str, Any]) -> None:
        super().__init__(f"{code} {body} {SECRET}")
        self.code = code
        self.status = body["error"]["status"]
        self.details = body
        self.response = None


class OfOllama(Exception):
    """As ollama's: a text, and the status."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"{SECRET} (status code: {status_code})")
        self.error = SECRET
        self.status_code = status_code


class ReadTimeout(Exception):
    """As that of httpx."""


def google() -> OfGoogle:
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "38.5s"}
    return OfGoogle(429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"links": []}, delay]}})


def of_anthropic(status: int, kind: object = "rate_limit_error", **headers: str) -> APIStatusError:
    body = {"type": "error", "error": {"type": kind, "message": SECRET}}
    return RateLimitError(response(status, **headers), body)


def test_what_an_sdk_raises_becomes_an_error_that_says_what_to_do(subtests: pytest.Subtests) -> None:
    key = "not authenticated: is the client's key (ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN) right? (HTTP 401), authentication_error"
    table: list[tuple[Exception, int | None, str | None, float | None, bool, str]] = [
        (of_anthropic(429, retry_after="7"), 429, "rate_limit_error", 7.0, True, "RateLimitError (HTTP 429), rate_limit_error, try again after 7 seconds"),
        (of_anthropic(429, retry_after="1"), 429, "rate_limit_error", 1.0, True, "RateLimitError (HTTP 429), rate_limit_error, try again after 1 second"),
        (of_anthropic(429, retry_after="8", retry_after_ms="250"), 429, "rate_limit_error", 0.25, True, "RateLimitError (HTTP 429), rate_limit_error, try again after 0.25 seconds"),
        (of_anthropic(429, kind=f"{SECRET} is wrong", retry_after="soon"), 429, None, None, True, "RateLimitError (HTTP 429)"),
        (AuthenticationError(response(401), {"error": {"type": "authentication_error"}}), 401, "authentication_error", None, False, key),
        (APIStatusError(response(200), {"error": {"type": "overloaded_error"}}), None, "overloaded_error", None, True, "APIStatusError, overloaded_error"),
        (RateLimitError(response(429), {"code": "insufficient_quota", "type": "insufficient_quota"}), 429, "insufficient_quota", None, True, "RateLimitError (HTTP 429), insufficient_quota"),
        (APIError(body={"code": "server_error"}), None, "server_error", None, True, "APIError, server_error"),
        (APIError(body={"code": "invalid_request_error", "type": "service_unavailable_error"}), None, "invalid_request_error", None, True, "APIError, invalid_request_error"),
        (APIStatusError(response(200), {"error": {"type": "throttlingException"}}), None, "throttlingException", None, True, "APIStatusError, throttlingException"),
        (APIStatusError(response(200), {"error": {"type": "validationException"}}), None, "validationException", None, False, "APIStatusError, validationException"),
        (google(), 429, "RESOURCE_EXHAUSTED", 38.5, True, "OfGoogle (HTTP 429), RESOURCE_EXHAUSTED, try again after 38.5 seconds"),
        (OfOllama(404), 404, None, None, False, f"not found: {NOT_FOUND} (HTTP 404)"),
        (OfOllama(-1), None, None, None, True, "the model failed"),
        (APIConnectionError(), None, None, None, True, "APIConnectionError at api:443"),
        (ReadTimeout(SECRET), None, None, None, True, "ReadTimeout"),
        (httpx.RemoteProtocolError(SECRET), None, None, None, True, "RemoteProtocolError"),
        (ConnectionResetError(SECRET), None, None, None, True, "ConnectionResetError"),
        (TimeoutError(SECRET), None, None, None, True, "TimeoutError"),
        (ValueError(SECRET), None, None, None, False, "ValueError"),
    ]  # fmt: skip  # one case on each line
    for exc, status, code, retry_after, transient, said in table:
        with subtests.test(said):
            error = provider_error(exc, "anthropic")

            assert (error.provider, error.status, error.code) == ("anthropic", status, code)
            assert (error.retry_after, error.transient, error.original) == (retry_after, transient, exc)
            assert str(error) == f"anthropic: {said}"
            assert SECRET not in repr(error)


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, SECRET)


def test_a_connection_that_failed_is_named_by_the_host_and_port_where_it_went_alone(subtests: pytest.Subtests) -> None:
    redirected = httpx.Request("POST", f"http://127.0.0.1:9090/{SECRET}")
    table: list[tuple[str, str, httpx.Request | None, str]] = [
        ("a path, a query", f"http://127.0.0.1:8080/{SECRET}?key={SECRET}#{SECRET}", None, "127.0.0.1:8080"),
        ("a user, a password", f"https://{SECRET}:{SECRET}@api.example.com/v1", None, "api.example.com:443"),
        ("IPv6", "http://[::1]/v1", None, "[::1]:80"),
        ("a redirection", "http://127.0.0.1:8080/v1", redirected, "127.0.0.1:9090"),
    ]
    for case, url, went, place in table:
        with subtests.test(case):
            exc = APIConnectionError(request=httpx.Request("POST", url))
            exc.__cause__ = httpx.ConnectError(SECRET, request=went)

            assert str(provider_error(exc, "openai")) == f"openai: APIConnectionError at {place}"


def test_a_connection_that_failed_has_the_systems_reason(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, Exception, str]] = [
        ("refused", REFUSED, os.strerror(errno.ECONNREFUSED)),
        ("refused at each address", ExceptionGroup(SECRET, [REFUSED, REFUSED]), os.strerror(errno.ECONNREFUSED)),
        ("no host", socket.gaierror(socket.EAI_NONAME, SECRET), "the host is not found"),
        ("a certificate", ssl.SSLCertVerificationError(1, SECRET), "its certificate is not trusted"),
        ("TLS", ssl.SSLError(1, SECRET), "TLS failed"),
    ]
    for case, cause, reason in table:
        with subtests.test(case):
            exc = ConnectionError(SECRET)
            exc.__context__ = httpx.ConnectError(SECRET, request=httpx.Request("POST", "http://localhost:11434/api"))
            exc.__context__.__cause__ = OSError("All connection attempts failed")
            exc.__context__.__cause__.__cause__ = cause

            assert str(provider_error(exc, "ollama")) == f"ollama: ConnectionError at localhost:11434 ({reason})"


def unknown(argument: str) -> Exception:
    def method() -> None:
        raise NotImplementedError  # pragma: no cover

    with pytest.raises(TypeError) as raised:
        method(**{argument: "x"})
    return raised.value


def ended_loop() -> Exception:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError) as raised:
        loop.call_soon(print)
    return raised.value


def not_ascii() -> Exception:
    with pytest.raises(UnicodeEncodeError) as raised:
        f"{SECRET}é".encode("ascii")
    return raised.value


def reading_reply(exc: Exception) -> Exception:
    """*exc*, raised in a function by which SDKs read a reply."""

    def _process_response() -> None:
        raise exc

    with pytest.raises(type(exc)):
        _process_response()
    return exc


def test_what_an_sdk_raises_while_it_reads_a_reply_is_not_the_hosts_mistake() -> None:
    for exc in (TypeError(SECRET), AttributeError(SECRET), KeyError(SECRET), ValueError(SECRET)):
        assert str(provider_error(reading_reply(exc), "pydantic-ai")) == "pydantic-ai: the reply cannot be read", exc
    error = provider_error(reading_reply(ConnectionResetError(SECRET)), "pydantic-ai")
    assert (str(error), error.transient) == ("pydantic-ai: ConnectionResetError", True)


def test_a_mistake_of_the_host_says_what_to_look_at(subtests: pytest.Subtests) -> None:
    top_k = "the SDK's method takes no 'top_k'; a field that it does not know belongs in the option extra_body"
    table: list[tuple[str, Exception, str]] = [
        ("an unknown option", unknown("top_k"), f"TypeError: {top_k}"),
        ("an option that looks like a key", unknown(f"{SECRET}123"), f"TypeError: {MISUSED}"),
        ("TypeError", TypeError(SECRET), f"TypeError: {MISUSED}"),
        ("AttributeError", AttributeError(SECRET), f"AttributeError: {MISUSED}"),
        ("a key", not_ascii(), BAD_HEADER),
        ("a loop", ended_loop(), "the client belongs to an event loop that has ended: make a client in each"),
    ]
    for case, mistake, said in table:
        with subtests.test(case):
            error = provider_error(mistake, "anthropic", is_stream=True)
            assert (str(error), error.transient, error.original) == (f"anthropic: {said}", False, mistake)


def test_a_loop_that_has_ended_is_no_failed_connection() -> None:
    """Anthropic's SDK takes it for one, and fallbacks would ask another model from then on."""
    exc = APIConnectionError()
    exc.__cause__ = ended_loop()

    assert provider_error(exc, "anthropic").transient is False


def test_a_mistake_that_the_caller_handles_is_none_of_the_next_request() -> None:
    """As where another client is asked in an ``except``."""
    exc = APIStatusError(response(503))
    exc.__context__ = ended_loop()

    error = provider_error(exc, "anthropic")
    assert (error.status, error.transient) == (503, True)


def test_a_date_says_how_long_to_wait_and_a_week_is_the_longest() -> None:
    later = datetime.now(UTC) + timedelta(minutes=30)
    earlier = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)

    wait = provider_error(of_anthropic(429, retry_after=format_datetime(later, usegmt=True)), "anthropic").retry_after

    assert wait is not None
    assert 0 < wait <= 30 * 60
    assert provider_error(of_anthropic(429, retry_after=earlier), "anthropic").retry_after == 0
    assert provider_error(of_anthropic(503, retry_after="999999999999"), "anthropic").retry_after == 604800


def test_neither_the_original_nor_its_text_is_printed() -> None:
    def ask() -> None:
        error: ProviderError | None = None
        try:
            raise of_anthropic(429)
        except RateLimitError as exc:
            error = provider_error(exc, "anthropic")
        raise error

    stream = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(logging.StreamHandler(stream))

    with pytest.raises(ProviderError) as caught:
        ask()
    logger.error("failed", exc_info=caught.value)

    assert "anthropic: RateLimitError (HTTP 429), rate_limit_error" in stream.getvalue()
    assert SECRET not in stream.getvalue() + "".join(traceback.format_exception(caught.value))


class OfSdk(Exception):
    """What an SDK raises for a failure that is its cause."""


def unreadable_bytes(data: bytes) -> Exception:
    with pytest.raises(UnicodeDecodeError) as raised:
        data.decode()
    return raised.value


def unreadable_json(text: str) -> Exception:
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads(text)
    return raised.value


def in_a_character() -> Exception:
    with pytest.raises(OfSdk) as raised:
        raise OfSdk from unreadable_bytes("é".encode()[:1])
    return raised.value


ENDED = "gemini: the stream ended before the answer was complete"
UNREADABLE = "gemini: the reply cannot be read"


def test_a_stream_that_is_cut_may_be_asked_for_again(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, Exception, tuple[str, bool], tuple[str, bool]]] = [
        ("no end", Unfinished(), (ENDED, True), ("gemini: the reply has no complete answer", False)),
        ("in an event", unreadable_json('{"message": {"content": "h\u00e9'), (ENDED, True), (UNREADABLE, False)),
        ("in the name of a field", unreadable_json("dat"), (ENDED, True), (UNREADABLE, False)),
        ("before the data", unreadable_json(""), (ENDED, True), (UNREADABLE, False)),
        ("in a character", in_a_character(), (ENDED, True), (UNREADABLE, False)),
        ("a page", unreadable_json("<html>502</html>"), (UNREADABLE, False), (UNREADABLE, False)),
        ("no UTF-8", unreadable_bytes(b"\xff\xff"), (UNREADABLE, False), (UNREADABLE, False)),
        ("something else", KeyError(SECRET), ("gemini: KeyError", False), ("gemini: KeyError", False)),
    ]
    for case, exc, of_a_stream, of_a_body in table:
        with subtests.test(case):
            error = provider_error(exc, "gemini", is_stream=True)
            assert (str(error), error.transient) == of_a_stream

            error = provider_error(exc, "gemini")
            assert (str(error), error.transient) == of_a_body
            assert error.original is exc


def test_what_fails_while_a_reply_is_read_is_the_replys_fault() -> None:
    with pytest.raises(Unreadable) as raised, READING:
        raise KeyError(SECRET)

    assert str(provider_error(raised.value, "gemini", is_stream=True)) == UNREADABLE
    for error in (Unfinished(), SamplingError("the model called 'add' without its arguments")):
        with pytest.raises(type(error)), READING:
            raise error


def test_a_stream_that_is_cut_after_its_beginning_says_so() -> None:
    cause = ConnectionResetError(errno.ECONNRESET, SECRET)

    error = provider_error(Interrupted(cause), "gemini", is_stream=True)

    reason = os.strerror(errno.ECONNRESET)
    assert (str(error), error.transient) == (f"{ENDED}: ConnectionResetError ({reason})", True)
    assert error.original is cause


def test_a_code_is_kept_and_what_does_not_look_like_one_is_not_repeated(subtests: pytest.Subtests) -> None:
    codes = ["rate_limit_error", "RESOURCE_EXHAUSTED", "DeploymentNotFound", "overloaded", "context_length_exceeded"]
    for code in (*codes, "billing.hard_limit_reached"):
        with subtests.test(code=code):
            assert code_among([None, 7, code]) == code
    texts = [
        "AIzaSyDUMMYKEY0123456789abcdefABCDEF",
        "skaBcDeFgHiJkLmNoP",
        "sk_live_51H8xyz",
        "key a is bad",
        "a" * 21,
        "_".join(["word"] * 14),
        "\x1b",
        "bad\n",
        "error",
        "",
    ]
    for text in texts:
        with subtests.test(text=text):
            assert code_among([text]) is None


def test_the_codes_of_overloaded_providers_are_codes() -> None:
    assert [code for code in OVERLOADED if code_among([code]) is None] == []


def test_an_error_that_is_its_own_cause_or_was_taken_out_of_a_group_has_an_end() -> None:
    """The context of the second is the group that has it."""
    own = ConnectionError("cut")
    own.__cause__ = own
    assert provider_error(own, "p").transient is True
    try:
        try:
            raise ExceptionGroup("of tasks", [ConnectionError("cut")])
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
    except Exception as exc:
        error = provider_error(exc, "p")

    assert (str(error), error.transient) == ("p: ConnectionError", True)

"""The texts and attributes of errors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from mcp_host.auth import AuthorizationNeeded, LoginFailed, TokenRequestFailed
from mcp_host.errors import (
    CallDenied,
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    HeaderMismatch,
    HttpStatusError,
    InputNotGiven,
    InputRefused,
    InvalidToolOutput,
    McpError,
    MissingRequiredClientCapability,
    NotDeclared,
    ProviderError,
    RequestTimeout,
    ResourceNotFound,
    RoundsExceeded,
    ServerError,
    SessionLost,
    ToolChanged,
    Unauthorized,
    UnsupportedProtocolVersion,
    UnusableCalls,
    UrlElicitationRequired,
    escaped,
    excerpt,
    quoted,
)
from mcp_host.protocol.negotiation import WrongEra
from mcp_host.testing import ClientError, RequestError
from mcp_host.types import CallToolResult, CreateMessageResult, ElicitRequestURLParams, TextContent, Tool
from mcp_host.types.tool_changes import ToolChange


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("grüße", "grüße"),
        ("a b", "a b"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\u202eabc", r"\u202eabc"),
        ("\ud800", r"\ud800"),
        ("\x7f\x9b\u2028", r"\x7f\x9b\u2028"),
    ],
    ids=["letters", "a space", "escape", "line breaks", "right to left", "half a pair", "more controls"],
)
def test_control_characters_in_a_peers_text_are_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_long_text_is_cut_and_its_length_is_shown() -> None:
    assert excerpt("x" * 300) == "x" * 300
    assert excerpt("x" * 301) == "x" * 300 + "… (301 characters)"
    assert excerpt("xyz", 2) == "xy… (3 characters)"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("word", "'word'"),
        ("x" * 80, f"'{'x' * 80}'"),
        ("x" * 81, f"'{'x' * 80}… (81 characters)'"),
        ({"a": None}, "{'a': None}"),
        ([1] * 40, f"{'[1, ' + '1, ' * 25 + '1'}… (120 characters)"),
        ({"a": [{}, "x"], "b": {"c": 1.5}}, "{'a': [{}, 'x'], 'b': {'c': 1.5}}"),
        ([{"a": "x" * 999}], f"[{{'a': '{'x' * 72}… (more than 1000 characters)"),
    ],
    ids=["a word", "80 letters", "81 letters", "an object", "a long list", "nested", "a long text inside"],
)
def test_a_peers_value_is_quoted_and_cut_at_80_characters(value: object, shown: str) -> None:
    assert quoted(value) == shown


def test_of_a_huge_value_only_the_beginning_is_looked_at() -> None:
    class Watched(float):
        """A number that is never written."""

        def __repr__(self) -> str:
            pytest.fail("a huge value is written as a whole")

    assert quoted([0] * 400 + [Watched()]) == f"[{'0, ' * 26}0… (more than 1000 characters)"
    assert quoted({"a": [0] * 400, "b": Watched()}).endswith("… (more than 1000 characters)")


STATUSES: list[tuple[int, bool]] = [
    *((status, False) for status in (300, 400, 401, 403, 404, 407, 409, 424, 426, 428, 430, 499)),
    *((status, True) for status in (408, 425, 429, 500, 502, 503, 504, 599)),
]


def test_an_http_error_is_transient_by_its_status(subtests: pytest.Subtests) -> None:
    for status, transient in STATUSES:
        with subtests.test(status=status):
            assert HttpStatusError(status, "m").transient is transient


@pytest.mark.parametrize("kind", [ConnectionClosed, ConnectFailed, SessionLost])
@pytest.mark.parametrize("may_have_run", [True, False])
def test_a_copy_of_an_error_is_equal_to_the_first(kind: type[ConnectionClosed], may_have_run: bool) -> None:
    error = kind("it is gone", may_have_run=may_have_run, exit_code=3, stderr="last words")
    again = error.again()

    assert again is not error
    assert type(again) is kind
    assert (str(again), again.may_have_run, again.exit_code, again.stderr) == (
        "it is gone",
        may_have_run,
        3,
        "last words",
    )


def test_a_request_may_have_run_by_default() -> None:
    assert ConnectionClosed("gone").may_have_run
    assert RequestTimeout("late").may_have_run
    assert not RequestTimeout("late", may_have_run=False).may_have_run


def test_a_server_error_shows_a_part_of_its_text_and_keeps_all_of_it() -> None:
    text = "no such tool\n" * 100
    error = ServerError(-32602, text, {"tool": "x"})
    without_code = ServerError(None, "refused")

    assert (error.code, error.message, error.data) == (-32602, text, {"tool": "x"})
    assert str(error) == r"no such tool\n" * 23 + "n… (1300 characters) (-32602)"
    assert (str(without_code), without_code.code) == ("refused", None)


def test_an_http_error_keeps_the_response() -> None:
    error = HttpStatusError(429, "HTTP 429", retry_after=3.0, body="slow down", code=-1, data=[1], rpc_message="later")

    assert (error.status, error.retry_after, error.body, error.code, error.data, error.rpc_message) == (
        429,
        3.0,
        "slow down",
        -1,
        [1],
        "later",
    )
    assert str(error) == "HTTP 429 (-1)"


def test_rounds_exceeded_names_the_limit() -> None:
    error = RoundsExceeded("the server asked too often", "max_rounds")

    assert (str(error), error.limit) == ("the server asked too often (Limits.max_rounds)", "max_rounds")


def having(error: McpError, **attributes: object) -> McpError:
    vars(error).update(attributes)
    return error


RESULTS: list[tuple[CallToolResult, list[str]]] = [
    (
        CallToolResult(content=[TextContent(text="no\x1b[2J")], structured_content={"a": 1}),
        ["the result says: no\\x1b[2J"],
    ),
    (CallToolResult(content=[], structured_content={"error": "no"}), ["the result says: {'error': 'no'}"]),
    (CallToolResult(content=[]), []),
]


def test_a_result_that_is_not_as_listed_is_a_note_and_not_in_the_message() -> None:
    for result, notes in RESULTS:
        error = InvalidToolOutput("no number", result)

        assert (str(error), getattr(error, "__notes__", [])) == ("no number", notes)


EXAMPLES = [  # the others take one text
    AuthorizationNeeded("a login is needed", "https://login.example.com/?state=s", "s"),
    CallDenied("denied", "too dear"),
    ClientError("roots/list", -32603, "no roots", {"a": 1}),
    ConnectFailed("gone", may_have_run=False, exit_code=3, stderr="last words"),
    ConnectionClosed("gone", may_have_run=False, exit_code=3, stderr="last words"),
    having(HeaderMismatch(-32020, "another name", {"a": 1}), may_have_run=True),
    HttpStatusError(429, "HTTP 429", retry_after=3.0, body="slow down", code=-1, data=[1], rpc_message="later"),
    InputNotGiven("refused", key="k", method="sampling/createMessage"),
    InputRefused(-1, "not now", {"a": 1}),
    InvalidToolOutput("no number", CallToolResult(content=[TextContent(text="x")])),
    having(LoginFailed("denied"), scopes=("read", "write")),
    ConfigError("not set", path=Path("mcp.json"), server="shop", field="env.TOKEN"),
    MissingRequiredClientCapability(-32021, "roots", {"a": 1}, {"roots": {}}),
    NotDeclared("sampling", "tools"),
    ProviderError("openai", "overloaded", status=529, code="busy", retry_after=2.0),
    RequestError(-1, "no", {"a": 1}),
    RequestTimeout("late", may_have_run=False),
    ResourceNotFound(-32002, "no such file", {"uri": "file:///x"}),
    RoundsExceeded("too often", "max_rounds"),
    ServerError(-32602, "no such tool\n" * 100, {"tool": "x"}),
    SessionLost("gone", may_have_run=False),
    TokenRequestFailed("refused", "invalid_grant", refused=True),
    ToolChanged("changed", ToolChange("shop", "add", None, Tool(name="add", input_schema={"type": "object"}))),
    having(Unauthorized(401, "HTTP 401", body="log in"), challenges=("Bearer",)),
    UnusableCalls("not JSON", CreateMessageResult(content=TextContent(text="So:"), model="m"), {"call_1": "cut"}),
    UnsupportedProtocolVersion(-32022, "too new", {"a": 1}, ["2025-11-25"]),
    UrlElicitationRequired(
        -32042, "visit", {}, [ElicitRequestURLParams(message="why", url="https://example.com/", elicitation_id="1")]
    ),
    WrongEra(ServerError(-32601, "what?"), "legacy"),
]


def kinds(base: type[McpError] = McpError) -> Iterator[type[McpError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


KINDS = {kind for kind in kinds() if kind.__module__.startswith("mcp_host.")} - {type(error) for error in EXAMPLES}


def everything(error: Exception) -> object:
    attributes = {
        name: everything(value) if isinstance(value, Exception) else value for name, value in vars(error).items()
    }
    return type(error), error.args, str(error), attributes


WAYS: dict[str, Callable[[McpError], McpError]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
}


def test_an_error_can_be_copied_and_pickled(subtests: pytest.Subtests) -> None:
    for (case, again), error in product(
        WAYS.items(), (McpError("text"), *EXAMPLES, *sorted((kind("text") for kind in KINDS), key=repr))
    ):
        with subtests.test(case, error=error):
            copied = again(error)

            assert everything(copied) == everything(error)
            assert copied is not error


def test_a_pickled_error_of_a_provider_is_without_what_the_sdk_raised() -> None:
    """It may have keys and the prompt, and many cannot be pickled."""
    error = ProviderError("openai", "overloaded", status=529, original=OSError("sk-secret"))

    pickled = pickle.dumps(error)

    assert b"sk-secret" not in pickled
    assert everything(pickle.loads(pickled)) == everything(ProviderError("openai", "overloaded", status=529))

"""The state that a client carries: made here, for one request, for a while."""

from __future__ import annotations

import math

import pytest

from mcp_host.protocol.jsonrpc import Params, Request
from mcp_host.testing._server.request_state import BadState, StateSigner

ASKED: Params = {"name": "ask", "arguments": {"a": 1, "b": 2}}
REQUEST = Request(1, "tools/call", ASKED)


@pytest.mark.parametrize(
    "params",
    [
        ASKED,
        {"arguments": {"b": 2, "a": 1}, "name": "ask"},
        {**ASKED, "inputResponses": {"a": {}}, "requestState": "s", "_meta": {"progressToken": 1}},
    ],
    ids=["the same", "in another order", "with the answers"],
)
def test_a_retry_of_the_same_request_opens_the_state(params: Params) -> None:
    seal = StateSigner()
    state = seal.close("handle", REQUEST, 10.0)

    assert seal.open(state, Request(2, "tools/call", params), 9.9) == "handle"


@pytest.mark.parametrize(
    "request_",
    [
        Request(2, "prompts/get", ASKED),
        Request(2, "tools/call", {**ASKED, "name": "other"}),
        Request(2, "tools/call", {**ASKED, "arguments": {"a": 1, "b": 3}}),
        Request(2, "tools/call", {"name": "ask"}),
        Request(2, "tools/call", {**ASKED, "uri": "r://a"}),
    ],
    ids=["another method", "another name", "another argument", "no arguments", "another resource"],
)
def test_another_request_does_not_open_the_state(request_: Request) -> None:
    seal = StateSigner()
    state = seal.close("handle", REQUEST, 10.0)

    with pytest.raises(BadState, match=r"^requestState belongs to another request$"):
        seal.open(state, request_, 0.0)


def test_no_arguments_are_the_same_as_none_given() -> None:
    seal = StateSigner()
    state = seal.close("handle", Request(1, "tools/call", {"name": "ask"}), 10.0)

    assert seal.open(state, Request(2, "tools/call", {"name": "ask", "arguments": {}}), 0.0) == "handle"


def test_a_state_opens_until_it_expires() -> None:
    seal = StateSigner()
    state = seal.close("handle", REQUEST, 10.0)

    with pytest.raises(BadState, match=r"^requestState has expired$"):
        seal.open(state, REQUEST, 10.0)


def test_a_state_may_be_good_for_ever() -> None:
    seal = StateSigner()

    assert seal.open(seal.close("handle", REQUEST, math.inf), REQUEST, 1e9) == "handle"


def forged() -> dict[str, object]:
    state = StateSigner().close("handle", REQUEST, 10.0)
    return {
        "none": None,
        "no text": 5,
        "empty": "",
        "nonsense": "nonsense",
        "not ASCII": "é:é:é:é",
        "half a character": "\ud800:\ud800",
        "another server's": state,
        "unsealed": state.rpartition(":")[0],
    }


@pytest.mark.parametrize("state", forged().values(), ids=forged())
def test_what_was_not_made_here_is_refused(state: object) -> None:
    with pytest.raises(BadState, match=r"^requestState is none of this server's$"):
        StateSigner().open(state, REQUEST, 0.0)


@pytest.mark.parametrize("place", [0, 10, -1], ids=["handle", "expiry", "seal"])
def test_what_was_changed_on_its_way_is_refused(place: int) -> None:
    seal = StateSigner()
    state = list(seal.close("handle", REQUEST, 10.0))
    state[place] = "0" if state[place] != "0" else "1"

    with pytest.raises(BadState, match=r"^requestState is none of this server's$"):
        seal.open("".join(state), REQUEST, 0.0)

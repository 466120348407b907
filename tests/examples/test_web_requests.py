"""What the routes of the web application in the examples share."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from mcp_host.errors import (
    ConnectionClosed,
    ConnectTimeout,
    InputNotGiven,
    McpError,
    ProtocolError,
    RequestTimeout,
    ServerError,
)


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConnectionClosed("it exited", may_have_run=False), 503),
        (ConnectionClosed("it exited", may_have_run=True), 502),
        (ConnectTimeout("no answer"), 503),
        (RequestTimeout("too slow", may_have_run=False), 503),
        (RequestTimeout("too slow", may_have_run=True), 504),
        (InputNotGiven("denied", key="k", method="sampling/createMessage"), 403),
        (ServerError(-32602, "no such tool"), 502),
        (ProtocolError("no result"), 502),
    ],
    ids=repr,
)
def test_each_error_has_the_status_of_the_page(error: McpError, status: int) -> None:
    from web_requests import http_status

    assert http_status(error) == status


async def test_an_error_while_the_browser_waits_comes_alone() -> None:
    async def receive() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    from web_requests import until_the_browser_leaves

    problem = HTTPException(404)
    with anyio.fail_after(25), pytest.raises(HTTPException) as caught:
        async with until_the_browser_leaves(Request({"type": "http"}, receive)):
            raise problem

    assert caught.value is problem

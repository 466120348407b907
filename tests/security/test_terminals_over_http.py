"""As `test_terminals`, of what a server says below its messages: in status lines, headers, bodies that are none."""

from __future__ import annotations

import json
import logging
from traceback import format_exception

import pytest
from anyio import fail_after

from mcp_host import Client, StreamableHttp
from mcp_host.errors import McpError
from tests.faults.http_server import SOON, mcp, says, sends
from tests.faults.processes import BRIEF
from tests.security.test_terminals import EVIL, harmless
from tests.transports.http_contract import by_httpx  # noqa: F401  # an autouse fixture
from tests.transports.http_peers import serving
from tests.transports.legacy_peers import Answer

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n"
LOUD = EVIL.replace("\r", "").replace("\0", "").encode("latin-1", "ignore")
HTTP: dict[str, Answer] = {
    "a reason": sends(b"HTTP/1.1 500 " + LOUD + b"\r\ncontent-length: 0\r\n\r\n"),
    "a type": sends(HEAD + b"content-type: " + LOUD + b"\r\n\r\n{}"),
    "a coding": sends(HEAD + b"content-type: application/json\r\ncontent-encoding: \x9b2J\xad\r\n\r\n{}"),
    "a place": says(b"", 307, location="http://x/\x9b2J\xad"),
    "a header": sends(b"HTTP/1.1 200 OK\r\n" + LOUD + b": x\r\n\r\n"),
    "no http": sends(LOUD + b"\r\n\r\n"),
    "a time": says(EVIL.encode(), 503, retry_after="\x9b2J", content_type="text/plain"),
    "an error": says(json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": EVIL}}).encode(), 400),
    "a page": says(EVIL.encode(), 404, content_type="text/html"),
    "a challenge": says(b"", 401, www_authenticate="\x9b2J\xad"),
    "no reply": says(json.dumps(EVIL).encode()),
}


async def test_the_text_of_a_server_is_escaped_in_errors_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.NOTSET, logger="mcp_host")
    told: list[str] = []
    for name, answer in HTTP.items():
        async with serving(mcp(call=answer, get=answer, initialized=answer, delete=answer)) as peer:
            with fail_after(SOON):
                async with Client(StreamableHttp(peer.url), era="legacy", limits=BRIEF) as client:
                    with pytest.raises(McpError) as caught:
                        await client.call_tool("x")
                told += [f"{name}: {text}" for text in (*format_exception(caught.value), *client.warnings)]

    records = [record.getMessage() for record in caplog.records if record.name.startswith("mcp_host")]
    assert [each for each in (*told, *records) if not harmless(each)] == []

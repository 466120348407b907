"""What Streamable HTTP refuses."""

from __future__ import annotations

import httpx
import pytest
from anyio import fail_after
from pydantic_core import to_json

from mcp_host.testing import Server
from tests.testing.raw import INITIALIZE, Wire, request
from tests.testing.raw_http import ACCEPT


def post(**headers: str) -> dict[str, str]:
    return {"accept": ACCEPT, "content-type": "application/json", **headers}


RULES: list[tuple[str, str, dict[str, str], bytes, int]] = [
    ("POST", "/elsewhere", post(), b"{}", 404),
    ("POST", "/mcp", post(origin="https://evil.example"), b"{}", 403),
    ("POST", "/mcp", post(origin="null"), b"{}", 403),
    ("PUT", "/mcp", post(), b"{}", 405),
    ("POST", "/mcp", post(accept="application/json"), b"{}", 406),
    ("GET", "/mcp", {"accept": "application/json"}, b"", 406),
    ("POST", "/mcp", post(**{"content-type": "text/plain"}), b"{}", 415),
    ("POST", "/mcp", post(), b"{", 400),
    ("POST", "/mcp", post(), b'{"jsonrpc":"2.0","id":1,"method":"ping","params":1}', 400),
    ("POST", "/mcp", post(), b"[]", 400),
    ("POST", "/mcp", post(), to_json([request(0, "initialize", INITIALIZE), request(1, "ping")]), 400),
    ("POST", "/mcp", post(), to_json(request(1, "ping")), 400),
    ("GET", "/mcp", {"accept": "text/event-stream"}, b"", 400),
    ("DELETE", "/mcp", {}, b"", 400),
    ("POST", "/mcp", post(**{"mcp-session-id": "x"}), to_json(request(0, "initialize", INITIALIZE)), 404),
    ("POST", "/mcp", post(), to_json(request(0, "initialize")), 200),
    ("POST", "/mcp", post(accept="*/*", origin="http://localhost:1"), to_json(request(0, "initialize")), 200),
]


async def test_a_request_that_breaks_a_rule_of_the_transport_gets_its_status(subtests: pytest.Subtests) -> None:
    for method, path, headers, body, status in RULES:
        with subtests.test(f"{method} {path} {headers} {body!r}"):
            transport = httpx.ASGITransport(Server("s").asgi())
            async with httpx.AsyncClient(transport=transport, base_url="http://local") as client:
                response = await client.request(method, path, headers=headers, content=body)

            assert response.status_code == status
            assert "mcp-session-id" not in response.headers


RULES_OF_SESSIONS: list[tuple[dict[str, str], Wire | None, int]] = [
    ({"mcp-protocol-version": "2025-06-18"}, request(1, "ping"), 400),
    ({"last-event-id": "2/99"}, None, 400),
    ({"last-event-id": "x"}, None, 400),
    ({}, {"jsonrpc": "2.0", "id": 9, "result": 1}, 202),
    ({}, request(0, "initialize", INITIALIZE), 200),
]


async def test_a_request_that_breaks_a_rule_of_sessions_gets_its_status(subtests: pytest.Subtests) -> None:
    for headers, body, status in RULES_OF_SESSIONS:
        with subtests.test(f"{headers} {body}"):
            app = Server("s").asgi()
            transport = httpx.ASGITransport(app)
            with fail_after(25):
                async with httpx.AsyncClient(transport=transport) as client:
                    url = "http://local/mcp"
                    shaken = await client.post(
                        url, headers=post(), content=to_json(request(0, "initialize", INITIALIZE))
                    )
                    session = {"mcp-session-id": shaken.headers["mcp-session-id"]}
                    response = await client.request(
                        "GET" if body is None else "POST",
                        url,
                        headers=post(**session, **headers),
                        content=None if body is None else to_json(body),
                    )
                await app.aclose()

            assert response.status_code == status

"""What Streamable HTTP refuses."""

from __future__ import annotations

import httpx
import pytest
from anyio import fail_after
from pydantic_core import to_json

from mcp_host.serving.http.access import Access, hosts_at, is_exposed
from mcp_host.serving.http.asgi import HttpError
from mcp_host.testing import Server
from tests.testing.raw import INITIALIZE, Wire, request
from tests.testing.raw_http import ACCEPT


def post(**headers: str) -> dict[str, str]:
    return {"accept": ACCEPT, "content-type": "application/json", **headers}


RULES: list[tuple[str, str, dict[str, str], bytes, int]] = [
    ("POST", "/elsewhere", post(), b"{}", 404),
    ("POST", "/mcp", post(origin="https://evil.example"), b"{}", 403),
    ("POST", "/mcp", post(origin="null"), b"{}", 403),
    ("POST", "/mcp", post(origin="http://["), b"{}", 403),
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


OPEN = Access(hosts=())
SERVED = Access(hosts=["MCP.example", "192.0.2.1", "2001:db8::1"])
GUARDED = Access("s3cret~token=")

ACCESS: list[tuple[Access, dict[str, str], tuple[int, str | None] | None]] = [
    (OPEN, {"host": "127.0.0.1:8000"}, None),
    (OPEN, {"host": "LOCALHOST"}, None),
    (OPEN, {"host": "[::1]:8000"}, None),
    (OPEN, {"host": "localhost", "origin": "http://localhost:3000"}, None),
    (OPEN, {"host": "localhost", "origin": "https://mcp.example"}, (403, None)),
    (OPEN, {"host": "mcp.example"}, (421, None)),
    (OPEN, {"host": "localhost.mcp.example"}, (421, None)),
    (OPEN, {"host": "127.0.0.1.mcp.example:8000"}, (421, None)),
    (OPEN, {"host": "localhost@mcp.example"}, (421, None)),
    (OPEN, {"host": "192.0.2.1"}, (421, None)),
    (OPEN, {"host": "mcp.example@localhost"}, (421, None)),
    (OPEN, {"host": "localhost, mcp.example"}, (421, None)),
    (OPEN, {"host": "localhost:80, mcp.example"}, (421, None)),
    (OPEN, {"host": "localhost", "origin": "http://localhost:1, http://mcp.example"}, (403, None)),
    (OPEN, {"host": "[::1"}, (421, None)),
    (OPEN, {"host": ""}, (421, None)),
    (OPEN, {}, (421, None)),
    (SERVED, {"host": "mcp.EXAMPLE:8000", "origin": "http://mcp.example:8000"}, None),
    (SERVED, {"host": "192.0.2.1:80"}, None),
    (SERVED, {"host": "[2001:db8::1]:80"}, None),
    (SERVED, {"host": "localhost"}, None),
    (SERVED, {"host": "evil.example"}, (421, None)),
    (GUARDED, {"host": "any.example", "authorization": "Bearer s3cret~token="}, None),
    (GUARDED, {"authorization": "bearer  s3cret~token= "}, None),
    (GUARDED, {"authorization": "Bearer s3cret~token=", "origin": "http://any.example"}, (403, None)),
    (GUARDED, {}, (401, 'Bearer realm="mcp"')),
    (GUARDED, {"authorization": "s3cret~token="}, (401, 'Bearer realm="mcp"')),
    (GUARDED, {"authorization": "Basic s3cret~token="}, (401, 'Bearer realm="mcp"')),
    (GUARDED, {"authorization": "Bearer"}, (401, 'Bearer realm="mcp", error="invalid_token"')),
    (GUARDED, {"authorization": "Bearer s3cret~token"}, (401, 'Bearer realm="mcp", error="invalid_token"')),
    (GUARDED, {"authorization": "Bearer \xff"}, (401, 'Bearer realm="mcp", error="invalid_token"')),
]


async def test_a_request_is_let_in_by_its_host_its_origin_and_its_token(subtests: pytest.Subtests) -> None:
    for access, headers, refusal in ACCESS:
        with subtests.test(f"{headers} {refusal}"):
            if refusal is None:
                assert await access.check(headers) is None
                continue
            with pytest.raises(HttpError) as refused:
                await access.check(headers)
            response = refused.value.response
            assert (response.status, response.headers.get("www-authenticate")) == refusal


def test_a_token_that_cannot_be_sent_is_refused(subtests: pytest.Subtests) -> None:
    for token in ("", "=", "two words", "a=b", "tökén", "a\n"):
        with subtests.test(ascii(token)), pytest.raises(ValueError, match="a bearer token has only letters"):
            Access(token)


ADDRESSES = [
    ("localhost", "127.0.0.1", ("localhost", "127.0.0.1"), False),
    ("127.9.9.9", "127.9.9.9", ("127.9.9.9", "127.9.9.9"), False),
    ("::1", "::1", ("::1", "::1"), False),
    ("localhost", "192.0.2.1", ("localhost", "192.0.2.1"), True),
    ("mcp.example", "192.0.2.1", ("mcp.example", "192.0.2.1"), True),
    ("fe80::1%2", "fe80::1%2", ("fe80::1%2", "fe80::1%2"), True),
    ("0", "0.0.0.0", None, True),
    ("::", "::", None, True),
]


def test_an_address_to_listen_at_says_for_which_hosts_and_whether_other_machines_connect(
    subtests: pytest.Subtests,
) -> None:
    for host, address, hosts, exposed in ADDRESSES:
        with subtests.test(f"{host} {address}"):
            assert (hosts_at(host, address), is_exposed(address)) == (hosts, exposed)


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

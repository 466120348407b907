"""Our client with the OAuth of the official SDK, over a client of httpx2; what came of it, as JSON.

Run by the Python that has version 2 of the SDK: authorized.py BACKEND.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import anyio
import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from mcp_host import Client, StreamableHttp
from mcp_host.serving.http.uvicorn_server import serve
from mcp_host.testing import Server

server = Server("tides")


@server.tool
def high() -> str:
    """The next high water."""
    return "6.1 m"


class Guarded:
    """The server, for requests with the token; and the endpoints where clients get one."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()
        self._app = server.asgi()
        self.aclose = self._app.aclose
        self._routes = Starlette(
            routes=[
                Route("/.well-known/oauth-protected-resource/mcp", self.resource),
                Route("/.well-known/oauth-authorization-server", self.authority),
                Route("/token", self.token, methods=["POST"]),
                Mount("/", self.guard),
            ]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._routes(scope, receive, send)

    async def resource(self, request: Request) -> JSONResponse:
        base = str(request.base_url)
        return JSONResponse({"resource": f"{base}mcp", "authorization_servers": [base]})

    async def authority(self, request: Request) -> JSONResponse:
        base = str(request.base_url)
        endpoints = {"authorization_endpoint": f"{base}authorize", "token_endpoint": f"{base}token"}
        methods = {
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "response_types_supported": ["code"],
        }
        return JSONResponse({"issuer": base, "grant_types_supported": ["client_credentials"], **endpoints, **methods})

    async def token(self, request: Request) -> JSONResponse:
        self.heard["token"] += 1
        return JSONResponse({"access_token": "t-1", "token_type": "Bearer", "expires_in": 3600})

    async def guard(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope)
        authorized = request.headers.get("authorization") == "Bearer t-1"
        self.heard["served" if authorized else "refused"] += 1
        if authorized:
            await self._app(scope, receive, send)
        else:
            metadata = f"{request.base_url}.well-known/oauth-protected-resource/mcp"
            refusal = JSONResponse({}, 401, {"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'})
            await refusal(scope, receive, send)


class Storage:
    """Keeps what the SDK has it keep."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def get_tokens(self) -> Any:
        return self.kept.get("tokens")

    async def set_tokens(self, tokens: Any) -> None:
        self.kept["tokens"] = tokens

    async def get_client_info(self) -> Any:
        return self.kept.get("client")

    async def set_client_info(self, client_info: Any) -> None:
        self.kept["client"] = client_info


async def calls(era: str) -> dict[str, object]:
    app = Guarded()
    texts: list[str] = []

    async def call() -> None:
        texts.append((await client.call_tool("high")).text)

    async with serve(app) as url:
        issuer = url.removesuffix("mcp")
        auth = ClientCredentialsOAuthProvider(url, Storage(), "the host", "its secret", issuer=issuer)
        async with (
            httpx2.AsyncClient(auth=auth) as http,
            Client(StreamableHttp(url, client=http), era=era) as client,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(5):
                tasks.start_soon(call)
    return {"texts": texts, "tokens": app.heard["token"], "refused": app.heard["refused"]}


async def main() -> None:
    print(json.dumps({era: await calls(era) for era in ("legacy", "modern")}))


anyio.run(main, backend=sys.argv[1])

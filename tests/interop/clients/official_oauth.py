"""Our client, over its own pool, with the OAuth of the official SDK; what each call told and how many logins there were, as JSON.

Run by the Python that has version 2 of the SDK: official_oauth.py BACKEND URL...
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import AuthorizationCodeResult
from mcp.shared.auth import OAuthClientMetadata

from mcp_host import Client, StreamableHttp

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.interop.browser import Person

CALLBACK = "http://127.0.0.1:50517/callback"
CALLS = 6


class Storage:
    """Keeps what the SDK has it keep."""

    def __init__(self) -> None:
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


async def calls(url: str) -> tuple[list[list[str]], int]:
    ann = Person("ann", CALLBACK)
    told = []
    redirected = ""

    async def visit(url: str) -> None:
        nonlocal redirected
        redirected = await ann(url)

    async def callback() -> AuthorizationCodeResult:
        answer = {name: values[0] for name, values in parse_qs(urlsplit(redirected).query).items()}
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer.get("iss"))

    async def call() -> None:
        told.append((await client.call_tool("who")).structured_content["result"])

    metadata = OAuthClientMetadata(redirect_uris=[CALLBACK], client_name="tests")
    auth = OAuthClientProvider(url, metadata, Storage(), visit, callback)
    async with Client(StreamableHttp(url, auth=auth)) as client, anyio.create_task_group() as tasks:
        for _ in range(CALLS):
            tasks.start_soon(call)
    return told, ann.logins


async def main() -> None:
    print(json.dumps([await calls(url) for url in sys.argv[2:]]))


anyio.run(main, backend=sys.argv[1])

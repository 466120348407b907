"""A registry of servers that tests fill, with the API of the public one, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

from mcp_host.config.registry.server_json import OFFICIAL_META
from tests.asgi import serving


class FakeRegistry:
    """An ASGI application. *servers* are server.json files, by name and version, the latest last; *answers* come before them."""

    def __init__(self, *servers: Mapping[str, object], url: str = "") -> None:
        self.servers: dict[tuple[str, str], Mapping[str, object]] = {}
        self.status: dict[str, dict[str, object]] = {}
        """What the registry says of a server, by its name."""
        self.answers: dict[str, tuple[int, bytes]] = {}
        """Statuses and bodies, by the beginning of the path."""
        self.asked: list[str] = []
        self.url = url
        for server in servers:
            self.servers[str(server["name"]), str(server["version"])] = server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            query = scope["query_string"].decode()
            self.asked.append(scope["raw_path"].decode() + (f"?{query}" if query else ""))
            status, body = self._answer(scope["raw_path"].decode().removeprefix("/v0.1/servers"), parse_qs(query))
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, bytes]:
        for beginning, answer in self.answers.items():
            if path.startswith(beginning):
                return answer
        if not path:
            names = {name for name, _ in self.servers if query["search"][0] in name}
            found = [self._response(name, "latest") for name in sorted(names)]
            return 200, json.dumps({"servers": found, "metadata": {"count": len(found)}}).encode()
        _, name, _, version = map(unquote, path.split("/"))
        response = self._response(name, version)
        return (200 if response else 404), json.dumps(response or {"error": "Server not found"}).encode()

    def _response(self, name: str, version: str) -> dict[str, object]:
        versions = {each: server for (of, each), server in self.servers.items() if of == name}
        latest = [*versions][-1] if versions else ""
        version = latest if version == "latest" else version
        if version not in versions:
            return {}
        official = {"status": "active", "isLatest": version == latest, **self.status.get(name, {})}
        return {"server": versions[version], "_meta": {OFFICIAL_META: official}}


@contextmanager
def serving_registry(*servers: Mapping[str, object]) -> Iterator[FakeRegistry]:
    """A registry with *servers*, at its *url*."""
    registry = FakeRegistry(*servers)
    with serving(registry) as registry.url:
        yield registry

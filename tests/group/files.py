"""What the tests of files in a group share: files, servers in them, and a person who is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_host.group import ProposedServer
from tests.transports.children import python

DOWN = {"command": "no-such-program"}  # it cannot be started: the state tells that this was tried
TOOLS = """
while True:
    request = read()
    reply(request, {"tools": [{"name": each, "inputSchema": {"type": "object"}} for each in ("echo", "drop")]}
        if request["method"] == "tools/list" else text(os.environ.get("TOKEN", "")))
"""


def written(path: Path, servers: Mapping[str, object], **others: object) -> Path:
    path.write_text(json.dumps({"mcpServers": servers, **others}))
    return path


def running(program: str = TOOLS, **others: object) -> dict[str, Any]:
    command, *args = python(program)
    return {"command": command, "args": args, **others}


class Approver:
    """An *approve_servers* that keeps what it was asked, and agrees to all but those in *refused*."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked: list[ProposedServer] = []

    async def __call__(self, proposed: ProposedServer) -> bool:
        self.asked.append(proposed)
        return proposed.name not in self.refused

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.asked]

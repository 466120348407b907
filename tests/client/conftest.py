"""The specification as oracle: all that the client sent to a scripted peer is valid in the negotiated revision."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from mcp_host.testing import ScriptedPeer
from tests import spec
from tests.client.support import HANDSHAKE, STATELESS, Era
from tests.extent import THOROUGH

EXTENSION = "acme/"  # in methods that no revision has


ERA_OF_LOOP = {"asyncio": HANDSHAKE, "trio": STATELESS}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of both eras is run in each: where it also is of both event loops, in one era on each of them."""
    test = metafunc.definition
    has_its_own = any("era" in mark.args[0] for mark in test.iter_markers("parametrize"))
    of_both_loops = "anyio_backend" in metafunc.fixturenames and test.get_closest_marker("backends")
    if "era" in metafunc.fixturenames and not has_its_own and (THOROUGH or not of_both_loops):
        metafunc.parametrize("era", [HANDSHAKE, STATELESS], ids=lambda era: era.version, indirect=True)


@pytest.fixture
def era(request: pytest.FixtureRequest) -> Era:
    """For what holds in both eras."""
    found = request.param if hasattr(request, "param") else ERA_OF_LOOP[request.getfixturevalue("anyio_backend_name")]
    assert isinstance(found, Era)
    return found


class Overheard:
    """What one peer heard, each message with the revision it says it is in, or else that was agreed on by then."""

    def __init__(self) -> None:
        self.revision = "2025-11-25"
        self.messages: list[tuple[str, dict[str, Any]]] = []

    def add(self, message: dict[str, Any]) -> None:
        meta = message.get("params", {}).get("_meta", {})
        self.messages.append((meta.get("io.modelcontextprotocol/protocolVersion", self.revision), message))


@pytest.fixture(autouse=True)
def everything_said_is_valid(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if "MCP_SPEC_DIR" not in os.environ:
        yield
        return
    peers: dict[int, Overheard] = {}
    receive, send = ScriptedPeer.receive, ScriptedPeer.send

    async def overhear(peer: ScriptedPeer, method: str | None = None) -> dict[str, Any]:
        before = len(peer.received)
        try:
            return await receive(peer, method)
        finally:
            overheard = peers.setdefault(id(peer), Overheard())
            for message in peer.received[before:]:
                overheard.add(message)

    async def note_revision(peer: ScriptedPeer, message: dict[str, Any]) -> None:
        result = message.get("result")
        if isinstance(result, dict) and result.get("protocolVersion") in spec.REVISIONS:
            peers.setdefault(id(peer), Overheard()).revision = result["protocolVersion"]
        versions = result.get("supportedVersions") if isinstance(result, dict) else None
        if isinstance(versions, list) and STATELESS.version in versions:
            # of what bears no version: notifications
            peers.setdefault(id(peer), Overheard()).revision = STATELESS.version
        await send(peer, message)

    monkeypatch.setattr(ScriptedPeer, "receive", overhear)
    monkeypatch.setattr(ScriptedPeer, "send", note_revision)
    yield

    invalid = [said for peer in peers.values() for said in peer.messages if not valid(*said)]
    assert invalid == []


def valid(revision: str, message: dict[str, Any]) -> bool:
    same_id = {"id": 0} if type(message.get("id")) is int else {}
    return is_valid(revision, json.dumps(message | same_id))


@cache
def is_valid(revision: str, text: str) -> bool:
    """Most tests say the same in the beginning: that is validated once."""
    message = json.loads(text)
    newer = revision >= "2025-11-25"
    if "method" in message:
        kind = "Request" if "id" in message else "Notification"
        sender = "JSONRPC" if EXTENSION in message["method"] else "Client"
        return spec.validator(revision, sender + kind).is_valid(message)
    if "error" in message:
        return spec.validator(revision, "JSONRPCErrorResponse" if newer else "JSONRPCError").is_valid(message)
    envelope = spec.validator(revision, "JSONRPCResultResponse" if newer else "JSONRPCResponse").is_valid(message)
    return envelope and spec.validator(revision, "ClientResult").is_valid(message["result"])

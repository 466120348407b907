"""Stateless peers that want input before they will finish a call, for the client's tests."""

from __future__ import annotations

from typing import Any

from mcp_host.testing import ScriptedPeer
from tests.client.support import EMPTY, QUESTION

DONE: dict[str, Any] = {"resultType": "complete"} | EMPTY
SAMPLE = {"method": "sampling/createMessage", "params": QUESTION}
FORM = {
    "method": "elicitation/create",
    "params": {"message": "sure?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}},
}
ROOTS = {"method": "roots/list"}
USER = {"role": "user", "content": {"type": "text", "text": "capital?"}}


def wants(state: str | None = None, **requests: object) -> dict[str, Any]:
    """A result that requires input."""
    given: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        given["inputRequests"] = requests
    if state is not None:
        given["requestState"] = state
    return given


def answering(*results: dict[str, Any]) -> ScriptedPeer:
    """A stateless peer that answers requests with *results*, one after the other, and then with the last again and again."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        for result in results:
            await peer.reply(await peer.receive(), result)
        while True:
            await peer.reply(await peer.receive(), results[-1])

    return ScriptedPeer(script, name="the peer")

"""The same answers in revision 2026-07-28, where a server asks by its result and is called again."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.servers.replies import INITIALIZED, answer, asking, encode, success, thought

LEGACY = json.loads(INITIALIZED)
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": LEGACY["capabilities"],
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": LEGACY["serverInfo"]},
}
COMPLETE = b'{"resultType":"complete","ttlMs":0,"cacheScope":"private",'


def answer_alone(message: dict[str, Any], tools: int) -> bytes:
    """The answer to any request. What has been asked already is in the state that comes back with it."""
    if message["method"] == "server/discover":
        return success(message, encode(DISCOVERED))
    if message["method"] == "tools/call" and message["params"]["name"] == "ask":
        return success(message, _ask(message["params"]))
    head, brace, result = answer(message, tools).partition(b'"result":{')
    return head + b'"result":' + COMPLETE + result if brace else head


def _ask(call: dict[str, Any]) -> bytes:
    asked = int(call.get("requestState", "0"))
    if asked < call["arguments"]["times"]:
        question = {"method": "sampling/createMessage", "params": asking(call["arguments"]["tools"])}
        inputs = {"question": question}
        return encode({"resultType": "input_required", "inputRequests": inputs, "requestState": str(asked + 1)})
    return COMPLETE + thought({"result": call["inputResponses"]["question"]})[1:]

"""The same results in revision 2026-07-28, where a server asks for input by its result and the client retries."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.servers.replies import INITIALIZED, answer, encode, sampled_text, sampling_params, success

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
INPUT_REQUIRED = (
    b'{"resultType":"input_required","requestState":"%d",'
    b'"inputRequests":{"question":{"method":"sampling/createMessage","params":%b}}}'
)


def answer_stateless(message: dict[str, Any], tools: int) -> bytes:
    """The response to any request. The state that the client sends back counts the rounds of input."""
    if message["method"] == "server/discover":
        return success(message, encode(DISCOVERED))
    if message["method"] == "tools/call" and message["params"]["name"] == "ask":
        return success(message, _ask(message))
    head, brace, result = answer(message, tools).partition(b'"result":{')
    return head + b'"result":' + COMPLETE + result if brace else head


def _ask(call: dict[str, Any]) -> bytes:
    params = call["params"]
    rounds = int(params.get("requestState", "0"))
    if rounds < params["arguments"]["times"]:
        return INPUT_REQUIRED % (rounds + 1, sampling_params(call, rounds + 1))
    return COMPLETE + sampled_text({"result": params["inputResponses"]["question"]})[1:]

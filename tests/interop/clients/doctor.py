"""A host on a client of others, for `mcp-host doctor`: ``doctor.py PACKAGE CAPABILITIES REVISION URL``.

*PACKAGE* is "sdk" (the official one, in either version) or "fastmcp". *CAPABILITIES* is "all", "plain" for sampling
without tools and nothing else, or "none" for a client without callbacks. *REVISION* is that of the server. Calls the tool until the check-up is complete.
"""

# mypy: ignore-errors
# The packages are not installed where the types are checked.

import sys
from contextlib import asynccontextmanager
from math import inf

import anyio
import mcp
import mcp.types as types
from mcp import ClientSession

IN_TIME = 30.0  # seconds for all of it, which takes two
MOST_CALLS = 20
CANCELLED_BY = inf if hasattr(mcp, "Client") else 1.0
"""Seconds of a request that is cancelled at once: version 1 of the SDK reads nothing meanwhile."""

TEXT = {"type": "text", "text": "Hello."}
USES = [{"type": "tool_use", "id": city, "name": "get_weather", "input": {"city": city}} for city in ("Paris", "Oslo")]
FILLED_IN = {
    "text": "abc",
    "email": "a@b.example",
    "uri": "https://a.example/",
    "date": "2026-11-22",
    "date-time": "2026-11-22T09:30:00Z",
    "number": 1.5,
    "integer": 2,
    "boolean": True,
    "choice": "red",
    "titled-choice": "r",
    "choices": ["red"],
    "titled-choices": ["g"],
}


def wire(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def sample(context, params):
    """The model's answer; the user rejects what asks to be rejected."""
    asked = wire(params)
    if "one hundred" in str(asked["messages"]):
        await anyio.sleep(CANCELLED_BY)
    if "REJECT" in str(asked["messages"]):
        return types.ErrorData(code=-1, message="User rejected sampling request")
    answer = {"role": "assistant", "model": "a-model", "stopReason": "endTurn", "content": TEXT}
    if asked.get("toolChoice", {}).get("mode") == "required":
        answer |= {"stopReason": "toolUse", "content": USES}
    return (types.CreateMessageResultWithTools if "tools" in asked else types.CreateMessageResult).model_validate(
        answer
    )


def answer_to(asked):
    """The action of the user, and the content of the form."""
    if asked.get("mode") == "url":
        return "accept", None
    for word, action in (("decline", "decline"), ("without an answer", "cancel")):
        if word in asked["message"]:
            return action, None
    fields = asked["requestedSchema"]["properties"]
    return "accept", {name: field.get("default", FILLED_IN.get(name, "x")) for name, field in fields.items()}


async def elicit(context, params):
    action, content = answer_to(wire(params))
    return types.ElicitResult(action=action, content=content)


async def list_roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///home")])


def tools_of(capabilities):
    return {
        "sampling_capabilities": types.SamplingCapability.model_validate({"tools": {}} if capabilities == "all" else {})
    }


@asynccontextmanager
async def sdk(url, mode, capabilities):
    callbacks = {"sampling_callback": sample, **tools_of(capabilities)} if capabilities != "none" else {}
    if capabilities == "all":
        callbacks |= {"elicitation_callback": elicit, "list_roots_callback": list_roots}
    try:
        from mcp import Client
    except ImportError:  # version 1
        from mcp.client.streamable_http import streamable_http_client

        async with streamable_http_client(url) as (read, write, *_), ClientSession(read, write, **callbacks) as session:
            await session.initialize()
            yield session.call_tool
    else:
        async with Client(url, mode=mode, **callbacks) as client:
            yield client.call_tool


@asynccontextmanager
async def fastmcp(url, mode, capabilities):
    import fastmcp

    async def fill_in(message, response_type, params, context):
        action, content = answer_to(wire(params))
        return fastmcp.client.elicitation.ElicitResult(action=action, content=content)

    async def model(messages, params, context):
        return await sample(context, params)

    callbacks = {"sampling_handler": model, **tools_of(capabilities)} if capabilities != "none" else {}
    if capabilities == "all":
        callbacks |= {"elicitation_handler": fill_in, "roots": ["file:///home"]}
    async with fastmcp.Client(url, **callbacks) as client:
        yield client.call_tool


async def main(package, capabilities, revision, url):
    mode = "legacy" if revision < "2026" else "auto"
    with anyio.fail_after(IN_TIME):
        async with {"sdk": sdk, "fastmcp": fastmcp}[package](url, mode, capabilities) as call_tool:
            for _ in range(MOST_CALLS):
                try:
                    result = await call_tool("check_host", {})
                except Exception as exc:  # what it refuses ends the call, since 2026-07-28
                    print(repr(exc), file=sys.stderr)
                    continue
                content = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
                if content["complete"]:
                    return


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])

"""The client of the official SDK, in either version, with a model of rules: ``sampled.py SERVER MODE TOOLS CALLS``.

*SERVER* is a command as JSON, or a URL. *MODE* is "legacy" or "auto". *TOOLS* is "tools" if the client declares
``sampling.tools``, "plain" if it declares ``sampling`` only, and "none" if it does not sample. *CALLS* are pairs of a
tool and its arguments, as JSON. Prints what came of each call, and what the model was asked, as JSON.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

import json
import sys
from contextlib import asynccontextmanager

import anyio
import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from rules import RuleModel

IN_TIME = 30.0  # seconds for all of it, which takes two

try:
    from mcp import Client
    from mcp.shared.exceptions import MCPError
except ImportError:  # version 1
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.exceptions import McpError as MCPError

    @asynccontextmanager
    async def Client(server, *, mode, **sampling):
        opened = streamable_http_client(server) if isinstance(server, str) else stdio_client(server)
        async with opened as (read, write, *_), ClientSession(read, write, **sampling) as session:
            await session.initialize()
            yield session


def sampling_of(model, kind):
    async def sample(context, params):
        answer = model.answer(wire(params))
        plain = isinstance(answer["content"], dict)
        return (types.CreateMessageResult if plain else types.CreateMessageResultWithTools).model_validate(answer)

    if kind == "none":
        return {}
    capability = types.SamplingCapability.model_validate({"tools": {}} if kind == "tools" else {})
    return {"sampling_callback": sample, "sampling_capabilities": capability}


async def outcome(client, name, arguments):
    try:
        result = wire(await client.call_tool(name, arguments))
    except MCPError as refusal:
        return {"error": [refusal.error.code, refusal.error.message]}
    said = result["content"][0]["text"]
    if result.get("isError"):
        return {"failed": said}
    return result.get("structuredContent", said)


def wire(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def main(server, mode, kind, calls):
    model = RuleModel()
    if not server.startswith("http"):
        command, *args = json.loads(server)
        server = StdioServerParameters(command=command, args=args)
    with anyio.fail_after(IN_TIME):
        async with Client(server, mode=mode, **sampling_of(model, kind)) as client:
            outcomes = [await outcome(client, name, arguments) for name, arguments in json.loads(calls)]
    print(json.dumps({"outcomes": outcomes, "asked": model.asked}))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])

"""A client of others, with a model of rules: ``sampled.py PACKAGE SERVER MODE TOOLS CALLS``.

*PACKAGE* is "sdk" (the official one, in either version) or "fastmcp" (on version 2). *SERVER* is a command as JSON, or
a URL. *MODE* is "legacy" or "auto". *TOOLS* is "tools" if the client declares ``sampling.tools``, "plain" if it
declares ``sampling`` only, and "none" if it does not sample. *CALLS* are pairs of a tool and its arguments, as JSON.
Prints what came of each call, and what the model was asked, as JSON.

A call of ``hang`` is cancelled when it reports progress. After ``offer`` and ``touch`` comes what they announce.
"""

# mypy: ignore-errors
# The packages are not installed where the types are checked: their dependencies would tie ours down.

import json
import sys
from contextlib import asynccontextmanager
from math import inf

import anyio
import mcp
import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from rules import RuleModel

IN_TIME = 60.0  # seconds for all of it, which takes two, or six where a result has 10 MiB

UPDATED = "notifications/resources/updated"
ANNOUNCED = {"offer": "notifications/tools/list_changed", "touch": UPDATED}

try:
    from mcp import Client
    from mcp.client.subscriptions import listen
    from mcp.shared.exceptions import MCPError
    from mcp.shared.subscriptions import event_to_notification
except ImportError:  # version 1
    from mcp.client.stdio import stdio_client
    from mcp.shared.exceptions import McpError as MCPError

    @asynccontextmanager
    async def Client(server, *, mode, **callbacks):
        opened = stdio_client(server) if isinstance(server, StdioServerParameters) else server
        async with opened as (read, write, *_), ClientSession(read, write, **callbacks) as session:
            await session.initialize()
            yield session


@asynccontextmanager
async def sdk(server, **options):
    """The client, and its function that calls a tool."""
    if isinstance(server, str):
        unlimited = {"max_sse_event_size": None} if hasattr(mcp, "Client") else {}
        server = streamable_http_client(server, **unlimited)
    async with Client(server, **options) as client:
        yield client, client.call_tool


@asynccontextmanager
async def fastmcp(server, *, sampling_callback=None, **options):
    import fastmcp
    from fastmcp.client.transports import StdioTransport

    async def sample(messages, params, context):
        return await sampling_callback(context, params)

    async def call_tool(name, arguments, progress_callback=None):
        return await client.call_tool_mcp(name, arguments, progress_callback)

    if sampling_callback is not None:
        options["sampling_handler"] = sample
    if not isinstance(server, str):
        server = StdioTransport(server.command, server.args, keep_alive=False)
    async with fastmcp.Client(server, **options) as client:
        yield client, call_tool


def sampling_of(model, kind):
    async def sample(context, params):
        answer = model.answer(wire(params))
        plain = isinstance(answer["content"], dict)
        return (types.CreateMessageResult if plain else types.CreateMessageResultWithTools).model_validate(answer)

    if kind == "none":
        return {}
    capability = types.SamplingCapability.model_validate({"tools": {}} if kind == "tools" else {})
    return {"sampling_callback": sample, "sampling_capabilities": capability}


async def outcome(call_tool, name, arguments):
    try:
        result = wire(await call_tool(name, arguments))
    except MCPError as refusal:
        return {"error": [refusal.error.code, refusal.error.message]}
    said = result["content"][0]["text"]
    if result.get("isError"):
        return {"failed": said}
    return result.get("structuredContent", said)


async def abandoned(client, call_tool, name, arguments):
    """Cancel a call when it reports progress."""

    async def cancel(*progress):
        scope.cancel()

    with anyio.CancelScope() as scope:
        await call_tool(name, arguments, progress_callback=cancel)
    if isinstance(client, ClientSession):  # version 1 leaves it to us to tell the server
        params = types.CancelledNotificationParams(requestId=client._request_id - 1)
        cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
        await client.send_notification(types.ClientNotification(cancelled))
    return "cancelled" if scope.cancelled_caught else "ended"


class News:
    """A message handler that keeps what the server announces."""

    def __init__(self):
        self._send, self._kept = anyio.create_memory_object_stream(inf)

    async def __call__(self, message):
        self._send.send_nowait(getattr(message, "root", message))

    async def next(self, method):
        message = None
        while getattr(message, "method", None) != method:
            message = await self._kept.receive()
        return [method, str(message.params.uri)] if method == UPDATED else [method]

    async def listen(self, session, uris, *, task_status):
        async with listen(session, tools_list_changed=True, resource_subscriptions=uris) as events:
            task_status.started()
            async for event in events:
                await self(event_to_notification(event, {}))


async def subscribe(client, mode, uris, news, tasks):
    session = getattr(client, "session", client)
    if mode == "auto" and uris:
        await tasks.start(news.listen, session, uris)
        return
    for uri in uris:
        await session.subscribe_resource(uri)


def wire(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def main(package, server, mode, kind, calls):
    model, news, calls = RuleModel(), News(), json.loads(calls)
    outcomes = []
    if not server.startswith("http"):
        command, *args = json.loads(server)
        server = StdioServerParameters(command=command, args=args)
    connect = {"sdk": sdk, "fastmcp": fastmcp}[package]
    with anyio.fail_after(IN_TIME):
        async with (
            connect(server, mode=mode, message_handler=news, **sampling_of(model, kind)) as (client, call_tool),
            anyio.create_task_group() as tasks,
        ):
            await subscribe(client, mode, [given["uri"] for name, given in calls if name == "touch"], news, tasks)
            for name, arguments in calls:
                if name == "hang":
                    outcomes.append(await abandoned(client, call_tool, name, arguments))
                    continue
                outcomes.append(await outcome(call_tool, name, arguments))
                if name in ANNOUNCED:
                    outcomes.append(await news.next(ANNOUNCED[name]))
            tasks.cancel_scope.cancel()
    print(json.dumps({"outcomes": outcomes, "asked": model.asked}))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])

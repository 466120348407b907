"""The official Python SDK's client, which reports what it saw of our test server: ``official_sdk.py SERVER URL``.

*SERVER* is the server as a program, *URL* where it is already served. Runs in the
environment that `run.py` installs, and prints what it saw as JSON, by transport and mode.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

import json
import sys

import anyio
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitResult,
    ListRootsResult,
    Root,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
    ToolUseContent,
)

IN_TIME = 25.0  # seconds for one connection, which takes one


class Host:
    """The callbacks of one client, and what they were told."""

    def __init__(self):
        self.seen = {"sampled": [], "logged": [], "progress": []}
        self.changed = anyio.Event()

    async def sample(self, context, params):
        self.seen["sampled"].append(len(params.messages))
        if params.tools is None:
            return CreateMessageResult(role="assistant", content=words("Splendid."), model="a-model")
        if len(params.messages) > 1:
            said = params.messages[-1].content_as_list[0].content[0].text
            return CreateMessageResultWithTools(role="assistant", content=words(said), model="a-model")
        use = ToolUseContent(type="tool_use", id="call_1", name="add", input={"a": 2, "b": 3})
        return CreateMessageResultWithTools(role="assistant", content=[use], model="a-model", stop_reason="toolUse")

    async def elicit(self, context, params):
        return ElicitResult(action="accept", content={"size": "large"})

    async def list_roots(self, context):
        return ListRootsResult(roots=[Root(uri="file:///home")])

    async def log(self, params):
        self.seen["logged"].append(params.data)

    async def progress(self, done, total, message):
        self.seen["progress"].append([done, total, message])

    async def hear(self, message):
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            self.changed.set()

    def client(self, server, mode):
        return Client(
            server,
            mode=mode,
            sampling_callback=self.sample,
            sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability()),
            elicitation_callback=self.elicit,
            list_roots_callback=self.list_roots,
            logging_callback=self.log,
            log_level="info",
            message_handler=self.hear,
        )


def words(text):
    return TextContent(type="text", text=text)


async def visit(server, mode):
    host = Host()
    seen = host.seen
    async with host.client(server, mode) as client:
        seen["version"], seen["server"] = client.protocol_version, client.server_info.name
        seen["instructions"] = client.instructions
        before = await names(client)
        seen["calculated"] = (await client.call_tool("calculate", {"question": "2+3?"})).content[0].text
        seen["gathered"] = (await client.call_tool("gather", {"what": "tea"})).structured_content
        if mode == "legacy":
            await client.set_logging_level("info")
        await client.call_tool("count", {"to": 2}, progress_callback=host.progress)
        seen["note"] = (await client.read_resource("note://today")).contents[0].text
        try:
            await client.read_resource("note://yesterday")
        except MCPError as missing:
            seen["missing"] = [missing.error.code, missing.error.data]
        await hear_of_a_tool(client, host, mode)
        seen["appeared"] = [name for name in await names(client) if name not in before]
    return seen


async def names(client):
    return [tool.name for tool in (await client.list_tools()).tools]


async def hear_of_a_tool(client, host, mode):
    """Have the server add a tool, and wait for the news, before which the list so far counts as fresh."""
    arguments = {"name": f"new-{mode}"}
    if mode == "legacy":
        await client.call_tool("offer", arguments)
        await host.changed.wait()
        return
    async with client.listen(tools_list_changed=True) as changes:
        await client.call_tool("offer", arguments)
        await anext(aiter(changes))


async def main(program, url):
    ways = {"stdio": StdioServerParameters(command=sys.executable, args=[program, "stdio"]), "http": url}
    seen = {}
    for way, server in ways.items():
        for mode in ("legacy", "auto"):
            with anyio.fail_after(IN_TIME):
                seen[f"{way}-{mode}"] = await visit(server, mode)
    print(json.dumps(seen))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])

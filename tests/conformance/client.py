"""The client that the official conformance suite runs: the environment names the scenario, the last argument the server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable

import anyio

from mcp_host import Client, Elicitation, FormRequest, Sampling, SamplingRequest, StreamableHttp, always
from mcp_host.types import CreateMessageResult, ElicitResult

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


async def model(request: SamplingRequest) -> CreateMessageResult:
    return request.reply("Of course.")


async def user(form: FormRequest) -> ElicitResult:
    """Agrees to every question, and leaves everything else as the form proposes it."""
    fields = form.params.requested_schema["properties"]
    return form.accept({name: True for name, field in fields.items() if field["type"] == "boolean"})


async def connect(client: Client) -> None:
    """Nothing more: the suite looks at how."""


async def add(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 2, "b": 3})


async def list_tools(client: Client) -> None:
    await client.list_tools()


async def list_and_call(client: Client) -> None:
    """Call every tool, and one that is in no list: what a server did not announce it may have all the same."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, {})
    await client.call_tool("unannounced", {})


async def fill_in_a_form(client: Client) -> None:
    await client.call_tool("test_client_elicitation_defaults", {})


async def wait_for_a_resumed_stream(client: Client) -> None:
    await client.call_tool("test_reconnection", {})


async def answer_within_calls(client: Client) -> None:
    for tool in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
        await client.call_tool(tool, {})


async def use_everything(client: Client) -> None:
    for tool in await client.list_tools():
        await client.call_tool(tool.name, {})
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)


async def call_as_told(client: Client) -> None:
    await client.list_tools()
    for call in CONTEXT["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def call_what_is_listed(client: Client) -> None:
    for tool in await client.list_tools():
        await client.call_tool(tool.name, {"region": "us-west1"})


async def send_a_schema_back(client: Client) -> None:
    schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
    await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": connect,
    "tools_call": add,
    "elicitation-sep1034-client-defaults": fill_in_a_form,
    "sse-retry": wait_for_a_resumed_stream,
    "request-metadata": list_and_call,
    "sep-2322-client-request-state": answer_within_calls,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_what_is_listed,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": send_a_schema_back,
}


async def main(url: str) -> None:
    """Be a host with everything that servers may ask for, under the defaults, and play the scenario."""
    play = SCENARIOS.get(SCENARIO)
    if play is None:
        sys.exit(f"no such scenario: {SCENARIO!r}")
    client = Client(
        StreamableHttp(url),
        sampling=Sampling(with_tools=model, approve=always),
        elicitation=Elicitation(form=user),
        roots=[],
    )
    async with client:
        if client.protocol_version != VERSION:
            sys.exit(f"the server speaks {client.protocol_version}, not {VERSION}")
        await play(client)


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1])

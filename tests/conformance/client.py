"""The client that the official conformance suite runs: the environment names the scenario, the last argument the server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import httpx

from mcp_host import Client, Elicitation, FormRequest, Sampling, SamplingRequest, StreamableHttp, always
from mcp_host.auth import (
    Cimd,
    ClientSecret,
    Dynamic,
    EnterpriseManaged,
    OAuth,
    PrivateKey,
    PrivateKeyJwt,
    Registered,
    Registration,
    Workload,
)
from mcp_host.protocol.negotiation import MODERN_VERSIONS
from mcp_host.proxy import Proxy
from mcp_host.types import CreateMessageResult, ElicitResult

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
METADATA_DOCUMENT = "https://conformance-test.local/client-metadata.json"
REDIRECT_URI = "http://localhost:8976/callback"
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


async def list_and_call_one(client: Client) -> None:
    tools = await client.list_tools()
    await client.call_tool(tools[0].name, {})


async def browse(url: str) -> str:
    """A person who is logged in and agrees. The redirect is not opened: no one listens there."""
    async with httpx.AsyncClient() as browser:
        response = await browser.get(url)
    return response.headers["location"]


def login() -> OAuth | None:
    """The authorization that the scenario needs."""
    match SCENARIO:
        case "auth/pre-registration":
            registrations: list[Registration] = [Registered(CONTEXT["client_id"], CONTEXT["client_secret"])]
        case "auth/client-credentials-basic":
            return OAuth.machine(ClientSecret(CONTEXT["client_id"], CONTEXT["client_secret"]))
        case "auth/client-credentials-jwt":
            key = PrivateKey(CONTEXT["private_key_pem"], CONTEXT["signing_algorithm"])
            return OAuth.machine(PrivateKeyJwt(CONTEXT["client_id"], key))
        case "auth/wif-jwt-bearer":
            return OAuth.machine(Workload(lambda audience: str(CONTEXT["valid_jwt"]), client_id=CONTEXT["client_id"]))
        case "auth/enterprise-managed-authorization":
            enterprise = EnterpriseManaged(
                CONTEXT["client_id"],
                CONTEXT["client_secret"],
                idp_token_endpoint=CONTEXT["idp_token_endpoint"],
                idp_client_id=CONTEXT["idp_client_id"],
                get_id_token=lambda audience: str(CONTEXT["idp_id_token"]),
            )
            return OAuth.machine(enterprise)
        case _ if SCENARIO.startswith("auth/"):
            registrations = [Cimd(METADATA_DOCUMENT), Dynamic("mcp-host")]
        case _:
            return None
    uses_dpop = SCENARIO.startswith("auth/dpop")
    return OAuth(login=browse, redirect_uri=REDIRECT_URI, registration=registrations, dpop=uses_dpop)


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


async def main(url: str, *, proxied: bool) -> None:
    """Be a host with everything that servers may ask for, under the defaults, and play the scenario."""
    play = list_and_call_one if SCENARIO.startswith("auth/") else SCENARIOS.get(SCENARIO)
    if play is None:
        sys.exit(f"no such scenario: {SCENARIO!r}")
    server, era = StreamableHttp(url, auth=login()), "auto"
    proxy = Proxy(server)
    if proxied:  # it speaks every revision, whatever the server does
        era = "modern" if VERSION in MODERN_VERSIONS else "legacy"
    client = Client(
        proxy if proxied else server,
        era=era,
        sampling=Sampling(with_tools=model, approve=always),
        elicitation=Elicitation(form=user),
        roots=[],
    )
    async with client:
        if client.protocol_version != VERSION and "2025-03-26" not in SCENARIO:  # only its authorization is that old
            sys.exit(f"the server speaks {client.protocol_version}, not {VERSION}")
        await play(client)
    await proxy.aclose()


if __name__ == "__main__":
    anyio.run(partial(main, proxied="--proxy" in sys.argv), sys.argv[-1])

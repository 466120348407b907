"""Schemas that are traps: their own results are refused, typed and in time, and nothing else is touched."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import CancelScope, create_task_group
from anyio.lowlevel import checkpoint

from mcp_host import Client, Stdio
from mcp_host.errors import InvalidToolOutput, ProtocolError
from mcp_host.json_schema import schema
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.responsive import pulse
from tests.transports.children import python
from tests.transports.http_peers import Wire, serving


@pytest.fixture(autouse=True, scope="module")
def prepared() -> None:
    """The first check of a process prepares what all others share."""
    schema.Schema({}).mismatch(1)


LISTING = """
traps = [{"name": f"trap-{n}", "inputSchema": {}, "outputSchema": f"@schema-{n}"} for n in range(len(SCHEMAS))]
good = {"name": "good", "inputSchema": {}, "outputSchema": {"type": "object"}}
while True:
    request = read()
    if request["method"] == "tools/list":
        line = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"tools": [*traps, good]}})
        for n, schema in enumerate(SCHEMAS):
            line = line.replace(f'"@schema-{n}"', schema)
        raw(line + "\\n")
    else:
        reply(request, {"content": [], "structuredContent": request["params"]["arguments"].get("value", {})})
"""


@asynccontextmanager
async def listed(*schemas: object) -> AsyncIterator[Client]:
    """A client of a server with a good tool, and one for each of the *schemas* that it promises, some as text of JSON."""
    written = [schema if isinstance(schema, str) else json.dumps(schema) for schema in schemas]
    async with Client(Stdio(python(f"SCHEMAS = {written!r}\n" + LISTING)), era="legacy") as client:
        assert [tool.name for tool in await client.list_tools()] == [*map(trap, range(len(schemas))), "good"]
        yield client
        assert (await client.call_tool("good", {"value": {"a": 1}})).structured_content == {"a": 1}


def trap(number: int = 0) -> str:
    """The name of the tool with that one of the schemas."""
    return f"trap-{number}"


async def refused(client: Client, value: object, number: int = 0) -> str:
    """Why this result is refused, which the error carries whole."""
    with pytest.raises(InvalidToolOutput, match=rf"^the result of '{trap(number)}' is not as listed: ") as caught:
        await client.call_tool(trap(number), {"value": value})
    assert caught.value.result.structured_content == value
    return str(caught.value).partition("listed: ")[2]


@asynccontextmanager
async def during_a_check(client: Client, then: Callable[[], None]) -> AsyncIterator[None]:
    """Calls *then* as soon as a thread checks a result."""

    async def wait() -> None:
        while not client._lifetime.tools.lane.borrowed_tokens:
            await checkpoint()
        then()

    async with create_task_group() as tasks:
        tasks.start_soon(wait)
        yield


def fan_out(keyword: str, levels: int = 26) -> dict[str, Any]:
    """Two branches at each level: 2^26 ways."""
    defs: dict[str, Any] = {"l0": {"type": "string"}}
    for level in range(levels):
        defs[f"l{level + 1}"] = {keyword: [{"$ref": f"#/$defs/l{level}"}] * 2}
    return {"$defs": defs, "$ref": f"#/$defs/l{levels}"}


@fault("T03")
async def test_a_composition_that_fans_out_is_stopped_without_blocking_the_loop() -> None:
    """For anyOf, where no branch decides before the last; `tests/json_schema/test_schema_bounds.py` has the others."""
    async with listed(fan_out("anyOf")) as client, pulse() as loop:
        problem = await refused(client, 1)

    assert problem == "its schema cannot be checked: it takes more than 500000 steps"
    assert loop.longest < loop.spent / 2


@fault("T03", "R06")
async def test_a_large_valid_value_is_checked_without_blocking_the_loop() -> None:
    record = {"properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}
    rows = [{"id": n, "name": "x"} for n in range(5_000)]
    async with listed({"items": {"allOf": [record] * 4}}) as client:  # checking takes longer than reading
        await client.call_tool(trap(), {"value": []})  # which imports the checker
        async with pulse() as loop:
            result = await client.call_tool(trap(), {"value": rows})

    assert result.structured_content == rows
    assert loop.longest < loop.spent / 2


@fault("T03")
async def test_a_long_check_can_be_cancelled() -> None:
    async with listed(fan_out("anyOf")) as client:
        with CancelScope() as scope:
            async with during_a_check(client, scope.cancel):
                await client.call_tool(trap(), {"value": 1})

        assert scope.cancelled_caught


@on_both
@pytest.mark.adjustable_clock
@fault("T03")
async def test_a_check_ends_with_the_timeout_of_its_call_and_hands_over_the_result() -> None:
    async with listed(fan_out("anyOf")) as client, during_a_check(client, partial(advance, 20)):
        with pytest.raises(InvalidToolOutput, match="could not be checked within the call's timeout") as caught:
            await client.call_tool(trap(), {"value": 1}, timeout=20)

    assert caught.value.result.structured_content == 1


@fault("T05")
async def test_a_schema_too_deep_to_be_read_fails_only_its_list() -> None:
    body = f"""SCHEMAS = ['{{"not":' * 20_000 + "{{}}" + "}}" * 20_000]\n{LISTING}"""
    async with Client(Stdio(python(body)), era="legacy") as client:
        with pytest.raises(ProtocolError, match="it nests too deeply"):
            await client.list_tools()

        assert (await client.call_tool("good", {"value": {}})).structured_content == {}


@fault("T06")
async def test_references_out_of_a_schema_are_not_fetched_or_read(tmp_path: Path, subtests: pytest.Subtests) -> None:
    secret = tmp_path / "schema.json"
    secret.write_text('{"type": "object"}', encoding="ascii")

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.reply(200, {"content-type": "application/json"}, b'{"type":"object"}')

    async with serving(script) as peer:
        schemas: list[dict[str, Any]] = [
            {"$ref": peer.url},
            {"properties": {"a": {"$ref": secret.as_uri()}}},
            {"$id": peer.url, "not": {"$ref": "other.json#/a"}},
        ]
        async with listed(*schemas) as client:
            for number, schema in enumerate(schemas):
                with subtests.test(ascii(schema)):
                    assert "cannot be checked: Unresolvable: " in await refused(client, {"b": 1}, number)

        assert (peer.connections, peer.heard) == (0, [])


ODD: list[Any] = [
    {"properties": {"class": {}, "self": {}, "2 b": {}, "": {}, "é\u202e": {}, "a": True, "b": False}},
    {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"type": ["object", "null"], "enum": [None, 1, [1.5], {"a": 10**30}], "const": None, "default": object.__name__},
    {"oneOf": [], "allOf": [{"not": {}}], "properties": [], "required": {}, "additionalProperties": "no"},
    {"title": "x" * 10_000, "properties": {f"p{n}": {"type": "string"} for n in range(500)}},
]


@fault("T08")
async def test_an_odd_schema_is_passed_on_unchanged() -> None:
    """No types are made of it, which is where others break."""
    async with listed(*ODD) as client:
        (*traps, _) = await client.list_tools()

    assert [tool.output_schema for tool in traps] == ODD

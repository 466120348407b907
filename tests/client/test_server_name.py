"""Who asks: the name that the host gave a server, and beside it what the server calls itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from mcp_host import (
    Allow,
    Client,
    Elicitation,
    EraCache,
    InProcess,
    Sampling,
    StreamableHttp,
    ToolPins,
    ToolPolicy,
    run_tool_loop,
)
from mcp_host.errors import McpError, NotAdvertised
from mcp_host.group import ClientGroup
from mcp_host.middleware import approve_tool_calls
from mcp_host.protocol.server_names import check_server_name, with_claim
from mcp_host.testing import Context, ScriptedModel, ScriptedPeer, Server
from mcp_host.types import Implementation
from tests.client.support import TOOLS, connected
from tests.extent import on_both
from tests.transports.children import python

CLAIM = Implementation(name="weather", version="1.2")


class City(BaseModel):
    city: str


def curious() -> Server:
    """A server that calls itself weather, and asks all that a server can ask."""
    server = Server("weather", version="1.2")

    @server.tool
    async def ask(context: Context) -> str:
        await context.sample("Hi")
        await context.elicit("Which city?", City)
        await context.elicit_url("Log in", "https://example.com/login", "1")
        await context.list_roots()
        return "asked"

    return server


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(("given", "name"), [("github", "github"), (None, "weather")])
async def test_all_that_ask_a_person_say_the_hosts_name_and_the_servers_claim_beside_it(
    revision: str, given: str | None, name: str
) -> None:
    seen: list[tuple[str, str, object]] = []

    def noting(kind: str, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def note(request: Any) -> Any:
            seen.append((kind, request.server, request.server_info))
            return answer(request)

        return note

    async def observe(request: Any, call_next: Callable[[Any], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        seen.append((request.method, request.server, request.server_info))
        return await call_next(request)

    async with connected(
        curious(),
        name=given,
        era=revision,
        sampling=Sampling(
            with_tools=noting("model", lambda r: r.reply("Hi")), approve=noting("sampling", lambda _: Allow())
        ),
        elicitation=Elicitation(
            form=noting("form", lambda r: r.accept(city="Oslo")), url=noting("url", lambda r: r.accept())
        ),
        roots=noting("roots", lambda _: []),
        middleware=[observe, approve_tool_calls(noting("call", lambda _: Allow()))],
    ) as client:
        connecting, seen[:] = list(seen), []
        model = ScriptedModel(lambda r: r.call("ask"), "done")
        await run_tool_loop(model, "Ask", tools=[client], approve=noting("proposal", lambda _: Allow()))

        assert {(server, info) for _, server, info in connecting} <= {(name, None), (name, CLAIM)}
        assert {kind for kind, *_ in seen} >= {"model", "sampling", "form", "url", "roots", "call", "proposal"}
        assert [each for each in seen if each[1:] != (name, CLAIM)] == []
        assert (client.name, client.server_info) == (name, CLAIM)


async def test_errors_warnings_and_keys_have_the_hosts_name(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        await peer.send_raw(b"hello")
        await peer.reply(
            await peer.receive("tools/list"), {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]}
        )

    eras, pins = EraCache(), ToolPins()
    async with connected(
        ScriptedPeer(script, name="python"), name="github", era_cache=eras, tools=ToolPolicy(pins=pins)
    ) as client:
        await client.list_tools()
        with pytest.raises(NotAdvertised, match=r"^github did not advertise prompts"):
            await client.list_prompts()

        assert repr(client) == "<Client of 'github', 2025-11-25, connected>"
        assert [warning.partition(":")[0] for warning in client.warnings] == ["github"]
    assert list(eras.export()) == list(pins.servers()) == ["github"]
    assert "python" not in caplog.text


async def test_an_era_that_was_learned_before_the_server_had_a_name_counts_and_is_forgotten_with_it() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()

    eras = EraCache({"python": "legacy"})
    peer = ScriptedPeer(script, name="python")
    async with connected(peer, name="github", era_cache=eras):
        assert [message["method"] for message in peer.received] == ["initialize", "notifications/initialized"]
    assert eras.export() == {"python": "legacy", "github": "legacy"}


NAMES: list[tuple[object, str | None]] = [
    ("github", None),
    ("x" * 64, None),
    ("Wetter für Köln (天気)", None),
    (7, "^name is what you call the server, a text, not int$"),
    (b"github", "^name is what you call the server, a text, not bytes$"),
    ("This program", "^'This program' is what approvals call the functions of the host"),
    ("", "^the name of a server has 1 to 64 characters, not 0: ''$"),
    ("x" * 65, "^the name of a server has 1 to 64 characters, not 65: 'x"),
    (" github", "visible characters, with spaces only inside: ' github'$"),
    ("github\n", r"visible characters, with spaces only inside: 'github\\n'$"),
    ("git\x1b[2Jhub", r"visible characters, with spaces only inside: 'git\\x1b\[2Jhub'$"),
    ("git\u202ehub", r"visible characters, with spaces only inside: 'git\\u202ehub'$"),
    ("\u3164", r"visible characters, with spaces only inside: '\\u3164'$"),
    ("\ud800", r"visible characters, with spaces only inside: '\\ud800'$"),
]


def test_a_name_is_what_one_line_can_show(subtests: pytest.Subtests) -> None:
    for name, problem in NAMES:
        with subtests.test(name=ascii(name)):
            if problem is None:
                assert check_server_name(name) == Client(["uvx"], name=str(name)).name == name
            else:
                with pytest.raises(TypeError if not isinstance(name, str) else ValueError, match=problem):
                    Client(["uvx"], name=name)  # type: ignore[arg-type]  # the mistake in question


def info(name: str, version: str = "", **more: Any) -> Implementation:
    return Implementation(name=name, version=version, **more)


CLAIMS = [
    (None, "github"),
    (info("weather", "1.2"), 'github (calls itself "weather 1.2")'),
    (info("weather"), 'github (calls itself "weather")'),
    (info("weather", "1.2", title="Weather Service"), 'github (calls itself "Weather Service 1.2")'),
    (info("github", "1.2"), "github"),
    (info('x") of your company ("', "1\n2"), "github (calls itself \"x') of your company (' 1\\n2\")"),
    (info("x" * 70), f'github (calls itself "{"x" * 60}… (70 characters)")'),
]


def test_what_a_server_calls_itself_is_marked_as_its_claim_and_cannot_look_like_more(subtests: pytest.Subtests) -> None:
    for claim, shown in CLAIMS:
        with subtests.test(shown=shown):
            assert with_claim("github", claim) == shown


def test_the_servers_of_a_group_have_its_names() -> None:
    group = ClientGroup({"github": ["python", "one.py"], "files": ["python", "two.py"]})

    assert [client.name for client in group.clients.values()] == ["github", "files"]


@on_both
async def test_errors_of_every_transport_say_the_hosts_name(subtests: pytest.Subtests) -> None:
    async def fail(inbox: object, outbox: object) -> None:
        raise OSError("no disk")

    url = "https://mcp.test"
    nothing = httpx.MockTransport(lambda request: httpx.Response(404))
    failing: list[tuple[Any, str]] = [
        (["/no/such/program"], "github: cannot start '/no/such/program': "),
        (python("raise SystemExit(3)", hands=False), "github exited with code 3"),
        (InProcess(fail), "github failed: OSError: no disk"),
        (ScriptedPeer(ScriptedPeer.aclose, name="python"), "github "),
        (
            StreamableHttp(url, client=httpx.AsyncClient(transport=nothing)),
            f"HTTP 404 Not Found from github ({url}) (most servers are at {url}/mcp)",
        ),
    ]
    for server, says in failing:
        with subtests.test(says=says):
            with pytest.raises(McpError) as failed:
                async with connected(server, name="github"):
                    raise AssertionError
            assert str(failed.value).startswith(says)

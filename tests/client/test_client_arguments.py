"""What `Client(...)` is made of, and what it says of itself."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, Elicitation, Sampling, Stdio, always
from mcp_host.errors import ConnectionClosed, NotConnected
from mcp_host.testing import ScriptedPeer, Server
from mcp_host.types import Implementation
from tests.client.support import TOOLS, Era, connected, sampling
from tests.transports.children import python

ANSWERS = """
request = read()
reply(request, {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}})
reply(read(), text("hi"))
read()
"""


def calculator() -> Server:
    server = Server("calculator")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    return server


@pytest.mark.parametrize("sequence", [list, tuple])
async def test_a_list_is_the_command_of_a_server_and_may_hold_paths(
    sequence: Callable[[list[object]], Any], tmp_path: Path
) -> None:
    script = tmp_path / "server.py"
    script.write_text(python(ANSWERS, hands=False)[-1], encoding="utf-8")

    async with connected(sequence([sys.executable, script])) as client:
        assert (await client.call_tool("x")).text == "hi"


async def test_a_text_that_begins_with_http_is_the_url_of_a_server() -> None:
    with anyio.fail_after(25):
        async with calculator().http() as url, Client(url) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_server_object_runs_in_this_process(era: str) -> None:
    async with connected(calculator(), era=era) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}


class StdioServerParameters:
    """Of the official SDK, as far as it matters here."""


NO_SERVERS: list[tuple[Any, str]] = [
    ("python server.py --token hunter2", r'write Client\(\["python", \.\.\.\]\)'),
    ("server.py", r'write Client\(\["python", "server\.py"\]\)'),
    ("build/index.js", r'write Client\(\["node", "build/index\.js"\]\)'),
    ("uvx", r'write Client\(\["uvx"\]\)'),
    ("example.com/mcp", r'a URL in full, Client\("https://\.\.\."\)'),
    ("example.com", r'a URL in full, Client\("https://\.\.\."\)'),
    ("localhost:8000", r'a URL in full, Client\("https://\.\.\."\)'),
    ("bin/server", r'Client\(\["bin/server"\]\), and a URL in full'),
    ("ws://example.com/mcp", "begins with http:// or https://"),
    ("http+unix://%2Frun%2Fmcp.sock/mcp", r'write Client\(StreamableHttp\("http://localhost/mcp", uds=path\)\)'),
    ("unix:/run/mcp.sock", r'write Client\(StreamableHttp\("http://localhost/mcp", uds=path\)\)'),
    ("", "an empty text is no server"),
    (Path("server.py"), r'write Client\(\["python", path\]\)'),
    ({"command": "uvx", "args": ["x"], "env": {"KEY": "hunter2"}}, r'Client\(Stdio\(\[entry\["command"\]'),
    ({"url": "https://x/mcp", "headers": {"Authorization": "hunter2"}}, r'Client\(StreamableHttp\(entry\["url"\]'),
    ({"mcpServers": {"x": {"command": "hunter2"}}}, r"ClientGroup\.from_file\(path\)"),
    (StdioServerParameters(), r"Client\(Stdio\(\[p\.command, \*p\.args\], env=p\.env, cwd=p\.cwd\)\)"),
    (httpx.URL("https://example.com/mcp?key=hunter2"), r"write a URL as Client\(str\(url\)\)"),
    (Server, "Server is a class"),
    (" https://example.com/mcp?key=hunter2", r"the URL has space before it: write Client\(url\.strip\(\)\)"),
    ([], "^command is empty: "),
    ([""], r"^command\[0\], the program, is empty: it must be a list of a program and its arguments"),
    (["python", 3, "hunter2"], r"^command\[1\] is of type int: "),
    (["python server.py hunter2"], r'^command\[0\] has a space .* write \["python", \.\.\.\]'),
    (["API_KEY=hunter2 python server.py"], r"^command\[0\] gives the variable API_KEY, "),
    (b"uvx", "Client cannot connect to a bytes"),
    (None, "Client cannot connect to a NoneType"),
    (SimpleNamespace(open=None, identity="x", restart=None), "Client cannot connect to a SimpleNamespace"),  # no name
]


def test_anything_else_is_a_type_error_that_shows_the_right_spelling(subtests: pytest.Subtests) -> None:
    for wrong, says in NO_SERVERS:
        with subtests.test(wrong=wrong):
            with pytest.raises(TypeError, match=says) as refused:
                Client(wrong)
            assert 'Client(["uvx", "some-server"])' in str(refused.value)
            assert "hunter2" not in str(refused.value)


async def test_a_program_whose_name_has_a_space_runs(tmp_path: Path) -> None:
    program = tmp_path / "my server"
    program.write_text(f"#!{sys.executable}\n{python(ANSWERS, hands=False)[-1]}", encoding="utf-8")
    program.chmod(0o755)

    for server in (
        Stdio([program]),
        Stdio(["./my server"], cwd=tmp_path),
        Stdio(["my server"], env={"PATH": str(tmp_path)}),
    ):
        async with connected(server) as client:
            assert (await client.call_tool("x")).text == "hi"


def test_a_url_that_cannot_be_one_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not the URL of an HTTP server"):
        Client("http://")


INVALID: list[tuple[str, object, type[Exception], str]] = [
    ("sampling", print, TypeError, r"Sampling\(with_tools=handler, approve=\.\.\.\)"),
    ("elicitation", print, TypeError, r"Elicitation\(form=handler\)"),
    ("list_changed", print, TypeError, r"list_changed is ListChanged\(tools=callback\)"),
    ("limits", {"timeout": 5}, TypeError, r"Limits\(timeout=\.\.\., \.\.\.\), not dict"),
    ("ping_interval", 0, ValueError, "^ping_interval must be more than 0, not 0$"),
    ("ping_interval", -1, ValueError, "^ping_interval must be more than 0, not -1$"),
    ("ping_interval", math.nan, ValueError, "^ping_interval must be more than 0, not nan$"),
    ("extensions", ["com.example/x"], TypeError, "^extensions must be a mapping, not list$"),
    ("ping_interval", True, TypeError, "^ping_interval must be a number of seconds, not True$"),
    ("ping_interval", "30", TypeError, "^ping_interval must be a number of seconds, not '30'$"),
]


def test_invalid_arguments_are_refused_at_once(subtests: pytest.Subtests) -> None:
    for argument, value, error, words in INVALID:
        arguments: dict[str, Any] = {argument: value}
        with subtests.test(argument=argument, value=str(value)), pytest.raises(error, match=words):
            Client(["uvx"], **arguments)


async def nothing() -> None:
    raise AssertionError


def two(first: object, second: object) -> None:
    raise AssertionError


HANDLERS: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda wrong: Sampling(with_tools=wrong, approve=always),
        "with_tools(request: SamplingRequest) -> CreateMessageResult",
    ),
    (lambda wrong: Sampling(basic=wrong, approve=always), "basic(request: SamplingRequest) -> CreateMessageResult"),
    (lambda wrong: Sampling(basic=fine, approve=wrong), "approve(request: SamplingRequest) -> Allow | Deny"),
    (lambda wrong: Elicitation(form=wrong), "form(request: FormRequest) -> ElicitResult"),
    (lambda wrong: Elicitation(url=wrong), "url(request: UrlRequest) -> ElicitResult"),
    (lambda wrong: Elicitation(form=fine, on_complete=wrong), "on_complete(elicitation_id: str) -> None"),
    (lambda wrong: Client(["uvx"], on_log=wrong), "on_log(message: LoggingMessageNotificationParams) -> None"),
    (lambda wrong: Client(["uvx"], on_change=wrong), "on_change(change: Change) -> None"),
]


def test_a_handler_that_could_not_be_called_is_refused_at_once_and_shown_its_shape(subtests: pytest.Subtests) -> None:
    for register, shape in HANDLERS:
        name, says = shape.partition("(")[0], f"is called with one argument, so write `def {re.escape(shape)}`, not "
        for wrong, words in (
            (nothing, says),
            (two, says),
            (3, f"^{name} has to be a function, async or plain, not int"),
        ):
            with subtests.test(shape=shape, wrong=str(wrong)), pytest.raises(TypeError, match=words):
                register(wrong)


def fine(request: object) -> Any:
    raise AssertionError


@pytest.mark.parametrize("wrong", [two, lambda request, *, more: None, dict])
def test_functions_of_roots_and_for_stderr_that_could_not_be_called_are_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^roots is (the class|called with one argument)"):
        Client(["uvx"], roots=wrong)
    with pytest.raises(TypeError, match=r"^on_stderr is (the class|called with one argument)"):
        Stdio(["uvx"], on_stderr=wrong)


def test_a_stderr_callback_that_would_have_to_be_awaited_is_refused() -> None:
    async def show(line: str) -> None:
        raise AssertionError(line)

    with pytest.raises(TypeError, match=r"^on_stderr must be a plain function"):
        Stdio(["uvx"], on_stderr=show)  # type: ignore[arg-type]  # the mistake is the test


async def test_it_says_its_server_era_and_state_and_what_it_knows_of_the_server_even_after_that_has_ended(
    era: Era,
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer, TOOLS, instructions="be kind")
        await peer.receive("tools/call")
        await peer.aclose()

    def known() -> object:
        return (
            client.protocol_version,
            client.server_info,
            client.server_capabilities.tools is not None,
            client.instructions,
            client.sampling_mode,
        )

    client = Client(ScriptedPeer(script, name="tides\n"), sampling=sampling())
    seen = [repr(client)]
    with pytest.raises(NotConnected):
        known()
    with anyio.fail_after(25):
        async with client:
            seen.append(repr(client))
            with pytest.raises(ConnectionClosed):
                await client.call_tool("x")
            seen.append(repr(client))

            assert not client.connected
            assert known() == (era.version, Implementation(name="tides\n", version="0"), True, "be kind", "with_tools")
    seen.append(repr(client))
    with pytest.raises(NotConnected):
        known()

    assert seen == [
        "<Client of 'tides\\n', auto, not connected>",
        f"<Client of 'tides\\n', {era.version}, connected>",
        f"<Client of 'tides\\n', {era.version}, disconnected>",
        "<Client of 'tides\\n', auto, not connected>",
    ]


def test_its_repr_holds_no_secret() -> None:
    for server in ("https://ada:hunter2@example.com/mcp?key=hunter2", ["uvx", "server", "--key=hunter2"]):
        assert "hunter2" not in repr(Client(server))

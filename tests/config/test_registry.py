"""A registry of servers over HTTP: what it is asked, and what its answers become."""

from __future__ import annotations

import re

import anyio
import pytest

from mcp_host.config.registry import Registry, RegistryServer
from mcp_host.config.registry.client import MAX_ANSWER
from mcp_host.errors import ConnectFailed, HttpStatusError, McpTimeout, MessageTooLarge, RegistryError
from tests.clock import advance
from tests.config.registries import serving_registry
from tests.config.test_server_json import NPM, REMOTE
from tests.extent import on_both
from tests.transports.http_peers import Wire, reserved_port, serving

NAME = "io.github.example/db"
DB = {"name": NAME, "version": "1.2.3", "description": "A database", "packages": [NPM]}
OLD = DB | {"version": "1.0+a", "remotes": [REMOTE]}
OTHER = {"name": "io.github.example/notes", "version": "2", "packages": [NPM]}


def described(server: RegistryServer) -> tuple[object, ...]:
    return server.name, server.version, [choice.shown for choice in server.choices], server.notices


@on_both
async def test_a_server_is_asked_for_by_its_name_and_version(subtests: pytest.Subtests) -> None:
    npx = "npx -y @example/db@1.2.3"
    with serving_registry(OLD, DB, OTHER) as registry:
        for version, path, expected in (
            ("latest", "latest", (NAME, "1.2.3", [npx], ())),
            ("1.2.3", "1.2.3", (NAME, "1.2.3", [npx], ())),
            ("1.0+a", "1.0%2Ba", (NAME, "1.0+a", [npx, "https://db.example.com/mcp"], ("there is a newer version",))),
        ):
            for url in (registry.url, f"{registry.url}/", f"{registry.url}/v0.1/"):
                with subtests.test(version, url=url):
                    server = await Registry(url).get_server(NAME, version)

                    assert described(server) == expected
                    assert registry.asked.pop() == f"/v0.1/servers/io.github.example%2Fdb/versions/{path}"


@on_both
async def test_servers_are_searched_by_their_names() -> None:
    with serving_registry(DB, OLD | {"name": "--evil"}, OTHER) as registry:
        found = await Registry(registry.url).search("e")
        limited = await Registry(registry.url).search("a&b example/", limit=500)

    assert [described(server)[:2] for server in found] == [(NAME, "1.2.3"), ("io.github.example/notes", "2")]
    assert limited == []
    assert registry.asked == [
        "/v0.1/servers?search=e&version=latest&limit=20",
        "/v0.1/servers?search=a%26b+example%2F&version=latest&limit=100",
    ]


DEEP = b'{"server":' * 100_000

ANSWERS: list[tuple[int, bytes, type[Exception], str]] = [
    (
        200,
        b"<html>",
        RegistryError,
        "URL/v0.1/servers/io.github.example%2Fdb/versions/latest: the answer is no JSON object",
    ),
    (
        200,
        b"[]",
        RegistryError,
        "URL/v0.1/servers/io.github.example%2Fdb/versions/latest: the answer is no JSON object",
    ),
    (200, DEEP, RegistryError, "URL/v0.1/servers/io.github.example%2Fdb/versions/latest: the answer is no JSON object"),
    (200, b"{}", RegistryError, "name: it is missing"),
    (
        200,
        b'{"name": "a/b", "version": "1"}',
        RegistryError,
        "URL answers with another server than was asked for: 'a/b' '1'",
    ),
    (200, b" " * (MAX_ANSWER + 1), MessageTooLarge, f"a body is larger than {MAX_ANSWER} bytes"),
    (500, b'{"error": "no\\u001b"}', HttpStatusError, r"HTTP 500.*no\\u001b"),
]


@on_both
async def test_an_answer_that_is_no_server_is_an_error(subtests: pytest.Subtests) -> None:
    with serving_registry(DB) as registry:
        for status, body, kind, error in ANSWERS:
            registry.answers = {"/": (status, body)}
            with subtests.test(error), pytest.raises(kind, match=error.replace("URL", re.escape(registry.url))):
                await Registry(registry.url).get_server(NAME)
        registry.answers = {"": (200, b'{"servers": {}}')}
        with pytest.raises(RegistryError, match=f"{registry.url} answers without a list of servers"):
            await Registry(registry.url).search("db")


@on_both
async def test_a_server_that_is_not_there_is_an_error_with_names_that_are_close(subtests: pytest.Subtests) -> None:
    with serving_registry(DB, OTHER) as registry:
        registry.status[OTHER["name"]] = {"status": "deleted", "statusMessage": "by its owner"}  # type: ignore[index]
        rows = {
            ("io.github.exampel/db", "latest"): f"URL has no server 'io.github.exampel/db'; did you mean {NAME}?",
            ("io.github.exampel/xy", "latest"): "URL has no server 'io.github.exampel/xy'",
            (NAME, "9"): f"URL has no server '{NAME}' of the version '9', but other versions of it",
            ("db", "latest"): "'db' is no name of a server: it must look like io.github.owner/name",
            ("a/../b", "latest"): "'a/../b' is no name of a server: it must look like io.github.owner/name",
            ("io.github.example/notes", "latest"): "'io.github.example/notes' was deleted from URL: by its owner",
        }
        for (name, version), error in rows.items():
            with subtests.test(name, version=version):
                with pytest.raises(RegistryError) as caught:
                    await Registry(registry.url).get_server(name, version)
                assert str(caught.value) == error.replace("URL", registry.url)

        registry.answers = {"": (404, b"")}  # the search fails, too
        with pytest.raises(RegistryError, match=r"has no server 'io.github.exampel/db'$"):
            await Registry(registry.url).get_server("io.github.exampel/db")


@on_both
async def test_a_registry_that_cannot_be_reached_is_named_without_its_password() -> None:
    error = "^http://127.0.0.1:[0-9]+/v0.1/servers/a%2Fb/versions/latest: "
    with reserved_port() as port, pytest.raises(ConnectFailed, match=error):
        await Registry(f"http://user:secret@127.0.0.1:{port}").get_server("a/b")


@on_both
@pytest.mark.adjustable_clock
async def test_a_registry_that_does_not_answer_is_given_up_in_time() -> None:
    async def listen(wire: Wire) -> None:
        await wire.hear()
        advance(30)
        await wire.hung_up()

    with anyio.fail_after(200):
        async with serving(listen) as peer:
            with pytest.raises(McpTimeout, match="no answer within 30 seconds"):
                await Registry(peer.url.removesuffix("/mcp")).get_server(NAME)


def test_only_a_url_will_do_for_a_registry(subtests: pytest.Subtests) -> None:
    for url, error in (
        ("registry.example.com", "not the URL of an HTTP server"),
        ("file:///x", "not the URL of an HTTP server"),
        ("https://registry.example.com/?key=1", "the URL of a registry has no query"),
    ):
        with subtests.test(url), pytest.raises(ValueError, match=error):
            Registry(url)
    assert Registry().url == "https://registry.modelcontextprotocol.io"

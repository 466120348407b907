"""The options that say how to connect: what is taken from the environment and from files, certificates and sockets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_host import StreamableHttp
from mcp_host.cli.arguments import parse
from mcp_host.cli.connection import transport_of
from mcp_host.cli.output import UsageError
from tests.asgi import serving_mcp
from tests.cli import everything
from tests.cli.conftest import Run
from tests.cli.test_command import SERVER

URL = "https://example.com/mcp"


def test_a_variable_without_a_value_is_passed_on_from_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")

    assert run("call", "environment", "name=API_KEY", "-e", "API_KEY", *SERVER) == (0, "hunter2\n", "")


def test_a_header_may_have_variables_of_the_environment_or_come_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "${HOME} hunter2")
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer ${TOKEN}\n\n  X-Two=2\n")
    words = ["-H", "A: Bearer ${TOKEN}", "-H", f"@{file}", "-H", "B=$TOKEN ${1}"]

    assert parse(["tools", URL, *words]).header == [
        ("A", "Bearer ${HOME} hunter2"),  # not expanded again
        ("Authorization", "Bearer ${TOKEN}"),
        ("X-Two", "2"),
        ("B", "$TOKEN ${1}"),
    ]


OPTIONS: list[tuple[list[str], dict[str, Any]]] = [
    ([], {"verify": True, "cert": None, "uds": None}),
    (["--no-verify"], {"verify": False}),
    (["--verify", "ca.pem"], {"verify": Path("ca.pem")}),
    (["--cert", "both.pem"], {"cert": Path("both.pem")}),
    (["--cert", "a.pem", "--key", "a.key"], {"cert": (Path("a.pem"), Path("a.key"))}),
    (["--uds", "/run/mcp.sock"], {"uds": "/run/mcp.sock"}),
]


def test_certificates_and_a_socket_are_those_of_the_transport(subtests: pytest.Subtests) -> None:
    for words, expected in OPTIONS:
        with subtests.test(" ".join(words)):
            transport = transport_of(parse(["tools", URL, *words]), None)

            assert isinstance(transport, StreamableHttp)
            assert {name: getattr(transport, name) for name in expected} == expected


@pytest.mark.skipif(sys.platform == "win32", reason="there are no unix sockets")
def test_a_server_is_reached_over_a_unix_socket(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    with serving_mcp(everything.server, uds=path) as url:
        assert run("call", url, "add", "a=1", "--uds", str(path)) == (0, "2\n", "")


ERRORS: list[tuple[list[str], str]] = [
    (["-e", "NO_SUCH", *SERVER], "--env: the environment has no variable 'NO_SUCH'"),
    (["-e", "API_KEY hunter2", *SERVER], "argument -e/--env: not of the form NAME=VALUE"),
    (["-e", "ghp_abcdefghij", *SERVER], "--env: the environment has no variable '***'"),
    (["-e", "=hunter2", *SERVER], "argument -e/--env: not of the form NAME=VALUE"),
    ([URL, "-H", "A: ${NO_SUCH}"], "argument -H/--header: the environment has no variable 'NO_SUCH'"),
    ([URL, "-H", "@/no/such"], "argument -H/--header: the file cannot be read: [Errno 2] No such file"),
    ([URL, "-H", f"@{__file__}"], "argument -H/--header: not of the form NAME: VALUE"),
    ([URL, "--issuer-alias", "https://a.example=b"], "argument --issuer-alias: not of the form NAME=ISSUER, both URLs"),
    ([URL, "--verify", "ca.pem", "--no-verify"], "--verify and --no-verify contradict each other: use one of them"),
    ([URL, "--key", "a.key"], "--key is for a --cert"),
    (["--cert", "a.pem", *SERVER], "--cert is for a URL: a command is connected to by its stdin and stdout"),
    (["--uds", "a.sock", *SERVER], "--uds is for a URL: a command is connected to by its stdin and stdout"),
    (["--no-verify", *SERVER], "--no-verify is for a URL: a command is connected to by its stdin and stdout"),
    (["http://x", "--verify", "ca.pem"], "--verify is for https:// only: over http:// there are no certificates"),
    (["http://x", "--cert", "a.pem"], "--cert is for https:// only: over http:// there are no certificates"),
    ([URL, "--verify", "-----BEGIN CERTIFICATE-----"], "--verify takes the path of a file, not what is in it"),
    ([URL, "-H", "Content-Length=1"], "the transport writes the header Content-Length itself"),
]


def test_each_wrong_option_is_one_sentence(subtests: pytest.Subtests) -> None:
    for words, sentence in ERRORS:
        with subtests.test(" ".join(words)[:60]):
            with pytest.raises(UsageError) as caught:
                transport_of(parse(["tools", *words]), None)
            assert str(caught.value).startswith(sentence)


def test_errors_of_certificates_name_the_options(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "garbage.pem"
    file.write_text("garbage")

    for option, problem in (
        ("--verify", "the certificates to trust cannot be read from --verify"),
        ("--cert", "the client's certificate cannot be read from --cert"),
    ):
        code, out, err = run("tools", URL, "--no-login", option, str(file))

        assert (code, out) == (3, "")
        assert problem in err

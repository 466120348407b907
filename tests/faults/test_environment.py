"""The variables, files and arguments that a server gets from its host."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from pathlib import Path
from traceback import TracebackException, format_exception

import pytest

from mcp_host import Client, Stdio
from mcp_host.errors import McpError
from tests.faults.fault import fault
from tests.faults.processes import BRIEF, client_of, says
from tests.transports.children import python

CANARY = "sk-canary-5ba1"
INHERITED = {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}


@fault("P23")
async def test_a_server_gets_only_the_documented_variables_and_those_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in INHERITED:
        monkeypatch.setenv(name, os.environ["PATH"] if name == "PATH" else "C.UTF-8")
    for name in ("AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "HTTP_PROXY", "PYTHONPATH", "LD_PRELOAD", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("LANG", "() { evil; }")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("USER", "somebody")

    body = "reply(read(), text(json.dumps(dict(os.environ))))"
    async with client_of(body, env={"TOKEN": "theirs", "USER": "nobody"}) as client:
        seen = json.loads(await says(client))

    assert seen.keys() == INHERITED - {"LANG"} | {"TOKEN"}
    assert (seen["TOKEN"], seen["USER"], seen["TERM"]) == ("theirs", "nobody", "dumb")
    assert seen["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (python('reply(read(), text("ok"))\nos._exit(3)'), "exited with code 3"),
        (python("sys.exit(3)", hands=False), "exited with code 3"),
        (["no-such-server"], "No such file"),
        ([sys.executable, "x" * 2**20], "too long"),
    ],
    ids=["dies", "dies at once", "not there", "not startable"],
)
@fault("P24")
async def test_no_log_error_or_repr_shows_the_environment(
    command: list[str], end: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def use() -> None:
        async with client:
            await says(client)
            await says(client)

    caplog.set_level(logging.DEBUG)
    server = Stdio(command, env={"TOKEN": CANARY})
    client = Client(server, limits=BRIEF)
    with pytest.raises(McpError, match=end) as failure:
        await use()

    traceback = "".join(format_exception(failure.value))
    assert end in traceback
    assert CANARY not in "\n".join(
        [traceback, caplog.text, *client.warnings, repr(server), repr(client), server.identity]
    )


@fault("P24")
async def test_the_frames_of_an_error_have_no_variable_and_no_argument_of_the_server(subtests: pytest.Subtests) -> None:
    """Reports of errors show the variables of all frames, as Sentry does."""
    env = {"TOKEN": CANARY}
    for case, command, cwd in [
        ("not there", ["no-such-server", CANARY], None),
        ("too long", [sys.executable, "server.py", CANARY * 2**17], None),
        ("a NUL", [sys.executable, "server.py", f"\0{CANARY}"], None),
        ("no folder", [sys.executable, "server.py", CANARY], "no-such-folder"),
        ("exits", [*python("sys.exit(3)", hands=False), CANARY], None),
    ]:
        with subtests.test(case):
            with pytest.raises(McpError) as failure:
                async with Client(Stdio(command, env=env, cwd=cwd), limits=BRIEF):
                    raise AssertionError  # pragma: no cover

            error: BaseException | None = failure.value
            while error is not None:
                report = TracebackException.from_exception(error, capture_locals=True)
                assert CANARY not in str([frame.locals for frame in report.stack if frame.filename != __file__])
                error = error.__cause__ or error.__context__


@fault("P25")
async def test_a_server_inherits_three_pipes_and_no_other_file(tmp_path: Path) -> None:
    """Neither one that is marked as inheritable nor the pipes of another server."""
    body = """
    folder = "/proc/self/fd/"
    opened = {n: os.readlink(folder + n) for n in os.listdir(folder) if os.path.lexists(folder + n)}
    reply(read(), text(json.dumps(opened)))
    """
    with (
        (tmp_path / "secret").open("w", encoding="ascii") as secret,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        for opened in (secret, listener):
            os.set_inheritable(opened.fileno(), True)
        async with client_of(body) as first, client_of(body) as second:
            pipes = [json.loads(await says(client)) for client in (first, second)]

    assert [sorted(each) for each in pipes] == [["0", "1", "2"]] * 2
    assert all(pipe.startswith("pipe:") for each in pipes for pipe in each.values())
    assert len({pipe for each in pipes for pipe in each.values()}) == 6


ODD = [
    "a b",
    "$HOME",
    "`id`",
    "'\"",
    "&",
    "|",
    "%PATH%",
    "^",
    "*",
    "\\",
    "a\nb",
    "",
    "\udcff",
    "\u00e9",
    "--",
    "-c",
    "--help",
    "-",
    "--key=a b",
]


@fault("P27")
async def test_arguments_arrive_as_they_are() -> None:
    """There is no shell in between, so there is nothing to quote."""
    body = "reply(read(), text(json.dumps(sys.argv[1:])))"
    async with Client(Stdio([*python(body), *ODD])) as client:
        assert json.loads((await client.call_tool("--help", {"-c": "--"})).text) == ODD


@fault("P27")
async def test_no_shell_interprets_a_command() -> None:
    with pytest.raises(TypeError, match="a list of a program and its arguments"):
        Stdio("npx some-server; rm -rf .")
    with pytest.raises(TypeError, match="a list of a program and its arguments"):
        Stdio([])

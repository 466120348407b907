"""A test server as a child process: the test reads and writes its pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from mcp_host.protocol.jsonrpc import Incoming, Notification
from mcp_host.serving.stdio import MAX_MESSAGE, MAX_WAITING, read_lines
from mcp_host.transports._process.child import LINES_PER_TICK
from mcp_host.transports.stdio import LineBuffer
from tests.clock import stepping, stopped, turns_of
from tests.testing.raw import INITIALIZE, INITIALIZED, answer, call, request, text, with_meta

ROOT = Path(__file__).parents[2]
DEADLINE = 25  # seconds for a process that is expected to end by itself

HANDSHAKE = request(0, "initialize", INITIALIZE)
PING = request(1, "ping")


class Child:
    def __init__(self, *argv: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *argv], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def close(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(OSError):  # what it never read
                pipe.close()

    def send(self, message: object) -> None:
        self.send_raw(json.dumps(message).encode() + b"\n")

    def send_raw(self, raw: bytes) -> None:
        self._stdin.write(raw)
        self._stdin.flush()

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._stdout.readline())
        return message

    def finish(self) -> tuple[list[dict[str, Any]], str]:
        """Close its stdin; return its further messages, and all of its stderr."""
        out, err = self.process.communicate(timeout=DEADLINE)
        return [json.loads(line) for line in out.splitlines()], err.decode()


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def child(backend: str) -> Iterator[Child]:
    with closing(Child("-m", "tests.testing.stdio_server", backend)) as child:
        yield child


@pytest.fixture
def ready(child: Child) -> Child:
    child.send(HANDSHAKE)
    assert child.receive()["result"]["serverInfo"] == {"name": "child", "version": "1.0.0"}
    child.send(INITIALIZED)
    return child


def test_requests_go_both_ways_over_the_pipes_and_other_output_goes_to_stderr(ready: Child) -> None:
    """That of tools, and of the processes that they start."""
    ready.send(call(1, "ask", arguments={"question": "Why?"}))
    question = ready.receive()
    ready.send({"jsonrpc": "2.0", "id": question["id"], "result": answer("Because.")})

    assert question["method"] == "sampling/createMessage"
    assert question["params"]["messages"] == [{"role": "user", "content": {"type": "text", "text": "Why?"}}]
    assert ready.receive()["result"] == text("Because.")

    ready.send(call(2, "shout", arguments={"text": "hey"}))

    assert ready.receive()["result"] == text("hey")
    said, stderr = ready.finish()
    assert said == []
    assert stderr.count("hey") == 2
    assert "nothing to read" in stderr  # the process did not get our client's messages to read


def test_stateless_requests_are_answered_and_those_that_wait_end_with_stdin(child: Child) -> None:
    asked = with_meta(call(1, "ask", arguments={"question": "Why?"}))
    child.send(asked)
    result = child.receive()["result"]
    answers = {"inputResponses": {"sampling-1": answer("Because.")}, "requestState": result["requestState"]}
    child.send({**asked, "id": 2, "params": {**asked["params"], **answers}})

    assert result["inputRequests"].keys() == {"sampling-1"}
    assert child.receive()["result"]["content"] == text("Because.")["content"]

    child.send({**asked, "id": 3})
    child.send(with_meta(request(4, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})))
    first = [child.receive(), child.receive()]
    said, stderr = child.finish()

    assert {message.get("method") for message in first} == {None, "notifications/subscriptions/acknowledged"}
    assert [(message["id"], message["result"]["resultType"]) for message in said] == [(4, "complete")]
    assert stderr == ""


def test_piped_input_is_answered_before_the_server_ends(child: Child) -> None:
    messages = [HANDSHAKE, INITIALIZED, call(1, "shout", arguments={"text": "last"})]
    child.send_raw("\n".join(json.dumps(message) for message in messages).encode())  # and no last line end

    said, _ = child.finish()

    assert [message["id"] for message in said] == [0, 1]


def test_one_read_of_many_lines_is_taken_in_turns_of_lines_and_of_time() -> None:
    chunk = b'{"jsonrpc":"2.0","method":"x"}\n' * 512
    for clock, turns in ((stopped, 2), (stepping(), 256)):
        received: list[Incoming] = []

        assert turns_of(read_lines(LineBuffer(MAX_MESSAGE), received.append, chunk, clock=clock)) == turns
        assert received == [Notification("x", {}, len(chunk) // 512 - 1)] * 512


def test_a_file_of_requests_is_answered_into_a_file(backend: str, tmp_path: Path) -> None:
    requests = [HANDSHAKE, *(request(id, "ping") for id in range(1, 2 * LINES_PER_TICK))]
    (tmp_path / "in").write_text("\n".join(json.dumps(message) for message in requests))
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        command = [sys.executable, "-m", "tests.testing.stdio_server", backend]
        subprocess.run(command, cwd=ROOT, stdin=stdin, stdout=stdout, timeout=DEADLINE, check=True)

    answers = [json.loads(line)["id"] for line in (tmp_path / "out").read_text().splitlines()]
    assert answers == [*range(2 * LINES_PER_TICK)]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")
def test_pipes_that_others_have_too_stay_blocking_and_stdin_ends_the_server_even_if_stdout_is_closed(
    backend: str,
) -> None:
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    command = [sys.executable, "-m", "tests.testing.stdio_server", backend]
    with subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=stdout) as process:
        with os.fdopen(to_stdin, "wb") as requests, os.fdopen(from_stdout, "rb") as answers:
            requests.write(json.dumps(HANDSHAKE).encode() + b"\n")
            requests.flush()
            assert json.loads(answers.readline())["id"] == 0
            assert os.get_blocking(stdin)
            assert os.get_blocking(stdout)
            answers.close()
            os.close(stdout)
            for id in (1, 2):
                requests.write(json.dumps(call(id, "echo", arguments={"text": "lost"})).encode() + b"\n")
        assert process.wait(DEADLINE) == 0
    os.close(stdin)


@pytest.mark.parametrize(
    ("flood", "least", "most"),
    [({}, MAX_WAITING, 2 * MAX_WAITING), ({"count": 40, "size": 2**20}, 16, 19)],
    ids=["many", "large"],
)
def test_of_what_the_client_does_not_read_notifications_are_dropped_and_results_are_not(
    ready: Child, flood: dict[str, int], least: int, most: int
) -> None:
    ready.send(call(1, "flood", arguments=flood))
    assert ready.process.stderr is not None
    assert ready.process.stderr.readline() == b"flooded\n"
    for id in range(2, 21):
        ready.send(call(id, "echo", arguments={"text": "x" * 50_000}))
    messages, _ = ready.finish()

    logged = messages[:-20]
    assert least <= len(logged) < most
    assert [message["params"]["data"] for message in logged] == [*range(len(logged))]
    results = {message["id"]: message["result"] for message in messages[-20:]}
    assert results == {1: text("done")} | dict.fromkeys(range(2, 21), text("x" * 50_000))


@pytest.mark.parametrize(("backend", "length"), [("asyncio", 5), ("trio", 5), ("trio", 64 * 1024 * 1024 + 1)])
def test_a_line_that_is_not_json_is_answered_and_stdin_ends_the_server_even_while_a_tool_runs(
    ready: Child, length: int
) -> None:
    """However long the line is. Empty lines are ignored."""
    ready.send_raw(b"x" * length + b"\n\n")
    ready.send(PING)

    error = ready.receive()
    assert (error["id"], error["error"]["code"]) == (None, -32700)
    assert ready.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    ready.send(call(2, "wait"))
    assert ready.finish() == ([], "")
    assert ready.process.returncode == 0


def test_an_interrupt_ends_the_server_quietly(ready: Child) -> None:
    ready.process.send_signal(signal.SIGINT)

    assert ready.process.wait(DEADLINE) == 0
    assert ready.finish() == ([], "")


INTERRUPTED = """
import signal, sys
from mcp_host.serving.session import Session
from tests.testing.stdio_server import server

Session.receive = lambda session, message: signal.raise_signal(signal.SIGINT)
server.run_stdio(backend=sys.argv[1])
"""


def test_an_interrupt_while_a_message_is_received_ends_the_server_quietly(backend: str) -> None:
    with closing(Child("-c", INTERRUPTED, backend)) as child:
        child.send(HANDSHAKE)

        assert child.process.wait(DEADLINE) == 0
        assert child.finish() == ([], "")

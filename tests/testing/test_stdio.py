"""A test server as a child process, with nothing between the test and its pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.testing.raw import meta

ROOT = Path(__file__).parents[2]
DEADLINE = 20  # seconds for a process that is expected to end by itself

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"sampling": {}},
        "clientInfo": {"name": "raw", "version": "0"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(id: int, name: str, **arguments: object) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def modern(id: int, method: str, **params: object) -> dict[str, Any]:
    signed = {**params, "_meta": meta({"sampling": {}})}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": signed}


class Child:
    def __init__(self, backend: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.testing.stdio_server", backend],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
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

    def say(self, message: object) -> None:
        self.say_raw(json.dumps(message).encode() + b"\n")

    def say_raw(self, raw: bytes) -> None:
        self._stdin.write(raw)
        self._stdin.flush()

    def hear(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._stdout.readline())
        return message

    def stop_hearing(self) -> None:
        self._stdout.close()

    def ends(self) -> bool:
        """Whether closing its stdin ends it."""
        self._stdin.close()
        return self.process.wait(DEADLINE) == 0

    def hang_up(self) -> tuple[list[dict[str, Any]], str]:
        """Close its stdin; what it said after that, and all of its stderr."""
        out, err = self.process.communicate(timeout=DEADLINE)
        return [json.loads(line) for line in out.splitlines()], err.decode()


@pytest.fixture(params=["asyncio", "trio"])
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    child = Child(request.param)
    yield child
    child.close()


@pytest.fixture
def ready(child: Child) -> Child:
    child.say(INITIALIZE)
    assert child.hear()["result"]["serverInfo"] == {"name": "child", "version": "1.0.0"}
    child.say(INITIALIZED)
    return child


def test_it_answers_and_asks_over_its_pipes(ready: Child) -> None:
    ready.say(call(1, "ask", question="Why?"))
    question = ready.hear()
    answer = {"role": "assistant", "content": {"type": "text", "text": "Because."}, "model": "m"}
    ready.say({"jsonrpc": "2.0", "id": question["id"], "result": answer})

    assert question["method"] == "sampling/createMessage"
    assert question["params"]["messages"] == [{"role": "user", "content": {"type": "text", "text": "Why?"}}]
    assert ready.hear()["result"] == {"content": [{"type": "text", "text": "Because."}]}


def test_it_answers_requests_that_stand_for_themselves(child: Child) -> None:
    asked = modern(1, "tools/call", name="ask", arguments={"question": "Why?"})
    child.say(asked)
    result = child.hear()["result"]
    answer = {"role": "assistant", "content": {"type": "text", "text": "Because."}, "model": "m"}
    answers = {"inputResponses": {"sampling-1": answer}, "requestState": result["requestState"]}
    child.say({**asked, "id": 2, "params": {**asked["params"], **answers}})

    assert result["inputRequests"].keys() == {"sampling-1"}
    assert child.hear()["result"]["content"] == [{"type": "text", "text": "Because."}]
    assert child.hang_up() == ([], "")


def test_a_subscription_and_a_suspended_function_keep_it_from_nothing(child: Child) -> None:
    child.say(modern(1, "tools/call", name="ask", arguments={"question": "Why?"}))
    child.say(modern(2, "subscriptions/listen", notifications={"toolsListChanged": True}))
    first = [child.hear(), child.hear()]

    said, _ = child.hang_up()

    assert {message.get("method") for message in first} == {None, "notifications/subscriptions/acknowledged"}
    assert [(message["id"], message["result"]["resultType"]) for message in said] == [(2, "complete")]


def test_what_tools_and_their_processes_print_goes_to_stderr(ready: Child) -> None:
    ready.say(call(1, "shout", text="hey"))

    assert ready.hear()["result"] == {"content": [{"type": "text", "text": "hey"}]}
    said, stderr = ready.hang_up()
    assert said == []
    assert stderr.count("hey") == 2
    assert "nothing to read" in stderr  # the process did not get our client's messages to read


def test_it_ends_when_stdin_does_even_while_a_tool_runs(ready: Child) -> None:
    ready.say(call(1, "wait"))

    assert ready.hang_up() == ([], "")
    assert ready.process.returncode == 0


def test_what_was_piped_in_is_answered_before_it_ends(child: Child) -> None:
    messages = [INITIALIZE, INITIALIZED, call(1, "shout", text="last")]
    child.say_raw("\n".join(json.dumps(message) for message in messages).encode())  # and no last line end

    said, _ = child.hang_up()

    assert [message["id"] for message in said] == [0, 1]


def test_a_line_that_is_no_json_is_answered_and_survived(ready: Child) -> None:
    ready.say_raw(b"hello\n\n")
    ready.say({"jsonrpc": "2.0", "id": 1, "method": "ping"})

    error = ready.hear()
    assert (error["id"], error["error"]["code"]) == (None, -32700)
    assert ready.hear() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert ready.hang_up() == ([], "")


def test_what_a_pipe_cannot_hold_waits_for_a_client_that_reads_late(ready: Child) -> None:
    for id in range(1, 20):
        ready.say(call(id, "echo", text="x" * 50_000))

    said, _ = ready.hang_up()

    assert sorted(message["id"] for message in said) == list(range(1, 20))


def test_a_line_past_every_bound_is_dropped_and_survived(ready: Child) -> None:
    ready.say_raw(b"x" * (64 * 1024 * 1024 + 1) + b"\n")
    ready.say({"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert ready.hear()["error"]["code"] == -32700
    assert ready.hear() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert ready.hang_up() == ([], "")


def test_a_client_that_hears_no_more_can_still_end_it(ready: Child) -> None:
    ready.stop_hearing()
    for id in (1, 2):
        ready.say(call(id, "echo", text="lost"))

    assert ready.ends()

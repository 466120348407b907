"""fastmcp's own handler for OpenAI as a handler of ours, against a stand-in for the API of chat completions."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.interop.processes import PYTHON

EXAMPLE = Path(__file__).parents[2] / "examples" / "handler_of_fastmcp.py"


def calls(*calls: tuple[str, float, float]) -> dict[str, Any]:
    functions = [{"name": name, "arguments": json.dumps({"a": a, "b": b})} for name, a, b in calls]
    made = [{"id": f"call_{index}_{f['name']}", "type": "function", "function": f} for index, f in enumerate(functions)]
    return {"finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, "tool_calls": made}}


REPLIES = [
    calls(("multiply", 6, 4), ("multiply", 3, 6)),
    calls(("add", 24, 18)),
    {"finish_reason": "stop", "message": {"role": "assistant", "content": "There are 42 legs."}},
]


class Completions(ThreadingHTTPServer):
    """Answers with each of `REPLIES` in turn, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Completion)
        self.requests: list[dict[str, Any]] = []


class Completion(BaseHTTPRequestHandler):
    server: Completions

    def do_POST(self) -> None:
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        choice = {"index": 0, **REPLIES[len(self.server.requests) - 1]}
        completion = {"id": "c", "object": "chat.completion", "created": 0, "model": "gpt-of-the-tests"}
        body = json.dumps({**completion, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep stderr for what went wrong."""


@pytest.fixture
def completions() -> Iterator[Completions]:
    with Completions() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_fastmcps_handler_for_openai_answers_sampling_with_tools(completions: Completions) -> None:
    url = f"http://127.0.0.1:{completions.server_port}/v1"
    environment = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "a-key", "NO_PROXY": "127.0.0.1"}

    ended = subprocess.run(
        [PYTHON, str(EXAMPLE)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert (ended.returncode, ended.stdout) == (0, "There are 42 legs.\n"), ended.stderr
    first, second, third = completions.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == ["add", "subtract", "multiply", "divide"]
    question = {"role": "user", "content": "Six dogs and three ants: how many legs?"}
    multiply = REPLIES[0]["message"]["tool_calls"]
    products = [("call_0_multiply", "24.0"), ("call_1_multiply", "18.0")]
    assert first["messages"] == [question]
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in second["messages"][2:]] == [
        ("tool", call, result) for call, result in products
    ]
    assert second["messages"][1]["tool_calls"] == multiply
    assert third["messages"][-1] == {"role": "tool", "tool_call_id": "call_0_add", "content": "42.0"}

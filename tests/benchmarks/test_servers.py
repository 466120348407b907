"""The lean servers say what a client may rely on: what they list, how they ask, and that they know no newer revision."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.job import names_of, text_of
from benchmarks.servers.replies import Questions
from benchmarks.servers.stdio import reply


def ask(method: str, params: dict[str, Any], tools: int = 0) -> Any:
    return json.loads(reply({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, tools, Questions()))


def test_a_list_has_as_many_tools_as_it_should_and_all_that_are_called() -> None:
    names = [tool["name"] for tool in ask("tools/list", {}, tools=10)["result"]["tools"]]

    assert names == names_of(10)
    assert len(names) == 10
    assert names[:4] == ["echo", "ask", "count", "text"]


def test_a_message_with_text_has_the_size_that_was_asked_for() -> None:
    line = reply(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "text", "arguments": {"size": 1 << 20}}},
        0,
        Questions(),
    )

    assert json.loads(line)["result"]["content"][0]["text"] == text_of(1 << 20)
    assert 0.98 < len(line) / (1 << 20) <= 1


def test_the_model_is_asked_as_often_as_the_call_says_and_its_last_answer_is_the_result() -> None:
    questions = Questions()
    call = {"name": "ask", "arguments": {"tools": 2, "times": 3}}
    said = json.loads(reply({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": call}, 0, questions))
    asked = 0
    while said.get("method") == "sampling/createMessage":
        assert len(said["params"]["tools"]) == 2
        asked += 1
        answer = {"content": {"type": "text", "text": f"answer {asked}"}}
        said = json.loads(reply({"jsonrpc": "2.0", "id": said["id"], "result": answer}, 0, questions))

    assert asked == 3
    assert said == {"jsonrpc": "2.0", "id": 9, "result": {"content": [{"type": "text", "text": "answer 3"}]}}


def test_a_newer_revision_is_unknown_to_it() -> None:
    assert ask("server/discover", {})["error"]["code"] == -32601

"""The lean servers: their lists, texts and sampling requests, in either revision."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.job import text_of, tool_names
from benchmarks.servers.replies import SamplingCalls
from benchmarks.servers.stdio import reply


def send(message: dict[str, Any], calls: SamplingCalls | None, tools: int = 0) -> Any:
    return json.loads(reply({"jsonrpc": "2.0", "id": 1, **message}, tools, calls))


def ask(method: str, params: dict[str, Any], tools: int = 0) -> Any:
    return send({"method": method, "params": params}, SamplingCalls(), tools)


def test_a_list_has_as_many_tools_as_it_should_and_all_that_are_called() -> None:
    names = [tool["name"] for tool in ask("tools/list", {}, tools=10)["result"]["tools"]]

    assert names == tool_names(10)
    assert len(names) == 10
    assert names[:4] == ["echo", "ask", "count", "text"]


def test_a_message_with_text_has_the_size_that_was_asked_for() -> None:
    result = ask("tools/call", {"name": "text", "arguments": {"size": 1 << 20}})

    assert result["result"]["content"][0]["text"] == text_of(1 << 20)
    assert 0.98 < len(json.dumps(result, separators=(",", ":"))) / (1 << 20) <= 1


def test_a_call_sends_as_many_sampling_requests_as_it_should_and_the_last_answer_is_its_result() -> None:
    calls = SamplingCalls()
    arguments = {"tools": 2, "messages": 4, "times": 3}
    message = send({"id": 9, "method": "tools/call", "params": {"name": "ask", "arguments": arguments}}, calls)
    asked = []
    while message.get("method") == "sampling/createMessage":
        asked.append(message["params"])
        answer = {"content": {"type": "text", "text": f"answer {len(asked)}"}}
        message = send({"id": message["id"], "result": answer}, calls)

    assert message == {"jsonrpc": "2.0", "id": 9, "result": {"content": [{"type": "text", "text": "answer 3"}]}}
    assert [len(params["tools"]) for params in asked] == [2, 2, 2]
    assert [[each["role"] for each in params["messages"]] for params in asked] == [["assistant", "user"] * 2] * 3


def test_of_a_history_only_the_last_message_changes_from_request_to_request() -> None:
    calls = SamplingCalls()
    arguments = {"tools": 0, "messages": 512, "times": 2}
    first = send({"method": "tools/call", "params": {"name": "ask", "arguments": arguments}}, calls)
    second = send({"id": first["id"], "result": {"content": {"type": "text", "text": "Paris"}}}, calls)

    one, two = first["params"]["messages"], second["params"]["messages"]
    assert (len(one), len(two)) == (512, 512)
    assert one[:-1] == two[:-1]
    assert one[-1] != two[-1]


def test_the_stateless_server_asks_by_its_result_until_the_state_says_it_is_enough() -> None:
    params = {"name": "ask", "arguments": {"tools": 1, "messages": 1, "times": 2}}
    rounds = []
    for _ in range(2):
        result = send({"method": "tools/call", "params": params}, None)["result"]
        assert result["resultType"] == "input_required"
        rounds.append(result["inputRequests"]["question"])
        response = {"content": {"type": "text", "text": f"answer {len(rounds)}"}}
        params |= {"requestState": result["requestState"], "inputResponses": {"question": response}}
    result = send({"method": "tools/call", "params": params}, None)["result"]

    assert [each["method"] for each in rounds] == ["sampling/createMessage"] * 2
    assert [len(each["params"]["tools"]) for each in rounds] == [1, 1]
    assert result["resultType"] == "complete"
    assert result["content"] == [{"type": "text", "text": "answer 2"}]


def test_the_server_of_the_older_revision_does_not_know_discover() -> None:
    assert ask("server/discover", {})["error"]["code"] == -32601

"""A model made of rules, on wire data: for our client, and for that of the official SDK in its own environment."""

from __future__ import annotations

import json
import re
from typing import Any

VALUES: dict[str, Any] = {"name": "Rex", "legs": 4, "kind": "complaint", "urgent": True}

CALCULATION: list[list[tuple[str, dict[str, Any]]]] = [
    [("add", {"a": 2, "b": 3}), ("multiply", {"a": 4, "b": 5})],
    [("add", {"a": 5, "b": 20})],
]
"""What the model calls where there is a calculator, turn by turn."""


class RuleModel:
    """Answers with `VALUES` where a schema is given, by a text if that is to be "in words" and never "in rhymes", calls each tool on offer once per quoted word, else repeats. Where it can add, it makes the `CALCULATION`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """Each request: how many messages, the tools on offer and the tool choice, and the last text."""

    def answer(self, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a ``sampling/createMessage``, with these parameters."""
        messages = [message["content"] for message in params["messages"]]
        messages = [content if isinstance(content, list) else [content] for content in messages]
        tools, choice = params.get("tools", []), params.get("toolChoice", {}).get("mode", "auto")
        results = [block for block in messages[-1] if block["type"] == "tool_result"]
        said = [block["text"] for block in messages[-1] if block["type"] == "text"]
        texts = said + [part["text"] for result in results for part in result["content"]]
        first = " / ".join(texts).partition("\n\n")[0]
        schemas = [
            found[1]
            for content in messages
            for found in re.finditer(r"JSON Schema:\s*(\{.*\})", str(content[0].get("text")))
        ]
        names = ", ".join(tool["name"] for tool in tools)
        if names.startswith("add,"):
            turn = len(messages) // 2
            self.asked.append(f"turn {turn} with {len(tools)} tools")
            return self._text("25") if turn == len(CALCULATION) else self._calls(params, CALCULATION[turn])
        self.asked.append(f"{len(messages)} messages, {f'{choice} of {names}' if tools else 'no tools'}: {first}")
        if "in rhymes" in first:
            return self._text(f"You said: {first}")
        if choice == "required" and names == "answer":
            schema = tools[0]["inputSchema"]
            if "in words" in first:
                return self._text(json.dumps(self._value(schema, wrong=False)))
            return self._calls(params, [("answer", self._value(schema, wrong="wrong" in first))])
        if tools and choice != "none" and not results:
            words = re.findall("'(.*?)'", first)
            calls = [
                (tool["name"], dict.fromkeys(tool["inputSchema"]["properties"], word))
                for tool in tools
                for word in words
            ]
            return self._calls(params, calls)
        if schemas:
            return self._text(json.dumps(self._value(json.loads(schemas[-1]), wrong="wrong" in first)))
        return self._text(f"You said: {first}")

    def _value(self, schema: dict[str, Any], *, wrong: bool) -> dict[str, Any]:
        return {name: "wrong" if wrong else VALUES[name] for name in schema["properties"]}

    def _text(self, text: str) -> dict[str, Any]:
        return {
            "role": "assistant",
            "content": {"type": "text", "text": text},
            "model": "rules",
            "stopReason": "endTurn",
        }

    def _calls(self, params: dict[str, Any], calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        turn = len(params["messages"])
        content = [
            {"type": "tool_use", "id": f"call-{turn}-{number}", "name": name, "input": arguments}
            for number, (name, arguments) in enumerate(calls)
        ]
        return {"role": "assistant", "content": content, "model": "rules", "stopReason": "toolUse"}

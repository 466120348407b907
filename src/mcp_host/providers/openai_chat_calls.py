"""The calls of a message of Chat Completions that is streamed: which call each delta belongs to.

By the API's description a delta has the index of its call, and the first one its id. Servers that speak it differ: some
send no index, or 0 for each call; no ids, the same one with each delta, or ever new ones; a name once, in pieces, or again
with each delta.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic_core import from_json

from mcp_host.providers.exchange.replies import object_in, text_arguments
from mcp_host.types import JSONObject


@dataclass(slots=True)
class _Call:
    """What has come of one call."""

    id: str | None = None
    index: object = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    """In pieces: joining them with each delta takes quadratic time."""
    more: JSONObject = field(default_factory=dict)
    """All else that it has, such as the signature of a thought."""
    repeats_name: bool = False
    """Its name has come again before its arguments ended."""

    def add(self, delta: Mapping[str, object], name: str | None, piece: str | None) -> None:
        self.more |= {key: value for key, value in delta.items() if key not in ("function", "id") and value is not None}
        self.index = self.more.get("index")
        if name and name != self.name:
            self.name += name
        if piece:
            self.arguments.append(piece)

    def is_followed_by(self, piece: str | None) -> bool:
        """Whether another call begins at its index, with a name and this *piece* of its arguments, but no id.

        Arguments are read again at most once where the name comes again.
        """
        if len(self.arguments) == 1 and is_object(piece) and is_object(self.arguments[0]):
            return True
        if self.id or not self.arguments or self.repeats_name:
            return False
        is_whole = is_object("".join(self.arguments))
        self.repeats_name = not is_whole
        return is_whole

    def is_name_of(self, last: _Call) -> bool:
        """Whether it is no call, but only the name of the *last* one, which came again at its index."""
        is_same = self.index is not None and (self.index, self.name) == (last.index, last.name)
        return is_same and not self.id and not last.id and text_arguments("".join(self.arguments)) is None

    def whole(self) -> JSONObject:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"type": "function", **self.more, "id": self.id, "function": function}


class StreamedCalls:
    """The calls of one message."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[object, _Call] = {}
        """The last call of each index."""

    def add(self, delta: JSONObject) -> None:
        """Add a delta to its call, or begin another."""
        delta = object_in(delta)
        function = object_in(delta.get("function"))
        id, name, piece = delta.get("id"), function.get("name"), function.get("arguments")
        if not isinstance(name, str):
            name = None
        if piece is not None and not isinstance(piece, str):
            piece = json.dumps(piece)
        call = self._call_of(delta, name)
        if call is None or (name and not id and call.is_followed_by(piece)):
            call = self._begin(delta.get("index"))
        if id and not call.id:
            call.id = id
            self._by_id[id] = call
        call.add(delta, name, piece)

    def whole(self) -> list[JSONObject]:
        """The calls as they are in an answer without a stream."""
        calls: list[_Call] = []
        for call in self._calls:
            if not (calls and call.is_name_of(calls[-1])):
                calls.append(call)
        return [call.whole() for call in calls]

    def _begin(self, index: object) -> _Call:
        call = _Call()
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _call_of(self, delta: JSONObject, name: str | None) -> _Call | None:
        """The call that *delta* goes on with; None if it begins another.

        Servers that send no index, or 0 for each, send whole calls: one begins where there is a name with another id,
        or with none.
        """
        id, index = delta.get("id"), delta.get("index")
        if index is None:
            if id and (same := self._by_id.get(id)) is not None:
                return same
            return None if name or not self._calls else self._calls[-1]
        call = self._by_index.get(index)
        if call is None or (name and id and call.id and id != call.id):
            return None
        return call


def is_object(text: str | None) -> bool:
    """Whether *text* is the whole JSON of an object."""
    try:
        return isinstance(from_json(text or ""), dict)
    except ValueError:
        return False

"""Stateless peers that want input before they will finish a call, for the client's tests."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.client import support
from tests.client.support import EMPTY, QUESTION, STATELESS

DONE: dict[str, Any] = {"resultType": "complete"} | EMPTY
SAMPLE: dict[str, Any] = {"method": "sampling/createMessage", "params": QUESTION}
FORM = {
    "method": "elicitation/create",
    "params": {"message": "sure?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}},
}
ROOTS = {"method": "roots/list"}
USER = {"role": "user", "content": {"type": "text", "text": "capital?"}}


def wants(state: str | None = None, **requests: object) -> dict[str, Any]:
    """A result that requires input."""
    given: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        given["inputRequests"] = requests
    if state is not None:
        given["requestState"] = state
    return given


answering = partial(support.answering, STATELESS)
"""A stateless peer that answers requests with these results, one after the other, and then with the last again and again."""

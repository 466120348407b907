"""The contract of adapters: a conversation that ends with an assistant's message, which asks the model to go on from it."""

from __future__ import annotations

from typing import Any

from tests.interop.providers.contract.adapters import Adapter
from tests.interop.providers.contract.asking import ask, assistant, refused, user
from tests.interop.providers.scripted import Said
from tests.interop.providers.serve import Serve

REFUSING = {"anthropic", "gemini"}  # the former for its present models


async def test_a_prefill_is_the_last_message_that_is_sent_or_is_refused(adapter: Adapter, serve: Serve) -> None:
    server = serve(adapter.server, Said(text=", he said."))
    conversation = [user("Go on."), assistant("Never")]
    async with adapter.open(server.url, server.key) as make:
        if adapter.name in REFUSING:
            with refused(server, "messages: this model takes no conversation that ends with an assistant's message"):
                await ask(make(), *conversation)
            return
        answer = await ask(make(), *conversation)

    assert answer.text == ", he said."
    last = _messages(server.last)[-1]
    assert (last["role"], last["content"]) == ("assistant", "Never")


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = body["input"] if "input" in body else body["messages"]
    return messages

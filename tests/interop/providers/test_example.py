"""The example with a real model, with the SDK itself."""

from __future__ import annotations

import pytest

from tests.examples.test_examples import backend, in_terminal, needs_terminals
from tests.interop.providers.scripted import Called, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer

__all__ = ["backend"]


@needs_terminals
def test_real_model(backend: str, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    add, multiply = Called("add", {"a": 3, "b": 4}), Called("multiply", {"a": 7, "b": 6})
    api = serve(AnthropicServer, Said(calls=[add]), Said(calls=[multiply]), Said(text="It is 42."))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", api.key)

    asked, again, _, _ = in_terminal("real_model", backend, *[(b"[y/a/s/v/N] ", b"y")] * 3, (b"It is 42.", b""))

    assert b"| What is (3 + 4) * 6?\r\n" in asked
    assert b"calls add {" in again
    results = [message["content"] for message in api.last["messages"] if message["role"] == "user"][1:]
    assert [result["content"] for (result,) in results] == [
        [{"type": "text", "text": "7.0"}],
        [{"type": "text", "text": "42.0"}],
    ]

"""The contract of adapters, mistakes of the host: each is one sentence that helps, has no secret, and is not asked again."""

from __future__ import annotations

import pytest

from mcp_host.errors import ProviderError
from mcp_host.providers import Model, Models
from tests.providers.conftest import Serve
from tests.providers.contract.adapters import Adapter
from tests.providers.contract.asking import ask, request
from tests.providers.scripted import Failed

NO_SERVER = "http://127.0.0.1:9"  # nothing gets as far as a connection

BAD_HEADER = "a header, such as the key, has a character that HTTP does not allow"


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def how(request: pytest.FixtureRequest) -> dict[str, object]:
    return {"stream": request.param}


async def test_a_key_with_a_line_break_is_a_mistake_that_no_fallback_hides(
    adapter: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    server = serve(adapter.server)
    async with adapter.open(server.url, "sk-secret\nsk-secret") as make:
        asked = Model(make(**how), name="asked")
        models = Models([asked, Model(lambda request: "another", name="fallback")], fallback=True)

        with pytest.raises(ProviderError, match=f": {BAD_HEADER}$") as raised:
            await models(request())

    assert (raised.value.transient, server.heard) == (False, [])
    assert "secret" not in repr(raised.value)


async def test_a_client_that_is_closed_is_a_mistake(adapter: Adapter, how: dict[str, object]) -> None:
    async with adapter.open(NO_SERVER, "sk-secret") as make:
        model = make(**how)

    with pytest.raises(ProviderError, match=r": the client is closed$") as raised:
        await ask(model)

    assert raised.value.transient is False


async def test_an_option_that_is_no_json_is_a_mistake(adapter: Adapter, how: dict[str, object]) -> None:
    async with adapter.open(NO_SERVER, "sk-secret") as make:
        model = make(options={"extra_body": {"x": object()}}, **how)

        with pytest.raises(
            ProviderError, match=r": the request has a value that JSON does not have: look at the options$"
        ):
            await ask(model)


async def test_what_is_not_found_says_where_to_look_without_the_body(
    adapter: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    server = serve(adapter.server, Failed(status=404, body='{"error": "secret"}'))
    look_at = "and is it pulled?" if adapter.name == "ollama" else "and the client's base URL?"
    async with adapter.open(server.url, server.key) as make:
        with pytest.raises(ProviderError) as raised:
            await ask(make(**how))

    name = raised.value.provider
    assert str(raised.value) == f"{name}: not found: is the model's name right, {look_at} (HTTP 404)"

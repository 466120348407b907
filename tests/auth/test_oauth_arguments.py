"""Arguments of `OAuth` that cannot be used: it says so at once."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_host.auth import (
    ClientSecret,
    Dynamic,
    EnterpriseManaged,
    Machine,
    MemoryTokens,
    OAuth,
    OnDevice,
    Registered,
    Workload,
    in_browser,
)
from tests.auth.world import CALLBACK, World

REGISTRATION = "registration has to be Registered, Cimd or Dynamic, not str"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"scopes": "read write"}, "scopes has to be a list of texts, such as ['read', 'write'], not one text"),
        ({"scopes": [1]}, "a scope has to be a text, not int"),
        ({"tokens": "~/x.json"}, "tokens has to be FileTokens or another TokenStore, not str"),
        ({"tokens": {}}, "tokens has to be FileTokens or another TokenStore, not dict"),
        ({"registration": "id"}, REGISTRATION),
        ({"registration": [Dynamic(), "id"]}, REGISTRATION),
        ({"registration": []}, "registration is empty: pass None for a client that registers itself"),
        (
            {"registration": ClientSecret("a", "b")},
            "ClientSecret is no registration: pass it to OAuth.machine(...)",
        ),
        (
            {"registration": [Registered("a"), Dynamic()]},
            "beside other registrations, Registered needs its issuer",
        ),
        ({"login": "browser"}, "login has to be in_browser(), another Login, OnDevice() or a function, not str"),
        ({"login": OnDevice}, "login is the class OnDevice: pass an object of it, or a function"),
        ({"issuer_aliases": ["a"]}, "issuer_aliases has to be a mapping, not list"),
        ({"issuer_aliases": {"a": 1}}, "an issuer of issuer_aliases has to be a text, not int"),
        ({"issuer_aliases": {1: "a"}}, "a name of issuer_aliases has to be a text, not int"),
    ],
    ids=str,
)
def test_arguments_that_cannot_be_used_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        OAuth(**options)

    assert str(raised.value) == problem


def test_a_way_to_log_in_has_to_be_called() -> None:
    with pytest.raises(TypeError, match=r"^login is called with one argument"):
        OAuth(login=in_browser)  # type: ignore[arg-type]  # the test


def test_what_is_no_machine_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^machine has to be ClientSecret or another Machine, not str$"):
        OAuth.machine("x")  # type: ignore[arg-type]  # the test


def nothing(audience: str) -> Any:
    return None


@pytest.mark.parametrize(
    ("machine", "function"),
    [
        (Workload(nothing, client_id="id"), "get_jwt"),
        (
            EnterpriseManaged(
                "id",
                "secret",
                idp_token_endpoint="https://idp.example/token",
                idp_client_id="there",
                get_id_token=nothing,
            ),
            "get_id_token",
        ),
    ],
    ids=["workload", "enterprise"],
)
async def test_a_function_that_gives_no_jwt_is_named(machine: Machine, function: str) -> None:
    world = World()
    auth = OAuth.machine(machine, tokens=MemoryTokens(), client=world.client(), _clock=world.clock)

    with pytest.raises(TypeError, match=f"^{function} returns a JWT as text, not NoneType$"):
        await world.call(auth)
    assert world.server.count("token") == 0


def test_a_function_needs_the_address_that_it_returns_from() -> None:
    async def login(url: str) -> str:
        return url

    with pytest.raises(ValueError, match="a function as login needs redirect_uri"):
        OAuth(login=login)
    assert repr(OAuth(login=login, redirect_uri=CALLBACK)) == "<OAuth for no server yet>"

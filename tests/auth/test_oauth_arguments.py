"""Arguments of `OAuth` that cannot be used: it says so at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from mcp_host.auth import ClientSecret, Dynamic, OAuth, OnDevice, Registered, Workload, in_browser, paste
from tests.auth.world import CALLBACK

NO_REDIRECT_URI = (
    "redirect_uri has to be a URL without a fragment, such as https://my-app.example/logged-in, "
    "or com.example.app:/logged-in for a native app"
)
REGISTRATION = "registration has to be Registered, Cimd or Dynamic, not str"


NO_SCOPE = 'is no scope: it has to be of visible ASCII characters without " and \\'
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"scopes": "read write"}, "scopes has to be a list of texts, such as ['read', 'write'], not one text"),
    ({"scopes": [1]}, "a scope has to be a text, not int"),
    *(({"scopes": [scope]}, f"{scope!r} {NO_SCOPE}") for scope in ("a b", 'a"', "a\\", "", "ä", "a\n")),
    ({"tokens": "~/x.json"}, "tokens has to be FileTokens or another TokenStore, not str"),
    ({"tokens": {}}, "tokens has to be FileTokens or another TokenStore, not dict"),
    ({"registration": "id"}, REGISTRATION),
    ({"registration": [Dynamic(), "id"]}, REGISTRATION),
    ({"registration": []}, "registration is empty: pass None for a client that registers itself"),
    ({"registration": ClientSecret("a", "b")}, "ClientSecret is no registration: pass it to OAuth.machine(...)"),
    ({"registration": [Registered("a"), Dynamic()]}, "beside other registrations, Registered needs its issuer"),
    ({"login": "browser"}, "login has to be in_browser(), another Login, OnDevice() or a function, not str"),
    ({"login": OnDevice}, "login is the class OnDevice: pass an object of it, or a function"),
    *(
        ({"redirect_uri": uri}, NO_REDIRECT_URI)
        for uri in (
            *("", "x y", "x", "/cb", "https://x/c b", "https:///cb", "https:cb", "http://[", "https://x/ä"),
            *("https://\u2100.x/", "ftp://x/", "file:///cb", "javascript:alert(1)", "data:text/html,x"),
            *("https://x/cb#f", "https://x/cb#"),
        )
    ),
    ({"redirect_uri": b"https://x/"}, "redirect_uri has to be a text, not bytes"),
    ({"authorization_params": ["a"]}, "authorization_params has to be a mapping, not list"),
    ({"authorization_params": {"a": 1}}, "a value of authorization_params has to be a text, not int"),
    ({"authorization_params": {1: "a"}}, "a name of authorization_params has to be a text, not int"),
    *(
        ({"authorization_params": {name: "a"}}, f"authorization_params cannot have {name!r}: OAuth sets it")
        for name in (
            *("response_type", "client_id", "redirect_uri", "state", "scope", "resource"),
            *("code_challenge", "code_challenge_method"),
        )
    ),
    ({"issuer_aliases": ["a"]}, "issuer_aliases has to be a mapping, not list"),
    ({"issuer_aliases": {"a": 1}}, "an issuer of issuer_aliases has to be a text, not int"),
    ({"issuer_aliases": {1: "a"}}, "a name of issuer_aliases has to be a text, not int"),
    ({"shared_resources": "https://x"}, "shared_resources has to be a list of URLs, not one text"),
    ({"shared_resources": [1]}, "a shared resource has to be a URL, not int"),
    *(
        ({"shared_resources": [url]}, f"{named} is no URL of a resource: https, without a user and a fragment")
        for url, named in (("x", "x"), ("https://a:b@x/", "https://x/"), ("https://x/#f", "https://x/"))
    ),
]


def problem(make: Callable[..., object], **options: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as raised:
        make(**options)
    return str(raised.value)


def test_arguments_that_cannot_be_used_are_refused() -> None:
    assert [problem(OAuth, **options) for options, _ in OPTIONS] == [expected for _, expected in OPTIONS]


def test_a_login_on_another_device_has_no_url_for_parameters() -> None:
    with pytest.raises(ValueError, match=r"^authorization_params are for the URL of a login in a browser"):
        OAuth(login=OnDevice(), authorization_params={"a": "b"})


async def test_redirect_uris_of_web_hosts_and_of_native_apps_are_taken() -> None:
    of_web_hosts = ["https://x/cb", "https://x:8443/cb?tenant=1", "http://127.0.0.1:1/", "http://[::1]:1/"]
    for uri in (*of_web_hosts, "com.example.app:/cb", "my-app://logged-in"):
        async with paste(redirect_uri=uri).open(None) as redirection:
            assert (OAuth(redirect_uri=uri)._settings.redirect_uri, redirection.redirect_uri) == (uri, uri)


def test_a_page_that_shows_its_url_has_a_redirect_uri() -> None:
    with pytest.raises(ValueError, match=r"^redirect_uri has to be"):
        paste(redirect_uri="https://x/cb#f")


def test_a_sync_client_is_refused_at_once() -> None:
    with (
        httpx.Client() as client,
        pytest.raises(TypeError, match=r"^client is an httpx\.AsyncClient or an httpx2\.AsyncClient, not Client$"),
    ):
        OAuth(client=client)  # type: ignore[arg-type]  # the test


def test_an_async_client_is_needed() -> None:
    with httpx.Client(auth=OAuth()) as client, pytest.raises(RuntimeError, match=r"^OAuth is for async clients"):
        client.get("https://server.test/mcp")


def test_an_application_needs_no_httpx2() -> None:
    program = "import sys; sys.modules['httpx2'] = None; from mcp_host.auth import OAuth; print(OAuth())"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)

    assert done.stdout == b"<OAuth for no server yet>\n"


def test_credentials_that_are_empty_are_refused() -> None:
    made: list[tuple[Callable[..., object], tuple[Any, ...], str]] = [
        (ClientSecret, ("", "s"), "id is empty"),
        (ClientSecret, ("a", ""), "secret is empty"),
        (ClientSecret, ("a", None), "secret has to be a text, not NoneType"),
        (Registered, ("",), "id is empty"),
        (Registered, (1,), "id has to be a text, not int"),
        (Registered, ("a", ""), "secret is empty"),
        (partial(Workload, lambda _: "jwt", client_id=""), (), "client_id is empty"),
    ]

    assert [problem(partial(make, *given)) for make, given, _ in made] == [expected for *_, expected in made]


def test_a_way_to_log_in_has_to_be_called() -> None:
    with pytest.raises(TypeError, match=r"^login is called with one argument"):
        OAuth(login=in_browser)  # type: ignore[arg-type]  # the test


@pytest.mark.parametrize("value", ["x", None], ids=repr)
def test_what_is_no_machine_is_refused(value: Any) -> None:
    """None, too: that would be an `OAuth` which registers itself."""
    with pytest.raises(
        TypeError, match=rf"^machine has to be ClientSecret or another Machine, not {type(value).__name__}$"
    ):
        OAuth.machine(value)


def test_a_function_needs_the_address_that_it_returns_from() -> None:
    async def login(url: str) -> str:
        return url

    with pytest.raises(ValueError, match="a function as login needs redirect_uri"):
        OAuth(login=login)
    assert repr(OAuth(login=login, redirect_uri=CALLBACK)) == "<OAuth for no server yet>"

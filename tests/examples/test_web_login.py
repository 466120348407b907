"""The example of a web application whose users log in, with browsers that follow redirects."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio import fail_after

from mcp_host.auth.login.limits import MAX_LOGINS
from tests.asgi import serving
from tests.auth.authorization_server import Protected

EXAMPLES = Path(__file__).parents[2] / "examples"


class Later:
    """An application that is made when its origin is known."""

    app: Callable[..., Awaitable[None]]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.app(scope, receive, send)


@pytest.fixture
def origin(site: Protected, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(EXAMPLES)
    later = Later()
    with serving(later) as origin:
        later.app = importlib.import_module("web_login").make_app(site.url, origin)
        yield origin


def browser() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=25)


async def until_redirected_back(visitor: httpx.AsyncClient, origin: str) -> str:
    """Begin a login, and return the URL that the authorization server redirects to."""
    begun = await visitor.get(f"{origin}/tools")
    assert begun.status_code == 303
    answered = await visitor.get(begun.headers["location"])
    assert answered.status_code == 302
    return answered.headers["location"]


async def test_users_are_sent_to_log_in_and_come_back_to_the_tools_each_with_a_token(
    site: Protected, origin: str
) -> None:
    with fail_after(30):
        async with browser() as ada, browser() as grace:
            response = await ada.get(f"{origin}/tools", follow_redirects=True)
            again = await ada.get(f"{origin}/tools")
            other = await grace.get(f"{origin}/tools", follow_redirects=True)

    visited = [str(each.url).partition("?")[0] for each in [*response.history, response]]
    assert visited == [f"{origin}/tools", f"{site.server.issuer}/authorize", f"{origin}/logged-in", f"{origin}/tools"]
    assert [(each.status_code, each.text) for each in (response, again, other)] == [(200, "add")] * 3
    assert site.server.count("authorize") == 2
    assert len({token for token in site.seen if token}) == 2


async def test_only_the_user_who_began_a_login_finishes_it_and_only_once(site: Protected, origin: str) -> None:
    with fail_after(30):
        async with browser() as ada, browser() as grace, browser() as stranger:
            redirected = await until_redirected_back(ada, origin)
            await until_redirected_back(grace, origin)
            lured = [await each.get(redirected) for each in (grace, stranger)]
            assert site.server.count("token") == 0
            finished = await ada.get(redirected)
            again = await ada.get(redirected)

    assert [(each.status_code, each.text) for each in (*lured, again)] == [(403, "this is no login of yours")] * 3
    assert (finished.status_code, finished.headers["location"]) == (303, "/tools")
    assert site.server.count("token") == 1


async def test_a_login_that_fails_tells_the_user_nothing_of_its_cause(site: Protected, origin: str) -> None:
    with fail_after(30):
        async with browser() as ada:
            redirected = await until_redirected_back(ada, origin)
            response = await ada.get(redirected.replace("code=", "code=x"))

    assert (response.status_code, response.text) == (502, "you are not logged in")


async def test_a_user_who_begins_too_many_logins_is_told_to_come_back(site: Protected, origin: str) -> None:
    with fail_after(30):
        async with browser() as ada:
            for _ in range(MAX_LOGINS):
                redirected = await until_redirected_back(ada, origin)
                await ada.get(redirected.replace("code=", "code=x"))
            response = await ada.get(f"{origin}/tools")

    assert (response.status_code, response.text) == (502, "you cannot be logged in now: try again later")

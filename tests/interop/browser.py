"""A person with a browser: it keeps cookies, follows redirects, and says yes to every form."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx

from mcp_host.auth import DeviceCode

MAX_PAGES = 20


class Person:
    """A login function of the user *name*: visits a URL, and returns the one that the authorization server redirects to."""

    def __init__(self, name: str, redirect_uri: str) -> None:
        self.name = name
        self.logins = 0
        self._redirect_uri = redirect_uri
        self._cookies = httpx.Cookies()

    async def __call__(self, url: str) -> str:
        redirected = await self._visit(url)
        assert redirected is not None, "no redirect, and no more forms"
        return redirected

    async def on_device(self, code: DeviceCode) -> None:
        """Visit the URL of a *code* of another device."""
        assert code.complete_url is not None
        assert await self._visit(code.complete_url) is None

    async def _visit(self, url: str) -> str | None:
        """Go on from *url*, to a redirect or to a page without a form."""
        self.logins += 1
        async with httpx.AsyncClient(cookies=self._cookies) as http:
            page = await http.get(url)
            for _ in range(MAX_PAGES):
                self._cookies = http.cookies
                if page.is_redirect:
                    there = urljoin(str(page.url), page.headers["location"])
                    if there.startswith(self._redirect_uri):
                        return there
                    page = await http.get(there)
                    continue
                assert page.status_code == 200, page.text
                form = Form(page.text)
                if form.action is None:
                    return None
                filled = {"login": self.name, "password": "any"} if "login" in form.fields else {}
                page = await http.post(urljoin(str(page.url), form.action), data=form.fields | filled)
        raise AssertionError(f"{MAX_PAGES} pages, and no redirect to {self._redirect_uri}")


class Form(HTMLParser):
    """The form of a page, with what its first button submits."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._has_button = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        is_button = tag == "button" and given.get("type") == "submit"
        if tag == "form":
            self.action = given["action"]
        elif (tag == "input" or (is_button and not self._has_button)) and "name" in given:
            self.fields[given["name"]] = given.get("value", "")
        self._has_button = self._has_button or is_button

"""A person with a browser: it keeps cookies, follows redirects, and says yes to every form."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx

MOST_PAGES = 20


class Person:
    """A login function: visits a URL as the user *name*, and returns the URL that the authorization server redirects to."""

    def __init__(self, name: str, redirect_uri: str) -> None:
        self.name = name
        self.logins = 0
        self._redirect_uri = redirect_uri
        self._cookies = httpx.Cookies()

    async def __call__(self, url: str) -> str:
        self.logins += 1
        async with httpx.AsyncClient(cookies=self._cookies) as http:
            page = await http.get(url)
            for _ in range(MOST_PAGES):
                if page.is_redirect:
                    there = urljoin(str(page.url), page.headers["location"])
                    if there.startswith(self._redirect_uri):
                        self._cookies = http.cookies
                        return there
                    page = await http.get(there)
                else:
                    assert page.status_code == 200, page.text
                    form = Form(page.text)
                    fields = form.fields | ({"login": self.name, "password": "any"} if "login" in form.fields else {})
                    page = await http.post(urljoin(str(page.url), form.action), data=fields)
        raise AssertionError(f"{MOST_PAGES} pages, and no redirect to {self._redirect_uri}")


class Form(HTMLParser):
    """The form of a page, with what its first button submits."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action = ""
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

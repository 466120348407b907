"""A browser in this process, which a person has for logins."""

from __future__ import annotations

import httpx
import pytest


class Browser:
    """In the place of that of this machine: it visits what it opens, unless it only *opens*, or not even that."""

    def __init__(self) -> None:
        self.opens = True
        self.visits = True

    def open(self, url: str) -> bool:
        if self.opens and self.visits:
            httpx.get(url, follow_redirects=True).raise_for_status()
        return self.opens


@pytest.fixture(autouse=True)
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    browser = Browser()
    monkeypatch.setattr("webbrowser.get", lambda: browser)
    monkeypatch.setenv("no_proxy", "*")
    return browser

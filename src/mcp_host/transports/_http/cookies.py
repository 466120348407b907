"""The cookies of one connection: the newest, and no more than a server could want back."""

from __future__ import annotations

from http.client import HTTPResponse
from http.cookiejar import Cookie, CookieJar
from urllib.request import Request

MAX_COOKIES = 50  # RFC 6265, section 6.1: "At least 50 cookies per domain", and there is only one
MAX_COOKIE = 4096  # bytes with its attributes; the same section asks for as much
MAX_JAR = 8 * 1024  # bytes of all of them: more in one header is refused by nginx and Apache


class Jar(CookieJar):
    """Forgets the oldest cookies where there are too many, and takes none that is too large, or that no header can carry."""

    def __init__(self) -> None:
        super().__init__()
        self._by_age: list[Cookie] = []

    def set_cookie(self, cookie: Cookie) -> None:
        text = f"{cookie.name}={cookie.value}"
        if text.isascii() and text.isprintable() and _size(cookie) <= MAX_COOKIE:
            super().set_cookie(cookie)

    def extract_cookies(self, response: HTTPResponse, request: Request) -> None:
        super().extract_cookies(response, request)
        held = set(self)  # without what was replaced, or has expired
        self._by_age = [cookie for cookie in dict.fromkeys([*self._by_age, *self]) if cookie in held]
        size = sum(map(_size, self._by_age))
        while len(self._by_age) > MAX_COOKIES or size > MAX_JAR:
            oldest = self._by_age.pop(0)
            size -= _size(oldest)
            self.clear(oldest.domain, oldest.path, oldest.name)


def _size(cookie: Cookie) -> int:
    """Of its name, value and attributes, those included that nobody knows: they are kept, too."""
    return sum(len(str(part)) for part in vars(cookie).values() if part)

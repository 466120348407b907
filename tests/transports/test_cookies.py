"""What is kept of a server's cookies, those that it never gets back included."""

from __future__ import annotations

from http.cookiejar import CookieJar

import httpx
import pytest

from mcp_host.transports._http.backend import BoundedCookieJar


def made(*answers: list[str], jar: CookieJar | None = None) -> CookieJar:
    """The cookies that are left, in *jar*, after these *answers*."""
    cookies = httpx.Cookies(jar)
    for answer in answers:
        request = httpx.Request("POST", "https://mcp.test/a/b")
        cookies.extract_cookies(httpx.Response(200, headers=[("set-cookie", each) for each in answer], request=request))
    return cookies.jar


def kept(*answers: list[str]) -> list[str]:
    return sorted(cookie.name for cookie in made(*answers, jar=BoundedCookieJar()))


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("{}=1", id="short ones"),
        pytest.param("{}=1; Path=/a/{}", id="for other paths"),
        pytest.param("{}=1; Secure; HttpOnly; SameSite=Lax; Max-Age=3600", id="with attributes"),
    ],
)
def test_of_too_many_cookies_the_newest_are_kept(form: str) -> None:
    names = [f"c{n:03}" for n in range(100)]

    assert kept(*([form.format(name, name)] for name in names)) == names[-50:]


@pytest.mark.parametrize("form", ["{}={}", "{}=1; Path=/{}", "{}=1; X={}", "{}=1; {}=1"])
def test_all_that_is_kept_of_a_cookie_counts(form: str) -> None:
    names = [f"c{n:03}" for n in range(40)]

    assert kept(*([form.format(name, "x" * 1700)] for name in names)) == names[-4:]


@pytest.mark.parametrize("form", ["b={}", "b=1; Path=/{}", "b=1; X={}"])
def test_one_that_is_too_large_is_not_taken_and_displaces_none(form: str) -> None:
    assert kept(["a=1"], [form.format("x" * 4097)]) == ["a"]


def test_one_of_4096_bytes_is_taken_and_a_larger_one_is_not() -> None:
    """Of its name, value and attributes, those included that Python adds."""
    jar = BoundedCookieJar()
    (cookie,) = made(["a=1"])
    room = 4096 - sum(len(str(part)) for part in vars(cookie).values() if part)

    for name, size in (("b", room + 1), ("c", room + 2)):
        made([f"{name}={'x' * size}"], jar=jar)

    assert [each.name for each in jar] == ["b"]


def test_one_that_is_set_again_is_new_again() -> None:
    names = [f"c{n:03}" for n in range(50)]

    assert kept(["a=1"], [f"{name}=1" for name in names[1:]], ["a=2"], ["b=1"]) == ["a", "b", *names[2:]]


def test_expired_cookies_take_no_space() -> None:
    names = [f"c{n:03}" for n in range(49)]
    gone = [f"{name}=1; Max-Age=0" for name in names]

    assert kept(["a=1"], [f"{name}=1" for name in names], gone, [f"{name}=2" for name in names]) == ["a", *names]

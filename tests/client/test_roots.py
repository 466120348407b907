"""The folders that a host lets its servers work in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from anyio import fail_after

from mcp_host import OuterCall
from mcp_host.errors import InputRefused
from mcp_host.roots import RootLike, Roots, RootsHandler, RootsRequest
from mcp_host.types import ListRootsResult, Root

NAMED = Root(uri="file:///srv/data", name="Data")


async def test_a_root_is_a_root_a_path_or_a_file_uri() -> None:
    written: list[tuple[RootLike, dict[str, str]]] = [
        (NAMED, {"uri": "file:///srv/data", "name": "Data"}),
        (PurePosixPath("/srv/my data"), {"uri": "file:///srv/my%20data"}),
        (PurePosixPath("/srv/a:b\udcff"), {"uri": "file:///srv/a%3Ab%FF"}),  # a path of bytes
        (PureWindowsPath("C:\\my work"), {"uri": "file:///C:/my%20work"}),
        (PureWindowsPath("\\\\host\\share\\work"), {"uri": "file://host/share/work"}),
        ("/srv/é", {"uri": "file:///srv/%C3%A9"}),
        ("file://host/share", {"uri": "file://host/share"}),
    ]
    listed = await Roots([root for root, _ in written]).answer(server="shop")

    assert listed.to_wire() == {"roots": [wire for _, wire in written]}


def test_an_unusable_root_is_a_value_error() -> None:
    unusable: list[tuple[RootLike, str]] = [
        ("relative/path", "relative path"),
        (Path("relative"), "relative path"),
        ("https://a.example/", 'a root "MUST be a file:// URI"'),
        (Root(uri="https://a.example/"), 'a root "MUST be a file:// URI"'),
        (Root(uri="file:relative"), 'a root "MUST be a file:// URI"'),
        ("/srv/../etc", "must not climb"),
        ("file:///srv/%2e%2E/etc", "must not climb"),
    ]
    for root, reason in unusable:
        with pytest.raises(ValueError, match=reason):
            Roots([root])
    with pytest.raises(ValueError, match="a list of roots"):
        Roots("/srv")


def test_having_roots_is_the_capability() -> None:
    assert Roots([]).capability() == {"listChanged": True}


async def test_the_list_is_a_snapshot_until_it_is_replaced_by_a_good_one() -> None:
    given: list[RootLike] = [NAMED]
    roots = Roots(given)
    given.append("/other")
    with pytest.raises(ValueError, match="relative"):
        roots.replace(["/good", "bad"])

    before = await roots.answer(server="shop")
    roots.replace(["/new"])
    after = await roots.answer(server="shop")

    assert before == ListRootsResult(roots=[NAMED])
    assert after == ListRootsResult(roots=[Root(uri="file:///new")])


async def test_a_function_is_asked_each_time() -> None:
    answers = iter([["/one"], ["/two"]])

    async def current() -> Sequence[RootLike]:
        return next(answers)

    roots = Roots(current)

    assert await roots.answer(server="shop") == ListRootsResult(roots=[Root(uri="file:///one")])
    assert await roots.answer(server="shop") == ListRootsResult(roots=[Root(uri="file:///two")])


async def test_a_plain_function_with_or_without_a_parameter_is_asked_in_a_thread() -> None:
    asked: list[tuple[threading.Thread, RootsRequest | None]] = []

    def current() -> Sequence[RootLike]:
        asked.append((threading.current_thread(), None))
        return ["/one"]

    def current_for(request: RootsRequest) -> Sequence[RootLike]:
        asked.append((threading.current_thread(), request))
        return ["/one"]

    with fail_after(25):
        listed = [await Roots(function).answer(server="shop") for function in (current, current_for)]

    assert listed == [ListRootsResult(roots=[Root(uri="file:///one")])] * 2
    assert [request for _, request in asked] == [None, RootsRequest("shop")]
    assert threading.current_thread() not in [thread for thread, _ in asked]


def test_roots_must_be_a_list_or_a_function() -> None:
    with pytest.raises(TypeError, match=r"^roots has to be a list of roots or a function, not int$"):
        Roots(3)  # type: ignore[arg-type]  # the mistake in question


async def test_a_function_that_fails_is_logged_and_kept_from_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """One that returns an invalid root has failed, too."""
    secret = OSError("/home/ann is gone")

    async def fail() -> Sequence[RootLike]:
        raise secret

    async def wrong() -> Sequence[RootLike]:
        return ["relative"]

    causes = []
    for function in (fail, wrong):
        with pytest.raises(InputRefused) as caught:
            await Roots(function).answer(server="shop")
        assert (caught.value.code, str(caught.value)) == (-32603, "this client could not list its roots")
        causes.append(caught.value.__cause__)

    assert causes[0] is secret
    assert isinstance(causes[1], ValueError)
    assert "/home/ann is gone" in caplog.text


class Asked:
    """Functions that list the roots, each with or without a parameter for the request."""

    def __init__(self) -> None:
        self.requests: list[RootsRequest | None] = []

    async def plain(self) -> Sequence[RootLike]:
        self.requests.append(None)
        return []

    async def told(self, request: RootsRequest) -> Sequence[RootLike]:
        self.requests.append(request)
        return []

    async def __call__(self, request: RootsRequest, /) -> Sequence[RootLike]:
        return await self.told(request)

    async def with_a_default(self, request: RootsRequest | None = None) -> Sequence[RootLike]:
        return await self.plain() if request is None else await self.told(request)

    async def with_any(self, *requests: RootsRequest) -> Sequence[RootLike]:
        return await self.told(*requests) if requests else await self.plain()


ASKED = RootsRequest("shop", OuterCall("tools/call", "buy", 7, call_id=3, caller="ann"))


async def test_a_function_with_a_parameter_gets_the_server_and_the_call() -> None:
    async def heard(function: Callable[[Asked], RootsHandler]) -> list[RootsRequest | None]:
        asked = Asked()
        await Roots(function(asked)).answer(ASKED.outer, server="shop")
        return asked.requests

    assert await heard(lambda asked: asked.plain) == [None]
    assert await heard(lambda asked: asked.told) == [ASKED]
    assert await heard(lambda asked: asked) == [ASKED]
    assert await heard(lambda asked: partial(asked.told, ASKED)) == [ASKED]
    assert await heard(lambda asked: asked.with_a_default) == [None]
    assert await heard(lambda asked: asked.with_any) == [None]

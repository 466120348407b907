"""Files of cassettes that are broken or hostile, and texts that look like what a cassette writes itself."""

from __future__ import annotations

import asyncio
import copy
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio import fail_after
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_host import Client
from mcp_host.errors import McpError
from mcp_host.testing import Cassette, CassetteError, Server
from mcp_host.testing.cassettes.file import layout
from mcp_host.testing.cassettes.ids import Ids, strings
from mcp_host.testing.cassettes.redaction import REDACTED, Redaction
from mcp_host.testing.pytest_plugin import file_name
from mcp_host.types.base import JSONValue
from tests.faults.measure import grows_linearly
from tests.testing.cassettes.provider import Provider

Change = Callable[[dict[str, Any]], object]

TEXTS = st.text() | st.sampled_from(
    [
        *("<redacted>", "a<redacted>b", "<~redacted>", "<~~redacted>"),
        *("call__1", "call__~1", "id__2", "call__~~1", "toolu_1"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
CALLS = st.lists(st.builds(lambda id: {"type": "tool_use", "id": id, "input": {}}, TEXTS), max_size=6)

HTTP = {
    "http": {"method": "POST", "url": "http://localhost/", "headers": {}, "json": {"a": "b"}},
    "response": {"status": 200, "headers": {"content-type": "application/json"}, "json": {"id": 1}},
}
PARTS = st.sampled_from(
    [
        *("sk-0123456789", "0123456789", "org-0123456789", " ", "a", "é", '"', "\\", "{", "["),
        *('{"password": "', '", "api_key": "', '"}'),
    ]
)
OPEN = {"open": "server", "stream_per_request": False, "keeps_cache": False}
GOOD = {
    "cassette": 1,
    "entries": [
        HTTP,
        OPEN,
        {"to": "server", "message": {"id": "request__1", "method": "tools/list", "params": {}}},
        {"from": "server", "message": {"id": "server__1", "method": "ping", "params": {"_meta": {"progressToken": 1}}}},
        {"from": "server", "message": {"id": "request__1", "result": {"tools": []}}},
        {"from": "server", "closed": {"error": "ConnectionClosed", "message": "over", "may_have_run": True}},
    ],
}


def in_entry(number: int, *place: str, **members: object) -> Change:
    def change(whole: dict[str, Any]) -> None:
        owner = whole["entries"][number]
        for name in place:
            owner = owner[name]
        owner.update(members)

    return change


BROKEN: list[tuple[Change, str]] = [
    (lambda whole: whole["entries"].append(5), r"entries\[6\] is no object"),
    (lambda whole: whole["entries"].append({"x": 1}), r"entries\[6\] needs one of open, to, from, http"),
    (in_entry(0, "response", status="x"), r"entries\[0\]\.response\.status: Input should be a valid integer"),
    (in_entry(0, "response", status=99), r"entries\[0\]\.response\.status: Input should be greater"),
    (in_entry(0, "response", headers={"a": "é"}), r"entries\[0\]\.response\.headers\.a: String should match"),
    (in_entry(0, "response", json=float("nan")), r"entries\[0\]\.response has no body that can be sent"),
    (in_entry(0, response=None), r"entries\[0\]\.response: Input should be"),
    (in_entry(0, response={"status": 200, "headers": {}, "base64": "*"}), r"\.response has no body that can be"),
    (in_entry(0, response={"status": 200, "headers": {}, "events": [{}]}), r"\.response\.events\[0\]"),
    (lambda whole: whole["entries"][0].pop("response"), r"entries\[0\] needs one of response, failed, cancelled"),
    (in_entry(0, failed={}), r"entries\[0\]\.failed\.error: Field required"),
    (in_entry(0, http=5), r"entries\[0\]\.http: Input should be"),
    (in_entry(0, "http", json="\ud800"), r"entries\[0\] has half a character"),
    (in_entry(0, "http", json=json.loads("[" * 300 + "]" * 300)), r"entries\[0\] has more than 210 levels"),
    (lambda whole: whole["entries"].append(OPEN), r"entries\[6\]\.open: this connection is open already"),
    (lambda whole: whole["entries"].pop(1), r"entries\[1\]\.to: this connection is not open yet"),
    (in_entry(2, message={"params": {}}), r"entries\[2\]\.message needs an id or a method"),
    (in_entry(2, "message", id=[]), r"entries\[2\]\.message\.id\.str: Input should be"),
    (in_entry(3, failed={"error": "x", "message": ""}), r"entries\[3\] needs one of message, malformed"),
    (in_entry(5, "closed", error="__class__"), r"entries\[5\]\.closed is no error of a transport"),
    (in_entry(5, "closed", error="HttpStatusError"), r"entries\[5\]\.closed is no error of a transport"),
]


def test_a_broken_entry_is_an_error_that_names_its_place(path: Path, subtests: pytest.Subtests) -> None:
    for change, why in BROKEN:
        with subtests.test(why):
            whole = copy.deepcopy(GOOD)
            path.write_text(json.dumps(whole))
            Cassette(path)  # nothing is wrong with it yet
            change(whole)
            path.write_text(json.dumps(whole))

            with pytest.raises(CassetteError, match=why):
                Cassette(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"cassette": 1, "entries": [', r"is broken: .* line 1 column 29 .*; restore it, or record it again"),
        ('{"cassette": ' + "9" * 5000 + "}", r"cassette\.json is broken: "),
        ("[" * 100_000, r"cassette\.json cannot be read: "),
        ("[]", "is no cassette: it needs the members cassette and entries"),
        ('{"cassette": 1, "entries": 5}', r"cassette\.json is no cassette: "),
        ('{"cassette": 2, "entries": []}', "has version 2 of the format, and this mcp-host reads 1: upgrade it"),
    ],
    ids=["cut", "a large number", "deep", "something else", "no entries", "of a later version"],
)
def test_a_file_that_cannot_be_used_says_why(path: Path, text: str, why: str) -> None:
    path.write_text(text)
    with pytest.raises(CassetteError, match=why):
        Cassette(path)


@given(content=st.binary() | st.builds(lambda text: b'{"cassette": 1, "entries": ' + text, st.binary()))
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_random_bytes_are_a_cassette_or_an_error(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with suppress(CassetteError):
        Cassette(path)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each member and element within *value*, as its owner and its key."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            found += [(value, key), *places(value[key])]
    return found


@pytest.mark.backends("asyncio")
@given(data=st.data())
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
async def test_a_file_with_any_other_value_somewhere_is_replayed_or_an_error(path: Path, data: st.DataObject) -> None:
    """What is replayed may differ, and so fail, but only with this package's and httpx's own errors."""
    whole = copy.deepcopy(GOOD)
    owner, key = data.draw(st.sampled_from(places(whole["entries"])))
    owner[key] = data.draw(VALUES | st.sampled_from([{}, [], {"error": "SessionLost", "message": "x"}]))
    save(path, whole)
    with suppress(CassetteError), fail_after(25), Cassette(path, record_mode="none") as cassette:
        async with cassette.http_client() as http:
            with suppress(httpx2.HTTPError):
                await http.post("http://localhost/", json={"a": "b"})
        with suppress(McpError):
            async with Client(cassette.transport(Server("none")), era="legacy") as client:
                await client.list_tools()


def save(path: Path, whole: object) -> None:
    path.write_text(json.dumps(whole))


async def test_a_text_that_reads_as_a_mark_or_a_placeholder_matches_itself_alone(
    path: Path, provider: Provider
) -> None:
    texts = ["<redacted>", "call__1", "id__7", "<~redacted>"]
    with fail_after(30):
        with Cassette(path) as cassette:
            recorded = [await echo(cassette, provider.url, text) for text in texts]
        with Cassette(path, require_all=True) as cassette:
            replayed = [await echo(cassette, "http://localhost", text) for text in texts]
        with pytest.raises(CassetteError, match="is not in"), Cassette(path) as cassette:
            await echo(cassette, "http://localhost", "another")

    assert replayed == recorded == [json.dumps({"a": text}, separators=(",", ":")) for text in texts]


async def echo(cassette: Cassette, url: str, text: str) -> object:
    async with cassette.http_client() as http:
        return (await http.post(f"{url}/echo", json={"a": text})).json().get("body")


def test_marks_are_matched_in_linear_time() -> None:
    def match(marks: int) -> None:
        recorded, text = f"{REDACTED}a" * marks + f"{REDACTED}b", "a" * 20 * marks
        assert not Ids().match(recorded, text)
        assert Ids().match(recorded, f"{text}b")

    assert grows_linearly(match, 500)


MARKS: list[tuple[str, str, bool]] = [
    ("<redacted>", "", True),
    ("a<redacted>a", "a", False),
    ("a<redacted>a", "aa", True),
    ("a<redacted>b<redacted>b", "ab", False),
    ("a<redacted>b<redacted>b", "a.b.b", True),
    ("a<redacted>bc<redacted>c", "abcbc", True),
]


def test_a_mark_stands_for_any_text(subtests: pytest.Subtests) -> None:
    for recorded, live, matches in MARKS:
        with subtests.test(recorded):
            assert Ids().match(recorded, live) is matches


def test_a_placeholder_that_a_text_looks_like_is_not_given_out() -> None:
    ids = Ids()

    assert ids.escaped({"arguments": "call__1"}) == {"arguments": "call__~1"}
    assert [ids.new("call"), ids.new("call"), ids.new("file")] == ["call__2", "call__3", "file__1"]


# Properties


@given(live=st.dictionaries(TEXTS, VALUES))
def test_what_has_no_random_values_is_recorded_so_that_it_is_replayed_as_it_was(live: dict[str, Any]) -> None:
    recorded = hidden(Ids(), {"arguments": live})

    assert Ids().reveal(recorded) == {"arguments": live}
    assert Ids().match(recorded, Ids().escaped({"arguments": live}))


@given(calls=CALLS, text=TEXTS)
def test_each_random_value_has_a_placeholder_that_no_other_has(calls: list[Any], text: str) -> None:
    live = {"arguments": text, "content": calls}
    recorded = hidden(Ids(), live)
    replay = Ids()
    replay.reserve(recorded)

    pairs = {(one["id"], other["id"]) for one, other in zip(calls, recorded["content"], strict=True)}
    assert len({id for id, _ in pairs}) == len({name for _, name in pairs}) == len(pairs)
    assert replay.match(recorded, replay.escaped(live))
    assert replay.reveal(recorded) == live


def hidden(ids: Ids, live: dict[str, Any]) -> Any:
    return ids.hide(ids.escaped(live))


@given(value=VALUES, width=st.integers(0, 100))
def test_the_file_has_the_same_data_whatever_its_layout(value: Any, width: int) -> None:
    assert json.loads(layout(value, width=width)) == value


# Connections, and names


def test_in_a_replay_nothing_is_sent_or_looked_up(path: Path) -> None:
    path.write_text(json.dumps(GOOD))
    asked: list[Callable[[socket.socket], object]] = [
        lambda udp: udp.sendto(b"secret", ("127.0.0.1", 9)),
        lambda udp: udp.sendmsg([b"secret"], [], 0, ("127.0.0.1", 9)),
        lambda udp: udp.connect((b"127.0.0.1", 9)),
        lambda udp: socket.gethostbyname("secret.invalid"),
        lambda udp: socket.gethostbyname_ex("secret.invalid"),
        lambda udp: socket.gethostbyaddr("192.0.2.1"),
        lambda udp: socket.getaddrinfo("secret.invalid", 9),
        lambda udp: socket.getnameinfo(("192.0.2.1", 9), 0),
    ]
    with (  # noqa: PT012  # leaving the block raises
        pytest.raises(CassetteError, match=r"a connection to '127\.0\.0\.1'"),
        Cassette(path, record_mode="none"),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        for ask in asked:
            with pytest.raises(ConnectionRefusedError):
                ask(udp)
        socket.gethostbyname("localhost")


def test_in_a_replay_no_connection_reaches_a_listener(path: Path) -> None:
    """The address is not looked up: the socket itself is refused."""
    path.write_text(json.dumps(GOOD))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = listener.getsockname()
        ways: list[Callable[[socket.socket], object]] = [
            lambda tcp: tcp.connect(address),
            lambda tcp: tcp.connect_ex(address),
            lambda tcp: asyncio.run(connect(tcp)),
        ]

        async def connect(tcp: socket.socket) -> None:
            tcp.setblocking(False)
            await asyncio.get_running_loop().sock_connect(tcp, address)

        with (  # noqa: PT012  # leaving the block raises
            pytest.raises(CassetteError, match=r"a connection to '127\.0\.0\.1'"),
            Cassette(path, record_mode="none"),
        ):
            for way in ways:
                with socket.socket() as tcp, pytest.raises(ConnectionRefusedError, match="is replayed"):
                    way(tcp)
        with pytest.raises(BlockingIOError):
            listener.accept()
        with socket.socket() as tcp:
            tcp.connect(address)  # afterwards they connect again
            listener.accept()[0].close()


def test_tests_whose_names_differ_have_files_whose_names_differ() -> None:
    names = ["test_x[a/b]", "test_x[a-b]", "test_x[a:b]", "test_x[" + "é" * 200 + "1]", "test_x[" + "é" * 200 + "2]"]
    files = [file_name(name) for name in names]

    assert files[0] == "test_x[a-b]-" + sha256(b"test_x[a/b]").hexdigest()[:12]
    assert files[1] == "test_x[a-b]"
    assert len(set(files)) == len(files)
    assert all(len(file.encode()) <= 120 for file in files)


URLS: list[tuple[str, str]] = [
    ("https://me:password@api.example:8080/a%20b?n=1#top", "https://api.example:8080/a%20b?n=1"),
    ("http://127.0.0.1:4000/v1", "http://localhost/v1"),
    ("http://[::1]:4000/v1", "http://localhost/v1"),
    ("http://[2001:db8::1]:4000/v1", "http://[2001:db8::1]:4000/v1"),
    ("http://api.example:port/v1", "http://api.example:port/v1"),
    ("/v1/models?key=secret", "/v1/models?key=<redacted>"),
]


def test_the_url_in_the_file_has_no_secret_and_no_port_of_this_machine(subtests: pytest.Subtests) -> None:
    for url, recorded in URLS:
        with subtests.test(url):
            assert Redaction().url(url) == recorded


def test_space_before_json_hides_no_member_of_it() -> None:
    """Some models begin the arguments of a call with it."""
    redaction = Redaction((), {})
    text = '\n {"user": "ada", "password": "%s"}'

    assert redaction.json([text % "QZXJ", "QZXJVKWYBQ", text % "QZXJVKWYBQ"]) == [
        text % REDACTED,
        REDACTED,
        text % REDACTED,
    ]
    assert redaction.stream([{"text": text[:9]}, {"text": text[9:] % "QZXJ"}]) == [
        {"text": text[:9]},
        {"text": text[9:] % REDACTED},
    ]


@given(text=st.lists(PARTS, max_size=12).map("".join), cuts=st.lists(st.integers(0, 80), max_size=10))
def test_the_marked_pieces_of_a_stream_say_what_the_marked_whole_says(text: str, cuts: list[int]) -> None:
    """Also if they are marked again, as when a file gets new episodes."""
    redaction = Redaction(["sk-0123456789"], {"SOME_TOKEN": "0123456789"})
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces: list[JSONValue] = [{"text": text[start:end]} for start, end in pairwise(places)]

    marked = redaction.stream(pieces)

    assert "".join(strings(marked)) == redaction.text(text)
    assert redaction.stream(marked) == marked

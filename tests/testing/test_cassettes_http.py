"""The HTTP side of cassettes: statuses, streams, failures, and that nothing connects in a replay."""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import httpx2
import pytest
from anyio import connect_tcp, current_time, fail_after, move_on_after

from mcp_host.testing import Cassette, CassetteError, RecordMode
from mcp_host.testing.cassettes.bodies import read_body, write_body
from mcp_host.testing.cassettes.file import Contents, read, write
from mcp_host.testing.cassettes.network import is_address_of
from tests.extent import on_both
from tests.testing.cassettes.provider import Library, Provider

GET = {"method": "GET", "url": "http://localhost/", "headers": {"accept": "*/*"}}


@asynccontextmanager
async def client_of(
    path: Path,
    library: Library = "httpx2",
    record_mode: RecordMode = "once",
    *,
    timeout: float = 5,
    transport: Any = None,
    **options: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a cassette; *options* are the cassette's."""
    with fail_after(30), Cassette(path, record_mode=record_mode, **options) as cassette:
        made: Any = cassette.http_client(library, timeout=timeout, transport=transport)
        async with made as client:
            yield client


def answering(*responses: httpx2.Response) -> httpx2.MockTransport:
    """A transport that answers with these responses, in turn."""
    left = iter(responses)
    return httpx2.MockTransport(lambda request: next(left))


def text_of(path: Path) -> str:
    return path.read_text()


def responses(path: Path) -> list[dict[str, Any]]:
    return [entry["response"] for entry in read(path).entries]


@pytest.mark.parametrize(
    ("place", "status", "body", "recorded"),
    [
        ("limited", 429, b'{"error":{"type":"rate_limit"}}', {"json": {"error": {"type": "rate_limit"}}}),
        (
            "lines",
            200,
            b'{"text":"3 "}\n{"text":"4","done":true}\n',
            {"lines": [{"text": "3 "}, {"text": "4", "done": True}]},
        ),
        ("bytes", 200, b"RIFF\xff\x00", {"base64": "UklGRv8A"}),
        (
            "stream",
            200,
            b'event: delta\ndata: {"type":"delta","text":"Hel"}\n\nevent: delta\ndata: {"type":"delta","text":"lo\\n"}\n\n'
            b": ping\n\nid: 1\nretry: 5\ndata: [DONE]\n\n",
            {
                "events": [
                    {"event": "delta", "data": {"type": "delta", "text": "Hel"}},
                    {"event": "delta", "data": {"type": "delta", "text": "lo\n"}},
                    ": ping",
                    {"id": "1", "retry": "5", "data": "[DONE]"},
                ]
            },
        ),
    ],
    ids=["status", "lines of JSON", "bytes", "events"],
)
async def test_a_response_is_recorded_as_what_it_is_and_replayed(
    path: Path, provider: Provider, library: Library, place: str, status: int, body: bytes, recorded: dict[str, Any]
) -> None:
    async with client_of(path, library) as client:
        first = await client.post(f"{provider.url}/{place}", json={})
    async with client_of(path, library) as client:
        second = await client.post("http://localhost:1/" + place, json={})

    assert provider.requests == 1
    assert (second.status_code, second.content) == (status, body)
    assert second.headers.get("retry-after") == first.headers.get("retry-after")
    [response] = responses(path)
    assert {key: response[key] for key in response if key not in ("status", "headers")} == recorded


@on_both
async def test_a_stream_that_breaks_off_breaks_off_in_the_replay_too(
    path: Path, provider: Provider, library: Library
) -> None:
    texts = []
    for url in (provider.url, "http://localhost:1"):
        pieces = []
        async with client_of(path, library) as client, client.stream("POST", f"{url}/broken", json={}) as response:
            with pytest.raises((httpx.RemoteProtocolError, httpx2.RemoteProtocolError)):  # noqa: PT012  # which piece
                async for piece in response.aiter_bytes():
                    pieces.append(piece)
        texts.append(b"".join(pieces).replace(b": ", b":").replace(b", ", b","))

    assert provider.requests == 1
    assert texts[0] == texts[1]
    assert texts[0].endswith(b"event:del")


async def test_a_provider_that_cannot_be_reached_cannot_in_the_replay(path: Path, library: Library) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for _ in range(2):
        async with client_of(path, library) as client:
            with pytest.raises((httpx.ConnectError, httpx2.ConnectError)):
                await client.post(url, json={})


async def test_an_error_that_the_library_does_not_have_is_the_nearest_one(path: Path, library: Library) -> None:
    """It was recorded with another version, or with a transport of the user's."""
    write(path, Contents("", [{"http": GET, "failed": {"error": "AnotherError", "message": "it broke"}}]))
    async with client_of(path, library) as client:
        with pytest.raises((httpx.ReadError, httpx2.ReadError), match="it broke"):
            await client.get("http://localhost/")


@on_both
async def test_a_request_that_was_cancelled_waits_to_be_cancelled(
    path: Path, provider: Provider, library: Library
) -> None:
    """After what had come until then."""
    for url in (provider.url, "http://localhost:1"):
        text = ""
        async with client_of(path, library) as client:
            with move_on_after(30) as scope:
                async with client.stream("POST", f"{url}/endless", json={}) as response:
                    async for line in response.aiter_lines():
                        text += line
                        if text.count("delta") == 4:
                            scope.cancel()
        assert scope.cancelled_caught

    assert provider.requests == 1


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("response", [{}, {"status": 200, "headers": {"content-type": "text/plain"}, "text": "Hel"}])
async def test_a_request_that_the_client_no_longer_cancels_ends_by_its_timeout(
    path: Path, library: Library, response: dict[str, Any]
) -> None:
    """Before the response has begun, and in the middle of it."""
    ended = {"response": {**response, "cancelled": True}} if response else {"cancelled": True}
    write(path, Contents("", [{"http": GET, **ended}]))
    async with client_of(path, library, timeout=10) as client:
        begun = current_time()
        with pytest.raises((httpx.ReadTimeout, httpx2.ReadTimeout), match="the client cancelled the request here"):
            await client.get("http://localhost/")
        assert current_time() - begun == pytest.approx(10)


@pytest.mark.backends("asyncio")  # on trio, httpx leaves generators behind without a cassette, too
async def test_a_client_may_leave_a_stream_before_its_end(path: Path, provider: Provider, library: Library) -> None:
    for url in (provider.url, "http://localhost:1"):
        async with client_of(path, library) as client, client.stream("POST", f"{url}/endless", json={}) as response:
            stream: Any = response.stream
            first = await anext(aiter(stream))
        assert first.startswith(b"event: delta")
    assert provider.requests == 1


async def test_a_stream_that_is_still_read_when_the_recording_ends_is_recorded_as_closed_there(path: Path) -> None:
    """It may be read further, and closed, afterwards."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        yield b"second"

    answer = httpx2.Response(200, headers={"content-type": "text/plain"}, content=pieces())
    with fail_after(30):
        with Cassette(path) as cassette:
            client: httpx2.AsyncClient = cassette.http_client(transport=answering(answer))
            response = await client.send(client.build_request("GET", "http://localhost/"), stream=True)
            stream = response.aiter_raw()
            heard = [await anext(stream)]
        recorded = responses(path)
        heard += [piece async for piece in stream]
        await client.aclose()

    assert heard == [b"first", b"second"]
    assert recorded == responses(path)
    assert (recorded[0]["text"], recorded[0]["closed"]) == ("first", True)


async def test_equal_requests_are_answered_in_the_order_of_the_recording(
    path: Path, provider: Provider, library: Library
) -> None:
    asked = [{"messages": [{"content": f"3 by {number}"}]} for number in (5, 6, 5)]
    async with client_of(path, library) as client:
        recorded = [(await client.post(f"{provider.url}/messages", json=body)).json() for body in asked]
    async with client_of(path, library, require_all=True) as client:
        mixed = [(await client.post("http://localhost/messages", json=asked[index])).json() for index in (1, 0, 2)]

    assert [answer["id"] for answer in mixed] == ["id__2", "id__1", "id__3"]
    assert [answer["content"][0]["input"] for answer in mixed] == [
        recorded[index]["content"][0]["input"] for index in (1, 0, 2)
    ]


async def test_a_changed_body_is_an_error_that_shows_the_difference(
    path: Path, provider: Provider, library: Library
) -> None:
    ask = {"model": "small", "messages": [{"content": "3 by 5"}]}
    async with client_of(path, library) as client:
        await client.post(f"{provider.url}/messages", json={"model": "large", "messages": [{"content": "8 by 9"}]})
        await client.post(f"{provider.url}/messages", json=ask)
    with pytest.raises(CassetteError) as caught:
        async with client_of(path, library) as client:
            await client.post("http://localhost/messages", json={**ask, "model": "medium"})

    text = str(caught.value)
    assert text.startswith(f"POST http://localhost/messages is not in {path}. The nearest")
    difference = [line for line in text.splitlines() if line[:1] in ("-", "+")]
    assert difference == ["--- recorded", "+++ now", '-    "model": "small",', '+    "model": "medium",']
    assert text.endswith(
        'record it again: delete cassette.json, or use record_mode="all" (with pytest: --record-mode=all)'
    )


async def test_new_episodes_adds_what_is_not_recorded_yet(path: Path, provider: Provider, library: Library) -> None:
    for _ in range(2):
        async with client_of(path, library, "new_episodes") as client:
            await client.post(f"{provider.url}/messages", json={"messages": [{"content": "1 by 2"}]})
    assert provider.requests == 1
    async with client_of(path, library, "new_episodes") as client:
        await client.post(f"{provider.url}/messages", json={"messages": [{"content": "3 by 4"}]})

    assert provider.requests == 2
    assert [response["json"]["id"] for response in responses(path)] == ["id__1", "id__2"]


async def test_all_records_everything_anew(path: Path, provider: Provider, library: Library) -> None:
    for place in ("limited", "lines"):
        async with client_of(path, library, "all") as client:
            await client.post(f"{provider.url}/{place}", json={})

    assert [response["status"] for response in responses(path)] == [200]


async def test_requests_that_are_not_made_are_an_error_if_all_are_required(path: Path, provider: Provider) -> None:
    async with client_of(path) as client:
        await client.post(f"{provider.url}/limited", json={})
    with pytest.raises(CassetteError, match=r"not used in .*: POST http://localhost/limited; record it again"):
        async with client_of(path, require_all=True):
            pass


async def test_no_secret_reaches_the_file_in_any_encoding(
    path: Path, provider: Provider, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider echoes all that it gets; the file is searched for each secret as text, in URLs, hex and base64."""
    monkeypatch.setenv("OPENAI_API_KEY", from_environment := "sk-env/+?é0123456789")
    secrets = ["sk-bearer-0123456789", "sk-query+/0123456789", from_environment, "Mrs. Robinson", "session-cookie-1"]
    bearer, query, _, named, cookie = secrets
    headers = {"authorization": f"Bearer {bearer}", "cookie": f"id={cookie}", "openai-organization": "org-0123456789"}
    texts = [
        text
        for secret in secrets
        for text in (secret, quote(secret), secret.encode().hex(), *(b64(pad + secret) for pad in ("", "x", "xy")))
    ]
    async with client_of(path, library, redact=[named]) as client:
        await client.post(f"{provider.url}/echo", params={"key": query, "alt": "sse"}, headers=headers, json=texts)

    raw = text_of(path)
    found = [secret for secret in [*secrets, "org-0123456789"] if secret in raw or quote(secret, safe="") in raw]
    decoded = [base64.b64decode(word + "==").decode(errors="replace") for word in base64_words(raw)]
    assert found == []
    assert [text for text in decoded if any(secret in text for secret in secrets)] == []
    assert not any(secret.encode().hex() in raw for secret in secrets)
    [entry] = read(path).entries
    assert entry["http"]["url"] == "http://localhost/echo?key=<redacted>&alt=sse"
    assert entry["http"]["headers"]["authorization"] == entry["response"]["headers"]["set-cookie"] == "<redacted>"
    assert entry["http"]["headers"]["openai-organization"] == "<redacted>"


async def test_a_secret_that_is_split_over_the_events_of_a_stream_is_in_none_of_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interleaved with other text. The mark is in the first of its parts: put together, they are the whole with one mark."""
    key = "sk-0123456789abcdef"
    monkeypatch.setenv("SOME_API_KEY", key)
    pieces = [(0, f"my {key[:5]}"), (1, "other"), (0, key[5:9]), (0, f"{key[9:]}!"), (1, " text")]
    events = [f"data: {json.dumps({'index': index, 'delta': {'text': text}})}\n\n" for index, text in pieces]
    stream = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content="".join(events))
    async with client_of(path, transport=answering(stream)) as client:
        await client.post("http://localhost/")

    [response] = responses(path)
    marked = [event["data"]["delta"]["text"] for event in response["events"]]
    assert marked == ["my <redacted>", "other", "", "!", " text"]


@pytest.mark.parametrize(
    ("arguments", "marked"),
    [
        ('{"user": "ada", "password": "hunter2"}', '{"user": "ada", "password": "<redacted>"}'),
        (r'{"password" : "a\"b", "api_key": ""}', '{"password" : "<redacted>", "api_key": ""}'),
        ('[{"password": "hun', '[{"password": "<redacted>'),
        ('say {"password": "hunter2"}', 'say {"password": "hunter2"}'),
    ],
    ids=["member", "quotes and empty", "cut off", "in the middle of a text"],
)
async def test_a_secret_member_of_json_that_comes_in_pieces_is_marked_as_in_the_whole(
    path: Path, arguments: str, marked: str
) -> None:
    pieces = ("", *re.findall(".{1,4}(?={)|.{1,16}", arguments))
    lines = "".join(f"{json.dumps({'arguments': piece})}\n" for piece in pieces)
    transport = answering(
        httpx2.Response(200, headers={"content-type": "application/x-ndjson"}, content=lines),
        httpx2.Response(200, json={"arguments": arguments}),
    )
    async with client_of(path, transport=transport) as client:
        for _ in range(2):
            await client.post("http://localhost/")

    stream, whole = responses(path)
    assert "".join(line["arguments"] for line in stream["lines"]) == marked
    assert whole["json"] == {"arguments": marked}


async def test_what_is_redacted_matches_in_a_replay_without_the_secret(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part of a secret that was split is marked: another text may be split elsewhere."""
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789abcdef")
    async with client_of(path, transport=answering(httpx2.Response(429), httpx2.Response(204))) as client:
        await client.post("http://localhost/", json={"user": "for sk-0123456789abcdef!"})
        await client.post("http://localhost/", json=["my sk-01234", "", "56789abcdef!"])
    monkeypatch.delenv("SOME_API_KEY")
    async with client_of(path) as client:
        whole = await client.post("http://localhost/", json={"user": "for another!"})
        split = await client.post("http://localhost/", json=["my sk-98", "", "76543210!"])

    assert [whole.status_code, split.status_code] == [429, 204]
    assert [entry["http"]["json"] for entry in read(path).entries] == [
        {"user": "for <redacted>!"},
        ["my <redacted>", "", "<redacted>!"],
    ]


async def test_the_secrets_of_forms_urls_and_json_are_marked_by_their_names(path: Path) -> None:
    """Also of JSON in a text: OpenAI writes the arguments of a call so."""
    arguments = json.dumps({"user": "ada", "options": [{"api_key": "secret-0123456789"}]})
    said = {
        "access_token": "ya29.0123456789",
        "token": "Hello",
        "error": {"code": "invalid"},
        "echo": "of form-secret-1",
        "function": {"name": "login", "arguments": arguments},
    }
    async with client_of(path, transport=answering(httpx2.Response(200, json=said))) as client:
        await client.post(
            "http://localhost/?auth=1&code=2&n=3",
            data={"client_secret": "form-secret-1", "grant_type": "x"},
            headers={"x-auth": "4"},
        )

    [entry] = read(path).entries
    assert entry["http"]["url"] == "http://localhost/?auth=<redacted>&code=<redacted>&n=3"
    assert entry["http"]["text"] == "client_secret=<redacted>&grant_type=x"
    assert entry["http"]["headers"]["x-auth"] == "<redacted>"
    assert entry["response"]["json"] == {
        **said,
        "access_token": "<redacted>",
        "echo": "of <redacted>",
        "function": {"name": "login", "arguments": arguments.replace("secret-0123456789", "<redacted>")},
    }


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def base64_words(text: str) -> list[str]:
    words = "".join(char if char.isalnum() or char in "+/" else " " for char in text).split()
    return [word for word in words if len(word) > 8 and len(word) % 4 != 1]


async def recorded_and_replayed(
    path: Path, ask: Callable[[httpx2.AsyncClient], Awaitable[str]], *responses: httpx2.Response
) -> list[str]:
    """What *ask* gives with these responses, and in the replay without them."""
    texts = []
    for transport in (answering(*responses), None):
        with fail_after(30), Cassette(path, require_all=True) as cassette:
            async with cassette.http_client(transport=transport, follow_redirects=True) as client:
                texts.append(await ask(client))
    return texts


@pytest.mark.parametrize("location", ["/other?key=0123456789", "http://localhost/other?key=0123456789"])
async def test_a_redirection_is_replayed(path: Path, location: str) -> None:
    async def ask(client: httpx2.AsyncClient) -> str:
        answered = await client.post("http://localhost/", json={})
        return f"{answered.url.path}: {answered.text}"

    there = httpx2.Response(307, headers={"location": location}), httpx2.Response(200, text="there")
    texts = await recorded_and_replayed(path, ask, *there)

    assert texts == ["/other: there"] * 2
    assert responses(path)[0]["headers"] == {"location": location.replace("0123456789", "<redacted>")}


async def test_a_multipart_body_is_found_though_its_boundary_is_another(path: Path) -> None:
    async def ask(client: httpx2.AsyncClient) -> str:
        return (await client.post("http://localhost/", files={"sound": ("a.wav", b"RIFF\xff")})).text

    assert await recorded_and_replayed(path, ask, httpx2.Response(200, text="ok")) == ["ok", "ok"]


async def test_a_header_that_is_not_ascii_makes_a_file_that_can_be_read(path: Path) -> None:
    async def ask(client: httpx2.AsyncClient) -> str:
        return (await client.get("http://localhost/")).text

    kind = 'text/plain; name="é"'.encode()
    answer = httpx2.Response(200, headers=[(b"content-type", kind)], content=b"ok")

    assert await recorded_and_replayed(path, ask, answer) == ["ok", "ok"]
    assert responses(path)[0]["headers"] == {"content-type": 'text/plain; name="?"'}


@on_both
async def test_in_a_replay_nothing_connects(path: Path, provider: Provider) -> None:
    async with client_of(path) as client:
        await client.post(f"{provider.url}/limited", json={})
    port = int(provider.url.rpartition(":")[2])
    with pytest.raises(  # noqa: PT012  # leaving the block raises the first of them
        CassetteError, match=r"a connection to '127.0.0.1', while .* is replayed: give its client a transport"
    ):
        async with client_of(path):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            with pytest.raises(ConnectionRefusedError):
                socket.getaddrinfo("api.anthropic.com", 443)
            with pytest.raises(OSError, match="connection"):
                await connect_tcp("127.0.0.1", port)
    async with client_of(path, allowed_hosts=["127.0.0.1"]):
        await (await connect_tcp("127.0.0.1", port)).aclose()
    await (await connect_tcp("127.0.0.1", port)).aclose()


async def test_a_host_may_be_allowed_by_its_name(path: Path, provider: Provider) -> None:
    """The name is looked up, and the socket connects to its address."""
    write(path, Contents("", []))
    port = int(provider.url.rpartition(":")[2])
    with fail_after(30), Cassette(path, allowed_hosts=["localhost"]):
        await (await connect_tcp("localhost", port)).aclose()
    with (
        pytest.raises(CassetteError, match=r"a connection to '192\.0\.2\.1'"),
        Cassette(path, allowed_hosts=["localhost"]),
        pytest.raises(ConnectionRefusedError),
    ):
        socket.create_connection(("192.0.2.1", port))


def test_a_name_that_has_no_address_allows_none() -> None:
    hosts = ["256.0.0.1", "localhost"]

    assert is_address_of(hosts, "127.0.0.1")
    assert not is_address_of(hosts, "192.0.2.1")


def test_a_body_means_the_same_after_it_was_written() -> None:
    """Text that is no JSON object, or is broken, is kept to the byte."""
    for body, kind in [
        (b"", "text/event-stream"),
        (b"event: a\ndata: 1\n\nid: 4\ndata: {}\n\ndata: x\ndata: y\n\nda", "text/event-stream"),
        (b"\n\n\n\n", "text/event-stream"),
        (b'{"a": NaN}', "application/json"),
        (b"17", "application/json"),
        (b'{"a":1}\nbroken', "application/x-ndjson"),
        ("é\u2028".encode(), "text/plain"),
    ]:
        assert b"".join(read_body(write_body(body, kind))) == body

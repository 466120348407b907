"""The base of the local servers: a small API of its own, and what every test relies on."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.interop.providers.scripted import Broken, Failed, Said, Stalled
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.base import JSON, Heard, ModelServer, Refusal, only, sse


class EchoServer(ModelServer):
    """An API with one field and one optional flag."""

    def check(self, heard: Heard) -> None:
        only(heard.body, ["text", "stream"], "")
        if heard.headers.get("x-key") != self.key:
            raise Refusal("no key", status=401)

    def wants_stream(self, heard: Heard) -> bool:
        return bool(heard.body.get("stream"))

    def reply(self, said: Said, heard: Heard) -> JSON:
        return {"text": said.text}

    def events(self, said: Said, heard: Heard) -> Iterator[bytes]:
        for piece in self.pieces(said.text):
            yield sse({"text": piece})

    def error(self, status: int, message: str) -> JSON:
        return {"error": message, "status": status}


def client(server: ModelServer) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, headers={"x-key": server.key}, trust_env=False)


async def test_a_server_says_its_turns_in_order_and_tells_what_it_heard(serve: Serve) -> None:
    server = serve(EchoServer, Said(text="one"), Failed(status=429, retry_after="7"), Failed(status=503, body="down"))
    async with client(server) as http:
        replies = [await http.post("/echo?a=b", json={"text": text}) for text in ("x", "y", "z")]

    assert [reply.status_code for reply in replies] == [200, 429, 503]
    assert [reply.text for reply in replies] == ['{"text": "one"}', '{"error": "scripted", "status": 429}', "down"]
    assert replies[1].headers["retry-after"] == "7"
    assert [(heard.path, heard.body) for heard in server.heard] == [
        ("/echo?a=b", {"text": text}) for text in ("x", "y", "z")
    ]
    assert server.heard[0].headers["x-key"] == server.key


async def test_a_stream_has_the_text_in_pieces_of_varying_lengths(serve: Serve) -> None:
    server = serve(EchoServer, Said(text="grüße an alle, die Zeichen aus mehreren Bytes mögen"))
    async with client(server) as http:
        reply = await http.post("/", json={"stream": True})

    pieces = [httpx.Response(200, text=line[6:]).json()["text"] for line in reply.text.split("\n\n") if line]
    assert "".join(pieces) == "grüße an alle, die Zeichen aus mehreren Bytes mögen"
    assert len({len(piece) for piece in pieces}) > 2


async def test_a_broken_stream_is_cut_and_not_ended(serve: Serve) -> None:
    server = serve(EchoServer, Broken(said=Said(text="a" * 100), events=2))
    async with client(server) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post("/", json={"stream": True})


async def test_a_stalled_stream_sees_that_the_client_closes_it(serve: Serve) -> None:
    server = serve(EchoServer, Stalled(said=Said(text="a" * 100), events=2))
    async with client(server) as http, http.stream("POST", "/", json={"stream": True}) as response:
        assert response.status_code == 200
        assert server.stalled.wait(25)
        assert not server.unfinished.is_set()

    assert server.unfinished.wait(25)


async def test_what_breaks_a_rule_is_refused_with_the_errors_of_the_api_and_remembered(serve: Serve) -> None:
    server = serve(EchoServer, Said(text="one"))
    async with client(server) as http:
        replies = [
            await http.post("/", json={"other": 1}),
            await http.post("/", json={}, headers={"x-key": "wrong"}),
            await http.post("/", content=b"{"),
            await http.post("/", json=[]),
            await http.get("/"),
            await http.post("/", json={}),
            await http.post("/", json={}),
        ]

    assert [reply.status_code for reply in replies] == [400, 401, 400, 400, 405, 200, 500]
    assert replies[0].json() == {"error": "other: Extra inputs are not permitted", "status": 400}
    assert [refusal.partition(":")[0] for refusal in server.refusals] == [
        "other",
        "no key",
        "the body is not JSON",
        "the body is not a JSON object",
        "GET is not allowed",
        "the script of the test has no more turns",
    ]
    server.refusals.clear()


async def test_a_function_decides_by_what_it_hears(serve: Serve) -> None:
    server = serve(EchoServer, decide=lambda heard: Said(text=heard.body["text"].upper()))
    async with client(server) as http:
        assert [(await http.post("/", json={"text": text})).json() for text in "ab"] == [{"text": "A"}, {"text": "B"}]


async def test_a_defect_of_a_server_is_a_refusal_and_no_broken_connection(serve: Serve) -> None:
    server = serve(EchoServer, decide=lambda heard: Said(text=heard.body["missing"]))
    async with client(server) as http:
        assert (await http.post("/", json={})).status_code == 500

    assert server.refusals == ["the server of the test failed: KeyError('missing')"]
    server.refusals.clear()

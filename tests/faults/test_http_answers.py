"""HTTP answers that refuse or replace a server, hold no reply, or take their time.

The statuses and contents of single answers are in `tests/transports`, and which redirects are followed.
"""

from __future__ import annotations

from typing import Any

import pytest
from anyio import wait_all_tasks_blocked

from mcp_host.errors import HttpStatusError, ProtocolError, RequestTimeout, Unauthorized
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import DONE, LOG, TIDES, connected, failing, mcp, refused, says, storm, subjects, tides
from tests.transports.http_peers import JSON, LENGTH, Heard, Log, Wire, head, serving
from tests.transports.legacy_peers import Answer, in_turn

ERAS = pytest.mark.parametrize("era", ["auto", "legacy", "modern"])


@ERAS
@fault("H02", "H03")
async def test_a_server_that_refuses_the_handshake_by_status_fails_the_connect_with_it(era: str) -> None:
    for status in (401, 403, 500, 502):
        answer = says(b"Not you", status, content_type="text/plain")

        error = await refused(mcp(discover=answer, initialize=answer), era=era)

        assert type(error) is (Unauthorized if status in (401, 403) else HttpStatusError)
        assert (error.status, error.body) == (status, "Not you")


@ERAS
@fault("H13")
async def test_a_login_page_in_place_of_a_server_fails_the_connect_with_an_error_that_names_it(era: str) -> None:
    page = says(b"<html><form action=/login>", content_type="text/html; charset=utf-8")

    error = await refused(mcp(discover=page, initialize=page), era=era)

    assert isinstance(error, ProtocolError)
    assert "text/html" in str(error)


# Bodies without the reply


NO_REPLY = {
    "nothing": b"",
    "half of it": DONE[:-1],
    "another id": DONE.replace(b"@id", b"4711"),
    "a notification": LOG,
    "a request": b'{"jsonrpc":"2.0","id":"p","method":"ping"}',
}


@fault("H15", "H17", "H18")
async def test_a_body_without_the_reply_fails_its_call_at_once_and_what_it_holds_is_heeded() -> None:
    logs, answers = Log[object](), Log[object]()

    async def on_log(message: object) -> None:
        logs.append(message)

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append(heard.rpc)
        await wire.reply(202)

    call = in_turn(*(each for body in NO_REPLY.values() for each in (says(body), says())))
    async with connected(mcp(call=call, answer=answer), on_log=on_log) as (client, _):
        for body in NO_REPLY:
            assert type(await failing(client)) is ProtocolError, body
            await tides(client)
        await logs.reaches(lambda logs: len(logs) == 1)
        await answers.reaches(lambda answers: answers == [{"jsonrpc": "2.0", "id": "p", "result": {}}])
        assert client.counters == {"answers to nothing": 1, "malformed messages": 2}


# Bodies that take their time


def dripping(beginning: bytes) -> Answer:
    """There is always something more to read, and never anything in it; on the adjustable clock, five seconds for each byte."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.say(beginning)
        while True:
            await wire.say(b" ")
            await wait_all_tasks_blocked()  # until the client has read it
            advance(5)

    return answer


@on_both
@pytest.mark.parametrize("options", [{"idle_timeout": 9}, {"timeout": 9}], ids=["idle timeout", "timeout"])
@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nx: y", head(200, {**JSON, **LENGTH})], ids=["head", "body"])
@pytest.mark.adjustable_clock
@fault("H28")
async def test_a_response_that_drips_ends_at_the_calls_timeout(beginning: bytes, options: Any) -> None:
    async with connected(mcp(call=storm(dripping(beginning)))) as (client, peer):
        with pytest.raises(RequestTimeout):
            await client.call_tool("storm", **options)
        assert (await client.call_tool("tides")).content == TIDES

    assert subjects(peer).count("initialize") == 1


# Redirects out of the origin, with a real server at their end: it is never connected to


SECRETS = {"Authorization": "Bearer secret", "X-Api-Key": "secret"}


def to(location: str, status: int = 307) -> Answer:
    return says(b"", status, location=location)


@fault("H33")
async def test_a_handshake_does_not_follow_a_redirect_to_another_origin() -> None:
    async with serving(mcp()) as other:
        redirect = to(other.url)
        for era in ("auto", "legacy", "modern"):
            error = await refused(mcp(discover=redirect, initialize=redirect), era=era, headers=SECRETS)
            assert "another origin" in str(error), era

    assert other.connections == 0


@fault("H33")
async def test_the_servers_stream_and_the_delete_do_not_follow_a_redirect_to_another_origin() -> None:
    async with serving(mcp()) as other:
        script = mcp(get=to(other.url), delete=to(other.url), initialized=to(other.url))
        async with connected(script, headers=SECRETS) as (client, peer):
            await tides(client)
            await peer.hears("GET", 1)

    assert {"get", "delete", "initialized"} < set(subjects(peer))
    assert other.connections == 0

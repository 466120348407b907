"""Answers of a server whose members are of any type, at a proxy: a host gets each as a result or as an error, and none is an internal one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from mcp_host.proxy import Proxy
from mcp_host.testing import ScriptedPeer
from tests.testing import raw

DEEP = [b"[" * 300 + b"]" * 300, b'{"a":' * 300 + b"1" + b"}" * 300]
ODD = [b"5", b"null", b'"x"', b"[]", b"[5]", b"{}", b'{"x":null}', b'"\\ud83d"', b"1e999", b"[1e999]", *DEEP]

ANSWERS = {
    "tools/list": [
        b'"result":?',
        b'"result":{"tools":?}',
        b'"result":{"tools":[?]}',
        b'"result":{"tools":[{"name":?,"inputSchema":?,"outputSchema":?}],"nextCursor":?}',
        b'"result":{"tools":[{"name":"a","inputSchema":{"properties":{"b":{"type":"string","x-mcp-header":?}}}}]}',
    ],
    "tools/call": [
        b'"result":?',
        b'"result":{"content":?}',
        b'"result":{"content":[?],"isError":?}',
        b'"result":{"content":[],"structuredContent":?}',
        b'"result":{"content":[],"_meta":?}',
        b'"result":{"content":[],"resultType":?}',
        b'"result":{"resultType":"input_required","inputRequests":?}',
        b'"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":?}}}',
        b'"result":{"resultType":"input_required","inputRequests":{"k":{"method":?,"params":{}}},"requestState":?}',
        b'"error":?',
        b'"error":{"code":?,"message":?}',
        b'"error":{"code":-32042,"message":"visit","data":?}',
        b'"error":{"code":-32042,"message":"visit","data":{"elicitations":[?]}}',
        b'"error":{"code":-32021,"message":"declare","data":?}',
    ],
    "resources/read": [b'"result":{"contents":?}'],
    "x/unknown": [b'"result":?'],
}


@pytest.fixture(autouse=True)
def no_error_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


def telling(era: str) -> ScriptedPeer:
    """A server that gives the answer that a request tells it to give."""

    async def script(peer: ScriptedPeer) -> None:
        if era == "legacy":
            await peer.answer_initialize(capabilities={"tools": {}, "resources": {}})
        else:
            await peer.answer_discover(capabilities={"tools": {}, "resources": {}})
        while True:
            asked = await peer.receive()
            if "x/answer" in asked.get("params", {}):
                is_retry = not {"inputResponses", "requestState"}.isdisjoint(asked["params"])
                answer = b'"result":{}' if is_retry else asked["params"]["x/answer"].encode()
                await peer.send_raw(b'{"jsonrpc":"2.0","id":%d,%s}' % (asked["id"], answer))

    return ScriptedPeer(script)


@pytest.mark.parametrize("host_era", ["legacy", "modern"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.fault("J12", "J13", "J14")
async def test_each_is_passed_on_or_refused(era: str, host_era: str, subtests: pytest.Subtests) -> None:
    proxy = Proxy(telling(era))
    for method, answers in ANSWERS.items():
        for answer in answers:
            with subtests.test(method, answer=answer):
                async with (raw.legacy if host_era == "legacy" else raw.modern)(proxy, lenient=True) as host:
                    for odd in ODD:
                        told = answer.replace(b"?", odd).decode()
                        id = await host.request(method, {"name": "a", "uri": "x:1", "x/answer": told})
                        while (message := await host.receive()).get("id") != id or "method" in message:
                            if "id" in message:
                                await host.reply(message, {"action": "decline"})
                        assert "result" in message or message["error"]["message"] != "Internal error", odd
    await proxy.aclose()

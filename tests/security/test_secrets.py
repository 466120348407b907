"""A host's secrets stay out of logs, errors and reprs, at every level and however a session fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable
from itertools import chain
from traceback import format_exception
from typing import Any

import pytest
from anyio import fail_after

from mcp_host import Client, Elicitation, EraCache, FormRequest, Stdio, StreamableHttp
from mcp_host.errors import InputRefused, McpError
from mcp_host.json_schema.schema import Schema
from mcp_host.limits import Limits
from mcp_host.middleware import Exchange, add_headers, add_meta, tap
from mcp_host.protocol.headers import ParameterHeader
from mcp_host.testing import Context, Server
from mcp_host.types import ElicitResult, JSONObject
from tests.clock import advance
from tests.faults.http_server import drop, mcp, says, subject, tides, welcome
from tests.faults.processes import BRIEF
from tests.transports.children import python
from tests.transports.http_contract import libraries
from tests.transports.http_peers import serving
from tests.transports.legacy_peers import Answer, hang, in_turn

CANARY = "sk-canary-5ba1"
SOON = 25.0


class Told:
    """All that a program could print of a client: what it logs, raises and warns of, and how it is shown."""

    def __init__(self, log: pytest.LogCaptureFixture, logger: str = "") -> None:
        log.set_level(logging.NOTSET)
        self._log = log
        self._logger = logger
        self.errors: list[McpError] = []

    async def failing(self, call: Awaitable[object]) -> None:
        """Await what has to fail, soon."""
        with fail_after(SOON), pytest.raises(McpError) as caught:
            await call
        self.errors.append(caught.value)

    def everything(self, client: Client, server: Stdio | StreamableHttp, era_cache: EraCache) -> str:
        formatter = logging.Formatter()
        records = [record for record in self._log.records if record.name.startswith(self._logger)]
        shown = [client, server, server.name, server.identity, client.counters, era_cache.export(), *self.errors]
        return "\n".join(
            [
                *map(formatter.format, records),
                *("".join(format_exception(error)) for error in self.errors),
                *client.warnings,
                *map(repr, shown),
            ]
        )


# A session over stdio


FAILING = """
def last(request):
    os._exit(3)

def answer(request):
    reply(request, text(os.environ["TOKEN"] == sys.argv[1] == request["params"]["arguments"]["key"] and "heard" or "not"))

def wrong(request):
    say({"id": request["id"], "result": {"content": 5}})

def no(request):
    refuse(request, -32000, "no")

def noise(request):
    raw("noise\\n")
    reply(request, text("heard"))

def silence(request):
    print("silence", file=sys.stderr, flush=True)

for behave in (answer, noise, no, wrong, silence, last):
    request = read()
    while request["method"] != "tools/call":
        request = read()
    behave(request)
"""


@pytest.mark.adjustable_clock
async def test_no_secret_is_shown_over_stdio(caplog: pytest.LogCaptureFixture) -> None:
    told, era_cache = Told(caplog), EraCache()
    command = [*python(FAILING), CANARY]
    server = Stdio(command, env={"TOKEN": CANARY}, restart=False, on_stderr=lambda line: advance(5))
    client = Client(server, limits=BRIEF, era_cache=era_cache)
    with fail_after(SOON * 3):
        async with client:
            for _ in range(2):
                assert (await client.call_tool("x", {"key": CANARY})).text == "heard"
            await told.failing(client.call_tool("x", {"key": CANARY}))
            await told.failing(client.call_tool("x", {"key": CANARY}))
            await told.failing(client.call_tool("x", {"key": CANARY, "other": object()}))
            await told.failing(client.call_tool("x", {"key": CANARY + "\ud800"}))
            await told.failing(client.call_tool("x", {"key": CANARY}, timeout=5))
            await told.failing(client.call_tool("x", {"key": CANARY}))
    await told.failing(client.call_tool("x", {"key": CANARY}))

    assert [type(error).__name__ for error in told.errors] == [
        *("ServerError", "ProtocolError", "CallerError", "CallerError"),
        *("RequestTimeout", "ConnectionClosed", "NotConnected"),
    ]
    assert "skipped something that is no message" in caplog.text
    assert CANARY not in told.everything(client, server, era_cache)


# A session over HTTP


FAULTS: dict[str, list[Answer]] = {
    "HttpStatusError": [says(b"out of cheese", 500, content_type="text/plain")],
    "Unauthorized": [says(b"", 401)],
    "ConnectionClosed": [drop],
    "ProtocolError": [says(b"{")],
    "MessageTooLarge": [says(b" " * 20_000)],
    "SessionLost": [says(b"", 404)] * 2,  # that of the new session, too
    "RequestTimeout": [hang],
}
GOOD = says(set_cookie=f"key={CANARY}; Path=/")


@libraries
@pytest.mark.parametrize("whose", ["our client", "the caller's client"])
async def test_no_secret_is_shown_over_http(library: Any, whose: str, caplog: pytest.LogCaptureFixture) -> None:
    """httpx logs the requests of the caller's client itself, and its URLs keep their query."""
    ours = whose == "our client"
    told, era_cache = Told(caplog, "" if ours else "mcp_host"), EraCache()
    answers = in_turn(GOOD, *chain(*FAULTS.values()))
    script = mcp(call=answers, initialize=welcome(CANARY), delete=drop, get=drop, initialized=says(b"", 500))
    async with serving(script) as peer, library.AsyncClient() as http:
        url = peer.url.replace("http://", f"http://me:{CANARY}@") + f"?key={CANARY}#{CANARY}"
        server = StreamableHttp(url, headers={"X-Key": CANARY}, client=None if ours else http)
        client = Client(server, limits=Limits(max_message=10_000), era_cache=era_cache)
        with fail_after(SOON * 3):
            async with client:
                await tides(client, arguments={"key": CANARY})
                for fault in FAULTS:
                    timeout = 0.05 if fault == "RequestTimeout" else SOON
                    await told.failing(client.call_tool("tides", {"key": CANARY}, timeout=timeout))
                await told.failing(client.call_tool("tides", {"key": CANARY, "other": object()}))

    assert [type(error).__name__ for error in told.errors] == [*FAULTS, "CallerError"]
    heard = next(heard for heard in reversed(peer.heard) if subject(heard) == "call")
    assert CANARY in heard.path
    assert all(CANARY in heard.headers[name] for name in ("x-key", "mcp-session-id", "cookie"))
    assert "authorization" in heard.headers
    assert {record.levelname for record in caplog.records if record.name.startswith("mcp_host")} >= {"WARNING"}
    assert CANARY not in told.everything(client, server, era_cache)


# What a sentence about a value repeats of it


def test_an_argument_that_no_header_can_carry_is_not_repeated() -> None:
    region = ParameterHeader("Region", ("region",))

    with pytest.raises(ValueError, match="the text for Mcp-Param-Region: a lone surrogate") as caught:
        region.value({"region": CANARY + "\ud800"})

    assert CANARY not in "".join(format_exception(caught.value))


FORM = {
    "a": {"type": "string", "maxLength": 3},
    "b": {"type": "string", "pattern": "^x"},
    "c": {"type": "string", "enum": ["x"]},
    "d": {"type": "integer"},
    "e": {"anyOf": [{"const": 5}, {"type": "null"}]},
    "f": {"type": "array", "items": {"maxLength": 3}},
    "g": {"type": "array", "maxItems": 1},
    "h": False,
}


async def test_the_users_input_in_a_form_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.NOTSET)
    for field, schema in FORM.items():
        content = {field: [CANARY, CANARY] if field in "fg" else CANARY}

        async def answer(request: FormRequest, content: JSONObject = content) -> ElicitResult:
            return request.accept(content)

        form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {field: schema}}}
        with pytest.raises(InputRefused) as caught:
            await Elicitation(form=answer).answer(form, server="shop")

        shown = "".join(format_exception(caught.value)) + caplog.text
        assert "not what the server asked for: " in shown
        assert CANARY not in shown


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_a_tap_sees_shows_no_arguments_headers_or_answers(era: str) -> None:
    """An application that logs whole exchanges writes no secrets by accident."""
    server, seen = Server("shop"), list[Exchange]()

    @server.tool
    async def order(card: str, context: Context) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.elicit("Who?", form)
        return f"{card} {answer.content}"

    async def answer(request: FormRequest) -> ElicitResult:
        return request.accept({"name": CANARY})

    middleware = [add_headers({"Authorization": CANARY}), add_meta({"token": CANARY}), tap(seen.append)]
    with fail_after(SOON):
        async with Client(server, era=era, elicitation=Elicitation(form=answer), middleware=middleware) as client:
            await client.call_tool("order", {"card": CANARY}, caller=CANARY)

    assert [(exchange.request.method, CANARY in str(exchange.result)) for exchange in seen[-2:]] == [
        ("elicitation/create", True),
        ("tools/call", True),
    ]
    assert CANARY not in repr(seen)


def test_a_check_that_may_reveal_the_value_has_a_longer_message() -> None:
    assert Schema({"maxLength": 3}).mismatch(CANARY) == f"'{CANARY}' is too long"


# What is kept


def test_a_malformed_era_cache_is_refused() -> None:
    malformed = ["[]", '["modern"]', '"modern"', "7", '{"x": "\\u001b[2J"}', '{"x": null}', '{"x": ["modern"]}']
    for file in malformed:
        with pytest.raises(ValueError, match=r"known is a mapping of servers|the era of a server") as caught:
            EraCache(json.loads(file))

        assert str(caught.value).isprintable()

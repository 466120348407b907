"""The contract of adapters, what comes back: calls, stop reasons, usage, streams, failures and cancellation."""

from __future__ import annotations

import gc
import json
import logging
import socket
import traceback
import warnings
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import anyio
import pytest

from mcp_host.errors import ProviderError, SamplingError
from mcp_host.providers.exchange.streams import Delta
from mcp_host.sampling import run_tool_loop
from mcp_host.sampling.request import ModelAnswer
from mcp_host.server_requests import ProgressReporter
from tests.extent import THOROUGH, on_both
from tests.interop.providers.contract.adapters import ADAPTERS, Adapter, exchanges, reached, thoughts
from tests.interop.providers.contract.asking import ADD, LOOK, Wire, ask, assistant, request, result, used, user
from tests.interop.providers.scripted import Broken, Called, Failed, Said, Stalled
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.base import Heard, sse

Stop: TypeAlias = Literal["max_tokens", "stop_sequence", "refusal", "content_filter"]
MCP_REASONS = {"max_tokens": "maxTokens", "stop_sequence": "stopSequence"}
OPEN_MODELS = ("openai-chat", "openai-chat compatible", "ollama")
PARALLEL = [Called("add", {"a": 1}), Called("look", {"at": "ü"}), Called("add", {"a": 2})]


def told(answer: ModelAnswer) -> dict[str, object]:
    """What an answer says, without the ids of its calls, which may be fresh."""
    content = [block.to_wire() for block in answer.content]
    for block in content:
        block.pop("id", None)
        block.pop("_meta", None)
    return {"content": content, "model": answer.model, "stopReason": answer.stop_reason, "usage": answer.usage}


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def how(request: pytest.FixtureRequest) -> dict[str, object]:
    return {"stream": request.param}


async def test_text_and_parallel_calls_are_read_in_their_order(
    adapter: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    server = serve(adapter.server, Said(text="Let me see.", calls=PARALLEL))
    async with adapter.open(server.url, server.key) as make:
        answer = await ask(make(**how), tools=[ADD, LOOK])

    assert answer.text == "Let me see."
    assert [(use.name, use.input) for use in answer.tool_uses] == [
        ("add", {"a": 1}),
        ("look", {"at": "ü"}),
        ("add", {"a": 2}),
    ]
    assert answer.stop_reason == "toolUse"
    assert len({use.id for use in answer.tool_uses} - {""}) == 3


async def test_parallel_results_reach_the_model_whatever_their_order(adapter: Adapter, serve: Serve) -> None:
    server = serve(adapter.server, Said(calls=PARALLEL), Said(text="ok"))
    async with adapter.open(server.url, server.key) as make:
        model = make()
        first = await ask(model, tools=[ADD, LOOK])
        results = [result(use.id, f"marker-{number}") for number, use in enumerate(first.tool_uses)]
        calls = assistant(*[use.to_wire() for use in first.tool_uses])
        answer = await ask(model, user("Hello"), calls, user(*reversed(results)), tools=[ADD, LOOK])

    assert answer.text == "ok"
    assert [reached(server, f"marker-{number}") for number in range(3)] == [True] * 3
    if not adapter.has_ids:  # the order tells whose they are
        places = [str(server.last).index(f"marker-{number}") for number in range(3)]
        assert places == sorted(places)


async def test_ids_that_repeat_are_made_fresh(adapter: Adapter, serve: Serve) -> None:
    """Some models begin with ``call_0`` in each answer."""
    server = serve(adapter.server, *[Said(calls=[Called("add", {"a": turn}, id="call_0")]) for turn in range(3)])
    conversation = [user("Go on.")]
    ids = []
    async with adapter.open(server.url, server.key) as make:
        model = make()
        for _ in range(3):
            [use] = (await ask(model, *conversation, tools=[ADD])).tool_uses
            conversation += [assistant(use.to_wire()), user(result(use.id, "done"))]
            ids.append(use.id)

    assert len(set(ids)) == 3


CUT_OFF: list[tuple[Adapter, Stop]] = [
    (adapter, stop)
    for adapter in ADAPTERS
    for stop in get_args(Stop)
    if adapter.cell(f"stop.{stop}").state != "left out" and adapter.cell("stopSequences").state != "emulated"
]


@pytest.mark.parametrize(("cut", "stop"), CUT_OFF, ids=[f"{adapter.name}-{stop}" for adapter, stop in CUT_OFF])
async def test_calls_of_an_answer_that_was_cut_off_are_never_sent(
    cut: Adapter, serve: Serve, how: dict[str, object], stop: Stop
) -> None:
    server = serve(cut.server, Said(stop=stop, text="Well", calls=[Called("add", {"a": 1})]))
    async with cut.open(server.url, server.key) as make:
        answer = await ask(make(**how), tools=[ADD], stopSequences=["END"])

    assert answer.tool_uses == []
    assert answer.stop_reason == cut.reasons.get(stop, MCP_REASONS.get(stop, stop))


async def test_broken_arguments_are_an_error_that_names_the_tool(serve: Serve, adapter: Adapter) -> None:
    if adapter.text_arguments is None:
        assert adapter.name in ("gemini", "ollama")  # their arguments are objects
        return
    server = serve(adapter.server, Said(calls=[Called("add", '{"a": 1')]))
    async with adapter.open(server.url, server.key) as make:
        with pytest.raises(SamplingError) as caught:
            await ask(make(**adapter.text_arguments), tools=[ADD])

    assert "add" in str(caught.value)


async def test_stop_reasons_are_those_of_mcp(
    adapter: Adapter, serve: Serve, how: dict[str, object], subtests: pytest.Subtests
) -> None:
    stops: list[Stop] = ["max_tokens", "stop_sequence", "refusal", "content_filter"]
    said = {stop: Said(stop=stop, text="2 +") for stop in stops}
    if adapter.cell("stopSequences").state == "emulated":
        said["stop_sequence"] = Said(text="2 +END 3")
    server = serve(adapter.server, *said.values())
    async with adapter.open(server.url, server.key) as make:
        model = make(**how)
        for stop in stops:
            with subtests.test(stop=stop):
                answer = await ask(model, stopSequences=["END"])
                assert answer.stop_reason == adapter.reasons.get(stop, MCP_REASONS.get(stop, stop))
                assert "END" not in answer.text
                is_native = stop not in adapter.reasons and said[stop].stop == stop
                assert (adapter.cell(f"stop.{stop}").note == "") == is_native


async def test_an_empty_answer_is_an_answer(adapter: Adapter, serve: Serve, how: dict[str, object]) -> None:
    server = serve(adapter.server, Said())
    async with adapter.open(server.url, server.key) as make:
        answer = await ask(make(**how))

    assert (answer.text, answer.tool_uses, answer.stop_reason) == ("", [], "endTurn")


async def test_the_usage_has_the_tokens(adapter: Adapter, serve: Serve, how: dict[str, object]) -> None:
    server = serve(adapter.server, Said(text="4", tokens=(120, 34), cached=100))
    async with adapter.open(server.url, server.key) as make:
        answer = await ask(make(**how))

    assert answer.usage is not None
    assert (answer.usage["inputTokens"], answer.usage["outputTokens"]) == (120, 34)
    assert answer.usage.get("cacheReadTokens") == (100 if adapter.cell("usage.cached").state == "mapped" else None)
    assert "usage" not in answer.to_wire()


SAID = {
    "text": Said(text="2 + 2 = 4, and grüße to all who read this."),
    "text and calls": Said(text="Let me see.", calls=PARALLEL),
    "calls without arguments": Said(calls=[Called("add"), Called("look")]),
    "cut off": Said(text="2 +", stop="max_tokens"),
    "interleaved": Said(
        text="Both.", calls=[Called("add", {"a": 10**9}), Called("look", {"at": "x" * 60})], interleaved=True
    ),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID.keys())
async def test_a_stream_gives_the_same_answer_and_its_texts_in_pieces(
    adapter: Adapter, serve: Serve, said: Said
) -> None:
    server = serve(adapter.server, said, said)
    pieces: list[Delta] = []
    async with adapter.open(server.url, server.key) as make:
        whole = await ask(make(stream=False), tools=[ADD, LOOK])
        streamed = await ask(make(on_delta=pieces.append), tools=[ADD, LOOK])

    assert told(streamed) == told(whole)
    assert "".join(piece.text for piece in pieces) == said.text
    assert len(pieces) != 1 or len(said.text) < 12


async def test_characters_in_two_halves_are_the_same_in_a_stream_and_without(adapter: Adapter, serve: Serve) -> None:
    """JSON may write each half of a character for itself, and streams may have one in each of two events."""
    said = Said(text="a<>b" * 20 + ">c<")

    def say(heard: Heard) -> Failed:
        if server.wants_stream(heard):
            kind, body = server.stream_type, b"".join(server.events(said, heard)).decode()
        else:
            kind, body = "application/json", json.dumps(server.reply(said, heard))
        return Failed(status=200, kind=kind, body=body.replace("<", r"\ud83d").replace(">", r"\ude00"))

    server = serve(adapter.server, decide=say)
    pieces: list[Delta] = []
    async with adapter.open(server.url, server.key) as make:
        whole = await ask(make(stream=False))
        streamed = await ask(make(on_delta=pieces.append))

    assert whole.text == "a😀b" * 20 + "\ufffdc\ufffd"
    assert (streamed.text, "".join(delta.text for delta in pieces)) == (whole.text, whole.text)


async def test_a_limit_says_when_to_come_back(adapter: Adapter, serve: Serve, how: dict[str, object]) -> None:
    server = serve(adapter.server, Failed(status=429, retry_after="7"))
    async with adapter.open(server.url, server.key) as make:
        with pytest.raises(ProviderError) as caught:
            await ask(make(**how))

    assert (caught.value.status, caught.value.transient) == (429, True)
    assert caught.value.retry_after == 7.0


async def test_a_failure_of_the_provider_is_one_error(adapter: Adapter, serve: Serve, how: dict[str, object]) -> None:
    server = serve(adapter.server, Failed(status=500), Failed(status=503, body="<html>down</html>"))
    async with adapter.open(server.url, server.key) as make:
        for status in (500, 503):
            with pytest.raises(ProviderError) as caught:
                await ask(make(**how))
            assert (caught.value.status, caught.value.transient) == (status, True)


async def test_a_key_that_the_provider_repeats_is_in_no_text_and_no_log(
    adapter: Adapter, serve: Serve, how: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(adapter.server)
    server.say(Failed(status=401, body=f'{{"error": {{"message": "Incorrect API key provided: {server.key}"}}}}'))
    with caplog.at_level(logging.INFO):
        async with adapter.open(server.url, server.key) as make:
            with pytest.raises(ProviderError) as caught:
                await ask(make(**how))

    assert (caught.value.status, caught.value.transient) == (401, False)
    assert server.key not in "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text


async def test_a_server_that_is_not_there_is_a_failed_connection(adapter: Adapter, how: dict[str, object]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        async with adapter.open(f"http://127.0.0.1:{taken.getsockname()[1]}", "key") as make:
            with anyio.fail_after(25), pytest.raises(ProviderError) as caught:
                await ask(make(**how))

    assert (caught.value.status, caught.value.transient) == (None, True)


@pytest.mark.parametrize("adapter", [one for one in ADAPTERS if one.name != "ollama"], ids=lambda adapter: adapter.name)
async def test_a_port_that_does_not_exist_is_no_failure_for_the_moment(
    adapter: Adapter, how: dict[str, object]
) -> None:
    """Ollama's SDK refuses the URL itself, with a ValueError."""
    async with adapter.open("http://127.0.0.1:65536", "key") as make:
        with (
            anyio.fail_after(25),
            pytest.raises(ProviderError, match=r" \(its URL has a port that does not exist\)$") as caught,
        ):
            await ask(make(**how))

    assert (caught.value.status, caught.value.transient) == (None, False)


@pytest.mark.parametrize("events", [0, 1, 4, 7])
async def test_a_stream_that_breaks_is_a_failed_connection_and_no_short_answer(
    adapter: Adapter, serve: Serve, events: int
) -> None:
    server = serve(adapter.server, Broken(said=Said(text="a long answer " * 20), events=events))
    async with adapter.open(server.url, server.key) as make:
        with anyio.fail_after(25), pytest.raises(ProviderError) as caught:
            await ask(make(stream=True))

    assert (caught.value.status, caught.value.transient) == (None, True)


@on_both
async def test_a_stream_that_breaks_after_its_beginning_says_so(adapter: Adapter, serve: Serve) -> None:
    server = serve(adapter.server, Broken(said=Said(text="a long answer " * 20), events=7))
    async with adapter.open(server.url, server.key) as make:
        with anyio.fail_after(25), pytest.raises(ProviderError) as caught:
            await ask(make(stream=True))

    assert str(caught.value).partition(": ")[2].startswith("the stream ended before the answer was complete")


async def test_a_status_that_is_neither_a_success_nor_a_failure_is_no_answer(adapter: Adapter, serve: Serve) -> None:
    server = serve(adapter.server, Failed(status=204, body=""))
    async with adapter.open(server.url, server.key) as make:
        with anyio.fail_after(25), pytest.raises(ProviderError, match=r": the reply cannot be read$") as caught:
            await ask(make(stream=False))

    assert caught.value.transient is False


@pytest.mark.parametrize("body", ['{"error": "boom"}', "{}", "[]", "null", "<html>502</html>", ""])
async def test_a_whole_reply_that_has_no_answer_is_an_error_that_says_so(
    adapter: Adapter, serve: Serve, body: str
) -> None:
    server = serve(adapter.server, Failed(status=200, body=body))
    async with adapter.open(server.url, server.key) as make:
        with anyio.fail_after(25), pytest.raises(ProviderError) as caught:
            await ask(make(stream=False))

    said = str(caught.value).partition(": ")[2]
    assert said in ("the reply cannot be read", "the reply has no complete answer", "the model failed")
    assert not caught.value.transient


@pytest.mark.parametrize(
    "body", ['{"a":' * 100_000 + "1" + "}" * 100_000, f'{{"a": {"9" * 5000}}}'], ids=["deep", "long"]
)
async def test_a_reply_of_too_many_levels_or_digits_cannot_be_read(adapter: Adapter, serve: Serve, body: str) -> None:
    server = serve(adapter.server, Failed(status=200, body=body))
    async with adapter.open(server.url, server.key) as make:
        with anyio.fail_after(25), pytest.raises(ProviderError) as caught:
            await ask(make(stream=False))

    assert (str(caught.value).partition(": ")[2], caught.value.transient) == ("the reply cannot be read", False)


PAGES = ["{}", "[]", "null", "1", '{"choices": "none"}', "<html>502</html>", "{\n}", "\n<html>", ""]
HIDDEN = {"ollama": ["{\n}", ""], "pydantic-ai": PAGES}
"""Pages that the SDK does not show: it raises nothing, or what it raises for a stream that is cut, and hides the type of the response."""


@pytest.mark.filterwarnings("ignore:Async generator '(httpx|httpcore):ResourceWarning")  # Ollama's SDK leaves them open
@pytest.mark.parametrize("kind", ["application/json", "text/html; charset=utf-8"])
async def test_a_page_instead_of_a_stream_cannot_be_read_and_is_not_asked_for_again(
    adapter: Adapter, serve: Serve, kind: str, subtests: pytest.Subtests
) -> None:
    server = serve(adapter.server, *[Failed(status=200, body=body, kind=kind) for body in PAGES])
    async with adapter.open(server.url, server.key) as make:
        model = make(stream=True)
        for body in PAGES:
            with subtests.test(body=body):
                with anyio.fail_after(25), pytest.raises(ProviderError) as caught:
                    await ask(model)
                said, is_transient = "the reply cannot be read", False
                if body in HIDDEN.get(adapter.name, ()):
                    said, is_transient = "the stream ended before the answer was complete", True
                assert (str(caught.value).partition(": ")[2], caught.value.transient) == (said, is_transient)


@pytest.mark.filterwarnings("ignore:Async generator '(anthropic|httpx).:ResourceWarning")  # theirs, on trio
@pytest.mark.parametrize("is_closed", [False, True], ids=["connection cut", "response closed"])
async def test_a_stream_that_ends_anywhere_in_an_answer_is_a_failed_connection(
    adapter: Adapter, serve: Serve, is_closed: bool
) -> None:
    """In an event, in a line, and in a character, too."""
    said = Said(text="é😀", calls=[Called("look", {"at": "ü"})])
    server = serve(adapter.server, said)
    async with adapter.open(server.url, server.key) as make:
        model = make(stream=True)
        with anyio.fail_after(60):
            whole = told(await ask(model, tools=[LOOK]))
            failed: dict[int, ProviderError] = {}
            for sent in range(0, server.sent, 1 if THOROUGH else server.sent // 25):
                server.say(Broken(said=said, more_bytes=sent, is_closed=is_closed))
                try:
                    answer = await ask(model, tools=[LOOK])
                except ProviderError as error:
                    failed[sent] = error
                else:  # only its usage can be missing
                    assert told(answer) | {"usage": None} == whole | {"usage": None}, sent

    assert max(failed) > server.sent / 2
    assert {sent: str(error) for sent, error in failed.items() if error.status or not error.transient} == {}


@on_both
async def test_cancelling_a_request_closes_the_providers_stream(adapter: Adapter, serve: Serve) -> None:
    server = serve(adapter.server, Stalled(said=Said(text="a long answer " * 20), events=5))
    async with adapter.open(server.url, server.key) as make:
        with anyio.fail_after(25):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, make(stream=True))
                assert await anyio.to_thread.run_sync(server.stalled.wait, 5)
                tasks.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(server.unfinished.wait, 5)


@pytest.mark.filterwarnings("ignore:Async generator 'httpx._models:ResourceWarning")  # Ollama's SDK leaves them open
@pytest.mark.parametrize("events", [1, 4])
async def test_an_error_in_the_middle_of_a_stream_is_an_error_without_its_text(
    adapter: Adapter, serve: Serve, events: int
) -> None:
    server = serve(adapter.server)
    server.say(Broken(said=Said(text="a long answer " * 20), events=events, error=adapter.stream_error))
    async with adapter.open(server.url, server.key) as make:
        with pytest.raises(ProviderError) as caught:
            await ask(make(stream=True))

    assert "secret" not in "".join(traceback.format_exception(caught.value))


NO_SUCH_BLOCK = {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}}


@on_both
async def test_a_stream_that_fails_leaves_no_generator_open(adapter: Adapter, serve: Serve) -> None:
    """Trio warns of each. The SDKs of the others leave theirs open, as does Anthropic's if it fails itself."""
    if adapter.name in ("gemini", "ollama", "pydantic-ai"):
        return
    error = sse(NO_SUCH_BLOCK, "content_block_delta") if adapter.name == "anthropic" else adapter.stream_error
    server = serve(adapter.server)
    server.say(Broken(said=Said(text="a long answer " * 20), events=4, error=error))
    async with adapter.open(server.url, server.key) as make:
        model = make(stream=True)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with anyio.fail_after(25), pytest.raises(ProviderError):
                await ask(model)
            gc.collect()

    assert [str(warning.message) for warning in warned] == []


@on_both
async def test_with_the_hosts_consent_the_text_is_progress_of_the_request(adapter: Adapter, serve: Serve) -> None:
    said = Said(text="2 + 2 = 4, and grüße to all who read this.")
    server = serve(adapter.server, Stalled(said=said, events=7), said)
    sent: list[dict[str, Any]] = []
    first = anyio.Event()

    async def send(params: dict[str, Any]) -> None:
        sent.append(params)
        first.set()

    asked = replace(request(), reporter=ProgressReporter("t", send))
    async with adapter.open(server.url, server.key) as make:
        with anyio.fail_after(25):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(make(progress=True), asked)
                await first.wait()
                tasks.cancel_scope.cancel()
        reports = len(sent)
        await make(on_delta=lambda delta: None)(asked)

    assert said.text.startswith("".join(report["message"] for report in sent))
    assert (sent[0]["progressToken"], len(sent)) == ("t", reports)


async def test_the_json_of_a_required_call_is_no_text_for_the_host(adapter: Adapter, serve: Serve) -> None:
    server = serve(adapter.server, adapter.forced("add", {"a": 1, "b": 2}))
    pieces: list[Delta] = []
    async with adapter.open(server.url, server.key) as make:
        answer = await ask(make(on_delta=pieces.append), tools=[ADD], toolChoice={"mode": "required", "name": "add"})

    assert ([use.input for use in answer.tool_uses], pieces) == ([{"a": 1, "b": 2}], [])


@pytest.mark.parametrize("tools", [[ADD], [ADD, LOOK]], ids=["one tool", "any tool"])
@pytest.mark.parametrize("text", ["I would rather not.", "[1]"])
async def test_a_text_in_place_of_a_required_call_is_the_answer(
    adapter: Adapter, serve: Serve, how: dict[str, object], text: str, tools: list[dict[str, object]]
) -> None:
    server = serve(adapter.server, Said(text=text))
    async with adapter.open(server.url, server.key) as make:
        answer = await ask(make(**how), tools=tools, toolChoice={"mode": "required"})

    assert (answer.text, answer.tool_uses, answer.stop_reason) == (text, [], "endTurn")


@on_both
async def test_two_loops_at_once_through_one_adapter_stay_apart(adapter: Adapter, serve: Serve) -> None:
    """Each turn waits for that of the other loop."""
    loops = ("north", "south")

    def say(heard: Heard) -> Said:
        [loop] = [loop for loop in loops if f"go {loop}" in str(heard.body)]
        turn = str(heard.body).count(f"marker-{loop}")
        calls = [Called("look", {"at": f"{loop} {turn}"})]
        return Said(thinking=f"thought of {loop} {turn}", calls=calls) if turn < 3 else Said(text=f"at {loop}")

    server = serve(adapter.server, decide=say)
    asked: dict[str, list[object]] = {loop: [] for loop in loops}
    arrived: list[set[str]] = [set() for _ in range(3)]
    met = [anyio.Event() for _ in range(3)]
    async with adapter.open(server.url, server.key) as make:
        model = make(options=adapter.thinking)

        async def run(loop: str) -> None:
            conversation = [user(f"go {loop}")]
            for turn in range(3):
                [use] = (await ask(model, *conversation, tools=[LOOK], maxTokens=4000)).tool_uses
                asked[loop].append(use.input["at"])
                conversation += [assistant(use.to_wire()), user(result(use.id, f"marker-{loop}"))]
                arrived[turn].add(loop)
                if len(arrived[turn]) == 2:
                    met[turn].set()
                await met[turn].wait()
            asked[loop].append((await ask(model, *conversation, tools=[LOOK], maxTokens=4000)).text)

        with anyio.fail_after(25):
            async with anyio.create_task_group() as tasks:
                for loop in loops:
                    tasks.start_soon(run, loop)

    assert asked == {loop: [f"{loop} 0", f"{loop} 1", f"{loop} 2", f"at {loop}"] for loop in loops}


THINKERS = [adapter for adapter in ADAPTERS if adapter.thinking is not None]


def test_only_adapters_whose_api_gives_reasoning_back_keep_it() -> None:
    """pydantic-ai's model has none here: `test_pydantic_ai.py` has others."""
    mapped = [adapter.name for adapter in ADAPTERS if adapter.cell("reasoning").state == "mapped"]
    assert mapped == [*[adapter.name for adapter in THINKERS], "pydantic-ai"]


@pytest.mark.parametrize("keeps_meta", [True, False], ids=["_meta is kept", "_meta is dropped"])
@pytest.mark.parametrize("thinker", THINKERS, ids=lambda adapter: adapter.name)
async def test_in_each_turn_of_a_loop_the_model_keeps_its_thinking(
    thinker: Adapter, serve: Serve, how: dict[str, object], keeps_meta: bool
) -> None:
    """The provider refuses a call that comes back without its thinking."""
    turns = [Said(thinking=f"secret thought {n}", text=f"Step {n}.", calls=[Called("add", {"a": n})]) for n in range(5)]
    server = serve(thinker.server, *turns, Said(thinking="secret end", text="done"))
    conversation: list[Wire] = [user("Count.")]
    async with thinker.open(server.url, server.key) as make:
        model = make(options=thinker.thinking, **how)
        for turn in range(5):
            answer = await ask(model, *conversation, tools=[ADD], maxTokens=4000)
            assert [(use.name, use.input) for use in answer.tool_uses] == [("add", {"a": turn})]
            assert "secret" not in str(answer.to_wire())
            content = [block.to_wire() for block in answer.content]
            for block in content:
                if not keeps_meta:
                    block.pop("_meta", None)
            [use] = answer.tool_uses
            conversation += [assistant(*content), user(result(use.id, f"marker-{turn}"))]
        answer = await ask(model, *conversation, tools=[ADD], maxTokens=4000)

    assert answer.text == "done"
    assert "secret" not in str(answer.to_wire())
    assert all(reached(server, f"marker-{turn}") for turn in range(5))
    assert thoughts([server.last.get(name) for name in ("messages", "input", "contents")]) == 5


@pytest.mark.parametrize(
    "thinker", [adapter for adapter in THINKERS if adapter.text_arguments is not None], ids=lambda adapter: adapter.name
)
async def test_a_loop_goes_on_after_a_call_of_a_model_that_thinks_which_cannot_be_read(
    thinker: Adapter, serve: Serve
) -> None:
    """Its turn goes back without the thinking, as the provider takes it."""

    def add(a: int, b: int) -> int:
        return a + b

    good, bad = Called("add", {"a": 1, "b": 2}), Called("add", "[1, 2]")
    turns = [Said(thinking=f"secret thought {n}", calls=[called]) for n, called in enumerate([good, bad, good])]
    server = serve(thinker.server, *turns, Said(text="done"))
    more = {"model": "deepseek-v4"} if thinker.name == "openai-chat compatible" else {}  # which demands thinking
    async with thinker.open(server.url, server.key) as make:
        model = make(options=thinker.thinking, altered_history="refuse", **thinker.text_arguments or {}, **more)
        found = await run_tool_loop(model, "Add.", tools=[add])

    told = [call.result.text for step in found.steps for call in step.calls]
    assert (found.text, told) == ("done", ["3", "The arguments are no JSON object", "3"])


@pytest.mark.parametrize("first", [None, "secret thought"], ids=["no thinking at first", "thinking at once"])
@pytest.mark.parametrize("thinker", THINKERS, ids=lambda adapter: adapter.name)
async def test_thinking_is_kept_where_the_provider_repeats_the_ids_of_calls(
    thinker: Adapter, serve: Serve, how: dict[str, object], first: str | None
) -> None:
    """In one answer, and in each. Every id is in the request once, and is that of a call and of its result."""
    ats = [[f"marker-{turn}-{place}" for place in range(2)] for turn in range(3)]
    markers = [at for turn in ats for at in turn]
    turns = [
        Said(
            thinking=f"secret thought {n}" if n else first,
            calls=[Called("look", {"at": at}, id="call_0") for at in ats[n]],
        )
        for n in range(3)
    ]
    server = serve(thinker.server, *turns, Said(text="done"))
    conversation: list[Wire] = [user("Look.")]
    async with thinker.open(server.url, server.key) as make:
        model = make(options=thinker.thinking, **how)
        for n in range(3):
            uses = (await ask(model, *conversation, tools=[LOOK], maxTokens=4000)).tool_uses
            assert [use.input["at"] for use in uses] == ats[n]
            results = [result(use.id, str(use.input["at"])) for use in uses]
            conversation += [assistant(*[use.to_wire() for use in uses]), user(*reversed(results))]
        answer = await ask(model, *conversation, tools=[LOOK], maxTokens=4000)

    assert answer.text == "done"
    signed = thoughts([server.last.get(name) for name in ("messages", "input", "contents")])
    assert signed == (2 if first is None and thinker.name != "gemini" else 3)  # Gemini signs each call
    if thinker.has_ids:
        found = sorted((kind, str(id), at) for kind, id, said in exchanges(server.last) for at in markers if at in said)
        assert len({id for _, id, _ in found}) == 6
        assert [(id, at) for kind, id, at in found if kind == "call"] == [
            (id, at) for kind, id, at in found if kind == "result"
        ]
    else:  # the order tells whose they are
        places = [[n for n, said in enumerate(server.last["messages"]) if at in str(said)] for at in markers]
        assert all(len(found) == 2 for found in places)
        assert places == sorted(places)


@pytest.mark.parametrize("thinker", THINKERS, ids=lambda adapter: adapter.name)
async def test_thinking_that_the_provider_hides_comes_back_too(
    thinker: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    hidden = Said(thinking="secret thought", redacted=True, calls=[Called("add", {"a": 1})])
    server = serve(thinker.server, hidden, Said(text="done"))
    async with thinker.open(server.url, server.key) as make:
        model = make(options=thinker.thinking, **how)
        [use] = (await ask(model, tools=[ADD], maxTokens=4000)).tool_uses
        conversation = [user("Hello"), assistant(use.to_wire()), user(result(use.id, "done"))]
        answer = await ask(model, *conversation, tools=[ADD], maxTokens=4000)

    assert answer.text == "done"


@pytest.mark.parametrize("thinker", THINKERS, ids=lambda adapter: adapter.name)
async def test_after_a_forced_call_of_a_model_that_thinks_the_conversation_goes_on(
    thinker: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    """The model may have said the call as text, and the provider takes its thinking back only as it was."""
    forced = replace(thinker.forced("add", {"a": 1, "b": 2}), thinking="secret thought")
    server = serve(thinker.server, forced, forced, Said(text="done"))
    conversation: list[Wire] = [user("Add.")]
    async with thinker.open(server.url, server.key) as make:
        model = make(options=thinker.thinking, **how)
        for turn in range(2):
            choice = {"mode": "required", "name": "add"}
            answer = await ask(model, *conversation, tools=[ADD, LOOK], toolChoice=choice, maxTokens=4000)
            [use] = answer.tool_uses
            assert (use.name, use.input) == ("add", {"a": 1, "b": 2})
            assert "secret" not in str(answer.to_wire())
            said = [block.to_wire() for block in answer.content]
            conversation += [assistant(*said), user(result(use.id, f"marker-{turn}"))]
        answer = await ask(model, *conversation, tools=[ADD, LOOK], maxTokens=4000)

    assert answer.text == "done"
    assert all(reached(server, f"marker-{turn}") for turn in range(2))


async def test_on_delta_gets_the_text_of_the_answer_up_to_a_stop_sequence(adapter: Adapter, serve: Serve) -> None:
    is_cut_here = adapter.cell("stopSequences").state == "emulated"
    said = Said(text="2 +MARKER 3") if is_cut_here else Said(text="2 +", stop="stop_sequence")
    heard: list[str] = []
    server = serve(adapter.server, said)
    async with adapter.open(server.url, server.key) as make:
        model = make(on_delta=lambda delta: heard.append(delta.text))
        answer = await ask(model, stopSequences=["MARKER"])

    assert ("".join(heard), answer.text) == ("2 +", "2 +")


async def test_a_model_of_mistral_goes_on_with_the_calls_of_another_model(serve: Serve) -> None:
    [compatible] = [adapter for adapter in ADAPTERS if adapter.name == "openai-chat compatible"]
    calls = [used("toolu_01AbCdEf", a=1, b=2), used("call_1", a=3, b=4)]
    results = [result("toolu_01AbCdEf", "3"), result("call_1", "7")]
    server = serve(compatible.server, Said(text="done"))
    async with compatible.open(server.url, server.key) as make:
        answer = await ask(make(model="mistral-large"), user("Add."), assistant(*calls), user(*results), tools=[ADD])

    assert answer.text == "done"


@pytest.mark.parametrize("open_model", [one for one in ADAPTERS if one.name in OPEN_MODELS], ids=lambda one: one.name)
async def test_thinking_that_a_model_writes_into_its_text_stays_in_the_host(
    open_model: Adapter, serve: Serve, how: dict[str, object]
) -> None:
    """Some servers of these APIs do not separate it from the text."""
    call = Said(text="<think>secret: I look.</think>\n\nLet me see.", calls=[Called("look", {"at": "ü"})])
    server = serve(open_model.server, call, Said(text="\n<think>secret: 4!</think>\nIt is 4."))
    heard: list[str] = []
    shown = {"on_delta": lambda delta: heard.append(delta.text)} if how["stream"] else {}
    async with open_model.open(server.url, server.key) as make:
        model = make(**how, **shown)
        first = await ask(model, tools=[LOOK])
        [use] = first.tool_uses
        said = [block.to_wire() for block in first.content]
        last = await ask(model, user("Hello"), assistant(*said), user(result(use.id, "4")), tools=[LOOK])

    assert (first.text, last.text) == ("Let me see.", "It is 4.")
    assert "secret" not in str((first.to_wire(), last.to_wire(), heard))
    assert "".join(heard) == ("Let me see.It is 4." if how["stream"] else "")
    assert reached(server, "secret: I look.")  # some models want it back with the results

"""What all adapters share, shown with Anthropic's."""

from __future__ import annotations

import inspect
import json
import logging
import math
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from threading import get_ident
from types import SimpleNamespace
from typing import Any, Self

import anyio
import pytest
from anyio import create_task_group, fail_after
from anyio.lowlevel import checkpoint
from pydantic_core import from_json

from mcp_host import Client, Sampling
from mcp_host.errors import InputRefused, ProviderError, SamplingError, UnusableCalls
from mcp_host.middleware import AnyRequest, CallNext, ServerRequest
from mcp_host.providers import AnthropicModel, Delta, ModelAnswer, OllamaModel, ReasoningStore
from mcp_host.providers.anthropic import read_reply, write_request
from mcp_host.providers.exchange import repair, schemas
from mcp_host.providers.exchange.replies import Call, CountFields, Reply, answer_of, count_of, read_counts
from mcp_host.providers.exchange.requests import MAX_TOLD, Offer, Prompt, media_type
from mcp_host.sampling import CallModel, Handler, SamplingRequest, always, run_tool_loop
from mcp_host.sampling.repeated import RepeatedTools
from mcp_host.server_requests import ProgressReporter
from mcp_host.testing import Context, Server
from mcp_host.types import AssistantContentBlock, CreateMessageResult, ImageContent, TextContent, ToolUseContent
from tests.extent import on_both
from tests.providers.exchange.test_failures import SECRET, of_anthropic
from tests.providers.prompts import deep_schema, names_of
from tests.sampling.asking import ADD, assistant, request, result, text, use, user, wire

MODEL = "claude-sonnet-5"
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


# The answer


@pytest.mark.parametrize(
    ("blocks", "texts"),
    [
        (["a\ud83d", "\ude00b"], ["a😀", "b"]),
        (["a\ud83d", None, "\ude00"], ["a😀", None]),
        (["\ud83d", "", "\ude00\ud83d", "\ude00b"], ["😀", "😀", "b"]),
        (["a\ud83d", "b\ude00", "\ude00"], ["a\ufffd", "b\ufffd", "\ufffd"]),
        (["a\ud83d", "\ud83d"], ["a\ufffd", "\ufffd"]),
    ],
    ids=["two texts", "across a call", "four texts", "halves of none", "two first halves"],
)
async def test_a_character_of_which_two_texts_have_a_half_each_is_the_same_as_in_the_pieces(
    blocks: list[str | None], texts: list[str | None]
) -> None:
    calls = {"type": "tool_use", "id": "c1", "name": "add", "input": {}}
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    content = []  # with a search after each block, because texts next to each other are one
    for words in blocks:
        content += [calls if words is None else {"type": "text", "text": words}, search]
    starts = [
        {"type": "content_block_start", "index": index, "content_block": block} for index, block in enumerate(content)
    ]
    pieces: list[str] = []
    model = AnthropicModel(Events(BEGIN[0], *starts, *END), MODEL, on_delta=lambda delta: pieces.append(delta.text))
    streamed = await model(request(tools=[ADD]))
    whole = answer_of(read_reply({"content": content, "model": MODEL, "stop_reason": "end_turn"}, prompt()), prompt())

    for answer in (streamed, whole):
        assert [block.text if isinstance(block, TextContent) else None for block in answer.content] == texts
    assert "".join(pieces) == "".join(filter(None, texts))


def test_a_count_of_tokens_is_a_whole_number_however_json_has_it() -> None:
    """JSON knows no difference between 12 and 12.0."""
    for count, read in ((12, 12), (12.0, 12), (0, 0), (-0.0, 0)):
        assert repr(count_of(count)) == repr(read)
        assert read_counts({"in": count}, {"in": "inputTokens"}) == {"inputTokens": read}
    for wrong in (12.5, -1, -1.0, True, "12", None, math.inf, math.nan):
        assert (count_of(wrong), read_counts({"in": wrong}, {"in": "inputTokens"})) == (None, {})
    no_usages: list[object] = [None, [], "12", {"in": {"in": 1}, "details": 7}, {"in": {}}]
    for no_usage in no_usages:
        assert read_counts(no_usage, {"in": "inputTokens", "details": {"in": "inputTokens"}}) == {}


@pytest.mark.parametrize(
    "usage",
    [
        {"in": 3, "hit": 2, "details": {"cached": 1}},
        {"details": {"cached": 1, "more": {"in": 9}}, "hit": 2, "in": 3},
        {"in": 3, "other": 4, "details": {"cached": 1, "hit": 5}, "hit": "2"},
        {"hit": None, "details": {"cached": None, "hit": 1}, "in": 3.0},
    ],
)
def test_counts_are_read_by_the_names_of_the_provider(usage: dict[str, object]) -> None:
    """Of two names for one count the details win, then the first."""
    hit: CountFields = {"cached": "cacheReadTokens", "hit": "cacheReadTokens"}

    assert read_counts(usage, {"in": "inputTokens", **hit, "details": hit}) == {"inputTokens": 3, "cacheReadTokens": 1}


def prompt(*messages: dict[str, Any], tools: tuple[str, ...] = ("add",)) -> Prompt:
    asked = request(*messages, tools=[{"name": name, "inputSchema": {}} for name in tools])
    return Prompt(asked, "claude", names_of(asked, AnthropicModel.name_rule))


def test_an_answer_has_the_names_of_the_request_and_parsed_arguments() -> None:
    reply = Reply(["So:", Call("c1", "a_b", '{"x": 1}'), Call("c2", "a_b", None)], "claude-x", "endTurn")

    assert answer_of(reply, prompt(tools=("a/b",))) == ModelAnswer(
        content=[
            TextContent(text="So:"),
            ToolUseContent(id="c1", name="a/b", input={"x": 1}),
            ToolUseContent(id="c2", name="a/b", input={}),
        ],
        model="claude-x",
        stop_reason="toolUse",
        usage=None,
    )


@pytest.mark.parametrize(("data", "written"), [("-_8=", "+/8="), ("+/8=", "+/8=")])
def test_an_image_of_the_model_is_in_the_base64_of_mcp(data: str, written: str) -> None:
    reply = Reply([ImageContent(data=data, mime_type="image/png")], "m", "endTurn")

    assert answer_of(reply, prompt()).content == [ImageContent(data=written, mime_type="image/png")]


@pytest.mark.parametrize(("required", "problem"), [(["x"], "with arguments that are missing"), ([], None)])
def test_a_call_without_arguments_is_one_only_if_its_tool_needs_none(required: list[str], problem: str | None) -> None:
    asked = request(tools=[{"name": "a/b", "inputSchema": {"type": "object", "required": required}}])
    written = Prompt(asked, "claude", names_of(asked, AnthropicModel.name_rule))
    reply = Reply([Call("c1", "a_b", None)], "m", "toolUse")

    if problem is None:
        assert [use.input for use in answer_of(reply, written).tool_uses] == [{}]
    else:
        with pytest.raises(SamplingError, match=f"^the model called 'a/b' {problem}$"):
            answer_of(reply, written)


@pytest.mark.parametrize(
    ("written", "known"),
    [("image/jpg", "image/jpeg"), ("IMAGE/PNG; x=1", "image/png"), ("audio/x-wav", "audio/wav"), ("", ""), (None, "")],
)
def test_types_of_files_are_written_as_apis_know_them(written: str | None, known: str) -> None:
    assert media_type(written) == known


def test_ids_that_repeat_or_are_missing_are_made_fresh() -> None:
    history = [user(text()), assistant(use("call_0")), user(result("call_0"))]
    calls = [Call(id, "add", {}) for id in ("call_0", "call_1", "call_1", None)]

    ids = [use.id for use in answer_of(Reply(calls, "m", "toolUse"), prompt(*history)).tool_uses]

    assert ids[1] == "call_1"
    assert len({"call_0", *ids}) == 5


@pytest.mark.parametrize("stop", ["maxTokens", "refusal", "content_filter", "stopSequence"])
def test_calls_of_an_answer_that_was_cut_off_are_dropped_unread(stop: str) -> None:
    reply = Reply(["So:", Call("c1", "add", '{"x"')], "m", stop)

    assert answer_of(reply, prompt()) == ModelAnswer(
        content=[TextContent(text="So:")], model="m", stop_reason=stop, usage=None
    )


def test_arguments_that_cannot_be_read_are_an_error_that_says_why_and_has_the_answer(subtests: pytest.Subtests) -> None:
    cannot = "not JSON: a number, a text or a depth that JSON cannot have"
    table: list[tuple[object, str]] = [
        ('{"a": 1,}', "not JSON: trailing comma at line 1 column 9"),
        ('{"x"', "not JSON: EOF while parsing an object at line 1 column 4"),
        ("{'a': 1}", "not JSON: key must be a string at line 1 column 2"),
        (
            '{"a": "\n"}',
            "not JSON: control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0",
        ),
        ('{"a": 1}{"a": 2}', "not JSON: trailing characters at line 1 column 9"),
        ('{"a": 1}{"a": true}', "not JSON: trailing characters at line 1 column 9"),
        ('{}{"a": 1', "not JSON: trailing characters at line 1 column 3"),
        ("", "not JSON: EOF while parsing a value at line 1 column 0"),
        ("[1]", "no JSON object"),
        ('"{\\"a\\": 1}"', "no JSON object"),
        ([1], "no JSON object"),
        ('{"a": NaN}', cannot),
        ('{"a": 1e999}', cannot),
        ('{"a": "\ud800"}', cannot),
        ('{"a": "\ud800"', "not JSON: half of a character"),
        ({"a": math.inf}, cannot),
        ({"a": "\ud800"}, cannot),
    ]
    for arguments, problem in table:
        with subtests.test(arguments=ascii(arguments)):
            calls = [Call("c1", "add", {"a": 1}), Call("c1", "add", arguments)]
            with pytest.raises(UnusableCalls) as caught:
                answer_of(Reply(["So:", *calls], "m", "toolUse", {"turn": 1}), prompt(), keep=not_to_be_restored)

            assert str(caught.value) == f"the model called 'add' with arguments that are {problem}"
            [good, bad] = caught.value.answer.tool_uses
            assert (good.input, bad.input, caught.value.answer.text) == ({"a": 1}, {}, "So:")
            assert caught.value.problems == {bad.id: f"The arguments are {problem}"}
            assert (good.id, bad.id) == ("c1", "c2")


def not_to_be_restored(turn: object, content: Sequence[AssistantContentBlock]) -> list[AssistantContentBlock]:
    """The turn has calls that cannot be read."""
    assert turn is None
    return [
        block.model_copy(update={"id": f"c{place}"}) if isinstance(block, ToolUseContent) else block
        for place, block in enumerate(content)
    ]


@pytest.mark.parametrize(
    "written", ['{}{"a": 1}', ' {}\n{"a": 1} ', '{"a": 1}{"a": 1}', '{"a": 1} {"a": 1}\n{"a": 1}', '{}{"a": 1}{"a": 1}']
)
def test_an_empty_object_before_the_arguments_and_a_repetition_of_them_are_mended(written: str) -> None:
    answer = answer_of(Reply([Call("c1", "add", written)], "m", "toolUse"), prompt())

    assert [use.input for use in answer.tool_uses] == [{"a": 1}]


# Asking


async def test_an_answer_that_may_take_long_is_streamed_because_the_sdk_refuses_otherwise() -> None:
    client = Events(*BEGIN, text_delta("ok"), *END)

    answer = await AnthropicModel(client, MODEL)(request(maxTokens=30_000))

    assert (answer.text, client.bodies[0]["stream"]) == ("ok", True)


async def test_options_win_and_none_leaves_a_field_out() -> None:
    client = Answering()
    model = AnthropicModel(client, MODEL, options={"max_tokens": 7, "system": None, "service_tier": "auto"})

    await model(request(systemPrompt="Be brief"))

    [body] = client.bodies
    del body["messages"]
    assert body == {"model": MODEL, "max_tokens": 7, "service_tier": "auto"}


async def test_metadata_is_refused_where_the_api_does_not_take_it_or_ignored() -> None:
    client = Answering()
    with pytest.raises(InputRefused):
        await AnthropicModel(client, MODEL)(request(metadata={"trace": 1}))
    await AnthropicModel(client, MODEL, metadata="ignore")(request(metadata={"trace": 1}))

    assert ["metadata" in body for body in client.bodies] == [False]


def test_wrong_arguments_are_refused(subtests: pytest.Subtests) -> None:
    table: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"metadata": "drop"}, ValueError, 'metadata is "write" or "ignore", not \'drop\''),
        ({"altered_history": "ask"}, ValueError, 'altered_history is "continue" or "refuse", not \'ask\''),
        ({"progress": True, "stream": False}, ValueError, "on_delta and progress need a stream: leave stream out"),
        ({"on_delta": print, "stream": False}, ValueError, "on_delta and progress need a stream: leave stream out"),
        ({"options": "x"}, TypeError, "options has to be a dict of fields of the request, not str"),
        ({"options": ["x"]}, TypeError, "options has to be a dict of fields of the request, not list"),
        ({"on_delta": anyio.sleep}, TypeError, "on_delta must be a plain function: it is not awaited"),
    ]
    for arguments, kind, said in table:
        with subtests.test(arguments=arguments):
            with pytest.raises(kind) as caught:
                AnthropicModel(Events(), MODEL, **arguments)

            assert str(caught.value) == said


# Streams


async def test_on_delta_gets_the_text_as_it_comes_and_the_server_none_without_consent() -> None:
    sent: list[dict[str, Any]] = []

    async def send(params: dict[str, Any]) -> None:
        sent.append(params)

    deltas: list[Delta] = []
    asked = reporting(send, tools=[ADD])
    thinking = {"type": "content_block_start", "index": 1, "content_block": {"type": "thinking", "thinking": ""}}
    thought = {"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": "hm"}}
    client = Events(*BEGIN, thinking, thought, text_delta("A long "), text_delta("answer"), *END)

    await AnthropicModel(client, MODEL, on_delta=deltas.append)(asked)

    assert (deltas, sent) == ([Delta("A long ", asked), Delta("answer", asked)], [])


async def test_a_stream_whose_texts_come_in_another_order_is_shown_as_it_comes_and_once() -> None:
    shown: list[str] = []
    second = {**BEGIN[1], "index": 1}
    last = {**text_delta("last"), "index": 1}
    client = Events(*BEGIN, second, last, text_delta("first"), *END)

    answer = await AnthropicModel(client, MODEL, on_delta=lambda delta: shown.append(delta.text))(request())

    assert (shown, answer.text) == (["last", "first"], "firstlast")


async def test_what_is_no_text_in_a_stream_is_a_reply_that_cannot_be_read() -> None:
    client = Events(*BEGIN, text_delta({"a": 1}), *END)

    with pytest.raises(ProviderError, match=r"^anthropic: the reply cannot be read$"):
        await AnthropicModel(client, MODEL, stream=True)(request())


async def test_a_failing_on_delta_is_logged_once_and_the_answer_comes(caplog: pytest.LogCaptureFixture) -> None:
    def on_delta(delta: Delta) -> None:
        raise ValueError("broken display")

    client = Events(*BEGIN, text_delta("A long "), text_delta("answer"), *END)
    answer = await AnthropicModel(client, MODEL, on_delta=on_delta)(request())

    assert answer.text == "A long answer"
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "on_delta failed; it is not called again for this answer"
    ]


async def take(params: dict[str, Any]) -> None:
    """The server gets it."""


async def never(params: dict[str, Any]) -> None:
    await anyio.sleep_forever()


def reporting(
    send: Callable[[dict[str, Any]], Awaitable[None]], *messages: dict[str, Any], **params: Any
) -> SamplingRequest:
    """A request whose progress goes to *send*."""
    asked = request(*messages, **params)
    return SamplingRequest(params=asked.params, server=asked.server, reporter=ProgressReporter("t", send))


@on_both
async def test_the_answer_waits_until_the_server_has_its_whole_text() -> None:
    """While the first report is under way, the rest of the text comes. It is the second report."""
    reports: list[dict[str, Any]] = []
    answers: list[str] = []
    begun, taken, heard = anyio.Event(), anyio.Event(), anyio.Event()

    async def send(params: dict[str, Any]) -> None:
        begun.set()
        await taken.wait()
        reports.append(params)

    class FromAfar(Events):
        async def __anext__(self) -> dict[str, Any]:
            if len(self.left) == len(END):
                heard.set()
            if len(self.left) == len(END) + 2:
                await begun.wait()
            return await super().__anext__()

    client = FromAfar(*BEGIN, *[text_delta(word) for word in ("one ", "two ", "three")], *END)
    model = AnthropicModel(client, MODEL, progress=True)

    async def ask() -> None:
        answer = await model(reporting(send))
        answers.append(answer.text)

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask)
            await heard.wait()
            await anyio.wait_all_tasks_blocked()
            assert (reports, answers) == ([], [])
            taken.set()

    assert answers == ["one two three"]
    assert reports == [
        {"progressToken": "t", "progress": 4, "message": "one "},
        {"progressToken": "t", "progress": 13, "message": "two three"},
    ]


async def test_an_answer_whose_text_the_server_has_ends_without_another_report() -> None:
    reports: list[object] = []
    taken = anyio.Event()

    async def send(params: dict[str, Any]) -> None:
        reports.append(params["message"])
        taken.set()

    class Pausing(Events):
        async def __anext__(self) -> dict[str, Any]:
            if len(self.left) == len(END):
                await taken.wait()
            return await super().__anext__()

    model = AnthropicModel(Pausing(*BEGIN, text_delta("Hello"), *END), MODEL, progress=True)
    with fail_after(25):
        await model(reporting(send))

    assert reports == ["Hello"]


@on_both
@pytest.mark.fake_clock
async def test_a_server_that_takes_no_progress_delays_the_answer_by_five_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = AnthropicModel(Events(*BEGIN, text_delta("Hello"), *END), MODEL, progress=True)
    begin = anyio.current_time()
    answer = await model(reporting(never))

    assert answer.content == [TextContent(text="Hello")]
    assert anyio.current_time() - begin == pytest.approx(5)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the server does not take the progress of an answer in time; it lacks the end"
    ]


@on_both
@pytest.mark.fake_clock
async def test_an_answer_that_fails_or_is_cancelled_waits_for_no_progress() -> None:
    begun = anyio.Event()

    async def begin_and_wait(params: dict[str, Any]) -> None:
        begun.set()
        await never(params)

    class Failing(Events):
        async def __anext__(self) -> dict[str, Any]:
            if not self.left:
                await begun.wait()
                raise OSError("gone")
            return await super().__anext__()

    begin = anyio.current_time()
    with pytest.raises(ProviderError):
        await AnthropicModel(Failing(*BEGIN, text_delta("Hello")), MODEL, progress=True)(reporting(begin_and_wait))
    failed = anyio.current_time()
    begun = anyio.Event()
    async with create_task_group() as tasks:
        model = AnthropicModel(Events(*BEGIN, text_delta("Hello"), *END), MODEL, progress=True)
        tasks.start_soon(model, reporting(begin_and_wait))
        await begun.wait()
        cancelled = anyio.current_time()
        tasks.cancel_scope.cancel()

    assert (failed, anyio.current_time()) == (begin, cancelled)


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize(
    ("end", "error"), [("broken call", SamplingError), ("no end", ProviderError), ("none of the API", ProviderError)]
)
async def test_an_answer_that_turns_out_unusable_when_it_is_read_waits_for_no_progress(
    end: str, error: type[Exception]
) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "add", "input": '{"x"'}
    ends = {
        "broken call": [{"type": "content_block_start", "index": 1, "content_block": call}, *END],
        "no end": [],
        "none of the API": [{"type": "message_delta", "delta": {"model": 1}}, *END],
    }
    events = Events(*BEGIN, text_delta("Hello"), *ends[end])
    begin = anyio.current_time()
    with pytest.raises(error):
        await AnthropicModel(events, MODEL, progress=True)(reporting(never))

    assert anyio.current_time() == begin


async def test_progress_that_cannot_be_sent_neither_delays_nor_fails_the_answer() -> None:
    async def broken(params: dict[str, Any]) -> None:
        raise OSError("gone")

    model = AnthropicModel(Events(*BEGIN, text_delta("Hello"), *END), MODEL, progress=True)

    with fail_after(25):
        assert (await model(reporting(broken))).text == "Hello"


@on_both
@pytest.mark.parametrize("progress", [False, True])
async def test_cancelling_closes_the_stream_of_the_provider(progress: bool) -> None:
    waiting = anyio.Event()

    class Stalled(Events):
        async def __anext__(self) -> dict[str, Any]:
            if not self.left:
                waiting.set()
                await anyio.sleep_forever()
            return await super().__anext__()

    client = Stalled(*BEGIN, text_delta("Hello"))
    with fail_after(25):
        async with create_task_group() as tasks:
            model = AnthropicModel(client, MODEL, stream=True, progress=progress)
            tasks.start_soon(model, reporting(take))
            await waiting.wait()
            tasks.cancel_scope.cancel()

    assert client.is_left


# Failures


async def test_a_reply_that_is_none_of_the_api_is_an_error() -> None:
    replies: list[object] = [{}, [], {"stop_reason": "end_turn", "content": [{"type": "text"}], "model": "m"}]
    for reply in replies:
        with pytest.raises(ProviderError, match=r"^anthropic: the reply "):
            await AnthropicModel(Answering(reply), MODEL)(request())


async def test_a_rate_limit_says_when_to_come_back_and_the_server_of_it_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = AnthropicModel(Answering(*[of_anthropic(429, retry_after="7")] * 2), MODEL)
    with pytest.raises(ProviderError) as caught:
        await model(request(user(text("a secret prompt"))))
    with pytest.raises(InputRefused) as refusal:
        await asking(model)()

    error = caught.value
    assert (error.status, error.code, error.retry_after, error.transient) == (429, "rate_limit_error", 7.0, True)
    assert (refusal.value.code, str(refusal.value)) == (-32603, "this client's model failed")
    why = "ProviderError: anthropic: RateLimitError (HTTP 429), rate_limit_error, try again after 7 seconds"
    failed = f"sampling for calculator: this client's model failed: {why}"
    assert [(line.getMessage(), line.exc_info) for line in caplog.records if line.name == "mcp_host.handlers"] == [
        (failed, None)  # no traceback: it would lead to no defect
    ]
    assert "secret prompt" not in caplog.text


@pytest.mark.parametrize("progress", [False, True], ids=["whole", "with progress"])
async def test_what_a_provider_says_of_a_failure_is_in_no_text_no_traceback_and_no_log(
    caplog: pytest.LogCaptureFixture, progress: bool
) -> None:
    words = user(text("a secret prompt"))  # tracebacks show the lines of this test: the words are not in those
    caplog.set_level(logging.DEBUG, logger="mcp_host")
    model = AnthropicModel(Answering(*[of_anthropic(400)] * 2), MODEL, progress=progress)
    with pytest.raises(ProviderError) as caught:
        await model(reporting(take, words))
    sampling = Sampling(with_tools=model, approve=always)
    with pytest.raises(InputRefused) as refusal:
        await sampling.session(server="s", knows_tools=True).answer(wire(words), None)
    error = caught.value
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logging.getLogger("mcp_host").log(level, "%s %r", error, error, exc_info=error)
    printed = "".join([caplog.text, str(refusal.value), *traceback.format_exception(error)])

    assert SECRET in str(error.original)  # so it can be known, and it is nowhere else
    assert (error.status, error.code, error.__cause__) == (400, "rate_limit_error", None)
    assert "anthropic: RateLimitError (HTTP 400), rate_limit_error" in printed
    assert [secret for secret in (SECRET, "secret prompt") if secret in printed] == []


async def test_a_loop_goes_on_without_thinking_that_was_forgotten() -> None:
    now = 0.0

    def calling(number: int) -> dict[str, Any]:
        """The ids repeat, as those of some servers that speak this API do."""
        thinking = {"type": "thinking", "thinking": f"thought {number}", "signature": "s"}
        called = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": number}}
        return {"content": [thinking, called], "model": MODEL, "stop_reason": "tool_use"}

    client = Answering(calling(1), calling(2))
    store = ReasoningStore(max_age=10, clock=lambda: now)
    model = AnthropicModel(client, MODEL, options=THINKING, reasoning=store)
    history = [user(text())]
    for _ in range(2):
        [called] = (await model(request(*history, tools=[ADD]))).tool_uses
        history += [assistant(called.to_wire()), user(result(called.id, text("3")))]
        now += 11
    await model(request(*history, tools=[ADD]))

    assert client.bodies[2]["thinking"] == {"type": "disabled"}
    assert "thought" not in str(client.bodies[2]["messages"])


@on_both
@pytest.mark.parametrize(
    ("callers", "one_user", "swapped", "is_kept"),
    [
        ((None, None), None, False, True),
        ((None, None), None, True, False),
        (("ann", "bob"), None, False, False),
        (("ann", "bob"), True, False, True),
    ],
    ids=["one user", "one user, whose turns the server swaps", "two users", "two, by choice"],
)
async def test_with_two_calls_in_flight_over_a_pipe_a_turn_goes_back_to_its_conversation_and_to_no_other_user(
    callers: tuple[str | None, ...], one_user: bool | None, swapped: bool, is_kept: bool
) -> None:
    called = {"type": "tool_use", "id": "c1", "name": "add", "input": {}}
    thought = {"content": [{"type": "thinking", "thinking": "secret", "signature": "s"}, called], "model": MODEL}
    said = {"content": [{"type": "text", "text": "ok"}], "model": MODEL, "stop_reason": "end_turn"}
    sdk = Answering(*[{**thought, "stop_reason": "tool_use"}] * 2, said, said)
    answers: dict[int, dict[str, Any]] = {}
    asking: list[int] = []
    both, answered = anyio.Event(), anyio.Event()
    server = Server("asking")

    @server.tool
    async def ask(number: int, ctx: Context) -> str:
        asking.append(number)
        if len(asking) == 2:
            both.set()
        await both.wait()
        params: dict[str, Any] = {**wire(user(text(f"For {number}"))), "tools": [ADD]}
        answers[number] = await ctx.request("sampling/createMessage", params)
        if len(answers) == 2:
            answered.set()
        await answered.wait()
        use = answers[1 - number if swapped else number]["content"]
        history = [*params["messages"], assistant(use), user(result(use["id"], text("3")))]
        return str(await ctx.request("sampling/createMessage", {**params, "messages": history}))

    model = AnthropicModel(sdk, MODEL, reasoning=ReasoningStore(one_user=one_user))
    sampling = Sampling(with_tools=model, approve=always)
    with fail_after(25):
        async with Client(server, era="legacy", sampling=sampling) as client, create_task_group() as tasks:
            for number, caller in enumerate(callers):
                tasks.start_soon(partial(client.call_tool, "ask", {"number": number}, caller=caller))

    assert ["secret" in str(body) for body in sdk.bodies] == [False] * 2 + [is_kept] * 2


# Usage


def spending(input_tokens: int, output_tokens: int, *content: dict[str, Any], cached: int = 0) -> dict[str, Any]:
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens, "cache_read_input_tokens": cached}
    return {"content": content, "model": MODEL, "stop_reason": "end_turn", "usage": usage}


async def test_the_usage_of_a_loop_is_the_sum_of_its_answers() -> None:
    def add(a: int) -> int:
        return a

    called = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
    client = Answering(spending(11, 7, called), spending(10, 5, {"type": "text", "text": "ok"}, cached=10))
    done = await run_tool_loop(AnthropicModel(client, MODEL), "Add", tools=[add])

    assert done.usage == {"inputTokens": 31, "outputTokens": 12, "cacheReadTokens": 10}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_usage_reaches_middleware_and_never_the_server(era: Any) -> None:
    usages: list[object] = []

    async def around(asked: SamplingRequest, call_model: CallModel) -> CreateMessageResult | str:
        answer = await call_model()
        assert isinstance(answer, ModelAnswer)
        usages.append(answer.usage)
        return answer.model_copy(update={"content": [TextContent(text="seen")]})

    async def middleware(asked: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        passed = await call_next(asked.wrap_model(around) if isinstance(asked, ServerRequest) else asked)
        assert "usage" not in passed
        return passed

    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.request("sampling/createMessage", {"messages": [user(text())], "maxTokens": 100})
        assert "usage" not in answer
        return str(answer["content"])

    model = AnthropicModel(Answering(spending(11, 7, {"type": "text", "text": "ok"})), MODEL)
    sampling = Sampling(with_tools=model, approve=always)
    with fail_after(25):
        async with Client(server, era=era, sampling=sampling, middleware=[middleware]) as client:
            assert "'seen'" in (await client.call_tool("ask")).text

    assert usages == [{"inputTokens": 11, "outputTokens": 7, "cacheReadTokens": 0}]


def test_usage_is_part_of_the_answer_and_never_of_its_json() -> None:
    answer = ModelAnswer(content=TextContent(text="ok"), model="m", usage={"inputTokens": 1})

    assert answer.model_copy(update={"stop_reason": "endTurn"}).usage == {"inputTokens": 1}
    assert answer.to_wire() == {"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "m"}


# Bounds


class Events:
    """The SDK's client and its stream: *events*, all there at once."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.messages: Any = self
        self.bodies: list[dict[str, Any]] = []
        self.left: list[dict[str, Any]] = list(reversed(events))
        self.is_left = False

    async def create(self, **body: Any) -> Self:
        self.bodies.append(body)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.is_left = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop()


BEGIN: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"model": MODEL, "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
]
END: list[dict[str, Any]] = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]


def text_delta(text: object) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


async def test_a_stream_of_more_than_64_million_characters_is_an_error() -> None:
    piece = text_delta("x" * 2**20)
    client = Events(*BEGIN, *[piece] * 100, *END)

    with fail_after(25), pytest.raises(ProviderError) as raised:
        await AnthropicModel(client, MODEL, stream=True)(request())

    assert str(raised.value) == "anthropic: the stream has more than 64,000,000 characters"
    assert len(client.left) == 40  # of 104


@on_both
async def test_other_tasks_run_while_a_stream_has_many_events_at_once() -> None:
    turns = 0
    seen: list[int] = []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    client = Events(*BEGIN, *[text_delta("x")] * 1000, *END)
    model = AnthropicModel(client, MODEL, on_delta=lambda delta: seen.append(turns))
    async with create_task_group() as group:
        group.start_soon(others)
        answer = await model(request())
        group.cancel_scope.cancel()

    assert answer.text == "x" * 1000
    assert seen[-1] - seen[0] >= 30


class Answering:
    """The SDK's client. Answers with *answers*, or raises them, then says nothing. Keeps the *bodies* of its requests."""

    def __init__(self, *answers: object) -> None:
        self.messages: Any = self
        self.bodies: list[Any] = []
        self._answers = iter(answers)

    async def create(self, **body: Any) -> Any:
        self.bodies.append(body)
        answer = next(self._answers, {"content": [], "model": MODEL, "stop_reason": "end_turn"})
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_the_tools_that_a_server_repeats_are_written_once() -> None:
    """Equal offers, whoever built them. A change of a tool, or of how the tools may be used, is written anew."""

    def asked(description: str, **fields: Any) -> SamplingRequest:
        schema = {"type": "object", "oneOf": [{"required": ["a"]}], "description": description}
        return request(tools=[{"name": "add/2", "inputSchema": schema}], **fields)

    sdk = Answering()
    model = AnthropicModel(sdk, MODEL)
    for again in (asked("A"), asked("A"), asked("B"), asked("B", toolChoice={"mode": "required"}), asked("A")):
        await model(again)

    bodies = sdk.bodies
    assert bodies[0]["tools"] is bodies[1]["tools"]
    assert ["A" in body["tools"][0]["input_schema"]["description"] for body in bodies] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert [body.get("tool_choice") for body in bodies] == [None, None, None, {"type": "any"}, None]


@pytest.mark.parametrize(
    ("before", "after"),
    [({"const": 1}, {"const": True}), ({"enum": [0]}, {"enum": [False]}), ({"a": {}, "b": {}}, {"b": {}, "a": {}})],
    ids=["const", "enum", "order"],
)
async def test_tools_that_python_takes_for_equal_are_not(before: dict[str, Any], after: dict[str, Any]) -> None:
    sdk = Answering()
    model = AnthropicModel(sdk, MODEL)
    for schema in (before, after):
        await model(request(tools=[{"name": "add", "inputSchema": {"type": "object", **schema}}]))

    assert json.dumps(sdk.bodies[1]["tools"][0]["input_schema"]) == json.dumps({"type": "object", **after})


async def test_a_schema_that_changed_in_place_is_written_and_checked_anew() -> None:
    sdk = Answering()
    model = AnthropicModel(sdk, MODEL)
    asked = request(tools=[{"name": "add", "inputSchema": {"type": "object", "oneOf": [{"required": ["a"]}]}}])
    await model(asked)
    asked.tools[0].input_schema["title"] = "Sum"
    await model(asked)
    asked.tools[0].input_schema["minimum"] = math.inf

    assert sdk.bodies[1]["tools"][0]["input_schema"]["title"] == "Sum"
    await model(asked)
    assert "tools" not in sdk.bodies[2]


def asking(handler: Handler) -> Callable[..., Awaitable[object]]:
    """Asks *handler* as a server does, over one connection. Takes the schema of the tool on offer."""
    session = Sampling(with_tools=handler, approve=always).session(server="calculator", knows_tools=True)

    async def ask(**schema: object) -> object:
        tool = {"name": "add", "inputSchema": {"type": "object", **schema}}
        return await session.answer(from_json(json.dumps(wire(tools=[tool]))))

    return ask


async def test_each_request_of_a_connection_gets_its_own_tools() -> None:
    sdk = Answering()
    ask = asking(AnthropicModel(sdk, MODEL))
    for value in (1, 1, True, True, 1.0, 1):
        await ask(const=value)

    assert [json.dumps(body["tools"][0]["input_schema"]["const"]) for body in sdk.bodies] == [
        *("1", "1", "true", "true", "1.0", "1")
    ]
    assert sdk.bodies[0]["tools"] is sdk.bodies[1]["tools"]
    assert sdk.bodies[2]["tools"] is sdk.bodies[3]["tools"]


@on_both
async def test_large_tools_are_written_in_a_thread_and_once(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """Also the names of arguments, and the format of an answer that has to call one of them. Small ones are not."""
    threads: list[int] = []

    def repaired(schema: dict[str, Any]) -> dict[str, Any]:
        threads.append(get_ident())
        return repair.repaired(schema)

    async def ask(*how: object, json: object) -> dict[str, Any]:
        said = '{"name": "t0", "arguments": {}}'
        return {"message": {"role": "assistant", "content": said}, "done": True, "done_reason": "stop"}

    monkeypatch.setattr(schemas, "repaired", repaired)
    anthropic = AnthropicModel(Answering(), MODEL)
    ollama = OllamaModel(SimpleNamespace(chat=print, _request=ask), "qwen3")
    for model, mode in ((anthropic, "auto"), (ollama, "required"), (ollama, "auto")):
        for size, number in ((40_000, 3), (1000, 2)):
            schema = {"type": "object", "description": "x" * size, "properties": {f"{n}[]": {} for n in range(9)}}
            tools = [{"name": f"t{n}", "inputSchema": schema} for n in range(number)]
            said = [assistant(use("c1", "t0"), use("c2", "t1")), user(result("c1"), result("c2"))]
            with subtests.test(model.provider, mode=mode, size=size):
                await model(request(user(text()), *said, tools=tools, toolChoice={"mode": mode}))
                assert {thread == get_ident() for thread in threads} == {size == 1000}
                count = len(threads)
                await model(request(user(text()), *said, tools=tools, toolChoice={"mode": mode}))
                assert len(threads) == count
                threads.clear()


async def test_tools_that_only_the_model_has_are_not_compared_by_value() -> None:
    """As nobody changes them in place, it shows only here."""
    rule = AnthropicModel.name_rule
    asked = SamplingRequest(params=RepeatedTools().read(wire(tools=[ADD])), server="calculator")
    offer = await Offer.of(asked, rule, AnthropicModel.write_schema, None, print)
    asked.tools[0].input_schema["title"] = "Sum"

    async def offered(asked: SamplingRequest) -> Offer:
        return await Offer.of(asked, rule, AnthropicModel.write_schema, offer, print)

    assert await offered(asked) is offer
    assert await offered(request(tools=[ADD])) is offer
    assert await offered(request(tools=[ADD], toolChoice={"mode": "none"})) is not offer


async def test_a_handler_that_changes_tools_before_it_asks_a_model_changes_one_request() -> None:
    sdk = Answering()
    model = AnthropicModel(sdk, MODEL)
    notes = iter([None, "again", None])

    async def handler(request: SamplingRequest) -> CreateMessageResult:
        if (note := next(notes)) is not None:
            request.tools[0].input_schema["properties"]["a"]["description"] = note
        return await model(request)

    ask = asking(handler)
    for _ in range(3):
        await ask(properties={"a": {}})

    offered = [body["tools"][0]["input_schema"]["properties"]["a"] for body in sdk.bodies]
    assert offered == [{}, {"description": "again"}, {}]


async def test_what_json_cannot_have_or_is_too_deep_is_refused_before_a_provider_is_asked(
    subtests: pytest.Subtests,
) -> None:
    deep: Any = 1
    for _ in range(127):
        deep = {"a": [deep]}
    no_json = "this model takes no numbers and no texts that JSON cannot have"
    too_deep = "this model takes no JSON of more than 254 levels"
    table: list[tuple[str, Any, str]] = [
        ("temperature", -math.inf, no_json),
        ("temperature", math.nan, no_json),
        ("metadata", math.inf, no_json),
        ("messages[1]", math.inf, no_json),
        ("messages[1]", "\ud800", no_json),
        ("messages[1]", [{"b": [1, math.nan]}], no_json),
        ("messages[1]", deep, too_deep),
    ]
    for where, value, says in table:
        values: dict[str, Any] = {where: value}
        with subtests.test(where=where, value="deep" if value is deep else ascii(value)):
            asked = request(
                user(text()),
                assistant(use("c1", a=values.get("messages[1]", 1))),
                user(result("c1", text("3"))),
                tools=[ADD],
                temperature=values.get("temperature", 1),
                metadata={"user_id": values.get("metadata", 1)},
            )

            with pytest.raises(InputRefused) as refusal:
                await AnthropicModel(Events(), MODEL)(asked)

            assert (refusal.value.code, str(refusal.value)) == (-32602, f"{where}: {says}")


async def test_what_the_model_cannot_be_sent_of_a_tools_result_is_named_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(260):
        deep = {"a": deep}
    tiff = ImageContent(data="aGk=", mime_type="image/tiff").to_wire()
    jpeg = ImageContent(data="aGk=", mime_type="image/JPG").to_wire()
    file = {"type": "resource", "resource": {"uri": "file:///a", "blob": "aGk="}}
    table = [
        (result("c1", tiff, tiff), "[image/tiff, 2 bytes: this model takes no image/tiff]"),
        (result("c1", jpeg), "[image/JPG, 2 bytes: this model takes no image/jpeg that does not begin like one]"),
        (result("c1", file), "[a file, 2 bytes, file:///a: this model takes no files of an unknown type]"),
        (result("c1", structuredContent={"a": math.inf}), "[structured content: this model takes no numbers and no"),
        (
            result("c1", structuredContent=deep),
            "[structured content: this model takes no JSON of more than 254 levels]",
        ),
    ]
    client = Answering()
    model = AnthropicModel(client, MODEL)
    for returned, named in table:
        caplog.clear()
        for _ in range(2):
            await model(request(user(text()), assistant(use("c1")), user(returned)))

        [written] = client.bodies[-1]["messages"][2]["content"]
        assert [block["text"][: len(named)] for block in written["content"]] == [named] * len(written["content"])
        [line] = caplog.messages
        subject = f"sampling for calculator: {MODEL} gets a text in the place of what it cannot take: messages[2]: "
        assert line.startswith(subject + named)


async def test_the_warnings_that_are_kept_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    model = AnthropicModel(Answering(), MODEL)
    wares = [ImageContent(data="aGk=", mime_type=f"image/x-{number}").to_wire() for number in range(MAX_TOLD + 1)]
    for last in (0, MAX_TOLD, 0):
        await model(request(user(text()), assistant(use("c1")), user(result("c1", *wares[last:], *wares[:1]))))

    assert [message.rpartition("]")[2] for message in caplog.messages] == [f" (and {MAX_TOLD} more)", "", ""]


async def test_a_tool_that_cannot_be_written_is_left_out_with_one_warning(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that is too deep only among others: the tools of a request are written as one list."""
    nots: dict[str, Any] = {"type": "object"}
    for _ in range(252):
        nots = {"not": nots}
    table: list[tuple[str, dict[str, Any], str]] = [
        ("no number", {"default": math.nan}, "no numbers and no texts that JSON cannot have"),
        ("too deep for JSON", nots, "no JSON of more than 254 levels"),
        ("too deep", deep_schema(), "no such schema: it is nested too deep"),
    ]
    for case, schema, says in table:
        with subtests.test(case):
            caplog.clear()
            sdk = Answering()
            model = AnthropicModel(sdk, MODEL)
            bad = {"name": "bad", "inputSchema": schema}
            for tools in ([ADD, bad], [ADD, bad], [bad]):
                await model(request(tools=tools))
            await model(request(tools=[ADD, bad], toolChoice={"mode": "required"}))

            names = [[tool["name"] for tool in body.get("tools", ())] for body in sdk.bodies]
            assert names == [["add"], ["add"], [], ["add"]]
            problem = f"the tool 'bad': this model takes {says}"
            [warning] = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
            assert warning == f"sampling for calculator: a tool is left out: {problem}"
            for needed in ([bad], {"mode": "required"}), ([ADD, bad], {"type": "tool", "name": "bad"}):
                with pytest.raises(InputRefused) as refusal:
                    await model(request(tools=needed[0], toolChoice=needed[1]))
                assert (refusal.value.code, str(refusal.value)) == (-32602, problem)


def test_a_schema_that_is_too_deep_for_the_stack_of_its_caller_is_refused() -> None:
    asked = request(tools=[{"name": "add", "inputSchema": deep_schema(45)}])
    written = Prompt(asked, "claude", names_of(asked, AnthropicModel.name_rule))

    def write(depth: int) -> object:
        return write(depth - 1) if depth else write_request(written)

    assert write(0)
    with pytest.raises(InputRefused, match=r"^the tool 'add': this model takes no such schema: it is nested too deep$"):
        write(sys.getrecursionlimit() - len(inspect.stack(0)) - 80)  # frames are left, for 45 levels


@pytest.mark.parametrize("before", ["", "data:image/png;base64,", "data:IMAGE/PNG;BASE64,\r\n"])
async def test_the_bytes_of_a_file_are_in_the_base64_that_providers_take(before: str) -> None:
    blob = f"{before}iVBORw0KGgr7_w=="
    file = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "image/png", "blob": blob}}
    client = Answering()

    await AnthropicModel(client, MODEL)(request(user(text()), assistant(use("c1")), user(result("c1", file))))

    [sent] = client.bodies[0]["messages"][2]["content"][0]["content"]
    assert sent["source"]["data"] == "iVBORw0KGgr7/w=="


async def test_a_data_url_of_another_type_is_no_base64() -> None:
    client = Answering()
    image = {"type": "image", "mimeType": "image/png", "data": "data:text/html;base64,iVBORw0KGgr7_w=="}

    await AnthropicModel(client, MODEL)(request(user(text()), assistant(use("c1")), user(result("c1", image))))

    [sent] = client.bodies[0]["messages"][2]["content"][0]["content"]
    assert sent["text"].endswith("this model takes no image that is not base64]")


async def test_an_empty_text_file_is_one_whose_bytes_are_none() -> None:
    file = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "blob": ""}}
    client = Answering()

    await AnthropicModel(client, MODEL)(request(user(text()), assistant(use("c1")), user(result("c1", file))))

    assert client.bodies[0]["messages"][2]["content"][0]["content"] == [text("[file:///a is empty]")]


async def test_a_temperature_that_no_sdk_can_write_is_refused() -> None:
    with pytest.raises(InputRefused) as refusal:
        await AnthropicModel(Events(), MODEL)(request(temperature=10**4000))

    assert (refusal.value.code, str(refusal.value)) == (-32602, "temperature: this model takes 1000 at most")

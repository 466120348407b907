"""Any reply and any stream of a provider is an answer, or an error that says that the provider or the model failed.

Each field of a recorded reply, and of each event of a recorded stream, is replaced, removed and repeated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from json import dumps, loads
from operator import getitem
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from anyio import fail_after
from pydantic_core import from_json, to_json

from mcp_host.errors import ProviderError, SamplingError, UnusableCalls
from mcp_host.providers import ModelAnswer
from mcp_host.providers.adapter import ProviderModel
from mcp_host.providers.anthropic import AnthropicModel
from mcp_host.providers.exchange.streams import Delta
from mcp_host.providers.gemini import GeminiModel
from mcp_host.providers.ollama import OllamaModel
from mcp_host.providers.openai_chat import Dialect, OpenAIChatModel
from mcp_host.providers.openai_responses import OpenAIModel
from mcp_host.providers.pydantic_ai import PydanticAIModel
from mcp_host.types import CreateMessageResult, TextContent
from tests.extent import THOROUGH
from tests.providers.variants import EDITS, OTHERS, Edit, changed, deep, paths, put, remove, variants
from tests.sampling.asking import Wire, request

STREAMS = 20_000 if THOROUGH else 400

CLOSED = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"], "additionalProperties": False}
ADD: Wire = {"name": "add", "inputSchema": CLOSED}
ARGUMENTS = '{"a": 1}'


class Scripted(ProviderModel):
    """Its answers come from no SDK."""

    _sdk: ClassVar[Any] = None
    reply: Any
    events: Sequence[Any]

    async def request_reply(self, body: Wire) -> Any:
        return self.reply

    @asynccontextmanager
    async def request_events(self, body: Wire) -> AsyncIterator[AsyncIterator[Any]]:
        async with aclosing(self._each()) as events:
            yield events

    async def _each(self) -> AsyncGenerator[Any]:
        for event in self.events:
            yield event


class ScriptedAnthropic(Scripted, AnthropicModel): ...


class ScriptedOpenAI(Scripted, OpenAIModel): ...


class ScriptedOpenAIChat(Scripted, OpenAIChatModel): ...


class ScriptedGemini(Scripted, GeminiModel): ...


class ScriptedOllama(Scripted, OllamaModel): ...


class ScriptedPydanticAI(Scripted, PydanticAIModel): ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a provider answers to a request with a tool: without a stream, and with one."""

    make: Callable[..., Scripted]
    reply: Any
    events: list[Any]
    asked: Wire = field(default_factory=dict)


def anthropic_events(*blocks: tuple[Wire, Sequence[Wire]]) -> Iterator[Wire]:
    start: Wire = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": {**start, "usage": {"input_tokens": 1, "output_tokens": 1}}}
    for index, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}


THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig"}
TOOL_USE = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
CITATION = {"type": "char_location", "cited_text": "x"}
ANTHROPIC = Recorded(
    lambda **arguments: ScriptedAnthropic(None, "c", **arguments),
    {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "stop_reason": "tool_use",
        "content": [THINKING, {"type": "text", "text": "So:"}, TOOL_USE],
        "usage": {
            "input_tokens": 1,
            "cache_read_input_tokens": 2,
            "cache_creation_input_tokens": 3,
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 3},
        },
    },
    [
        *anthropic_events(
            (
                {"type": "thinking", "thinking": "", "signature": ""},
                [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "sig"}],
            ),
            (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": "So:"}, {"type": "citations_delta", "citation": CITATION}],
            ),
            ({**TOOL_USE, "input": {}}, [{"type": "input_json_delta", "partial_json": ARGUMENTS}]),
        )
    ],
)

REASONING = {
    "type": "reasoning",
    "id": "rs",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "e",
}
MESSAGE = {
    "type": "message",
    "id": "msg",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "So:", "annotations": []}],
}
FUNCTION_CALL = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "add", "arguments": ARGUMENTS}
OPENAI_USAGE = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
}
RESPONSE: Wire = {"id": "r", "model": "g", "status": "completed", "output": [REASONING, MESSAGE, FUNCTION_CALL]}
RESPONSE["usage"] = OPENAI_USAGE
OPENAI = Recorded(
    lambda **arguments: ScriptedOpenAI(None, "gpt-5.6", **arguments),
    RESPONSE,
    [
        {"type": "response.created", "response": {"id": "r", "model": "g", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**REASONING, "summary": []}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "hm"},
        {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
        {"type": "response.output_item.added", "output_index": 1, "item": {**MESSAGE, "content": []}},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "So:"},
        {"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "So:"},
        {"type": "response.output_item.added", "output_index": 2, "item": {**FUNCTION_CALL, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ARGUMENTS},
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": ARGUMENTS},
        {"type": "response.output_item.done", "output_index": 2, "item": FUNCTION_CALL},
        {"type": "response.completed", "response": {**RESPONSE, "output": []}},
    ],
)

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}
DETAIL = {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "sig"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
CHAT_USAGE = {
    "prompt_tokens": 1,
    "prompt_tokens_details": {"cached_tokens": 1},
    "completion_tokens": 7,
    "completion_tokens_details": {"reasoning_tokens": 3},
}
CHAT_REPLY = {
    "id": "x",
    "model": "g",
    "usage": CHAT_USAGE,
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "So:",
                "refusal": None,
                "reasoning_content": "hm",
                "reasoning_details": [DETAIL],
                "images": [IMAGE],
                "tool_calls": [CALL],
                "audio": {"id": "a", "data": "aGk=", "transcript": "Hi"},
            },
        }
    ],
}


def chunk(finish_reason: str | None = None, **delta: Any) -> Wire:
    return {"id": "x", "model": "g", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


CHAT_EVENTS = [
    chunk(role="assistant", content=""),
    chunk(reasoning_content="hm", reasoning_details=[DETAIL]),
    chunk(reasoning_details=[DETAIL]),
    chunk(content="So:"),
    chunk(images=[IMAGE], audio={"id": "a", "data": "aGk=", "transcript": "Hi"}),
    chunk(tool_calls=[{"index": 0, **CALL, "function": {"name": "add", "arguments": ""}}]),
    chunk(tool_calls=[{"index": 0, "function": {"arguments": ARGUMENTS}}]),
    chunk("tool_calls"),
    {"id": "x", "choices": [], "usage": CHAT_USAGE},
]


def chat(dialect: Dialect) -> Callable[..., Scripted]:
    return lambda **arguments: ScriptedOpenAIChat(None, "gpt-4.1", dialect=dialect, **arguments)


ONLY_JSON = {"toolChoice": {"mode": "required"}}
OWN_CALL = Recorded(
    chat("openai"),
    {"model": "g", "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": ARGUMENTS}}]},
    [chunk(content=ARGUMENTS), chunk("stop")],
    ONLY_JSON,
)

GEMINI_USAGE = {"promptTokenCount": 1, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "cachedContentTokenCount": 1}
GEMINI_PARTS: list[Wire] = [
    {"text": "hm", "thought": True},
    {"text": "So:"},
    {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
    {"functionCall": {"id": "c1", "name": "add", "args": {"a": 1}}, "thoughtSignature": "sig"},
]


def candidate(*parts: Wire, **fields: Any) -> Wire:
    return {"candidates": [{"index": 0, "content": {"role": "model", "parts": list(parts)}, **fields}]}


GEMINI = Recorded(
    lambda **arguments: ScriptedGemini(None, "gemini-3-pro", **arguments),
    {**candidate(*GEMINI_PARTS, finishReason="STOP"), "modelVersion": "g", "usageMetadata": GEMINI_USAGE},
    [
        *[candidate(part) for part in GEMINI_PARTS],
        {**candidate(finishReason="STOP"), "modelVersion": "g", "usageMetadata": GEMINI_USAGE},
    ],
)

OLLAMA_MESSAGE = {"role": "assistant", "content": "So:", "thinking": "hm"}
OLLAMA_CALLS = {"tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]}
OLLAMA_END = {"model": "q", "done": True, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 7}
OLLAMA = Recorded(
    lambda **arguments: ScriptedOllama(None, "q", **arguments),
    {**OLLAMA_END, "message": {**OLLAMA_MESSAGE, **OLLAMA_CALLS}},
    [
        {"model": "q", "message": OLLAMA_MESSAGE, "done": False},
        {"model": "q", "message": {"role": "assistant", "content": "", **OLLAMA_CALLS}, "done": False},
        {**OLLAMA_END, "message": {"role": "assistant", "content": ""}},
    ],
)

PYDANTIC_AI_RESPONSE = {
    "kind": "response",
    "state": "complete",
    "finish_reason": "tool_call",
    "model_name": "m",
    "parts": [
        {"part_kind": "thinking", "content": "hm", "signature": "sig", "id": "t"},
        {"part_kind": "text", "content": "So:", "id": None, "provider_details": None},
        {"part_kind": "file", "content": {"data": "aGk=", "media_type": "image/png", "kind": "binary"}},
        {"part_kind": "tool-call", "tool_name": "add", "args": {"a": 1}, "tool_call_id": "c1"},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 7},
    "provider_details": {"finish_reason": "tool_calls"},
}
PYDANTIC_AI = Recorded(
    lambda **arguments: ScriptedPydanticAI(SimpleNamespace(model_name="m"), **arguments),
    PYDANTIC_AI_RESPONSE,
    [{"text": "So:"}, {"response": PYDANTIC_AI_RESPONSE}],
)

RECORDED = {
    "anthropic": ANTHROPIC,
    "openai": OPENAI,
    "openai-chat": Recorded(chat("openai"), CHAT_REPLY, CHAT_EVENTS),
    "compatible": Recorded(chat("compatible"), CHAT_REPLY, CHAT_EVENTS),
    "own call": OWN_CALL,
    "gemini": GEMINI,
    "ollama": OLLAMA,
    "pydantic-ai": PYDANTIC_AI,
}


SAY_IT_ONCE = frozenset({"openai-chat", "compatible", "own call", "ollama"})
"""Their streams cannot contradict themselves: others say a text twice, or what it is beside it."""


async def outcome(model: ProviderModel, asked: Wire) -> CreateMessageResult | ProviderError | SamplingError:
    """An answer that can be sent and read, or the error. Any other error fails the test."""
    try:
        answer = await model(request(tools=[ADD], **asked))
    except (ProviderError, SamplingError) as error:
        return error
    assert isinstance(answer, ModelAnswer)
    assert all(type(count) is int for count in (answer.usage or {}).values())
    return CreateMessageResult.from_wire(from_json(to_json(answer.to_wire()), allow_inf_nan=False))


def text_of(answer: CreateMessageResult) -> str:
    """All of its text. Its texts may lie beside other blocks."""
    return "".join([block.text for block in answer.content if isinstance(block, TextContent)])


def texts_of(shown: Sequence[Delta]) -> str:
    return "".join([delta.text for delta in shown])


@pytest.mark.parametrize("name", RECORDED)
async def test_any_reply_is_an_answer_or_an_error_of_the_provider(name: str) -> None:
    recorded = RECORDED[name]
    model = recorded.make(stream=False)
    with fail_after(60):
        for reply in (recorded.reply, *[make() for make in OTHERS], *variants(recorded.reply)):
            model.reply = reply
            await outcome(model, recorded.asked)


@pytest.mark.parametrize("name", RECORDED)
async def test_any_stream_is_an_answer_or_an_error_of_the_provider(name: str) -> None:
    shown: list[Delta] = []
    recorded = RECORDED[name]
    model = recorded.make(on_delta=shown.append)
    with fail_after(60):
        for events in variants(recorded.events):
            assert isinstance(events, list)
            model.events = events
            shown.clear()
            answer = await outcome(model, recorded.asked)
            assert {type(delta.text) for delta in shown} <= {str}
            if isinstance(answer, CreateMessageResult) and name in SAY_IT_ONCE:
                assert texts_of(shown) == text_of(answer)


@pytest.mark.parametrize("name", RECORDED)
async def test_what_is_recorded_is_the_same_answer_with_and_without_a_stream(name: str) -> None:
    recorded = RECORDED[name]
    whole, streamed = recorded.make(stream=False), recorded.make(stream=True)
    whole.reply, streamed.events = recorded.reply, recorded.events
    answers = [await model(request(tools=[ADD], **recorded.asked)) for model in (whole, streamed)]

    said = [[block.model_dump(exclude={"id", "meta"}) for block in answer.content] for answer in answers]
    assert said[0] == said[1]
    assert said[0][-1] == {"type": "tool_use", "name": "add", "input": {"a": 1}}


COUNTED = [name for name in RECORDED if name != "own call"]
USAGES = frozenset({"usage", "usageMetadata", "eval_count", "prompt_eval_count"})
INPUTS = frozenset({"input_tokens", "prompt_tokens", "promptTokenCount", "prompt_eval_count"})


async def said(model: Scripted) -> tuple[list[Wire], Mapping[str, int] | None]:
    """The content of an answer, without ids, and its usage."""
    answer = await model(request(tools=[ADD]))
    assert isinstance(answer, ModelAnswer)
    return [block.model_dump(exclude={"id", "meta"}) for block in answer.content], answer.usage


@pytest.mark.parametrize("name", COUNTED)
async def test_wrong_counts_of_tokens_are_no_counts_and_no_reason_to_lose_an_answer(name: str) -> None:
    recorded = RECORDED[name]
    whole, streamed = recorded.make(stream=False), recorded.make(stream=True)
    whole.reply = recorded.reply
    content, usage = await said(whole)
    assert usage is not None
    for path in paths(recorded.reply):
        if USAGES.isdisjoint(path):
            continue
        for edit in EDITS[:-1]:
            whole.reply = changed(recorded.reply, (path, edit))
            now, counts = await said(whole)
            assert now == content
            assert counts is None or all(type(count) is int and count >= 0 for count in counts.values())
    for path in paths(recorded.events):
        if not USAGES.isdisjoint(path):
            for edit in [
                edit for make, edit in zip(OTHERS, EDITS, strict=False) if make is not deep
            ]:  # no SDK reads it
                events = changed(recorded.events, (path, edit))
                assert isinstance(events, list)
                streamed.events = events
                assert (await said(streamed))[0] == content


@pytest.mark.parametrize("name", COUNTED)
async def test_beside_a_wrong_count_the_others_are_told(subtests: pytest.Subtests, name: str) -> None:
    table: list[object] = [None, "7", -1, 1.5, True, [7], {}]
    for wrong in table:
        with subtests.test(wrong=wrong):
            recorded = RECORDED[name]
            model = recorded.make(stream=False)
            [path] = [path for path in paths(recorded.reply) if path[-1] in INPUTS]
            model.reply = changed(recorded.reply, (path, partial(put, iter([wrong]).__next__)))
            _, counts = await said(model)

            assert counts is not None
            assert "inputTokens" not in counts
            assert counts["outputTokens"] == 7


NAMES = ("x", "[" * 3000)
NAMELESS: Sequence[Edit] = [
    *[partial(put, make) for make in OTHERS if make is not deep and make() not in NAMES],
    remove,
]


@pytest.mark.parametrize("name", COUNTED)
async def test_a_call_that_names_no_tool_is_in_the_error_with_the_answer(subtests: pytest.Subtests, name: str) -> None:
    recorded = RECORDED[name]
    whole, streamed = recorded.make(stream=False), recorded.make(stream=True)
    for number, edit in enumerate(NAMELESS):
        whole.reply, events = [
            changed(said, *[(path, edit) for path in paths(said) if reduce(getitem, path, said) == "add"])
            for said in (recorded.reply, recorded.events)
        ]
        assert isinstance(events, list)
        streamed.events = events
        for model in (whole, streamed):
            with subtests.test(number=number, stream=model is streamed):
                with pytest.raises(UnusableCalls, match=r"^the model made a call that names no tool$") as unusable:
                    await model(request(tools=[ADD]))

                [use] = unusable.value.answer.tool_uses
                assert (use.name, use.input) == ("", {"a": 1})
                assert unusable.value.answer.text.startswith("So:")
                assert unusable.value.problems == {use.id: "The call names no tool"}


@pytest.mark.parametrize("name", RECORDED)
async def test_halves_of_characters_are_joined_or_replaced(name: str) -> None:
    """In the JSON of a provider, a character beyond U+FFFF is two: a stream may cut between them, and a model may write one."""
    recorded = RECORDED[name]
    whole = recorded.make(stream=False)
    written = dumps(recorded.reply).replace("So:", r"\ud83d\ude00 \ud83d").replace('"hm"', r'"\ud83d"')
    whole.reply = loads(written)
    answer = await outcome(whole, recorded.asked)

    assert isinstance(answer, CreateMessageResult)
    assert answer.text.startswith("" if name == "own call" else "\U0001f600 \ufffd")


@pytest.mark.parametrize("name", RECORDED)
async def test_halves_of_characters_in_other_places_are_no_error(name: str) -> None:
    """Names, ids, models, stop reasons and thinking: all that is no argument of a tool."""
    recorded = RECORDED[name]
    whole = recorded.make(stream=False)
    for path in paths(recorded.reply):
        whole.reply = changed(recorded.reply, (path, partial(put, lambda: "\ud83d")))
        await outcome(whole, recorded.asked)


@pytest.mark.parametrize("name", [name for name in RECORDED if name not in ("own call", "pydantic-ai")])
async def test_a_stream_may_cut_a_character_in_two(name: str) -> None:
    recorded = RECORDED[name]
    [place] = [
        n for n, event in enumerate(recorded.events) if '"So:"' in dumps(event) and "done" not in event.get("type", "")
    ]
    events: list[Any] = []
    for number, event in enumerate(recorded.events):
        if number == place:
            events += [loads(dumps(event).replace("So:", half)) for half in (r"\ud83d", r"\ude00", r"\ud83d")]
        elif event.get("type") != "response.output_text.done" and event.get("item", {}).get("type") != "message":
            events.append(event)
    deltas: list[Delta] = []
    model = recorded.make(on_delta=deltas.append)
    model.events = events
    answer = await outcome(model, recorded.asked)

    assert isinstance(answer, CreateMessageResult)
    assert texts_of(deltas) == text_of(answer)
    assert answer.text.startswith("\U0001f600\ufffd")


WORDS = [
    *("<think>", "</think>", "<", "think>", "</", " ", "\n", "\u2003", "Yes.", "EN", "D", "ND", "\ud83d", "\ude00", "")
]


def spoken(chance: Random) -> Iterator[Wire]:
    """The deltas of an answer: text and a refusal with thinking, stop sequences and halves of characters in any pieces,
    sound, and a call, in any order.
    """
    for _ in range(chance.randrange(12)):
        word = chance.choice(WORDS)
        match chance.randrange(8):
            case 0 | 1 | 2 | 3:
                yield {"content": word}
            case 4:
                yield {"content": [{"type": "text", "text": word}, {"type": "thinking", "thinking": word}]}
            case 5:
                yield {"refusal": word}
            case 6:
                yield {"audio": {"data": "aGk=", "transcript": word}}
            case _:
                yield {"reasoning_content": word, "content": ""}
    if chance.randrange(4) == 0:
        yield {"tool_calls": [{"index": 0, **CALL}]}


@pytest.mark.parametrize("starts_with_reasoning", [False, True])
@pytest.mark.parametrize("name", ["openai-chat", "compatible"])
async def test_on_delta_gets_the_text_of_any_streamed_answer(name: str, starts_with_reasoning: bool) -> None:
    shown: list[Delta] = []
    model = RECORDED[name].make(on_delta=shown.append, starts_with_reasoning=starts_with_reasoning)
    for seed in range(STREAMS):
        chance = Random(seed)
        model.events = [*[chunk(**delta) for delta in spoken(chance)], chunk(chance.choice(["stop", "length"]))]
        shown.clear()
        answer = await model(request(tools=[ADD], stopSequences=chance.choice([[], ["END"], ["END", "\n", "Yes. "]])))
        assert texts_of(shown) == text_of(answer), seed


OLLAMA_WORDS = [{name: word} for name in ("content", "thinking") for word in WORDS]


@pytest.mark.parametrize("starts_with_reasoning", [False, True])
async def test_on_delta_gets_the_text_of_any_streamed_answer_of_ollama(starts_with_reasoning: bool) -> None:
    shown: list[Delta] = []
    model = OLLAMA.make(on_delta=shown.append, starts_with_reasoning=starts_with_reasoning)
    for seed in range(STREAMS):
        chance = Random(seed)
        words = chance.choices(OLLAMA_WORDS, k=chance.randrange(12))
        model.events = [*[{"message": word} for word in words], {**OLLAMA_END, "message": {"content": ""}}]
        shown.clear()
        answer = await model(request())
        assert texts_of(shown) == text_of(answer), seed

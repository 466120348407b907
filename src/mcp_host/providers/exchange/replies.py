"""What comes from a provider: the reply that `read_reply` reads, and the answer that the server gets."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

from pydantic_core import from_json

from mcp_host.errors import UnusableCalls, quoted
from mcp_host.providers.exchange.failures import READING
from mcp_host.providers.exchange.requests import Prompt, check_written, plain_base64
from mcp_host.providers.exchange.texts import paired, place_of_stop
from mcp_host.sampling.request import ModelAnswer, SamplingRequest, Usage
from mcp_host.sampling.stop_reasons import CUT_OFF, REFUSALS
from mcp_host.types import AudioContent, ImageContent, JSONObject, ToolUseContent
from mcp_host.types.sampling import STOP_SEQUENCE, TOOL_USE, AssistantContentBlock
from mcp_host.types.texts import readable

SPACE = re.compile(r"[ \t\r\n]*")  # of JSON
DECODER = json.JSONDecoder()

FIRST_HALF, SECOND_HALF = re.compile("[\ud800-\udbff]"), re.compile("[\udc00-\udfff]")  # of a character in UTF-16


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the provider wrote it. *arguments* are an object, or the text of one; None if there are none. *id* is
    None if the API has none. A broken call may have anything in each place.
    """

    id: object
    name: object
    arguments: object


ReplyBlock: TypeAlias = str | ImageContent | AudioContent | Call
"""A block of what a reply says. A text is a `str`."""


@dataclass(slots=True)
class Reply:
    """What a provider's reply says.

    *stop_reason* is in the spelling of MCP: endTurn, stopSequence, maxTokens, toolUse; refusal if the model refused,
    content_filter if the provider withheld the answer.

    *turn* is the assistant's turn in the provider's own JSON, if it has something that must be sent back with the
    results of its calls and that MCP has no place for: thinking, signatures, reasoning items. None if it has not.

    *signed_files* says that its images and audio come back only in the turn, which is kept although it has no calls.

    *unusable* says why the provider has kept the calls of the model to itself, if it has: they were none of the API.
    """

    content: Sequence[ReplyBlock]
    model: str
    stop_reason: str
    turn: object = None
    usage: Usage | None = None
    unusable: str | None = None
    signed_files: bool = False


KeepTurn: TypeAlias = Callable[[object, Sequence[AssistantContentBlock]], list[AssistantContentBlock]]
"""Keeps a turn with reasoning, or None for one that cannot be sent back. Returns the content with the ids to send."""


CountFields: TypeAlias = "Mapping[str, str | CountFields]"
"""How a provider names counts of tokens: by its field, the name of the count in `Usage`, or the fields of an object in it."""


def answer_of(reply: Reply, prompt: Prompt, keep: KeepTurn | None = None) -> ModelAnswer:
    """The answer in a provider's reply.

    Names are those of the request again. Calls of an answer that was cut off or refused are dropped. Ids are made
    fresh where they are missing, where the conversation has them already, and where *keep* keeps the turn. Halves of
    characters that are alone become U+FFFD: no session can send them.

    Raises:
        UnusableCalls: A call names no tool; its arguments are no JSON object, or missing; or the provider says that the calls
            cannot be read (`Reply.unusable`). Its turn has the same calls, so *keep* gets None in its place.
        ValueError: An image or audio is not base64.
    """
    content: list[object] = []  # as JSON, which is read once, or as blocks
    problems: dict[int, _Problem] = {}  # by the place of a call
    has_calls = False
    cut_off = reply.stop_reason in CUT_OFF
    for block in reply.content:
        if isinstance(block, str):
            if readable(block) is not block:
                return answer_of(replace(reply, content=_readable_content(reply.content)), prompt, keep)
            content.append({"type": "text", "text": block})
        elif not isinstance(block, Call):
            data = plain_base64(block.data)
            content.append(block if data is block.data else block.model_copy(update={"data": data}))
        elif not cut_off:
            call, problem = _read_call(block, prompt)
            if problem is not None:
                problems[len(content)] = problem
            content.append(call)
            has_calls = True
    answer = ModelAnswer.from_wire(
        {
            "role": "assistant",
            "content": content,
            "model": readable(reply.model),
            "stopReason": TOOL_USE if has_calls else readable(reply.stop_reason),
            "usage": reply.usage,
        }
    )
    if reply.unusable is not None:
        raise UnusableCalls(reply.unusable, answer, {})
    if not has_calls and not reply.signed_files:
        return answer
    answer = answer.model_copy(update={"content": _with_ids(answer.content, reply, prompt, keep, lost=bool(problems))})
    if problems:
        raise _unusable(answer, problems)
    return answer


def _with_ids(
    content: Sequence[AssistantContentBlock], reply: Reply, prompt: Prompt, keep: KeepTurn | None, *, lost: bool
) -> list[AssistantContentBlock]:
    """*content* with the ids to send. *lost* is a turn that cannot be sent back."""
    if keep is not None and reply.turn is not None:
        return keep(None if lost else reply.turn, content)
    return _with_unique_ids(content, prompt.request)


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is wrong with a call: as the model is told, and as the error says."""

    told: str
    said: str


NAMES_NO_TOOL = _Problem("The call names no tool", "the model made a call that names no tool")


def _read_call(call: Call, prompt: Prompt) -> tuple[JSONObject, _Problem | None]:
    """The JSON of a call, and what is wrong with it: then it has no name, or no arguments."""
    id = readable(call.id) if isinstance(call.id, str) else ""
    written: JSONObject = {"type": "tool_use", "id": id, "name": ""}
    if not isinstance(call.name, str) or not call.name:
        return {**written, "input": arguments_in(call.arguments) or {}}, NAMES_NO_TOOL
    written["name"] = name = readable(prompt.names.back(call.name))
    try:
        missing = call.arguments is None
        arguments = _no_arguments(name, prompt.request) if missing else read_arguments(call.arguments)
    except ValueError as exc:
        said = f"the model called {quoted(name)} with arguments that are {exc}"
        return {**written, "input": {}}, _Problem(f"The arguments are {exc}", said)
    return {**written, "input": arguments}, None


def _unusable(answer: ModelAnswer, problems: Mapping[int, _Problem]) -> UnusableCalls:
    """The error for an answer with *problems*, by the places of its calls."""
    calls = {place: block for place, block in enumerate(answer.content) if isinstance(block, ToolUseContent)}
    told = {calls[place].id: problem.told for place, problem in problems.items()}
    return UnusableCalls(next(iter(problems.values())).said, answer, told)


def _readable_content(content: Sequence[ReplyBlock]) -> list[ReplyBlock]:
    """*content* with texts that are `readable`, also where one ends with half of a character, and the next text begins
    with the other half: that goes to the first.
    """
    whole: list[ReplyBlock] = []
    half: tuple[int, str] | None = None  # the last text and its place, if it ends with a first half
    for block in content:
        if isinstance(block, str) and block:
            if half is not None and SECOND_HALF.match(block):
                place, before = half
                whole[place] = before + block[0]
                block = block[1:]
            half = (len(whole), block) if FIRST_HALF.match(block[-1:]) else None
        whole.append(block)
    return [readable(block) if isinstance(block, str) else block for block in whole if block != ""]


def stopped(content: list[ReplyBlock], stop_reason: str, prompt: Prompt) -> tuple[list[ReplyBlock], str]:
    """The content before the first stop sequence, for APIs and models that know none. A refusal stays one.

    A stop sequence may lie across several texts, as it may across the pieces of a stream.
    """
    stops = [stop for stop in prompt.request.stop_sequences or () if stop]
    texts = [block for block in content if isinstance(block, str)]
    left = place_of_stop(readable("".join(texts)), stops) if stops else None
    if left is None:
        return content, stop_reason
    readable_content = _readable_content(content)
    starts = accumulate([len(block) if isinstance(block, str) else 0 for block in readable_content], initial=0)
    kept = [
        block[: left - start] if isinstance(block, str) else block
        for block, start in zip(readable_content, starts, strict=False)
        if start <= left
    ]
    return [block for block in kept if block != ""], stop_reason if stop_reason in REFUSALS else STOP_SEQUENCE


def _no_arguments(name: str, request: SamplingRequest) -> JSONObject:
    """The arguments of a call that was written without any: some APIs do so for a tool that needs none.

    Raises:
        ValueError: The tool needs some.
    """
    if any(tool.name == name and tool.input_schema.get("required") for tool in request.tools):
        raise ValueError("missing")
    return {}


def _with_unique_ids(content: Sequence[AssistantContentBlock], request: SamplingRequest) -> list[AssistantContentBlock]:
    used = {use.id for message in request.messages for use in message.tool_uses} | {""}
    unique: list[AssistantContentBlock] = []
    for block in content:
        if isinstance(block, ToolUseContent):
            if block.id in used:
                block = block.model_copy(update={"id": f"call_{secrets.token_hex(8)}"})
            used.add(block.id)
        unique.append(block)
    return unique


def read_arguments(arguments: object) -> JSONObject:
    """The arguments of a call, whose text may be broken JSON.

    Raises:
        ValueError: They are no JSON object. The text says why, as in "not JSON: trailing comma at line 1 column 9".
    """
    if isinstance(arguments, str):
        arguments = _read_written(paired(arguments))
    try:
        check_written(arguments)  # a session writes it so
    except ValueError:
        raise ValueError("not JSON: a number, a text or a depth that JSON cannot have") from None
    if not isinstance(arguments, dict):
        raise ValueError("no JSON object")
    return arguments


def _read_written(text: str) -> object:
    """The JSON that *text* is. Servers of open models send an empty object before the arguments, or the arguments twice.

    Raises:
        ValueError: It is none.
    """
    try:
        return from_json(text)
    except TypeError:
        problem = "half of a character"
    except ValueError as exc:
        problem = str(exc)
    pieces: list[str] = []
    place = SPACE.match(text).end()  # type: ignore[union-attr]  # it matches any text
    try:
        while place < len(text):
            start, place = place, DECODER.raw_decode(text, place)[1]
            pieces.append(text[start:place])
            place = SPACE.match(text, place).end()  # type: ignore[union-attr]
    except (ValueError, RecursionError):
        pieces = []
    if pieces[:1] == ["{}"]:
        del pieces[0]
    if len({*pieces}) != 1:
        raise ValueError(f"not JSON: {problem}")
    return json.loads(pieces[0])


def arguments_in(written: object) -> JSONObject | None:
    """The arguments of a call in what a model has *written*, where that may be something else; None if it is."""
    try:
        return read_arguments(written)
    except ValueError:
        return None


def read_json(written: str) -> Any:
    """What `json.loads` reads, in less than half of its time.

    Raises:
        ValueError, RecursionError: It is no JSON.
    """
    try:
        return from_json(written, cache_strings="keys")
    except (TypeError, ValueError):  # TypeError: half of a character, which a text of `json.loads` may have
        pass
    return json.loads(written)


def as_json(value: Any) -> JSONObject:
    """The JSON of an SDK's object, with fields that the SDK does not know, and without those that the API did not send."""
    if isinstance(value, dict):
        return value
    with READING:  # the text of a page, where a proxy answers
        dumped: JSONObject = value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dumped


async def as_events(events: Any) -> AsyncIterator[JSONObject]:
    """The events of an SDK's stream, as `as_json` gives each."""
    async for event in events:
        yield as_json(event)


def object_in(value: object) -> JSONObject:
    """*value*, if it is an object. Else an empty one, for what an answer can do without."""
    return value if isinstance(value, dict) else {}


def read_counts(usage: object, fields: CountFields) -> dict[str, int]:
    """The counts of tokens in a provider's *usage*. What is no count means nothing, and is no reason to lose an answer."""
    counts: dict[str, int] = {}
    for field, value in usage.items() if isinstance(usage, dict) else ():
        if field not in fields:
            continue
        name = fields[field]
        if not isinstance(name, str):
            counts |= read_counts(value, name)
        elif name in counts:  # by another field
            pass
        elif type(value) is int and value >= 0:  # nearly all
            counts[name] = value
        elif (count := count_of(value)) is not None:
            counts[name] = count
    return counts


def count_of(value: object) -> int | None:
    """*value*, if it is a whole number from 0. JSON knows no difference between 12 and 12.0. True is no count."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def text_arguments(text: object) -> object:
    """The arguments of a call of an API that has them as text. Some servers write none as an empty text, or as null."""
    return None if isinstance(text, str) and text.strip() in ("", "null") else text

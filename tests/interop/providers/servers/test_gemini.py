"""The local server of Google's generateContent through the official SDK: what it says, and each rule that it holds requests against."""

from __future__ import annotations

import base64
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from tests.interop.providers.scripted import Called, Failed, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.gemini import GeminiServer

MODEL = "gemini-3-pro"


def client(server: GeminiServer) -> Any:
    """The SDK on asyncio and trio: without a transport of the caller's it needs asyncio."""
    options = types.HttpOptions(base_url=server.url, async_client_args={"transport": httpx2.AsyncHTTPTransport()})
    return genai.Client(api_key=server.key, http_options=options).aio


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": [*parts]}


def model(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": [*parts]}


HELLO = user({"text": "hi"})
CALL = {"functionCall": {"name": "add", "args": {}}}
RESULT = {"functionResponse": {"name": "add", "response": {"output": 3}}}
PICTURE = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"png").decode()}}


def declared(**fields: Any) -> dict[str, Any]:
    return {"contents": [HELLO], "tools": [{"functionDeclarations": [{"name": "add", **fields}]}]}


def config(**fields: Any) -> dict[str, Any]:
    return {"contents": [HELLO], "generationConfig": fields}


def calling(**fields: Any) -> dict[str, Any]:
    return declared() | {"toolConfig": {"functionCallingConfig": fields}}


def schema(**fields: Any) -> dict[str, Any]:
    return declared(parameters={"type": "OBJECT", "properties": {"a": fields}})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"contents": [HELLO], "seed": 1}, 'Unknown name "seed": Cannot find field.'),
    "an unknown field of a part": (
        {"contents": [user({"text": "hi", "meta": 1})]},
        "Unknown name \"meta\" at 'contents[0].parts[0]': Cannot find field.",
    ),
    "no contents": ({"contents": []}, "contents is not specified"),
    "no parts": ({"contents": [user()]}, "contents[0].parts: contents.parts must not be empty."),
    "no data in a part": ({"contents": [user({"thought": True})]}, "must have one initialized field"),
    "two data in a part": ({"contents": [user(CALL | RESULT)]}, "must have one initialized field"),
    "a role": (
        {"contents": [{"role": "assistant", "parts": [{"text": "hi"}]}]},
        "Please use a valid role: user, model.",
    ),
    "the model's turn at the end": (
        {"contents": [HELLO, model({"text": "Once"})]},
        "Please ensure that multiturn requests end with a user role or a function response.",
    ),
    "a picture of a type": (
        {"contents": [user({"inlineData": {"mimeType": "image/bmp", "data": ""}})]},
        "Unsupported MIME type: image/bmp",
    ),
    "no base64": (
        {"contents": [user({"inlineData": {"mimeType": "image/png", "data": "#"}})]},
        "Base64 decoding failed",
    ),
    "sound in a result": (
        {
            "contents": [
                HELLO,
                model(CALL),
                user(
                    {
                        "functionResponse": RESULT["functionResponse"]
                        | {"parts": [{"inlineData": {"mimeType": "audio/wav", "data": ""}}]}
                    }
                ),
            ]
        },
        "Unsupported MIME type: audio/wav",
    ),
    "a result that is no object": (
        {"contents": [HELLO, model(CALL), user({"functionResponse": {"name": "add", "response": "3"}})]},
        "expected an object",
    ),
    "a system prompt with a picture": (
        {"contents": [HELLO], "systemInstruction": {"parts": [PICTURE]}},
        '"inlineData"',
    ),
    "a name of a tool": (
        {"contents": [HELLO], "tools": [{"functionDeclarations": [{"name": "files/read.text"}]}]},
        "tools[0].function_declarations[0].name: [FIELD_INVALID] Invalid function name.",
    ),
    "a name that begins with a digit": (
        {"contents": [HELLO], "tools": [{"functionDeclarations": [{"name": "7zip"}]}]},
        "Invalid function name.",
    ),
    "a name twice": (
        {"contents": [HELLO], "tools": [{"functionDeclarations": [{"name": "a"}, {"name": "a"}]}]},
        "Duplicate function declaration found",
    ),
    "a schema's $ref": (schema(**{"$ref": "#/$defs/a"}), 'Unknown name "$ref"'),
    "a schema's const": (schema(const=1), 'Unknown name "const"'),
    "a schema of two types": (schema(type=["STRING", "NULL"]), "properties[a].type: must be specified when not using"),
    "a format": (schema(type="STRING", format="uri"), "only 'enum' and 'date-time' are supported for STRING type"),
    "an enum of numbers": (schema(type="INTEGER", enum=[1]), "only allowed for STRING type"),
    "an object without properties": (schema(type="OBJECT", properties={}), "should be non-empty for OBJECT type"),
    "an array without items": (schema(type="ARRAY"), "items: missing field."),
    "two schemas": (
        declared(parameters={"type": "OBJECT"}, parametersJsonSchema={"type": "object"}),
        "only one of parameters and parameters_json_schema may be set",
    ),
    "a JSON Schema that requires what it has not": (
        declared(parametersJsonSchema={"type": "object", "required": ["a"]}),
        "required: property is not defined",
    ),
    "a JSON Schema of no object": (declared(parametersJsonSchema={"type": "string"}), "schema at top-level must be"),
    "a $ref with more": (
        config(responseMimeType="application/json", responseJsonSchema={"items": {"$ref": "#/$defs/a", "title": "A"}}),
        "$ref cannot be set with other properties",
    ),
    "a mode": (calling(mode="REQUIRED"), "Invalid value at 'tool_config.function_calling_config.mode'"),
    "names without ANY": (
        calling(mode="AUTO", allowedFunctionNames=["add"]),
        "only be set when mode is ANY or VALIDATED",
    ),
    "names of no tool": (calling(mode="ANY", allowedFunctionNames=["sub"]), "has unknown names ['sub']"),
    "a temperature": (config(temperature=2.5), "must be in the range [0.0, 2.0]"),
    "six stop sequences": (config(stopSequences=["a"] * 6), "must have at most 5 entries"),
    "a schema without JSON": (config(responseSchema={"type": "OBJECT"}), "response_mime_type must be application/json"),
    "a budget and a level": (
        config(thinkingConfig={"thinkingBudget": 1, "thinkingLevel": "low"}),
        "You can only set only one of thinking budget and thinking level.",
    ),
    "a call without a result": (
        {"contents": [HELLO, model(CALL), HELLO]},
        "Please ensure that the number of function response parts is equal to the number of function call parts",
    ),
    "a result without a call": (
        {"contents": [HELLO, user(RESULT)]},
        "Please ensure that the number of function response",
    ),
    "a result of another name": (
        {"contents": [HELLO, model(CALL), user({"functionResponse": {"name": "sub", "response": {}}})]},
        "the name of a function response is not that of its function call",
    ),
    "a result of another id": (
        {"contents": [HELLO, model(CALL), user({"functionResponse": {"id": "7", "name": "add", "response": {}}})]},
        "a function response has an id that no function call has",
    ),
    "a call at first": (
        {"contents": [model(CALL), user(RESULT)]},
        "Please ensure that function call turn comes immediately after a user turn",
    ),
    "a call without a signature": (
        {"contents": [HELLO, model(CALL), user(RESULT)]},
        "Function call is missing a thought_signature in functionCall parts.",
    ),
    "another signature": (
        {"contents": [HELLO, model(CALL | {"thoughtSignature": "AAAA"}), user(RESULT)]},
        "Corrupted thought signature.",
    ),
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_breaks_a_rule_is_refused(serve: Serve, body: dict[str, Any], reason: str) -> None:
    server = serve(GeminiServer, Said(text="never"))
    async with httpx2.AsyncClient(base_url=server.url, headers={"x-goog-api-key": server.key}) as http:
        reply = await http.post(f"/v1beta/models/{MODEL}:generateContent", json=body)

    assert reply.status_code == 400
    assert reply.json()["error"]["status"] == "INVALID_ARGUMENT"
    assert reason in reply.json()["error"]["message"]
    assert len(server.refusals) == 1
    server.refusals.clear()


async def say_and_repeat(server: GeminiServer, name: str = MODEL, **change: Any) -> None:
    """Let the model call two tools, and send the results; each call comes back with *change*."""
    tools = types.Tool(function_declarations=[types.FunctionDeclaration(name="add")])
    off = types.AutomaticFunctionCallingConfig(disable=True)
    given = types.GenerateContentConfig(tools=[tools], automatic_function_calling=off)
    async with client(server) as api:
        reply = await api.models.generate_content(model=name, contents=[HELLO], config=given)
        parts = [part.model_copy(update=change) for part in reply.candidates[0].content.parts]
        results = [
            types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": 3}))
            for call in reply.function_calls
        ]
        history = [HELLO, types.Content(role="model", parts=parts), types.Content(role="user", parts=results)]
        await api.models.generate_content(model=name, contents=history, config=given)


CALLS = Said(thinking="Hm.", calls=[Called("add", {"a": 1}), Called("add", {"a": 2})])


async def test_a_turn_that_comes_back_as_it_was_is_taken(serve: Serve) -> None:
    server = serve(GeminiServer, CALLS, Said(text="3"))
    await say_and_repeat(server)

    [first, second] = server.last["contents"][1]["parts"]
    assert "thoughtSignature" in first
    assert "thoughtSignature" not in second
    assert [part["functionResponse"]["id"] for part in server.last["contents"][2]["parts"]] == [
        first["functionCall"]["id"],
        second["functionCall"]["id"],
    ]


async def test_a_turn_that_comes_back_without_its_signature_is_refused(serve: Serve) -> None:
    server = serve(GeminiServer, CALLS)
    with pytest.raises(errors.ClientError, match="Function call is missing a thought_signature"):
        await say_and_repeat(server, thought_signature=None)
    server.refusals.clear()


async def test_models_before_gemini_3_want_no_signature_and_have_no_ids(serve: Serve) -> None:
    server = serve(GeminiServer, CALLS, Said(text="3"))
    await say_and_repeat(server, name="gemini-2.5-pro", thought_signature=None)

    assert [part["functionCall"] for part in server.last["contents"][1]["parts"]] == [
        {"name": "add", "args": {"a": 1}},
        {"name": "add", "args": {"a": 2}},
    ]


SAID = {
    "text": Said(text="2 + 2 = 4, grüße"),
    "nothing": Said(),
    "calls": Said(text="Let me add.", calls=[Called("add", {"a": 1}), Called("add", {"b": "ü"})]),
    "thinking": Said(thinking="Hm. Two and two…", text="4"),
    "cut off": Said(text="2 +", stop="max_tokens"),
    "filtered": Said(text="2 +", stop="content_filter"),
    "blocked": Said(stop="refusal"),
    "cached": Said(text="4", cached=5),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID.keys())
async def test_a_stream_says_what_an_answer_says(serve: Serve, said: Said) -> None:
    server = serve(GeminiServer, said, said)
    given = types.GenerateContentConfig(thinking_config=types.ThinkingConfig(include_thoughts=True))
    async with client(server) as api:
        whole = await api.models.generate_content(model=MODEL, contents=[HELLO], config=given)
        chunks = [
            chunk
            async for chunk in await api.models.generate_content_stream(model=MODEL, contents=[HELLO], config=given)
        ]

    def told(replies: list[Any]) -> dict[str, Any]:
        parts = [
            part for reply in replies for candidate in reply.candidates or [] for part in candidate.content.parts or []
        ]
        return {
            "text": "".join(part.text for part in parts if part.text and not part.thought),
            "thoughts": "".join(part.text for part in parts if part.thought),
            "calls": [(part.function_call.name, part.function_call.args) for part in parts if part.function_call],
            "signatures": [part.thought_signature for part in parts if part.thought_signature],
            "end": replies[-1].candidates and replies[-1].candidates[0].finish_reason,
            "blocked": replies[-1].prompt_feedback and replies[-1].prompt_feedback.block_reason,
            "usage": replies[-1].usage_metadata,
        }

    assert told(chunks) == told([whole])
    assert told([whole])["text"] == said.text
    assert whole.usage_metadata.total_token_count == 18


async def test_failures_are_those_of_the_api(serve: Serve) -> None:
    server = serve(GeminiServer, Failed(status=429, retry_after="7"))
    async with client(server) as api:
        with pytest.raises(errors.ClientError) as limited:
            await api.models.generate_content(model=MODEL, contents=[HELLO])

    assert limited.value.code == 429
    assert limited.value.status == "RESOURCE_EXHAUSTED"
    assert limited.value.details["error"]["details"][0]["retryDelay"] == "7s"

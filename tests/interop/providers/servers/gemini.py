"""Google generateContent (Gemini API, v1 and v1beta), from its published description: no line was written with our adapter in sight.

Where a rule comes from stands beside it:

* [api]: https://ai.google.dev/api/generate-content and https://ai.google.dev/api/caching (Content, Part, Tool, Schema), and
  the types of the official SDK, which are generated from them
* [functions]: https://ai.google.dev/gemini-api/docs/function-calling
* [signatures]: https://ai.google.dev/gemini-api/docs/thought-signatures
* [thinking]: https://ai.google.dev/gemini-api/docs/thinking
* [files]: https://ai.google.dev/gemini-api/docs/image-understanding, .../audio, .../document-processing
* [errors]: https://google.aip.dev/193, and https://ai.google.dev/gemini-api/docs/troubleshooting
* [json]: https://protobuf.dev/programming-guides/json: a parser refuses unknown fields
* [seen]: an answer of the real API that users published; the issue is named
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.interop.providers.scripted import Called, Failed, Said
from tests.interop.providers.servers.base import JSON, Answer, Heard, ModelServer, Refusal
from tests.interop.providers.servers.schema_rules import problem_of, subschemas

REQUEST = (
    "contents", "tools", "toolConfig", "safetySettings", "systemInstruction", "generationConfig", "cachedContent",
    "serviceTier", "store",
)  # fmt: skip
DATA = ("text", "inlineData", "functionCall", "functionResponse", "fileData", "executableCode", "codeExecutionResult")
PART = (*DATA, "thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution")
CONFIG = (
    "candidateCount", "frequencyPenalty", "logprobs", "maxOutputTokens", "mediaResolution", "presencePenalty",
    "responseJsonSchema", "responseLogprobs", "responseMimeType", "responseModalities", "responseSchema", "seed",
    "speechConfig", "stopSequences", "temperature", "thinkingConfig", "topK", "topP",
)  # fmt: skip
SCHEMA = (
    "anyOf", "default", "description", "enum", "example", "format", "items", "maxItems", "maxLength", "maxProperties",
    "maximum", "minItems", "minLength", "minProperties", "minimum", "nullable", "pattern", "properties",
    "propertyOrdering", "required", "title", "type",
)  # fmt: skip
JSON_SCHEMA = {
    "$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems",
    "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required",
    "propertyOrdering",
}  # fmt: skip
TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
DECLARATION = (
    "name",
    "description",
    "parameters",
    "parametersJsonSchema",
    "response",
    "responseJsonSchema",
    "behavior",
)

# [api]: "Must start with a letter or an underscore. Must be a-z, A-Z, 0-9, or contain underscores, dots, colons and
# dashes, with a maximum length of 128."
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")

# [files]
USER_TYPES = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|audio/(wav|mp3|mpeg|aiff|aac|ogg|flac)"
    r"|video/(mp4|mpeg|mpg|mov|avi|x-flv|webm|wmv|3gpp)|application/pdf|text/.+"
)
# [functions]: "multimodal function responses": images, PDF, plain text
RESPONSE_TYPES = re.compile(r"image/(png|jpeg|webp)|application/pdf|text/plain")

STATUSES = {  # [errors]
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
# [signatures]: what may stand in for a signature in a history that another model began
STAND_INS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")


def known(value: Any, allowed: tuple[str, ...], where: str) -> JSON:
    """[json]: "Parsers accept both the lowerCamelCase name [...] and the original proto field name", and no others."""
    if not isinstance(value, dict):
        raise Refusal(f"Invalid value at '{where}': expected an object")
    for name in [*value]:
        camel = re.sub("_([a-z])", lambda match: match[1].upper(), name)
        if camel not in allowed and name not in allowed:
            at = f" at '{where}'" if where else ""
            raise Refusal(f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.')
        if name not in allowed:
            value[camel] = value.pop(name)
    return value


def check_data(blob: Any, types: re.Pattern[str], where: str) -> None:
    known(blob, ("mimeType", "data", "displayName"), where)
    if not types.fullmatch(blob.get("mimeType", "")):
        raise Refusal(f"Unsupported MIME type: {blob.get('mimeType')}")
    try:
        base64.b64decode(blob.get("data", ""), altchars=b"-_" if set(blob["data"]) & set("-_") else None, validate=True)
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise Refusal(f"Invalid value at '{where}.data' (TYPE_BYTES), Base64 decoding failed") from None


def check_part(part: Any, role: str, where: str) -> None:
    known(part, PART, where)
    if len([name for name in DATA if name in part]) != 1:  # [api]: "data: Union type. data can be only one of"
        raise Refusal(f"{where}.data: required oneof field 'data' must have one initialized field")
    if "inlineData" in part:
        check_data(part["inlineData"], USER_TYPES, f"{where}.inline_data")
    if (call := part.get("functionCall")) is not None:
        known(call, ("id", "name", "args"), f"{where}.function_call")
        check_name(call.get("name"), f"{where}.function_call.name")
        known(call.get("args", {}), tuple(call.get("args", {})), f"{where}.function_call.args")
        if role != "model":
            raise Refusal("Please ensure that function call turns are of the model role.")
    if (response := part.get("functionResponse")) is not None:
        known(
            response,
            ("id", "name", "response", "parts", "willContinue", "scheduling"),
            f"{where}.function_response",
        )
        check_name(response.get("name"), f"{where}.function_response.name")
        if not isinstance(response.get("response"), dict):  # [api]: "in JSON object format"
            raise Refusal(f"Invalid value at '{where}.function_response.response': expected an object")
        for inner in response.get("parts", []):
            known(inner, ("inlineData", "fileData"), f"{where}.function_response.parts")
            check_data(inner.get("inlineData"), RESPONSE_TYPES, f"{where}.function_response.parts.inline_data")
        if role == "model":
            raise Refusal("Please ensure that function response turns are not of the model role.")


def check_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Refusal(
            f"{where}: [FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. Must be a-z,"
            " A-Z, 0-9, or contain underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
        )


def check_schema(schema: Any, where: str) -> None:
    """[api]: Schema, a subset of OpenAPI 3.0."""
    known(schema, SCHEMA, where)
    kind = str(schema.get("type", "")).upper()
    if kind not in TYPES and "anyOf" not in schema:
        # [seen] danny-avila/LibreChat#6971
        raise Refusal(f"{where}.type: must be specified when not using one_of, any_of or all_of fields")
    if "enum" in schema and (kind != "STRING" or not all(isinstance(value, str) for value in schema["enum"])):
        raise Refusal(f"{where}.enum: only allowed for STRING type")  # [seen] musistudio/llms#20
    if kind == "OBJECT" and schema.get("properties") == {}:
        # [seen] langchain-ai/langchain-google#416
        raise Refusal(f"{where}.properties: should be non-empty for OBJECT type")
    if kind == "STRING" and schema.get("format", "enum") not in ("enum", "date-time"):
        # [seen] google-gemini/gemini-cli#5450
        raise Refusal(f"{where}.format: only 'enum' and 'date-time' are supported for STRING type")
    if kind == "ARRAY" and "items" not in schema:
        raise Refusal(f"{where}.items: missing field.")
    for name, inner in schema.get("properties", {}).items():
        check_schema(inner, f"{where}.properties[{name}]")
    for name in schema.get("required", []):
        if name not in schema.get("properties", {}):
            raise Refusal(f"{where}.required: property is not defined")
    for inner in [schema[name] for name in ("items",) if name in schema] + schema.get("anyOf", []):
        check_schema(inner, where)


def check_json_schema(schema: Any, where: str) -> None:
    """[api]: "The schema must describe an object". Which keywords it may have is said of responseJsonSchema only."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise Refusal(f"{where}: schema at top-level must be an object")
    if (problem := problem_of(schema)) is not None:
        raise Refusal(f"{where}: {problem}")
    for part in subschemas(schema):
        if unknown := part.keys() - JSON_SCHEMA:
            raise Refusal(f"{where}: the keywords {sorted(unknown)} are not supported")
        if set(part.get("required", ())) - set(part.get("properties", ())):  # [seen] probelabs/probe#569
            raise Refusal(f"{where}.required: property is not defined")
        for choice in part.get("enum", ()):
            if isinstance(choice, bool) or not isinstance(
                choice, str | int | float
            ):  # "enum (for strings and numbers)"
                raise Refusal(f"{where}: enum is for strings and numbers only")
    check_references(schema, where)


def check_references(schema: Any, where: str) -> None:
    """[api], of responseJsonSchema: "If $ref is set on a sub-schema, no other properties, except for than those starting
    as a $, may be set"."""
    if isinstance(schema, list):
        for inner in schema:
            check_references(inner, where)
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str) and any(not name.startswith("$") for name in schema):
            raise Refusal(f"{where}: $ref cannot be set with other properties")
        for inner in schema.values():
            check_references(inner, where)


def check_tools(body: JSON) -> None:
    names: list[str] = []
    for number, tool in enumerate(body.get("tools", [])):
        where = f"tools[{number}]"
        known(tool, ("functionDeclarations", "googleSearch", "codeExecution", "urlContext"), where)
        for index, declaration in enumerate(tool.get("functionDeclarations", [])):
            at = f"{where}.function_declarations[{index}]"
            known(declaration, DECLARATION, at)
            check_name(declaration.get("name"), f"{at}.name")
            names.append(declaration["name"])
            if "parameters" in declaration and "parametersJsonSchema" in declaration:  # [api]: "mutually exclusive"
                raise Refusal(f"{at}: only one of parameters and parameters_json_schema may be set")
            if "parameters" in declaration:
                check_schema(declaration["parameters"], f"{at}.parameters")
            if "parametersJsonSchema" in declaration:
                check_json_schema(declaration["parametersJsonSchema"], f"{at}.parameters_json_schema")
    if len(set(names)) != len(names):  # [seen] owndev/Open-WebUI-Functions#135
        raise Refusal("Duplicate function declaration found")
    check_calling(body, names)


def check_calling(body: JSON, names: list[str]) -> None:
    """[api]: FunctionCallingConfig."""
    config = known(body.get("toolConfig", {}), ("functionCallingConfig", "retrievalConfig"), "tool_config")
    calling = known(
        config.get("functionCallingConfig", {}), ("mode", "allowedFunctionNames"), "function_calling_config"
    )
    mode = calling.get("mode", "AUTO")
    if mode not in ("AUTO", "ANY", "NONE", "VALIDATED"):
        raise Refusal(f"Invalid value at 'tool_config.function_calling_config.mode': {mode!r}")
    allowed = calling.get("allowedFunctionNames", [])
    if allowed and mode not in ("ANY", "VALIDATED"):  # [api]: "should only be set when the Mode is ANY or VALIDATED"
        raise Refusal(
            "Function calling config: allowed_function_names should only be set when mode is ANY or VALIDATED."
        )
    if unknown := set(allowed) - set(names):
        raise Refusal(f"Function calling config: allowed_function_names has unknown names {sorted(unknown)}")
    if mode == "ANY" and not names:  # [functions]
        raise Refusal("Function calling config is set without function_declarations.")


def check_config(body: JSON, model: str) -> None:
    """[api]: GenerationConfig, with its ranges."""
    config = known(body.get("generationConfig", {}), CONFIG, "generation_config")
    if not 0 <= config.get("temperature", 0) <= 2:
        raise Refusal("generation_config.temperature: must be in the range [0.0, 2.0]")
    if config.get("maxOutputTokens", 1) < 1:
        raise Refusal("generation_config.max_output_tokens: must be positive")
    stops = config.get("stopSequences", [])
    if len(stops) > 5 or not all(stops):  # [api]: "(up to 5)"
        raise Refusal("generation_config.stop_sequences: must have at most 5 entries, none of them empty")
    has_schema = "responseSchema" in config or "responseJsonSchema" in config
    kind = config.get("responseMimeType", "text/plain")
    if has_schema and kind == "text/plain":  # [api]: "a compatible responseMimeType must also be set"
        raise Refusal("generation_config.response_schema: response_mime_type must be application/json")
    if "responseJsonSchema" in config:
        check_references(config["responseJsonSchema"], "generation_config.response_json_schema")
    if kind == "application/json" and body.get("tools") and not model.startswith("gemini-3"):  # [functions]
        raise Refusal("Function calling with a response mime type: 'application/json' is unsupported")
    thinking = known(
        config.get("thinkingConfig", {}),
        ("includeThoughts", "thinkingBudget", "thinkingLevel"),
        "generation_config.thinking_config",
    )
    if "thinkingBudget" in thinking and "thinkingLevel" in thinking:  # [thinking]
        raise Refusal("You can only set only one of thinking budget and thinking level.")


def parts_of(content: JSON, name: str) -> list[JSON]:
    return [part[name] for part in content["parts"] if name in part]


def check_order(contents: list[JSON]) -> None:
    """[functions]: results follow the calls at once, as many as there are, each by its name (and id, if it has one)."""
    calls: list[JSON] = []
    for index, content in enumerate(contents):
        responses = parts_of(content, "functionResponse")
        if len(responses) != len(calls):  # [seen] google-gemini/gemini-cli#3814
            raise Refusal(
                "Please ensure that the number of function response parts is equal to the number of function call parts"
                " of the function call turn."
            )
        for response, call in zip(responses, calls, strict=True):
            if "id" in response and response["id"] not in [other.get("id") for other in calls]:
                raise Refusal(f"contents[{index}]: a function response has an id that no function call has")
            wanted = [other["name"] for other in calls if other.get("id") == response["id"]] if "id" in response else []
            if response["name"] != (wanted[0] if wanted else call["name"]):
                raise Refusal(f"contents[{index}]: the name of a function response is not that of its function call")
        calls = parts_of(content, "functionCall")
        if calls and (index == 0 or contents[index - 1]["role"] == "model"):  # [seen] google-gemini/gemini-cli#11814
            raise Refusal(
                "Please ensure that function call turn comes immediately after a user turn or after a function response"
                " turn."
            )
    if calls or contents[-1]["role"] == "model":
        raise Refusal("Please ensure that multiturn requests end with a user role or a function response.")


class GeminiServer(ModelServer):
    """The server behind ``genai.Client(api_key=server.key, http_options=HttpOptions(base_url=server.url))``.

    Models whose name begins with ``gemini-3`` sign their calls, and want the signatures back.
    """

    key = "AIza0123456789abcdef"

    def check(self, heard: Heard) -> None:
        url = urlsplit(heard.path)
        if heard.headers.get("x-goog-api-key") != self.key:
            raise Refusal("API key not valid. Please pass a valid API key.", status=400)
        found = re.fullmatch(r"/v1(?:beta)?/models/([^/:]+):(generateContent|streamGenerateContent)", url.path)
        if found is None:
            raise Refusal(f"Not found: {url.path}", status=404)
        if (parse_qs(url.query).get("alt") == ["sse"]) != (found[2] == "streamGenerateContent"):
            raise Refusal("a stream is asked for with alt=sse")
        body = known(heard.body, REQUEST, "")
        contents = body.get("contents")
        if not isinstance(contents, list) or not contents:
            raise Refusal("* GenerateContentRequest.contents: contents is not specified")
        for number, content in enumerate(contents):
            self._check_content(content, f"contents[{number}]")
        if "systemInstruction" in body:
            system = known(body["systemInstruction"], ("parts", "role"), "system_instruction")
            for number, part in enumerate(system.get("parts", [])):
                known(part, ("text",), f"system_instruction.parts[{number}]")  # [api]: "Currently, text only"
        check_config(body, found[1])
        check_tools(body)
        check_order(contents)
        self._check_signatures(contents, found[1])

    def _check_content(self, content: Any, where: str) -> None:
        known(content, ("parts", "role"), where)
        if content.setdefault("role", "user") not in ("user", "model"):  # [api]: "Must be either 'user' or 'model'"
            raise Refusal("Please use a valid role: user, model.")
        if not content.get("parts"):  # [seen] vercel/ai#3775
            raise Refusal(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.")
        for number, part in enumerate(content["parts"]):
            check_part(part, content["role"], f"{where}.parts[{number}]")

    def _check_signatures(self, contents: list[JSON], model: str) -> None:
        """[signatures]: each step of the current turn has the signature of its first call, as it was."""
        for content in contents:
            for part in content["parts"]:
                signature = part.get("thoughtSignature")
                if signature is not None and not self._is_own(signature):
                    raise Refusal("Corrupted thought signature.")
        if not model.startswith("gemini-3"):
            return
        # "the current turn" began with the last content of the user that is no function response
        began = max(
            (
                n
                for n, content in enumerate(contents)
                if content["role"] == "user" and not parts_of(content, "functionResponse")
            ),
            default=-1,
        )
        for position, content in enumerate(contents):
            calls = [part for part in content["parts"] if "functionCall" in part]
            if position > began and calls and "thoughtSignature" not in calls[0]:
                raise Refusal(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to"
                    " work correctly, and missing thought_signature may lead to degraded model performance. Additional"
                    f" data, function call `default_api:{calls[0]['functionCall']['name']}`, position {position}."
                )

    def _signature(self, thought: str) -> str:
        raw = json.dumps([thought, self.sign("thought", thought)]).encode()
        return base64.b64encode(raw).decode()

    def _is_own(self, signature: str) -> bool:
        if signature in STAND_INS:
            return True
        try:
            raw = base64.b64decode(signature, altchars=b"-_" if set(signature) & set("-_") else None, validate=True)
            if raw.decode() in STAND_INS:  # the SDK encodes what it is given
                return True
            thought, signed = json.loads(raw)
        except ValueError:
            return False
        return bool(signed == self.sign("thought", thought))

    def wants_stream(self, heard: Heard) -> bool:
        return "streamGenerateContent" in heard.path

    def reply(self, said: Said, heard: Heard) -> JSON:
        if said.stop == "refusal":
            return self._chunk(said, heard, None) | {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}
        parts = self._parts(said, heard)
        return self._chunk(said, heard, {"content": {"parts": parts, "role": "model"}, **self._end(said), "index": 0})

    def events(self, said: Said, heard: Heard) -> Iterator[bytes]:
        """[api]: "a stream of GenerateContentResponse instances"; texts in pieces, each call whole in its chunk."""
        if said.stop == "refusal":
            yield _event(self.reply(said, heard))
            return
        for part in self._parts(said, heard):
            if "text" not in part:
                yield self._event(said, heard, part)
                continue
            kept = {name: value for name, value in part.items() if name not in ("text", "thoughtSignature")}
            for piece in self.pieces(part["text"]):
                yield self._event(said, heard, {"text": piece, **kept})
            if "thoughtSignature" in part:  # [signatures]: "the signature may arrive in a part with empty text"
                yield self._event(said, heard, {"text": "", "thoughtSignature": part["thoughtSignature"]})
        end = {"content": {"parts": [{"text": ""}], "role": "model"}, **self._end(said), "index": 0}
        yield _event(self._chunk(said, heard, end))

    def _event(self, said: Said, heard: Heard, part: JSON) -> bytes:
        return _event(self._chunk(said, heard, {"content": {"parts": [part], "role": "model"}, "index": 0}))

    def error(self, status: int, message: str) -> JSON:
        """[errors]. A limit says when to come back in its details, and not in a header."""
        return {"error": {"code": status, "message": message, "status": STATUSES.get(status, "UNKNOWN")}}

    def _failure(self, status: int, message: str, failed: Failed | None = None) -> Answer:
        if failed is not None and failed.retry_after is not None and failed.body is None:
            error = self.error(status, message)
            retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{failed.retry_after}s"}
            error["error"]["details"] = [retry]
            failed = replace(failed, retry_after=None, body=json.dumps(error))
        return super()._failure(status, message, failed)

    def _parts(self, said: Said, heard: Heard) -> list[JSON]:
        model = re.split(r"[/:]", heard.path)[-2]
        signs = model.startswith("gemini-3")
        signature = {"thoughtSignature": self._signature(said.thinking or "")} if signs or said.thinking else {}
        parts: list[JSON] = []
        config = heard.body.get("generationConfig", {}).get("thinkingConfig", {})
        if said.thinking and config.get("includeThoughts"):  # [thinking]: "Thought summaries"
            parts.append({"text": said.thinking, "thought": True})
        if said.text:
            parts.append({"text": said.text, **({} if said.calls else signature)})
        for number, call in enumerate(said.calls):
            # [signatures]: "only the first functionCall part contains the signature"
            parts.append({"functionCall": self._call(call, signs), **(signature if number == 0 else {})})
        return parts

    def _call(self, call: Called, has_id: bool) -> JSON:
        """[functions]: "Gemini 3 model APIs now generate a unique id for every function call"."""
        arguments = json.loads(call.arguments) if isinstance(call.arguments, str) else {**call.arguments}
        id = call.id
        if id is None and has_id:
            id = "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=8))
        return {**({} if id is None else {"id": id}), "name": call.name, "args": arguments}

    def _chunk(self, said: Said, heard: Heard, candidate: JSON | None) -> JSON:
        given, made = said.tokens
        thought = made // 2 if said.thinking else 0
        usage = {"promptTokenCount": given, "candidatesTokenCount": made - thought, "totalTokenCount": given + made}
        if thought:
            usage["thoughtsTokenCount"] = thought
        if said.cached:
            usage["cachedContentTokenCount"] = said.cached
        return {
            **({} if candidate is None else {"candidates": [candidate]}),
            "usageMetadata": usage,
            "modelVersion": re.split(r"[/:]", heard.path)[-2],
            "responseId": "mAitaLmkHPPlz7IPvtfUqQ4",
        }

    def _end(self, said: Said) -> JSON:
        """[api]: FinishReason. It is STOP after calls and stop sequences, too."""
        return {"finishReason": {"max_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}.get(said.stop, "STOP")}


def _event(data: JSON) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\r\n\r\n".encode()

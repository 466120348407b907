"""OpenTelemetry: spans and durations of every request, in both directions, as a middleware of `Client`.

>>> from mcp_host.telemetry import OpenTelemetry
>>> client = Client(url, middleware=[OpenTelemetry()])

Names and attributes are those of OpenTelemetry's conventions for MCP and for generative AI, which are in development:
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-spans.md
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeAlias, assert_never
from urllib.parse import urlsplit

from pydantic_core import to_json

from mcp_host.concurrency.backends import is_cancellation
from mcp_host.errors import HttpStatusError, InputRefused, ServerError, excerpt
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest, EndedSession, ServerRequest
from mcp_host.protocol.cache import TRACE_CONTEXT
from mcp_host.protocol.eras import INITIALIZE, LISTEN
from mcp_host.protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    USER_REJECTED,
)
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.sampling.request import CallModel, SamplingRequest
from mcp_host.session.call import CallbackRaised
from mcp_host.transports.base import Transport
from mcp_host.transports.http import StreamableHttp
from mcp_host.transports.stdio import Stdio
from mcp_host.types import (
    AudioContent,
    CreateMessageResult,
    ImageContent,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.sampling import SamplingMessageContentBlock
from mcp_host.version import __version__

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanKind, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as exc:
    raise ImportError("mcp_host.telemetry needs opentelemetry-api: pip install 'mcp-host[otel]'") from exc

__all__ = ["OpenTelemetry"]

Attributes: TypeAlias = dict[str, str | int | float | Sequence[str]]

BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)  # seconds; the conventions name them
DEFAULT_PORTS = {"http": 80, "https": 443}
SHOWN = 128  # characters of a name or an id, which a server may have chosen: as many as the name of a tool may have

TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{1,256})?")
TRACE_STATE_MEMBER = re.compile(
    r"([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})=[ -+\--<>-~]{1,256}"
)
MAX_TRACE_STATE = 512  # characters: "Vendors SHOULD propagate at least 512 characters" (W3C Trace Context, 3.3.1.5)

FAULTS_OF_THE_SERVER = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, RESOURCE_NOT_FOUND})
"""Codes by which we refuse what the server should not have asked: no errors of ours (mcp.md, `rpc.response.status_code`)."""

OTHER = "_OTHER"  # the conventions' value for an error that has none of the known ones
CODES = frozenset(map(str, {*range(-32099, -31999), *FAULTS_OF_THE_SERVER, INTERNAL_ERROR, USER_REJECTED, *HTTPStatus}))
"""JSON-RPC's codes, with those that it leaves to implementations, MCP's and ours; and the statuses of HTTP."""

NAMED = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""Our methods with a `name`, and its attribute."""

PROPAGATOR = TraceContextTextMapPropagator()
"""For what a server sends. The global one may have parsers that log what they read, such as that of baggage."""

WITH_URI = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})


class OpenTelemetry:
    """Traces and measures the requests of any number of clients. Pass it as middleware.

    - A CLIENT span for each request of ours, such as ``tools/call forecast``. It is the parent of what happens within
      the call. The trace context travels in the request's ``_meta``, unless that has a ``traceparent`` already (SEP-414).
    - A SERVER span for each request of the server, such as ``sampling/createMessage``. Its parent is the span that the
      server names in ``_meta``, with a link to the call that it belongs to; if the server names none, it is that call.
    - In a `Proxy`, a SERVER span for each request of its host that it passes on, around the CLIENT span. Its parent is the
      span that the host names in ``_meta``.
    - Within a sampling request, a span such as ``chat claude`` for the time in your handler, without waiting for
      approval or a slot. Your handler runs in it, and so do the spans of a provider's SDK.
    - The histograms ``mcp.client.operation.duration`` and ``mcp.client.session.duration``, in seconds.

    Without a *tracer_provider* and a *meter_provider* the global ones of OpenTelemetry are used. Arguments, messages,
    results and the texts of errors are private: they are recorded only if *record_content* is true.

    Middleware before this one in the list runs outside of its spans, middleware after it inside.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        record_content: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer("mcp_host", __version__, tracer_provider)
        meter = metrics.get_meter("mcp_host", __version__, meter_provider)
        self._operations = meter.create_histogram(
            "mcp.client.operation.duration",
            unit="s",
            description="The duration of a request, from sending it to its response.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._sessions = meter.create_histogram(
            "mcp.client.session.duration",
            unit="s",
            description="The duration of a session.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._record_content = record_content

    async def __call__(self, request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ServerRequest):
            return await self._answer(request, call_next)
        if request.method == LISTEN:
            return await call_next(request)  # a subscription lasts as long as the connection: its duration says nothing
        return await (self._relay if request.relayed else self._send)(request, call_next)

    def session_ended(self, session: EndedSession) -> None:
        """Record the duration of a session."""
        attributes: Attributes = {
            "mcp.protocol.version": session.protocol_version,
            **_network(session.transport),
            **_address(session.transport),
            **_peer(session.server, session.transport),
        }
        if session.error is not None:
            attributes |= _few({"error.type": _error_type(session.error)})
        self._sessions.record(session.seconds, attributes)

    # Requests of ours

    async def _relay(self, request: ClientRequest, call_next: CallNext) -> dict[str, Any]:
        """A request of a proxy's host, in a span of its trace, with ours inside."""
        context, links = _parent(request.params.get("_meta"))
        attributes: Attributes = {"mcp.method.name": request.method, **_target(request)}
        with self._span(_name(request), SpanKind.SERVER, attributes, context, links) as span:
            try:
                return await self._send(request, call_next)
            except BaseException as exc:
                self._fail(span, exc)
                raise

    async def _send(self, request: ClientRequest, call_next: CallNext) -> dict[str, Any]:
        attributes, name = _attributes(request), _name(request)
        begun = time.perf_counter()
        with self._span(name, SpanKind.CLIENT, {**attributes, **self._details(request)}) as span:
            try:
                result = await call_next(_with_trace_context(request))
            except BaseException as exc:
                attributes |= _few(self._fail(span, exc))
                raise
            else:
                attributes |= _few(self._succeed(span, request, result))
                return result
            finally:
                if request.sent_ids:
                    span.set_attribute("jsonrpc.request.id", str(request.sent_ids[-1]))
                self._operations.record(time.perf_counter() - begun, attributes)

    @contextmanager
    def _span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        context: Context | None = None,
        links: Sequence[Link] = (),
    ) -> Iterator[Span]:
        """A span that is the current one inside. What is raised there is recorded by `_fail`, not as an event."""
        span = self._tracer.start_span(name, context, kind, attributes, links)
        begun = span.get_span_context()
        if not begun.is_valid or begun is trace.get_current_span().get_span_context():
            yield span  # there is no SDK, so this is no new span
            return
        token = attach(trace.set_span_in_context(span))
        try:
            yield span
        finally:
            detach(token)
            span.end()

    def _details(self, request: ClientRequest) -> Attributes:
        """Attributes of the span alone: too many values, or too private, for a metric."""
        method, params = request.method, request.params
        details: Attributes = {}
        if method in WITH_URI and isinstance(uri := params.get("uri"), str):
            details["mcp.resource.uri"] = excerpt(uri)
        if self._record_content and method == "tools/call":
            details["gen_ai.tool.call.arguments"] = _json(params.get("arguments", {}))
        if self._record_content and method == "prompts/get" and isinstance(given := params.get("arguments"), Mapping):
            details |= _texts({f"gen_ai.prompt.variable.{name}": value for name, value in given.items()})
        return details

    def _succeed(self, span: Span, request: ClientRequest, result: Mapping[str, Any]) -> Attributes:
        """Add to *span* what the *result* says. Returns what is for the metric, too."""
        found: Attributes = {}
        if request.method == INITIALIZE:
            found["mcp.protocol.version"] = excerpt(str(result.get("protocolVersion")), SHOWN)
        if request.method == "tools/call":
            if self._record_content:
                span.set_attribute("gen_ai.tool.call.result", _json(result))
            if result.get("isError") is True:
                found["error.type"] = "tool_error"
                span.set_status(StatusCode.ERROR)
        span.set_attributes(found)
        return found

    # Requests of the server

    async def _answer(self, request: ServerRequest, call_next: CallNext) -> dict[str, Any]:
        context, links = _parent(request.params.get("_meta"))
        name = excerpt(request.method, SHOWN)
        attributes: Attributes = {"mcp.method.name": name, **_connection(request)}
        if request.id is not None:
            attributes["jsonrpc.request.id"] = excerpt(str(request.id), SHOWN)
        with self._span(name, SpanKind.SERVER, attributes, context, links) as span:
            if request.method == "sampling/createMessage" and span.is_recording():
                request = request.wrap_model(self._chat)
            try:
                return await call_next(request)
            except InputRefused as exc:
                if request.id is not None:  # input that a result requires is refused without a response
                    span.set_attribute("rpc.response.status_code", str(exc.code))
                if exc.code not in FAULTS_OF_THE_SERVER:
                    self._fail(span, exc)
                raise
            except BaseException as exc:
                self._fail(span, exc)
                raise

    async def _chat(self, request: SamplingRequest, call_model: CallModel) -> CreateMessageResult | str:
        attributes = _model_request(request)
        if self._record_content:
            attributes |= _model_input(request)
        with self._span(" ".join(["chat", *_hint(request)]), SpanKind.CLIENT, attributes) as span:
            try:
                answer = await call_model()
            except BaseException as exc:
                self._fail(span, exc)
                raise
            if isinstance(answer, CreateMessageResult):
                span.set_attribute("gen_ai.response.model", answer.model)
                if answer.stop_reason is not None:
                    span.set_attribute("gen_ai.response.finish_reasons", [answer.stop_reason])
            if self._record_content:
                span.set_attribute("gen_ai.output.messages", _json([_answer(answer)]))
            return answer

    def _fail(self, span: Span, exc: BaseException) -> Attributes:
        """Say on *span* that it ended with *exc*. Returns what is for the metric, too."""
        found: Attributes = {"error.type": _error_type(exc)}
        if isinstance(exc, ServerError) and exc.code is not None:
            found["rpc.response.status_code"] = str(exc.code)
        span.set_attributes(found)
        description = None
        if self._record_content and not is_cancellation(exc):  # an error may quote a result or a body
            text = exc.message if isinstance(exc, ServerError) and exc.code is not None else str(exc)
            description = excerpt(text.partition("\n")[0])  # the lines that follow may quote the stderr of a server
        span.set_status(StatusCode.ERROR, description)
        return found


# Attributes of MCP


def _attributes(request: ClientRequest) -> Attributes:
    """What describes a request of ours on its span and in the metric."""
    found: Attributes = {"mcp.method.name": request.method, **_connection(request), **_address(request.transport)}
    if request.method == "tools/call":
        found["gen_ai.operation.name"] = "execute_tool"
    return found | _target(request)


def _target(request: ClientRequest) -> Attributes:
    name = request.params.get("name") if request.method in NAMED else None
    return {NAMED[request.method]: excerpt(name, SHOWN)} if isinstance(name, str) else {}


def _name(request: ClientRequest) -> str:
    return " ".join([request.method, *map(str, _target(request).values())])


def _few(found: Attributes) -> Attributes:
    """*found* for a metric. What a server can make up is `OTHER` there, because each value makes a series."""
    return {name: value if _is_known(name, str(value)) else OTHER for name, value in found.items()}


def _is_known(name: str, value: str) -> bool:
    if name == "mcp.protocol.version":
        return value in VERSIONS
    return value in CODES or not value.removeprefix("-").isdecimal()


def _connection(request: AnyRequest) -> Attributes:
    found = {**_network(request.transport), **_peer(request.server, request.transport)}
    if request.protocol_version is not None:
        found["mcp.protocol.version"] = request.protocol_version
    return found


def _network(transport: Transport | None) -> Attributes:
    match transport:
        case Stdio():
            return {"network.transport": "pipe"}
        case StreamableHttp(uds=uds):
            return {"network.transport": "tcp" if uds is None else "unix", "network.protocol.name": "http"}
        case _:  # in process there is no network, and of other transports nothing is known
            return {}


def _peer(server: str, transport: Transport | None) -> Attributes:
    """The name that the host gave the server. Of a transport's own, which may be a URL, `_address` has what is no secret."""
    return {} if transport is None or server in ("", transport.name) else {"service.peer.name": server}


def _address(transport: Transport | None) -> Attributes:
    if not isinstance(transport, StreamableHttp):
        return {}
    if transport.uds is not None:
        return {"server.address": os.fspath(transport.uds)}
    url = urlsplit(transport.name)
    return {"server.address": url.hostname or "", "server.port": url.port or DEFAULT_PORTS[url.scheme]}


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    """Those of *values* that are text: a server, or another middleware, may have put anything there."""
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _json(value: object) -> str:
    try:
        return to_json(value, fallback=repr).decode()
    except ValueError:  # it nests too deeply, or has half of a surrogate pair
        return "(not recorded: it cannot be written as JSON)"


def _error_type(exc: BaseException) -> str:
    match exc:
        case CallbackRaised(args=(BaseException() as error,)):
            return _error_type(error)
        case ServerError(code=int(code)) | InputRefused(code=code):
            return str(code)
        case HttpStatusError(status=status):
            return str(status)
        case TimeoutError():  # such as `RequestTimeout`
            return "timeout"
        case _ if is_cancellation(exc):
            return "cancelled"
        case _:
            kind = type(exc)
            return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# The trace context in `_meta`


def _with_trace_context(request: ClientRequest) -> ClientRequest:
    """*request* with the current context in its ``_meta``, unless the application has put a trace there.

    A trace that a proxy's host has put there is the one that the current span is in.
    """
    meta: Mapping[str, Any] = request.params.get("_meta") or {}
    if "traceparent" in meta and not request.relayed:
        return request
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    if "traceparent" in carrier:
        meta = {key: value for key, value in meta.items() if key not in TRACE_CONTEXT}
    return request.with_params(_meta={**carrier, **meta}) if carrier else request


def _parent(meta: object) -> tuple[Context | None, Sequence[Link]]:
    """The context of the span that the server names in its request's ``_meta``, and a link to the current span.

    None and no link, if the server names none: then the current span is the parent. Only the parent is taken from the
    server, so that it cannot write the baggage that our handlers send on.
    """
    remote = trace.get_current_span(PROPAGATOR.extract(_carrier(meta), Context())).get_span_context()
    current = trace.get_current_span().get_span_context()
    if not remote.is_valid:
        return None, ()
    links = [Link(current)] if current.is_valid and current.span_id != remote.span_id else []
    return trace.set_span_in_context(NonRecordingSpan(remote)), links


def _carrier(meta: object) -> dict[str, str]:
    """The well-formed part of the trace context in *meta*. OpenTelemetry logs what it cannot parse."""
    carrier: dict[str, str] = {}
    texts = _texts(meta) if isinstance(meta, dict) else {}
    if TRACE_PARENT.fullmatch(texts.get("traceparent", "")):
        carrier["traceparent"] = texts["traceparent"]
    state = texts.get("tracestate", "")
    members = [TRACE_STATE_MEMBER.fullmatch(part.strip(" \t")) for part in state[:MAX_TRACE_STATE].split(",")]
    keys = {member[1] for member in members if member}
    if len(state) <= MAX_TRACE_STATE and len(keys) == len(members):
        carrier["tracestate"] = state
    return carrier


# Attributes of models


def _hint(request: SamplingRequest) -> list[str]:
    """The first model that the server would like, if it names one."""
    preferences = request.model_preferences
    names = [hint.name for hint in (preferences and preferences.hints) or [] if hint.name]
    return [excerpt(name, SHOWN) for name in names[:1]]


def _model_request(request: SamplingRequest) -> Attributes:
    found: Attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.max_tokens": request.max_tokens}
    for hint in _hint(request):
        found["gen_ai.request.model"] = hint
    if request.temperature is not None:
        found["gen_ai.request.temperature"] = request.temperature
    if request.stop_sequences is not None:
        # An exporter cannot encode half of a surrogate pair.
        found["gen_ai.request.stop_sequences"] = [
            text.encode(errors="backslashreplace").decode() for text in request.stop_sequences
        ]
    return found


def _model_input(request: SamplingRequest) -> Attributes:
    found: Attributes = {
        "gen_ai.input.messages": _json([_message(message.role, message.content) for message in request.messages])
    }
    if request.system_prompt is not None:
        found["gen_ai.system_instructions"] = _json([{"type": "text", "content": request.system_prompt}])
    if request.tools:
        found["gen_ai.tool.definitions"] = _json(
            [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                }
                for tool in request.tools
            ]
        )
    return found


def _message(role: str, content: Sequence[SamplingMessageContentBlock]) -> dict[str, object]:
    results = any(isinstance(block, ToolResultContent) for block in content)
    return {"role": "tool" if results else role, "parts": [_part(block) for block in content]}


def _answer(answer: CreateMessageResult | str) -> dict[str, object]:
    if isinstance(answer, CreateMessageResult):
        return _message(answer.role, answer.content)
    return _message("assistant", [TextContent(text=str(answer))])


def _part(block: SamplingMessageContentBlock) -> dict[str, object]:
    match block:
        case TextContent(text=text):
            return {"type": "text", "content": text}
        case ImageContent(data=data, mime_type=kind):
            return {"type": "blob", "modality": "image", "mime_type": kind, "content": data}
        case AudioContent(data=data, mime_type=kind):
            return {"type": "blob", "modality": "audio", "mime_type": kind, "content": data}
        case ToolUseContent(id=id, name=name, input=arguments):
            return {"type": "tool_call", "id": id, "name": name, "arguments": arguments}
        case ToolResultContent(tool_use_id=id):
            return {"type": "tool_call_response", "id": id, "response": block.to_wire()["content"]}
    assert_never(block)

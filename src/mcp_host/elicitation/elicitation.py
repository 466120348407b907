"""Elicitation: asking the user on behalf of a server, by a form or by a URL to visit."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp_host.errors import InputRefused, ProtocolError, UncheckableSchema, excerpt, quoted
from mcp_host.handlers import HandlerScope, as_async, call_handler, check_callable
from mcp_host.json_schema.plain import conforms
from mcp_host.limits import check_count
from mcp_host.protocol.jsonrpc import INVALID_PARAMS
from mcp_host.protocol.values import count_values
from mcp_host.server_requests import OuterCall, ProgressReporter, ReportsProgress
from mcp_host.slots import FairSemaphore, SemaphoreShare, Slot, keep_slot_and_wait_for_thread
from mcp_host.terminal.browser import host_of, is_web_url
from mcp_host.types import REVISIONS, ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, Implementation
from mcp_host.types.revisions import first_unknown

if TYPE_CHECKING:
    from mcp_host.json_schema.schema import Schema

logger = logging.getLogger(__name__)

MAX_VALUES = 10_000  # members of objects and items of arrays in one elicitation: a form of thousands of fields
DEFINITION = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
MAX_URL = 8192  # characters of one to visit: nginx and Apache take no longer request line
MAX_URLS = 64  # in one error: a person visits each of them
STEPS = 8_000  # to check a filled-in form, if the quick check cannot: some 30 milliseconds, more than a hundred fields
VALUES = 500  # in the schemas of the defaults that are checked at once: some 20 milliseconds
SMALLEST = 20  # that preparing a schema of one value counts
ANSWERS: dict[object, Any] = {"string": "", "number": 0, "integer": 0, "boolean": False, "array": []}
"""A value of each type that an answer can have. Lists are last, because not all revisions have them."""


@dataclass(frozen=True)
class _ElicitationRequest(ReportsProgress):
    """What both modes have in common. *server* is the name that you gave the server, or else that of
    its transport: show it to the user. *server_info* is what the server calls itself, which proves nothing.

    *outer* is the call that the request belongs to, if known.
    """

    server: str
    params: ElicitRequestFormParams | ElicitRequestURLParams
    outer: OuterCall | None = None
    reporter: ProgressReporter | None = field(default=None, repr=False, compare=False)
    server_info: Implementation | None = field(default=None, repr=False, compare=False)

    @property
    def message(self) -> str:
        """The server's message to the user."""
        return self.params.message

    def decline(self) -> ElicitResult:
        """The user said no."""
        return ElicitResult(action="decline")

    def cancel(self) -> ElicitResult:
        """The user made no choice, and closed the dialog, for example."""
        return ElicitResult(action="cancel")


@dataclass(frozen=True)
class FormRequest(_ElicitationRequest):
    """A form to fill in (spec 2025-11-25, client/elicitation: Form Mode)."""

    params: ElicitRequestFormParams

    @property
    def requested_schema(self) -> dict[str, object]:
        """The fields as a JSON Schema of one flat object, exactly as the server wrote it.

        ``ElicitationForm.from_wire(request.requested_schema)`` reads it field by field.
        """
        return self.params.requested_schema

    @property
    def defaults(self) -> dict[str, Any]:
        """The default values by field, for fields that have one (SEP-1034).

        One that its own field does not allow is left out, with a line in the log. In forms with hundreds of
        fields, not all are checked.
        """
        return dict(self._defaults)

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        defaults = {}
        room = VALUES
        for name, part in _fields(self.requested_schema).items():
            if (default := part.get("default")) is None:
                continue
            problem = None
            if room > 0 and not conforms(part, default):
                schema, count = _with_definitions(part, self.requested_schema)
                room -= count
                problem = _problem(schema, default)
            if problem is None:
                defaults[name] = default
            else:
                text = "a form of %s has a default that its field does not allow: %s: %s"
                logger.warning(text, excerpt(self.server), quoted(name), problem)
        return defaults

    def accept(self, content: Mapping[str, object] | None = None, /, **more: object) -> ElicitResult:
        """The user's input, as a mapping, as keywords, or both. Missing fields get their defaults.

        To leave out a field that has a default, return ``ElicitResult(action="accept", content=…)``.

        Raises:
            ValueError: The input does not match *requested_schema*; the text names the field.
        """
        filled: dict[str, Any] = {**self.defaults, **(content or {}), **more}
        with suppress(UncheckableSchema):  # `check` logs it
            self._check_content(filled)
        return ElicitResult(action="accept", content=filled)

    def check(self, result: ElicitResult) -> None:
        """Check that a result may be sent.

        Raises:
            ValueError: It is accepted, and its content does not match *requested_schema*.
        """
        if result.action != "accept":
            return
        try:
            self._check_content(result.content or {})
        except UncheckableSchema as exc:
            # The user's work is not lost: the server wrote the schema, and checks the answer itself.
            logger.warning("an answer for %s goes out unchecked: %s", excerpt(self.server), exc)

    def _check_content(self, content: Mapping[str, object]) -> None:
        # The text ends up in a log, which must not have the user's input.
        if conforms(self.requested_schema, content):
            return
        problem = self._schema.mismatch(content, steps=STEPS, show_values=False)
        if problem is not None:
            raise ValueError(f"not what the server asked for: {problem}")

    @cached_property
    def _schema(self) -> Schema:
        from mcp_host.json_schema.schema import Schema  # takes a tenth of a second, and few clients need it

        return Schema(self.requested_schema)


@dataclass(frozen=True)
class UrlRequest(_ElicitationRequest):
    """A URL to send the user to (spec 2025-11-25, client/elicitation: URL Mode).

    Show the user the whole URL, highlight *host*, and open the URL only with their
    consent, as `open_in_browser` does. This package never fetches it.
    """

    params: ElicitRequestURLParams

    @property
    def url(self) -> str:
        """The URL, http or https. Others have been refused."""
        return self.params.url

    @property
    def host(self) -> str:
        """The host of *url*, in lower case, without user, password and port. International names are in Punycode."""
        return host_of(self.url)

    @property
    def elicitation_id(self) -> str | None:
        """The id in the server's later notification that the user is done. None since revision 2026-07-28."""
        return self.params.elicitation_id

    def accept(self) -> ElicitResult:
        """The user agreed to visit the URL. It does not mean that they are done."""
        return ElicitResult(action="accept")

    def check(self, result: ElicitResult) -> None:
        """Check that a result may be sent.

        Raises:
            ValueError: It has content: "For URL mode: The content field is omitted".
        """
        if result.content is not None:
            raise ValueError("an answer to a URL has no content")


FormHandler: TypeAlias = Callable[[FormRequest], Awaitable[ElicitResult] | ElicitResult]
UrlHandler: TypeAlias = Callable[[UrlRequest], Awaitable[ElicitResult] | ElicitResult]
OnElicitationComplete: TypeAlias = Callable[[str], Awaitable[None] | None]


@dataclass(frozen=True, kw_only=True)
class Elicitation:
    """Your handlers for elicitation. The modes that have a handler are advertised.

    *on_complete* is awaited with the id of each elicitation that the server says is done
    (URL mode, revision 2025-11-25). Ignore ids that you do not know.

    All three are async functions, or plain ones, which run in a thread. A thread cannot be
    cancelled: if the server withdraws its request, the thread is left behind, its answer is lost, and it counts
    towards *at_once_per_server* until it returns.

    *at_once_per_server* is the number of requests of one connection in your handlers at the same time, 4 by default.
    Further requests wait in order; `Limits.max_inputs` bounds them. A request whose handler awaits a call of a client
    does not count meanwhile.

    Raises:
        ValueError: There is no handler: "Clients [...] MUST support at least one mode".
        ValueError: *at_once_per_server* is less than 1.
        TypeError: One cannot be called, or the number is none; the text says which.
    """

    form: FormHandler | None = None
    url: UrlHandler | None = None
    on_complete: OnElicitationComplete | None = None
    at_once_per_server: float = 4
    _handlers: dict[str, Callable[[Any], Awaitable[ElicitResult]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count("at_once_per_server", self.at_once_per_server)
        handlers: dict[str, Callable[[Any], Awaitable[ElicitResult]]] = {}
        before = keep_slot_and_wait_for_thread
        if self.form is not None:
            shape = "(request: FormRequest) -> ElicitResult"
            handlers["form"] = as_async(self.form, argument="form", shape=shape, before_thread=before)
        if self.url is not None:
            shape = "(request: UrlRequest) -> ElicitResult"
            handlers["url"] = as_async(self.url, argument="url", shape=shape, before_thread=before)
        if not handlers:
            raise ValueError("Elicitation needs a handler: form, url or both")
        if self.on_complete is not None:
            check_callable(self.on_complete, argument="on_complete", shape="(elicitation_id: str) -> None")
        object.__setattr__(self, "_handlers", handlers)

    def capability(self) -> dict[str, Any]:
        """What to advertise under ``elicitation``: ``{}`` for forms alone, ``{"url": {}}``, or ``{"form": {}, "url": {}}``.

        "An empty capabilities object is equivalent to declaring support for `form` mode only"
        (2025-11-25, client/elicitation), and servers of earlier revisions know nothing else.
        """
        return {mode: {} for mode in self._handlers} if self.url is not None else {}

    def share(self) -> SemaphoreShare:
        """The slots of one connection, for `answer`."""
        return SemaphoreShare(FairSemaphore(self.at_once_per_server), self.at_once_per_server, math.inf)

    async def answer(
        self,
        params: dict[str, Any],
        call: OuterCall | None = None,
        *,
        server: str,
        server_info: Implementation | None = None,
        revision: str = REVISIONS[-1],
        reporter: ProgressReporter | None = None,
        share: SemaphoreShare | None = None,
    ) -> ElicitResult:
        """Answer one ``elicitation/create``. *call* is our call that it belongs to.

        It waits for a slot of its connection's *share*; the default is that of a connection that asks nothing else.

        Raises:
            InputRefused: -32602 for a mode that was not advertised, for malformed *params* and for
                forms that cannot be answered in the protocol's *revision*, -32603 for a handler that
                failed, or what the handler raised itself.
        """
        mode = params.get("mode") or "form"  # "Clients MUST treat requests without a mode field as form mode."
        handler = self._handlers.get(mode) if isinstance(mode, str) else None
        if handler is None:
            offered = " and ".join(self._handlers)
            raise InputRefused(INVALID_PARAMS, f"this client offers elicitation by {offered}, not {quoted(mode)}")
        if count_values(params, MAX_VALUES) > MAX_VALUES:
            raise InputRefused(INVALID_PARAMS, f"this client answers no elicitation of more than {MAX_VALUES:,} values")
        request: FormRequest | UrlRequest
        try:
            if mode == "form":
                request = FormRequest(server, read_form(params), call, reporter, server_info)
                problem = _unanswerable(request.requested_schema, revision)
            else:
                request = UrlRequest(server, read_url(params), call, reporter, server_info)
                problem = _unanswerable({}, revision)
        except ProtocolError as exc:
            raise InputRefused(INVALID_PARAMS, str(exc)) from exc
        if problem is not None:
            raise InputRefused(INVALID_PARAMS, f"this elicitation cannot be answered: {problem}")

        async def ask() -> ElicitResult:
            result = await handler(request)
            if not isinstance(result, ElicitResult):
                raise TypeError(f"an elicitation handler returns an ElicitResult, not {type(result).__name__}")
            request.check(result)
            return result

        slot = Slot(self.share() if share is None else share)
        await slot.acquire()
        try:
            with HandlerScope(slot=slot):
                subject = f"elicitation for {excerpt(server)}"
                return await call_handler(ask, subject=subject, failed="this client could not ask its user")
        finally:
            slot.release()


def read_form(params: dict[str, Any]) -> ElicitRequestFormParams:
    """The parameters of a form.

    Raises:
        ProtocolError: They are malformed.
    """
    form = ElicitRequestFormParams.from_wire(params)
    schema = form.requested_schema
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise ProtocolError('requestedSchema needs "type": "object" and an object of "properties"')
    return form


def read_url(params: object) -> ElicitRequestURLParams:
    """The parameters of a URL to visit.

    Raises:
        ProtocolError: They are malformed, or the URL is not one for a browser.
    """
    visit = ElicitRequestURLParams.from_wire(params)
    if len(visit.url) > MAX_URL:
        raise ProtocolError(f"this client opens URLs of {MAX_URL:,} characters at most, not of {len(visit.url):,}")
    if not is_web_url(visit.url):
        raise ProtocolError(f"this client opens only plain http and https URLs, not {quoted(visit.url)}")
    return visit


def field_problem(form: Mapping[str, object], field: Mapping[str, object], value: object) -> str | None:
    """Why *value* does not fit one *field* of a *form*, without the value; None if it fits, or if that cannot be checked."""
    return None if conforms(field, value) else _problem(_with_definitions(field, form)[0], value)


def _problem(schema: Mapping[str, object], value: object) -> str | None:
    from mcp_host.json_schema.schema import Schema  # takes a tenth of a second, and few clients need it

    try:
        return Schema(schema).mismatch(value, steps=STEPS, show_values=False)
    except UncheckableSchema:
        return None  # the server checks it; `FormRequest.check` has a line in the log


def _with_definitions(field: Mapping[str, object], form: Mapping[str, object]) -> tuple[dict[str, object], int]:
    """A *field* with those definitions of its *form* that its references lead to, and how many values it has then.

    There may be thousands of both. If a reference is no plain pointer to a definition, it gets all of them.
    """
    shared = {name: form[name] for name in ("$defs", "definitions", "$schema") if form.get(name) is not None}
    needed: dict[str, dict[str, object]] = {}
    count = SMALLEST
    todo: list[object] = [field]
    while todo:
        part = todo.pop()
        if isinstance(part, list):
            count += len(part)
            todo += part
        elif isinstance(part, dict):
            count += len(part)
            todo += part.values()
            if "$ref" not in part:
                continue
            match = DEFINITION.fullmatch(str(part["$ref"]))
            keyword, name = match.groups() if match else ("", "")
            found = shared.get(keyword)
            if not isinstance(found, dict) or name not in found:
                return {**field, **shared}, count + sum(count_values(each, VALUES) for each in shared.values())
            if name not in (definitions := needed.setdefault(keyword, {})):
                definitions[name] = found[name]
                todo.append(found[name])
    dialect = {"$schema": shared["$schema"]} if "$schema" in shared else {}
    return {**field, **needed, **dialect}, count


def _unanswerable(schema: dict[str, object], revision: str) -> str | None:
    """Why no answer to a form can be sent, if so: *revision*, or every revision, cannot express the type of a field."""
    content: dict[str, Any] = {}
    for name, part in _fields(schema).items():
        kinds = _kinds(part)
        kind = next((kind for kind in ANSWERS if kind in kinds), None)
        if kind is None or (kind == "array" and "string" not in _kinds(part.get("items"))):
            return f"no answer can hold what {quoted(name)} asks for"
        content[name] = ANSWERS[kind]
    return first_unknown(ElicitResult(action="accept", content=content), revision)


def _kinds(schema: object) -> set[object]:
    """The types of value that a field accepts, as far as its schema has them."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if kinds is None:
        return set(ANSWERS)
    return {kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)}


def read_elicitations(data: object) -> list[ElicitRequestURLParams]:
    """The first `MAX_URLS` URLs to visit in the `data` of an error -32042, without those that are malformed."""
    listed = data.get("elicitations") if isinstance(data, dict) else None
    if not isinstance(listed, list) or count_values(listed[:MAX_URLS], MAX_VALUES) > MAX_VALUES:
        return []
    read = []
    for item in listed[:MAX_URLS]:
        try:
            read.append(read_url(item))
        except ProtocolError as exc:
            logger.warning("a malformed URL elicitation: %s", exc)
    return read


def _fields(schema: dict[str, object]) -> dict[str, dict[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: field for name, field in properties.items() if isinstance(field, dict)}

"""Asking the user on a server's behalf: by a form, or by sending them to a URL."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from mcp_host.errors import InputRefused, ProtocolError, UncheckableSchema, excerpt, quoted
from mcp_host.handlers import as_async, call_handler, check_callable
from mcp_host.protocol.jsonrpc import INVALID_PARAMS
from mcp_host.sampling import OuterCall
from mcp_host.sampling.progress import ProgressReporter, ReportsProgress
from mcp_host.types import REVISIONS, ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult
from mcp_host.types.revisions import first_unknown

if TYPE_CHECKING:
    from mcp_host.json_schema.schema import Schema

logger = logging.getLogger(__name__)

STEPS = 20_000  # for a check of what a user filled in: a tenth of a second, and some hundred fields
ANSWERS: dict[object, Any] = {"string": "", "number": 0, "integer": 0, "boolean": False, "array": []}
"""A value of each type that an answer can hold. Lists come last, for not all revisions have them."""

HOST = re.compile(r"[a-z0-9._:-]+")  # a name or an address, and no %-escapes that only a browser would read


@dataclass(frozen=True)
class _ElicitationRequest(ReportsProgress):
    """What both modes have. *server* is the name under which the host knows the server: show it to the user.

    *outer* is the call that the question belongs to, where that is known.
    """

    server: str
    params: ElicitRequestFormParams | ElicitRequestURLParams
    outer: OuterCall | None = None
    reporter: ProgressReporter | None = field(default=None, repr=False, compare=False)

    @property
    def message(self) -> str:
        """Why the server asks, in its own words."""
        return self.params.message

    def decline(self) -> ElicitResult:
        """The user said no."""
        return ElicitResult(action="decline")

    def cancel(self) -> ElicitResult:
        """The user made no choice: closed the dialog, went away."""
        return ElicitResult(action="cancel")


@dataclass(frozen=True)
class FormRequest(_ElicitationRequest):
    """A form to fill in (spec 2025-11-25, client/elicitation: Form Mode)."""

    params: ElicitRequestFormParams

    @property
    def requested_schema(self) -> dict[str, object]:
        """The fields, as a JSON Schema of one flat object, exactly as the server wrote it.

        ``ElicitationForm.from_wire(request.requested_schema)`` reads it field by field.
        """
        return self.params.requested_schema

    @property
    def defaults(self) -> dict[str, Any]:
        """The values to begin with, by field; only fields that have one (SEP-1034)."""
        fields = _fields(self.requested_schema)
        return {name: field["default"] for name, field in fields.items() if field.get("default") is not None}

    def accept(self, content: Mapping[str, object] | None = None, /, **more: object) -> ElicitResult:
        """What the user filled in, as a mapping, as keywords, or both. Fields not given get their defaults.

        To leave a field out in spite of its default, return ``ElicitResult(action="accept", content=…)``.

        Raises:
            ValueError: It is not what *requested_schema* asks for; the text names the field.
        """
        filled: dict[str, Any] = {**self.defaults, **(content or {}), **more}
        with suppress(UncheckableSchema):  # `check` will say so
            self._check_content(filled)
        return ElicitResult(action="accept", content=filled)

    def check(self, result: ElicitResult) -> None:
        """Make sure that a result may be sent.

        Raises:
            ValueError: It is accepted, and its content is not what *requested_schema* asks for.
        """
        if result.action != "accept":
            return
        try:
            self._check_content(result.content or {})
        except UncheckableSchema as exc:
            # The server wrote the schema and will look at the answer itself: the user's work is not thrown away.
            logger.warning("an answer for %s goes out unchecked: %s", excerpt(self.server), exc)

    def _check_content(self, content: Mapping[str, object]) -> None:
        # The handler's log is where this ends, and no place for what a user says.
        problem = self._schema.mismatch(content, steps=STEPS, show_values=False)
        if problem is not None:
            raise ValueError(f"not what the server asked for: {problem}")

    @cached_property
    def _schema(self) -> Schema:
        from mcp_host.json_schema.schema import compile_schema  # a tenth of a second, which few clients ever need

        return compile_schema(self.requested_schema)


@dataclass(frozen=True)
class UrlRequest(_ElicitationRequest):
    """A URL to send the user to (spec 2025-11-25, client/elicitation: URL Mode).

    Show them the whole URL, with *host* made prominent, and open it only with their
    consent. Nothing in this package fetches or opens it.
    """

    params: ElicitRequestURLParams

    @property
    def url(self) -> str:
        """Where to send them: http or https, anything else has been refused."""
        return self.params.url

    @property
    def host(self) -> str:
        """The host in *url*, in lower case, without user, password and port; international names in Punycode."""
        return _host(self.url)

    @property
    def elicitation_id(self) -> str | None:
        """What the server calls this later, when it says that the user is done. Absent from revision 2026-07-28."""
        return self.params.elicitation_id

    def accept(self) -> ElicitResult:
        """The user agreed to go there. It does not mean that they are done."""
        return ElicitResult(action="accept")

    def check(self, result: ElicitResult) -> None:
        """Make sure that a result may be sent.

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
    """A host's readiness to ask its user. A mode that has a handler is advertised, and no other.

    *on_complete* is awaited with the id of each elicitation that the server says is done
    (URL mode, revision 2025-11-25). Ignore ids that you do not know.

    All three are async functions, or plain ones, which run in a thread. A thread cannot be
    cancelled: a question that is withdrawn leaves it behind, and its answer is lost.

    Raises:
        ValueError: There is no handler: "Clients [...] MUST support at least one mode".
        TypeError: One cannot be called; the text says which.
    """

    form: FormHandler | None = None
    url: UrlHandler | None = None
    on_complete: OnElicitationComplete | None = None
    _ask_form: Callable[[FormRequest], Awaitable[ElicitResult]] = field(init=False, repr=False, compare=False)
    _ask_url: Callable[[UrlRequest], Awaitable[ElicitResult]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.form is None and self.url is None:
            raise ValueError("Elicitation needs a handler: form, url or both")
        if self.form is not None:
            object.__setattr__(
                self, "_ask_form", as_async(self.form, argument="form", shape="(request: FormRequest) -> ElicitResult")
            )
        if self.url is not None:
            object.__setattr__(
                self, "_ask_url", as_async(self.url, argument="url", shape="(request: UrlRequest) -> ElicitResult")
            )
        if self.on_complete is not None:
            check_callable(self.on_complete, argument="on_complete", shape="(elicitation_id: str) -> None")

    def capability(self) -> dict[str, Any]:
        """What to advertise under ``elicitation``: ``{}`` for forms alone, ``{"url": {}}``, or ``{"form": {}, "url": {}}``.

        "An empty capabilities object is equivalent to declaring support for `form` mode only"
        (2025-11-25, client/elicitation), and servers of earlier revisions know nothing else.
        """
        return {mode: {} for mode in self._modes} if self.url is not None else {}

    @property
    def _modes(self) -> list[str]:
        offered = {"form": self.form, "url": self.url}
        return [mode for mode, handler in offered.items() if handler is not None]

    async def answer(
        self,
        params: dict[str, Any],
        call: OuterCall | None = None,
        *,
        server: str,
        revision: str = REVISIONS[-1],
        reporter: ProgressReporter | None = None,
    ) -> ElicitResult:
        """Answer one ``elicitation/create``. *call* is the call of ours that it belongs to.

        Raises:
            InputRefused: -32602 for a mode that was not advertised, for malformed *params* and for
                what the user could not answer in the protocol's *revision*, -32603 for a handler that failed, or whatever the handler itself refused with.
        """
        # "Clients MUST treat requests without a mode field as form mode."
        mode = params.get("mode") or "form"
        if mode == "form" and self.form is not None:
            form = read_form(params)
            check_answerable(form.requested_schema, revision)
            return await _ask(self._ask_form, FormRequest(server, form, call, reporter))
        if mode == "url" and self.url is not None:
            visit = read_url(params)
            check_answerable({}, revision)
            return await _ask(self._ask_url, UrlRequest(server, visit, call, reporter))
        offered = " and ".join(self._modes)
        raise InputRefused(INVALID_PARAMS, f"this client offers elicitation by {offered}, not {quoted(mode)}")


async def _ask(handler: Callable[[Any], Awaitable[ElicitResult]], request: FormRequest | UrlRequest) -> ElicitResult:
    async def checked() -> ElicitResult:
        result = await handler(request)
        if not isinstance(result, ElicitResult):
            raise TypeError(f"an elicitation handler returns an ElicitResult, not {type(result).__name__}")
        request.check(result)
        return result

    subject = f"elicitation for {excerpt(request.server)}"
    return await call_handler(checked, subject=subject, failed="this client could not ask its user")


def read_form(params: dict[str, Any]) -> ElicitRequestFormParams:
    """The parameters of a form.

    Raises:
        InputRefused: They are malformed (-32602).
    """
    try:
        form = ElicitRequestFormParams.from_wire(params)
    except ProtocolError as exc:
        raise InputRefused(INVALID_PARAMS, str(exc)) from exc
    schema = form.requested_schema
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise InputRefused(INVALID_PARAMS, 'requestedSchema needs "type": "object" and an object of "properties"')
    return form


def check_answerable(schema: dict[str, object], revision: str) -> None:
    """Make sure that what a user fills in can be sent: nobody fills in a form for nothing.

    Raises:
        InputRefused: A field of the form takes a value that *revision*, or any, has no words for (-32602).
    """
    content: dict[str, Any] = {}
    for name, part in _fields(schema).items():
        kinds = _kinds(part)
        kind = next((kind for kind in ANSWERS if kind in kinds), None)
        if kind is None or (kind == "array" and "string" not in _kinds(part.get("items"))):
            raise _unanswerable(f"no answer can hold what {quoted(name)} asks for")
        content[name] = ANSWERS[kind]
    problem = first_unknown(ElicitResult(action="accept", content=content), revision)
    if problem is not None:
        raise _unanswerable(problem)


def _kinds(schema: object) -> set[object]:
    """The types of value that a field takes, as far as it says so."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if kinds is None:
        return set(ANSWERS)
    return {kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)}


def _unanswerable(problem: str) -> InputRefused:
    return InputRefused(INVALID_PARAMS, f"this elicitation cannot be answered: {problem}")


def read_url(params: dict[str, Any]) -> ElicitRequestURLParams:
    """The parameters of a URL to visit.

    Raises:
        InputRefused: They are malformed, or the URL is not one for a browser (-32602).
    """
    try:
        visit = ElicitRequestURLParams.from_wire(params)
    except ProtocolError as exc:
        raise InputRefused(INVALID_PARAMS, str(exc)) from exc
    if not is_web_url(visit.url):
        raise InputRefused(INVALID_PARAMS, f"this client opens only plain http and https URLs, not {quoted(visit.url)}")
    return visit


def is_web_url(url: str) -> bool:
    """Whether a browser may be sent there: http or https, a host, and nothing that only looks like part of it.

    Blanks, control characters and backslashes are read in different ways by different
    programs: the host that the user consents to would not be the one that is visited.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        return urlsplit(url).scheme in ("http", "https") and HOST.fullmatch(_host(url)) is not None
    except ValueError:
        return False


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def read_elicitations(data: object) -> list[ElicitRequestURLParams]:
    """The URLs to visit that an error -32042 names in its `data`; those that cannot be read are left out."""
    listed = data.get("elicitations") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        return []
    read = []
    for item in listed:
        try:
            read.append(read_url(item))
        except InputRefused as exc:
            logger.warning("a URL elicitation that cannot be read: %s", exc)
    return read


def _fields(schema: dict[str, object]) -> dict[str, dict[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: field for name, field in properties.items() if isinstance(field, dict)}

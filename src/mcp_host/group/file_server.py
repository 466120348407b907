"""A server of a file in a group: before it is started, a person agrees to it, its inputs are asked for, and it is expanded."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import Lock
from anyio.lowlevel import EventLoopToken, current_token

from mcp_host.client.tool_policy import ToolPolicy
from mcp_host.concurrency.tasks import awaited
from mcp_host.config import (
    AnswerStore,
    AskInput,
    ExpandedServer,
    HttpServer,
    Input,
    OAuthSettings,
    ServerEntry,
    ServerPreview,
    ToolFilter,
    ask_inputs,
)
from mcp_host.errors import ConfigError, escaped, excerpt
from mcp_host.group.consents import ApproveServer, ServerConsents
from mcp_host.group.options import NotStarted, ServerOptions
from mcp_host.handlers import as_async, check_callable
from mcp_host.limits import Limits
from mcp_host.protocol.server_names import check_server_name
from mcp_host.sampling.proposed_server import ProposedServer
from mcp_host.secret import HIDDEN, Secret
from mcp_host.transports.base import Transport

if TYPE_CHECKING:
    from mcp_host.auth import Login, OAuth, OnDevice, TokenStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

NOT_ASKED = "it needs the consent of a person, and the group was made without approve_servers"
REFUSED = "approve_servers has refused it"
FAILED = "asking for consent failed"
PROPOSED_SHOWN = 4000  # characters of what a file proposes for an input, which each of its servers may use
NOT_USED = ("metadata_url", "authorization_url", "token_url", "resource")
"""Settings of a file for logging in that are not obeyed, since the server itself says where that is."""


class LoopLock:
    """A lock of the event loop that runs."""

    _loop: EventLoopToken | None = None

    def get(self) -> Lock:
        if self._loop != (loop := current_token()):
            self._loop, self._lock = loop, Lock()
        return self._lock


@dataclass(kw_only=True)
class FileOptions:
    """The arguments of `ClientGroup.from_file` for all servers of its files: who is asked, and where the answers are kept."""

    approve_servers: InitVar[ApproveServer | None] = None
    ask_input: AskInput | None = None
    consents: ServerConsents = field(default_factory=ServerConsents)
    answer_store: AnswerStore | None = None
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    workspace: str | os.PathLike[str] | None = None
    limits: Limits | None = None
    tokens: TokenStore | None = None
    login: Login | OnDevice | None = None
    answers: dict[Input, str] = field(default_factory=dict, repr=False)
    """Those that were given: servers may have an input in common."""
    asking: LoopLock = field(default_factory=LoopLock)
    """Around each question to a person."""

    def __post_init__(self, approve_servers: ApproveServer | None) -> None:
        self.approve: Callable[[ProposedServer], Awaitable[object]] | None = None
        if approve_servers is not None:
            shape = "(proposed: ProposedServer) -> bool"
            self.approve = as_async(approve_servers, argument="approve_servers", shape=shape)
        if self.ask_input is not None:
            check_callable(self.ask_input, argument="ask_input", shape="(input: Input) -> str | None")


class FileServer:
    """One server of a file."""

    def __init__(self, entry: ServerEntry, options: FileOptions) -> None:
        self.entry = entry
        self.problem = _problem(entry)
        """Why it can never be started as the file describes it."""
        self.warnings: Sequence[str] = [*entry.warnings, *_unused(entry.oauth)]
        self._options = options

    @property
    def enabled(self) -> bool:
        return self.entry.enabled

    async def prepare(self, on_question: Callable[[ProposedServer], None]) -> ServerOptions:
        """The server, ready to be connected. *on_question* is told if it needs consent.

        Raises:
            NotStarted: There is no consent, or the server cannot be used.
        """
        if self.problem is not None:
            raise NotStarted("disabled", self.problem)
        for warning in self.warnings:
            logger.warning("%s: %s", self.entry.name, warning)
        try:
            preview = await self._get_consent(on_question) if self._needs_consent or self._has_project else None
            return self._to_options(await self._expanded(preview))
        except ConfigError as exc:
            raise NotStarted("disabled", str(exc)) from exc

    async def agree(self, proposed: ProposedServer) -> None:
        """Remember that a person has agreed to it.

        Raises:
            ConfigError: That cannot be saved.
        """
        await _in_thread(partial(self._options.consents.agree, proposed))

    # Consent

    @property
    def _needs_consent(self) -> bool:
        """Whether it must not be started before a person has agreed. If it is not known whose the file is, the host decides."""
        scope = self.entry.source.scope
        return scope == "project" or (scope is None and self._options.approve is not None)

    @property
    def _has_project(self) -> bool:
        """Whether its file is a person's own, and used in a project: its variables may be from a file of that."""
        source = self.entry.source
        return source.scope is not None and (self._options.workspace or source.project) is not None

    async def _get_consent(self, on_question: Callable[[ProposedServer], None]) -> ServerPreview | None:
        """What a person has agreed to, now or before; None if that is not needed. Its files and links may change meanwhile."""
        try:
            preview, proposed, agreed = await _in_thread(self._compared)
        except ConfigError as exc:
            if exc.server is not None:
                raise
            raise NotStarted("needs_consent", str(exc)) from exc
        if agreed:
            return preview if self._needs_consent or preview.reads_project else None
        on_question(proposed)
        if self._options.approve is None:
            raise NotStarted("needs_consent", NOT_ASKED)
        async with self._options.asking.get():
            refused = await self._ask(self._options.approve, proposed)
        if refused is not None:
            raise NotStarted("needs_consent", refused)
        try:
            await self.agree(proposed)
        except ConfigError as exc:  # it may be started nevertheless: the person has agreed
            logger.warning("%s: the consent is not remembered: %s", self.entry.name, exc)
        return preview

    def _compared(self) -> tuple[ServerPreview, ProposedServer, bool]:
        """What is known of it, what a person is asked about, and whether they have agreed to it before. It blocks."""
        entry, options = self.entry, self._options
        preview = entry.preview(options.environment, workspace=options.workspace)
        proposed = ProposedServer(
            name=entry.name,
            path=entry.source.path,
            scope=entry.source.scope,
            kind="url" if isinstance(entry.transport, HttpServer) else "command",
            written=entry.shown,
            expanded=preview.shown,
            cwd=preview.cwd,
            env_file=preview.env_file,
            variables=preview.variables,
            deciding=preview.deciding,
            host=preview.host,
            expansions=(*entry.variables, *_proposals(entry), *preview.links),
            settings=tuple(escaped(text) for text in _settings(entry)),
            warnings=tuple(self.warnings),
            digest=sha256(f"{entry.digest} {preview.digest}".encode()).hexdigest(),
        )
        if self._needs_consent or preview.reads_project:
            return preview, *options.consents.compared(proposed)
        return preview, proposed, True

    async def _ask(
        self, approve: Callable[[ProposedServer], Awaitable[object]], proposed: ProposedServer
    ) -> str | None:
        """Ask whether it may be started. Returns why not."""
        try:
            return _refusal(await awaited(approve(proposed), "it"))
        except Exception as exc:  # of the host's code: the other servers go on
            logger.error("%s: approve_servers failed", self.entry.name, exc_info=exc)
            return f"{FAILED}: {type(exc).__name__}: {exc}"

    # What it becomes

    async def _expanded(self, preview: ServerPreview | None) -> ExpandedServer:
        options = self._options
        if self.entry.inputs:
            async with options.asking.get():
                await self._ask_inputs()
        expand = (
            preview.expand if preview else partial(self.entry.expand, options.environment, workspace=options.workspace)
        )
        expanded = await _in_thread(partial(expand, answers=options.answers))
        self.warnings = list(dict.fromkeys([*self.warnings, *expanded.warnings]))
        return expanded

    async def _ask_inputs(self) -> None:
        answers = self._options.answers
        asked = replace(self.entry, inputs=tuple(each for each in self.entry.inputs if each not in answers))
        ask = self._options.ask_input or (lambda _: None)
        answers.update(await ask_inputs([asked], ask, store=self._options.answer_store))

    def _to_options(self, expanded: ExpandedServer) -> ServerOptions:
        return ServerOptions(
            self._with_login(expanded),
            tools=_tool_policy(self.entry.tools),
            limits=_limits(self.entry, self._options.limits),
        )

    def _with_login(self, expanded: ExpandedServer) -> Transport:
        """Its transport. A server over HTTP that wants a login can have one, unless the file has a token or forbids it."""
        if not isinstance(self.entry.transport, HttpServer):
            return expanded.transport
        from mcp_host.transports.http import StreamableHttp  # not needed for stdio

        transport, settings = expanded.transport, expanded.oauth or OAuthSettings()
        assert isinstance(transport, StreamableHttp), "an HttpServer becomes one"
        if not settings.enabled or any(name.lower() == "authorization" for name in transport.headers or {}):
            return transport
        return replace(transport, auth=self._oauth(settings))

    def _oauth(self, settings: OAuthSettings) -> OAuth:
        from mcp_host.auth import OAuth, Registered, in_browser  # few servers need a login

        login = self._options.login
        try:
            if login is None:
                port = settings.callback_port if settings.redirect_uri is None else None
                login = in_browser(port=port or 0, redirect_uri=settings.redirect_uri)
            client = settings.client_id and Registered(settings.client_id, settings.client_secret)
            tokens, scopes = self._options.tokens, settings.scopes or ()
            return OAuth(tokens=tokens, registration=client or None, login=login, scopes=scopes)
        except (TypeError, ValueError) as exc:  # it quotes no secret
            reason = str(exc)
        raise self.entry.error(reason, "oauth")


def _proposals(entry: ServerEntry) -> Iterator[str]:
    """What the file proposes for its inputs, which a person takes with one key."""
    for each in entry.inputs:
        if texts := [text for text in (each.default, *each.options) if text]:
            yield escaped(f"the input {each.id}: the file proposes {excerpt(' or '.join(texts), PROPOSED_SHOWN)}")


def _settings(entry: ServerEntry) -> Iterator[str]:
    """The settings in *entry*, for a person, without those that say what is started."""
    for name, seconds in (("timeout", entry.timeout), ("connect_timeout", entry.connect_timeout)):
        if seconds is not None:
            yield f"{name}: {seconds} seconds"
    for name, tools in (("tools", entry.tools.allow), ("tools that are left out", entry.tools.exclude or None)):
        if tools is not None:
            yield f"{name}: {', '.join(sorted(tools))}"
    for setting in fields(entry.oauth) if entry.oauth is not None else ():
        value = getattr(entry.oauth, setting.name)
        if value != setting.default:
            shown = ", ".join(value) if isinstance(value, tuple) else value
            yield f"oauth.{setting.name}: {HIDDEN if isinstance(value, Secret) else shown}"


def _problem(entry: ServerEntry) -> str | None:
    """Why no group can have this server."""
    problem = entry.problem
    try:
        check_server_name(entry.name)
    except ValueError as exc:
        problem = str(exc)
    return None if problem is None else str(entry.error(problem))


async def _in_thread(function: Callable[[], T]) -> T:
    """Call *function*, which reads files, in a thread."""
    return await as_async(function, argument="function")()


def _refusal(decision: object) -> str | None:
    """Why *decision*, which approve_servers has returned, is none to start the server; None if it is one.

    Raises:
        TypeError: It is no decision. A function that forgets to return has not agreed.
    """
    if isinstance(decision, bool):
        return None if decision else REFUSED
    from mcp_host.sampling.approval import Allow, Deny  # here, because not every host has a model

    match decision:
        case Allow():
            return None
        case Deny():
            return REFUSED if decision == Deny() else decision.reason
    raise TypeError(f"it has to return True or False, Allow or Deny, not {type(decision).__name__}")


def _tool_policy(tools: ToolFilter) -> ToolPolicy | None:
    """The tools that the file lets through."""
    if tools.allow is not None:
        return ToolPolicy(allow=tools.allow - tools.exclude)
    return ToolPolicy(allow=lambda tool: tools.allows(tool.name)) if tools.exclude else None


def _limits(entry: ServerEntry, limits: Limits | None) -> Limits | None:
    """The *limits* of the group with the times that the file has."""
    times: dict[str, Any] = {"timeout": entry.timeout, "connect_timeout": entry.connect_timeout}
    given = {name: seconds for name, seconds in times.items() if seconds is not None}
    return replace(limits or Limits(), **given) if given else limits


def _unused(settings: OAuthSettings | None) -> Iterator[str]:
    """What the file says of a login that is not obeyed."""
    for name in NOT_USED:
        if getattr(settings, name, None) is not None:
            yield f"oauth.{name}: it is not used: the server says where to log in"

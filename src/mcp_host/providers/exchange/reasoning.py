"""Reasoning that providers want back: kept in the host under a random key, so that servers never see it.

A turn of the model with thinking, signatures or reasoning items is kept when its calls go to the server, or images and
audio that are signed. It is restored when they come back:

=====================  ================================================================================
the key                128 random bits: in the ``_meta`` of each tool use ("These fields are preserved to enable
                       caching", the schema), and in its id, for servers that drop ``_meta``; without a call, in that
                       of its images and audio
who gets the turn      the connection, the server, the caller and the model that it was made for, once in a request;
                       none, where the caller is not known
where                  after the conversation that it was said in, or what the server knows of that, so that no server
                       moves it into another prompt
what may differ        the ids, empty texts, and how the turn is split over messages; not its texts, calls and images;
                       1 and 1.0 are one input, true is another, members may be in any order. After the turn, everything
when it is forgotten   when the call that it belongs to ends, where that is known; after *max_age* without use; and the
                       least recently used first, beyond *max_bytes* or *max_turns*, or a quarter for a connection
=====================  ================================================================================
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from mcp_host.errors import InputRefused
from mcp_host.json_schema.integers import LARGEST
from mcp_host.limits import check_count, check_seconds
from mcp_host.protocol.callers import caller_key
from mcp_host.protocol.jsonrpc import INVALID_PARAMS
from mcp_host.providers.exchange.logged import Logged
from mcp_host.providers.exchange.names import ToolNames
from mcp_host.sampling.request import SamplingRequest, log_subject
from mcp_host.types import (
    AudioContent,
    ContentBlock,
    ImageContent,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.sampling import AssistantContentBlock, SamplingMessageContentBlock
from mcp_host.types.texts import readable

META_KEY = "mcp-host/reasoning"
"""In the ``_meta`` of a tool use or a file. The specification reserves prefixes whose labels are ``mcp`` or ``modelcontextprotocol``."""

ID = re.compile("call_([0-9a-f]{32})_[0-9]+")

MAX_AGE = 3600.0  # seconds without use: a person may have to approve the calls
MAX_BYTES = 64 * 1024 * 1024
MAX_TURNS = 4096
SHARES = 4  # one connection may fill a quarter, so that it cannot push out the turns of all others

FORGOTTEN = "the reasoning of its tool calls is no longer known to this client, which does not go on without it"
UNMARKED = "its tool calls have lost the key to their reasoning, and this client does not go on without it"
ALTERED = "it is not what the model said, and this client does not go on with an altered history"
MOVED = "what precedes it is not what the model answered, and this client does not go on with an altered history"

NOT_KNOWN = "it is forgotten, or was made by another model"
NOT_OWNED = "it was made for another connection, server, caller or model"
OF_ANY_CALLER = (
    "it is not known which caller the request is for; ReasoningStore(one_user=True) keeps it if you have one user"
)
CHANGED = "the server has changed it, or the names of its tools"
ELSEWHERE = "the server has changed the system prompt, or the messages before it"
NOT_TAKEN = "the model called a tool in a way that its API does not take"  # no one has altered the history

REFUSALS = {NOT_KNOWN: FORGOTTEN, NOT_OWNED: FORGOTTEN, OF_ANY_CALLER: FORGOTTEN, CHANGED: ALTERED, ELSEWHERE: MOVED}

logger = logging.getLogger(__name__)

AlteredHistory: TypeAlias = Literal["continue", "refuse"]
"""If reasoning is forgotten, or the history is altered: "continue" without the reasoning, or "refuse" the request."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A request, its restored turns by the index of their message, and the indexes of messages whose turn is lost.

    The calls of restored turns, and their results, have the provider's ids. Where the provider gave no id, or repeats
    one, they keep the server's, which may differ from those in the turn.
    """

    request: SamplingRequest
    turns: Mapping[int, object] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Visible:
    """What a turn or a message says, without ids and empty texts."""

    text: str
    others: str
    """Calls with their inputs, results, images and audio, as JSON: 1, 1.0 and True are equal in Python, but not in JSON."""
    blocks: int
    """The number of *others*."""

    @classmethod
    def of(cls, content: Sequence[SamplingMessageContentBlock]) -> _Visible:
        others: list[object] = []
        for block in content:
            match block:
                case ToolUseContent():
                    others.append([block.name, block.input])
                case ToolResultContent():
                    others.append([[*map(_plain, block.content)], block.structured_content, bool(block.is_error)])
                case TextContent():
                    pass
                case _:
                    others.append(_plain(block))
        text = "".join([block.text for block in content if isinstance(block, TextContent)])
        written = json.dumps(others, sort_keys=True)
        if ".0" in written:  # JavaScript writes 1.0 as 1, and so does this client where the tool has an integer
            written = json.dumps(json.loads(written, parse_float=_number), sort_keys=True)
        return cls(text, written, len(others))


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= LARGEST else number


def _plain(block: ContentBlock) -> dict[str, object]:
    """What a block says, an image or audio as its digest. Servers may mark the last blocks for a cache, and later others."""
    wire = {name: value for name, value in block.to_wire().items() if name not in ("_meta", "annotations")}
    if isinstance(block, ImageContent | AudioContent):
        wire["data"] = sha256(block.data.encode()).hexdigest()  # short: JSON of a long text takes four times as long
    return wire


class Conversation:
    """The digests of how a conversation begins: of its system prompt, and so many of its messages.

    Each message is read once, so ask for the shorter beginnings first. Those that say nothing do not count.
    """

    def __init__(self, request: SamplingRequest) -> None:
        self._messages = request.messages
        self._server_messages = request.server_messages
        self._hash = sha256(json.dumps(request.system_prompt or "").encode())
        self._read = 0
        self._places: dict[str, int] = {}  # of the latest calls, in their message, by id
        self.of_server: bytes | None = None
        """The digest of what the server knows, if that is less, once more has been read."""

    def digest(self, messages: int | None = None) -> bytes:
        """The digest of the first *messages*, or of all."""
        for message in self._messages[self._read : messages]:
            if self._read == self._server_messages:
                self.of_server = self._hash.digest()
            self._add(message)
            self._read += 1
        return self._hash.digest()

    def _add(self, message: SamplingMessage) -> None:
        seen = _Visible.of(message.content)
        if not (seen.text or seen.blocks):
            return
        if uses := message.tool_uses:
            self._places = {use.id: place for place, use in enumerate(uses)}
        results = [block for block in message.content if isinstance(block, ToolResultContent)]
        places = [self._places.get(block.tool_use_id) for block in results]
        self._hash.update(json.dumps([message.role, seen.text, places]).encode())
        self._hash.update(seen.others.encode())  # JSON, too: two lists one after the other have one meaning


@dataclass(frozen=True, slots=True, eq=False)
class _Owner:
    """What a turn is kept for: no other connection, server, caller or model gets it."""

    session: object
    caller: Hashable
    """Its `caller_key`."""
    names: tuple[str, str, str]
    """The server, the provider and the model."""

    def is_same(self, other: _Owner) -> bool:
        return self.session is other.session and self.caller == other.caller and self.names == other.names


@dataclass(slots=True)
class _Kept:
    """One turn. What others may change is kept as JSON."""

    owner: _Owner
    before: tuple[bytes, bytes | None]
    """The digests of the conversation that it was said in, and of what the server knows of that, if that is less."""
    call: weakref.ref[Any] | None
    text: str
    others: str
    blocks: int
    """The number of *others*."""
    turn: str
    """Empty if its calls cannot be sent back."""
    names: Mapping[str, str | None]
    """Of the called tools: the provider's names, by those of MCP; None for what the model made up."""
    ids: Sequence[str | None]
    used_at: float
    size: int = field(init=False)
    """In bytes."""

    def __post_init__(self) -> None:
        self.size = len(self.text.encode()) + len(self.others) + len(self.turn.encode())


class ReasoningStore:
    """Keeps turns with reasoning in memory, for one or several adapters.

    A turn is forgotten when the call of yours that it belongs to ends (`SamplingRequest.outer`), and *max_age* seconds
    after its last use. Beyond *max_turns*, or *max_bytes* of JSON, the least recently used turns are forgotten first. One
    connection to a server may fill a quarter of both. *clock* returns the time in seconds.

    A turn is restored only for the connection that it was made for (`SamplingRequest.session`), and once in a request.
    After a client has reconnected, a server can continue its conversation, but without the earlier reasoning.

    Where it is not known which of your calls a request belongs to (`SamplingRequest.outer` is None), it may be for any
    user. *one_user* says whether a connection has one user only. By default it has, as long as no call has a *caller*.
    True keeps turns for the connection, whichever caller their call has. False keeps none where the call is not known.

    Raises:
        TypeError, ValueError: A limit is not a positive number, or *one_user* is no bool.
    """

    def __init__(
        self,
        *,
        max_age: float = MAX_AGE,
        max_bytes: int = MAX_BYTES,
        max_turns: int = MAX_TURNS,
        one_user: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if one_user is not None and not isinstance(one_user, bool):
            raise TypeError(f"one_user is True, False or None, not {type(one_user).__name__}")
        check_seconds("max_age", max_age, zero=False)
        check_count("max_bytes", max_bytes)
        check_count("max_turns", max_turns)
        self._max_age = max_age
        self._max_bytes = max_bytes
        self._max_turns = max_turns
        self._one_user = one_user
        self._clock = clock
        self._turns: dict[str, _Kept] = {}  # the least recently used first
        self._bytes = 0
        # A call may end in any thread and at any point. Its turns are then removed in one step each; their sizes are
        # put here, and subtracted later.
        self._freed: deque[int] = deque()
        self._logged = Logged(MAX_TURNS)

    def __len__(self) -> int:
        """The number of turns that are kept now."""
        return len(self._turns)

    def __repr__(self) -> str:
        return f"<ReasoningStore: {len(self)} turns>"

    def keep(
        self,
        turn: object,
        content: Sequence[AssistantContentBlock],
        *,
        request: SamplingRequest,
        conversation: Conversation,
        belongs_to: tuple[str, str],
        names: ToolNames,
    ) -> list[AssistantContentBlock]:
        """Keep *turn*, the provider's JSON of *content*, or None if it is not to be restored, because its calls cannot be
        sent back. Returns the content with the ids and ``_meta`` to send.

        The ids of the tool uses in *content* are the provider's; "" stands for none. *conversation* is what the turn
        answers, as `restore` got it. *belongs_to* is the provider and the model.
        """
        key = secrets.token_hex(16)
        sent: list[AssistantContentBlock] = []
        ids: list[str | None] = []
        has_calls = any(isinstance(block, ToolUseContent) for block in content)
        for block in content:
            if isinstance(block, ToolUseContent):
                fresh = {"id": f"call_{key}_{len(ids)}", "meta": {**(block.meta or {}), META_KEY: key}}
                ids.append(block.id or None)
                sent.append(block.model_copy(update=fresh))
            elif isinstance(block, ImageContent | AudioContent) and not has_calls:
                sent.append(block.model_copy(update={"meta": {**(block.meta or {}), META_KEY: key}}))
            else:
                sent.append(block)
        owner = self._owner(request, belongs_to)
        if owner is None:
            return sent  # with the key, so that `restore` says what is lost
        seen = _Visible.of(content)
        called = [block.name for block in content if isinstance(block, ToolUseContent)]
        outer = request.outer
        kept = _Kept(
            owner=owner,
            before=(conversation.digest(), conversation.of_server),
            call=None if outer is None else weakref.ref(outer.weak_key, lambda _: self._end_call(key)),
            text=seen.text,
            others=seen.others,
            blocks=seen.blocks,
            turn="" if turn is None else readable(json.dumps(turn, ensure_ascii=False)),
            names={name: names.provider.get(name) for name in called},
            ids=ids,
            used_at=self._clock(),
        )
        self._turns[key] = kept
        self._bytes += kept.size
        if request.session is not None:
            self._shrink_share(request.session)
        self._shrink()
        return sent

    def restore(
        self,
        request: SamplingRequest,
        *,
        conversation: Conversation,
        belongs_to: tuple[str, str],
        names: ToolNames,
        altered: AlteredHistory,
    ) -> Restored:
        """*request*, which has *conversation*, with its turns restored, and with the provider's ids.

        Raises:
            InputRefused: A turn is forgotten, altered, or has lost its key, and *altered* is "refuse".
        """
        messages = request.messages
        keys = [_keys(message) for message in messages]
        owner = self._owner(request, belongs_to)
        if altered == "refuse" and owner is not None:
            all_turns = list(self._turns.items())  # a copy: a call may end meanwhile
            _check_unmarked(messages, keys, {key: kept for key, kept in all_turns if kept.owner.is_same(owner)})
        if not any(keys):
            return Restored(request)
        self._shrink()
        written: list[SamplingMessage] = []
        used: set[str] = set()
        turns: dict[int, object] = {}
        lost: set[int] = set()
        problems: dict[str, str] = {}  # of the lost turns, by key
        native: dict[str, str] = {}  # the provider's ids, for the results that follow
        taken = {use.id for message in messages for use in message.tool_uses}
        for index, message in enumerate(messages):
            if not keys[index]:
                written.append(_with_native_ids(message, native))
                continue
            [key, *others] = keys[index]
            # The model never wrote the calls of several turns into one message, or the same turn twice.
            kept = CHANGED if others or key in used else self._find(key, owner)
            if isinstance(kept, _Kept):
                first = _start_of_turn(kept, message, written)
                content = [block for part in (*written[first:], message) for block in part.content]
                kept = _unaltered(kept, content, conversation.digest(index - len(written) + first), names)
            if isinstance(kept, str):
                problems[key] = kept
                if altered == "refuse" and kept in REFUSALS:
                    self._log_lost(request, belongs_to, problems)
                    raise InputRefused(INVALID_PARAMS, f"messages[{index}]: {REFUSALS[kept]}")
                lost.add(len(written))
                written.append(message)
                continue
            uses = [block.id for block in content if isinstance(block, ToolUseContent)]
            native = _native_ids(uses, kept.ids, taken)
            used.add(key)
            del written[first:]
            turns[first] = json.loads(kept.turn)
            written.append(_with_native_ids(message.model_copy(update={"content": content}), native))
        if problems:
            self._log_lost(request, belongs_to, problems)
        if not turns:
            return Restored(request, {}, frozenset(lost))
        params = request.params.model_copy(update={"messages": written})
        return Restored(replace(request, params=params), turns, frozenset(lost))

    def _log_lost(self, request: SamplingRequest, belongs_to: tuple[str, str], problems: Mapping[str, str]) -> None:
        """Log why turns cannot be restored: once for each turn, although its server repeats it in every request.

        Servers may make up keys: a request has one line at most for each problem. That callers are not known is so for
        all turns of a connection.
        """
        causes = {request.session if problem == OF_ANY_CALLER else key: problem for key, problem in problems.items()}
        for problem in sorted({causes[cause] for cause in self._logged.new(causes)}):
            text = "%s: the reasoning of an earlier turn cannot be restored for %s: %s"
            logger.warning(text, log_subject(request.server), ":".join(belongs_to), problem)

    def _owner(self, request: SamplingRequest, belongs_to: tuple[str, str]) -> _Owner | None:
        """What a turn of *request* is kept for; None if that may be any of several users."""
        caller = None
        if not self._one_user:
            if request.outer is not None:
                caller = request.outer.caller
            elif request.unknown_caller or (self._one_user is False and request.session is not None):
                return None
        return _Owner(request.session, caller_key(caller), (request.server, *belongs_to))

    def _find(self, key: str, owner: _Owner | None) -> _Kept | str:
        """The turn, or why it cannot be restored."""
        if owner is None:
            return OF_ANY_CALLER
        if (kept := self._turns.get(key)) is None:
            return NOT_KNOWN
        if not kept.owner.is_same(owner):
            return NOT_OWNED
        with suppress(KeyError):  # its call has ended meanwhile
            self._turns[key] = self._turns.pop(key)  # now the most recently used
        kept.used_at = self._clock()
        return kept

    def _shrink_share(self, session: object) -> None:
        """Forget the oldest turns of a connection that has more than its share, but not its last."""
        own = [(key, kept) for key, kept in list(self._turns.items()) if kept.owner.session is session]
        size, turns = sum(kept.size for _, kept in own), len(own)
        for key, kept in own[:-1]:
            if size <= self._max_bytes / SHARES and turns <= self._max_turns / SHARES:
                break
            size, turns = size - kept.size, turns - 1
            self._forget(key)

    def _shrink(self) -> None:
        """Forget what is too old or too much."""
        while self._freed:
            self._bytes -= self._freed.popleft()
        now = self._clock()
        for key, kept in list(self._turns.items()):
            is_old = now - kept.used_at > self._max_age
            if not is_old and self._bytes <= self._max_bytes and len(self._turns) <= self._max_turns:
                break
            self._forget(key)

    def _forget(self, key: str) -> None:
        with suppress(KeyError):  # its call has ended meanwhile
            self._bytes -= self._turns.pop(key).size

    def _end_call(self, key: str) -> None:
        with suppress(KeyError):  # forgotten meanwhile
            self._freed.append(self._turns.pop(key).size)


def _keys(message: SamplingMessage) -> list[str]:
    """The keys in a message, each once, with "" for tool uses without one; empty if no block has a key."""
    keys: dict[str, None] = {}
    for block in message.content:
        if isinstance(block, ToolUseContent):
            key = (block.meta or {}).get(META_KEY)
            if not isinstance(key, str):
                match = ID.fullmatch(block.id)
                key = match[1] if match else ""
            keys[key] = None
        elif isinstance(block, ImageContent | AudioContent):
            key = (block.meta or {}).get(META_KEY)
            if isinstance(key, str):
                keys[key] = None
    return list(keys) if keys.keys() - {""} else []


def _check_unmarked(
    messages: Sequence[SamplingMessage], keys: Sequence[Sequence[str]], turns: Mapping[str, _Kept]
) -> None:
    """Check that no message without keys has the calls of one of *turns*, whose key the server then has dropped.

    Turns whose key is in another message do not count: the model may have made the same calls again without reasoning.

    Raises:
        InputRefused: One has.
    """
    unmarked = [index for index, message in enumerate(messages) if message.tool_uses and not keys[index]]
    if not unmarked:  # the usual case: no turn has to be read
        return
    found = {key for of_message in keys for key in of_message}
    calls = {kept.others for key, kept in turns.items() if key not in found and kept.turn}
    for index in unmarked:
        if _Visible.of(messages[index].content).others in calls:
            raise InputRefused(INVALID_PARAMS, f"messages[{index}]: {UNMARKED}")


def _start_of_turn(kept: _Kept, message: SamplingMessage, before: Sequence[SamplingMessage]) -> int:
    """The index in *before* of the first message of a turn: texts and images may be in messages before its calls."""
    first = len(before)
    seen = _Visible.of(message.content)
    text, blocks = len(seen.text), seen.blocks
    while first and (text < len(kept.text) or blocks < kept.blocks):
        part = before[first - 1]
        if part.role != "assistant" or part.tool_uses:
            break
        first -= 1
        seen = _Visible.of(part.content)
        text, blocks = text + len(seen.text), blocks + seen.blocks
    return first


def _unaltered(
    kept: _Kept, content: Sequence[SamplingMessageContentBlock], before: bytes, names: ToolNames
) -> _Kept | str:
    """*kept*, if *content* is what the server saw of it, and *before* is the digest of its conversation; or what differs."""
    seen = _Visible.of(content)
    renamed = [written for name, written in kept.names.items() if names.provider.get(name) != (written or name)]
    if (seen.text, seen.others) != (kept.text, kept.others) or any(renamed):
        return CHANGED
    if before not in kept.before:
        return ELSEWHERE
    return NOT_TAKEN if renamed or not kept.turn else kept


def _native_ids(uses: Sequence[str], ids: Sequence[str | None], taken: set[str]) -> dict[str, str]:
    """The provider's ids of a turn's calls, by the server's. Each is used once in a request: *taken* are those used."""
    native: dict[str, str] = {}
    for use, id in zip(uses, ids, strict=True):
        if id is not None and id not in taken:
            native[use] = id
            taken.add(id)
    return native


def _with_native_ids(message: SamplingMessage, native: Mapping[str, str]) -> SamplingMessage:
    """*message* with the provider's ids, in calls and in results."""
    if not native:
        return message
    content: list[SamplingMessageContentBlock] = []
    for block in message.content:
        if isinstance(block, ToolUseContent) and block.id in native:
            block = block.model_copy(update={"id": native[block.id]})
        elif isinstance(block, ToolResultContent) and block.tool_use_id in native:
            block = block.model_copy(update={"tool_use_id": native[block.tool_use_id]})
        content.append(block)
    return message.model_copy(update={"content": content})

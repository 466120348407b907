"""The cassette: records a test's MCP messages and provider HTTP once, and replays them from then on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args, overload

from mcp_host.testing.cassettes.checks import check_entries
from mcp_host.testing.cassettes.file import Contents, how_to_record_again, read, write
from mcp_host.testing.cassettes.http import http_transport
from mcp_host.testing.cassettes.mcp import CassetteTransport
from mcp_host.testing.cassettes.network import blocked
from mcp_host.testing.cassettes.redaction import Redaction
from mcp_host.testing.cassettes.tape import Tape
from mcp_host.testing.errors import CassetteError
from mcp_host.transports.infer import Connectable, infer_transport
from mcp_host.transports.stdio import Stdio

if TYPE_CHECKING:
    import httpx
    import httpx2

RecordMode: TypeAlias = Literal["none", "once", "new_episodes", "all"]
MODES: Sequence[RecordMode] = get_args(RecordMode)


class Cassette:
    """Records the messages of MCP servers and the HTTP of model providers in one file, and replays them.

    >>> with Cassette("tests/cassettes/solve.json", record_mode="once") as cassette:
    ...     async with anthropic.AsyncAnthropic(http_client=cassette.http_client()) as api:
    ...         model = AnthropicModel(api, "claude-sonnet-5")
    ...         async with Client(cassette.transport(["uvx", "some-server"]), sampling=...) as client:
    ...             await client.call_tool("solve", {"problem": "3 * 7"})

    *record_mode* is one of:

    - ``none``: replay; what is not in the file is an error.
    - ``once`` (the default): record if there is no file, otherwise replay as ``none`` does.
    - ``new_episodes``: replay what is in the file, and record HTTP requests and connections that are not.
    - ``all``: record everything again.

    A connection that is replayed starts no server. While nothing is recorded, sockets of this process connect only to
    *allowed_hosts*, which are names or addresses.

    Requests are found by their content, and each recorded one is used once, in order. A request that is not in the
    file fails: an SDK gets an HTTP status of 400, and leaving the block raises `CassetteError`, which shows the
    difference. With *require_all*, leaving the block also raises it if a recorded request was not used.

    The file is written when the block ends without an exception; otherwise the old one stays. The texts in *redact*
    are marked in it, answers to the password inputs of a file of servers, and secrets that have a sensitive name: that of a
    header, a parameter, a member of JSON, an environment variable or an option of a program. Secrets of well-known forms
    are, too. Others are not, so read a new file before you commit it.
    *note* is written to the top of the file, for its readers.

    Raises:
        CassetteError: The file is missing, broken, or of a later version.
        ValueError: *record_mode* is not one of these, or *redact* has an empty text.
        TypeError: *redact* or *allowed_hosts* is one text, not a list.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        record_mode: RecordMode = "once",
        redact: Iterable[str] = (),
        require_all: bool = False,
        allowed_hosts: Iterable[str] = (),
        note: str = "",
    ) -> None:
        if record_mode not in MODES:
            raise ValueError(f"record_mode is one of {', '.join(MODES)}, not {record_mode!r}")
        for name, texts in {"redact": redact, "allowed_hosts": allowed_hosts}.items():
            if isinstance(texts, str):  # not repeated in the message: it is a secret
                raise TypeError(f"{name} has to be a list of texts, not one text: {name}=[...]")
        self.path = Path(path)
        """The file."""
        self._redaction = Redaction(redact)
        self._require_all = require_all
        self._allowed_hosts = frozenset(allowed_hosts)
        replays = record_mode != "all" and self.path.exists()
        if record_mode == "none" and not replays:
            raise CassetteError(
                f'there is no {self.path}; to record it, use record_mode="once" (with pytest: --record-mode=once)'
            )
        old = read(self.path) if replays else Contents("", [])
        check_entries(self.path, old.entries)
        self._note = note or old.note
        self.recording = record_mode in ("all", "new_episodes") or not replays
        """Whether servers and providers are reached, to record what is not in the file."""
        self._tape = Tape(self.path, old.entries, self._redaction, replays=replays, records=self.recording)
        self._transport_count = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if not self.recording:
            self._stack.enter_context(blocked(self._allowed_hosts, self._refuse))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
        self._tape.ended.set()
        failure = self._tape.failure
        if failure is not None and (error is None or isinstance(error, Exception)):  # Ctrl-C and cancellation go first
            if error is not failure:
                raise failure from error
        elif error is None:
            if self._require_all:
                self._check_all_used()
            if self._tape.changed or not self._tape.replays:
                write(self.path, Contents(self._note, self._tape.entries()))

    def transport(self, server: Connectable, *, name: str | None = None) -> CassetteTransport:
        """A transport for `Client` to *server*, which may be anything that `Client` takes.

        *name* stands for it in the file. By default it is ``server``, then ``server-2``, in the order of these calls.
        """
        self._transport_count += 1
        label = name or ("server" if self._transport_count == 1 else f"server-{self._transport_count}")
        inner = infer_transport(server)
        if isinstance(inner, Stdio):
            command, env = [os.fspath(part) for part in inner.command], inner.env or {}
            self._redaction.learn_command(command, env)
            self._redaction.learn_passwords([*command, *env.values()])
        elif isinstance(
            headers := getattr(inner, "headers", None), Mapping
        ):  # as in a request that a replay does not send
            url = getattr(inner, "url", "")
            self._tape.learn_sent(str(url), headers.items())
            self._redaction.learn_passwords([url, *headers.values()])
        return CassetteTransport(self._tape, inner, label)

    @overload
    def http_client(self, library: Literal["httpx2"] = "httpx2", **options: Any) -> httpx2.AsyncClient: ...

    @overload
    def http_client(self, library: Literal["httpx"], **options: Any) -> httpx.AsyncClient: ...

    def http_client(self, library: str = "httpx2", **options: Any) -> object:
        """An asynchronous client of *library* for a provider's SDK, with these *options* of its `AsyncClient`.

        anthropic, openai and google-genai use httpx2, and ollama uses httpx. Close the client like any other, or let the
        SDK close it. To record through a transport of your own, such as one with a proxy, pass ``transport=...``.
        """
        transport = self.http_transport(library, options.pop("transport", None))
        made: object = import_module(library).AsyncClient(transport=transport, **options)
        return made

    def http_transport(self, library: str = "httpx2", inner: Any = None) -> Any:
        """A transport of *library*, for blocking clients and for SDKs that make the client themselves.

        >>> api = openai.OpenAI(http_client=httpx2.Client(transport=cassette.http_transport()))

        It works in blocking and in asynchronous clients. It records through *inner*, by default the library's own.
        """
        return http_transport(self._tape, library, inner)

    def _refuse(self, host: str) -> CassetteError:
        text = (
            f"a connection to {host!r}, while {self.path} is replayed: "
            "give its client a transport of the cassette, or add the host to allowed_hosts"
        )
        return self._tape.fail(CassetteError(text))

    def _check_all_used(self) -> None:
        unused = [
            entry for entry in self._tape.unused() if "http" in entry or ("to" in entry and "id" in entry["message"])
        ]
        if unused:
            names = [_name(entry) for entry in unused]
            raise CassetteError(f"not used in {self.path}: {', '.join(names)}; {how_to_record_again(self.path)}")


def _name(entry: dict[str, Any]) -> str:
    if "http" in entry:
        return f"{entry['http']['method']} {entry['http']['url']}"
    return str(entry["message"].get("method", "an answer"))

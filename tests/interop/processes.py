"""The servers as processes: where they are installed, how one is started over HTTP, what is still running."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import coverage

from mcp_host import Stdio, StreamableHttp
from tests.interop.clients.rules import CALCULATION

CACHE = Path(os.environ.get("MCP_INTEROP", ""))
PYTHON = str(CACHE / "python" / "bin" / "python")
SERVERS = Path(__file__).parent / "servers"
CLIENTS = Path(__file__).parent / "clients"

AnyTransport: TypeAlias = Stdio | StreamableHttp
Sdk: TypeAlias = Literal["python", "typescript"]
Era: TypeAlias = Literal["legacy", "modern"]

STARTING = 30.0  # seconds for a server to listen, on a machine that is busy
ENDING = 5.0  # seconds from SIGTERM to SIGKILL


def everything_command(transport: str, mark: str) -> list[str]:
    """The command for server-everything. *mark*, which it ignores, is there to find the process by."""
    return ["node", str(_package("server-everything") / "dist" / "index.js"), transport, mark]


def everything_over_http(mark: str, port: int) -> HttpServer:
    environment = {"PORT": str(port)}
    ready = f"listening on port {port}"
    return HttpServer(everything_command("streamableHttp", mark), port, ready=ready, env=environment)


def filesystem(folder: Path, mark: str) -> list[str]:
    """The command for server-filesystem. *mark* is a folder to it, which does not exist and is ignored."""
    return ["node", str(_package("server-filesystem") / "dist" / "index.js"), str(folder), mark]


def official_sdk(transport: str, port: int, mark: str) -> list[str]:
    return [PYTHON, str(SERVERS / "official_sdk.py"), transport, str(port), mark]


def official_client(server: Path, url: str) -> list[str]:
    return [PYTHON, str(CLIENTS / "official_sdk.py"), str(server), url]


def python_with(version: int) -> str:
    """The Python of the environment with that *version* of the official SDK."""
    return PYTHON if version == 2 else str(CACHE / "python-v1" / "bin" / "python")


def in_process(version: int, kind: str, backend: str) -> list[str]:
    """The command for our client over a server object of that *version* of the official SDK."""
    return [python_with(version), str(CLIENTS / "in_process.py"), kind, backend]


def other_client(
    version: int, package: str, revision: str, ends: str, backend: str, mark: str, *, proxied: bool = False
) -> list[str]:
    """The command for a *package* on that *version* of the official SDK, with our `Sampling`; with `mcp-host proxy` between."""
    python = python_with(version)
    proxy = ["-m", "mcp_host", "proxy", "--", python] if proxied else []
    return [python, str(CLIENTS / "other_clients.py"), package, revision, ends, backend, mark, *proxy]


def agents_of(framework: str, mark: str) -> list[str]:
    """The command for agents of a *framework* with a `ClientGroup`."""
    return [PYTHON, str(CLIENTS / "frameworks.py"), framework, mark]


def lent_coverage(folder: Path) -> dict[str, str]:
    """The variables with which a Python that has no coverage is measured with ours, if this one is.

    The environments have none, because that would measure each of their processes, which takes half as long again.
    """
    (folder / "coverage").symlink_to(Path(coverage.__file__).parent)
    (folder / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def tools_server(version: int, transport: str, port: int, mark: str) -> list[str]:
    """The command for a server with tools of each kind, on that *version* of the official SDK."""
    return [python_with(version), str(SERVERS / "tools.py"), transport, str(port), mark]


def sampling_server(version: int, kind: str, transport: str, port: int, mark: str) -> list[str]:
    """The command for a server whose tools use `ServerSampling`, on that *version* of the official SDK.

    *kind* is "sdk", or "fastmcp" for the fastmcp that is built on it.
    """
    return [python_with(version), str(SERVERS / "sampling.py"), kind, transport, str(port), mark]


def sampled_by(package: str, version: int, server: str | list[str], mode: str, kind: str, calls: object) -> list[str]:
    """The command for a client of others, with a model of rules."""
    where = server if isinstance(server, str) else json.dumps(server)
    if package == "typescript":
        script, sdk = str(CLIENTS / "sampled.mjs"), str(_package("sdk"))
        return ["node", script, sdk, where, json.dumps(CALCULATION), json.dumps(calls)]
    return [python_with(version), str(CLIENTS / "sampled.py"), package, where, mode, kind, json.dumps(calls)]


def host_to_check(package: str, version: int, capabilities: str, revision: str, url: str) -> list[str]:
    """The command for a host on a client of others, for the check-up at *url*."""
    if package == "typescript":
        return ["node", str(CLIENTS / "doctor.mjs"), str(_package("sdk")), capabilities, url]
    return [python_with(version), str(CLIENTS / "doctor.py"), package, capabilities, revision, url]


def aimock(fixtures: Path, port: int) -> list[str]:
    """The command for a server of many models' APIs, which says what is in *fixtures*."""
    command = CACHE / "node" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    return ["node", str(command), "--port", str(port), "--fixtures", str(fixtures), "--strict"]


def authority(port: int, mark: str, *redirect_uris: str) -> list[str]:
    """The command for an authorization server, which redirects the client "proxy" to *redirect_uris*."""
    return [
        "node",
        str(SERVERS / "authority.mjs"),
        str(port),
        str(CACHE / "node" / "node_modules"),
        mark,
        *redirect_uris,
    ]


def protected(version: int, issuer: str, ports: Mapping[str, int], mark: str) -> list[str]:
    """The command for protected servers on that *version* of the official SDK: a port for each kind."""
    command = [python_with(version), str(SERVERS / "protected.py"), issuer, mark]
    return [*command, *(word for kind, port in ports.items() for word in (kind, str(port)))]


def typescript_sdk(mark: str) -> list[str]:
    return ["node", str(SERVERS / "typescript_sdk.mjs"), str(_package("sdk")), mark]


def both_eras(sdk: Sdk, transport: str, port: int, mark: str) -> list[str]:
    """The command for the server of that official SDK that offers the same in both eras.

    *transport* is "stdio", "http", "stateless" (which keeps no sessions for clients that shake
    hands) or, with the TypeScript SDK, "modern" (which does not serve them at all).
    """
    if sdk == "python":
        return [PYTHON, str(SERVERS / "both_eras.py"), transport, str(port), mark]
    return ["node", str(SERVERS / "both_eras.mjs"), transport, str(port), str(CACHE / "node" / "node_modules"), mark]


@dataclass(frozen=True)
class Peer:
    """A server that speaks both eras, and the era in which a test speaks to it."""

    sdk: Sdk
    transport: AnyTransport
    era: Era

    @property
    def shakes_hands(self) -> bool:
        return self.era == "legacy"


def both_eras_over_http(sdk: Sdk, mark: str, kind: str = "http") -> HttpServer:
    port = free_port()
    ready = "Uvicorn running" if sdk == "python" else f"listening on {port}"
    return HttpServer(both_eras(sdk, kind, port, mark), port, ready=ready)


def _package(name: str) -> Path:
    return CACHE / "node" / "node_modules" / "@modelcontextprotocol" / name


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def running(mark: str) -> list[str]:
    """The command lines, *mark* among their words, of every process on this machine that has not ended."""
    return [line for line in _command_lines() if mark in line.split()]


def _command_lines() -> list[str]:
    proc = Path("/proc")
    if not (proc / "self" / "cmdline").exists():
        listed = subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True, check=True, timeout=30)
        return listed.stdout.splitlines()
    return [_arguments(folder) for folder in proc.iterdir() if folder.name.isdigit()]


def _arguments(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it ended while we looked


class HttpServer:
    """A server process that listens on *port*, as a context: ready inside, gone afterwards."""

    def __init__(self, command: Sequence[str], port: int, *, ready: str, env: Mapping[str, str] | None = None) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self._command = command
        self._ready = ready
        self._env = {**os.environ, **(env or {})}
        self._lines: list[str] = []
        self._ended = False
        self._news = threading.Condition()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        try:
            self.says(self._ready)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def says(self, text: str, *, times: int = 1, within: float = STARTING) -> None:
        """Wait until *text* has been in *times* lines of its output."""
        with self._news:
            self._news.wait_for(lambda: self._ended or self.count(text) >= times, within)
            said = "\n".join(self._lines[-40:])
            assert self.count(text) >= times, f"{text!r} was not said {times} times:\n{said}"

    def count(self, text: str) -> int:
        """In how many lines of its output *text* is, so far."""
        return sum(text in line for line in list(self._lines))

    def stop(self) -> None:
        """End it, if it has not ended yet."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(ENDING)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with self._news:
                    self._lines.append(line.rstrip())
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()
